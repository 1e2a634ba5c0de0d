"""What is there to know of the health of one GPU: heat, clocks, errors, links?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.panels import (
    FAIR,
    GOOD,
    NEUTRAL,
    ZERO_IS_GOOD,
    Column,
    Step,
    graph,
    query,
    row,
    stat,
    table,
    timeline,
)


def state() -> list[dict[str, Any]]:
    return [
        row("Heat and clocks"),
        graph("Temperature", "Each sensor.", "celsius", query("gpu_temperature_celsius{#}", "{{sensor}}")),
        graph(
            "Room below the limits",
            "Temperatures at which the GPU takes a measure, and how far it is below its slowdown.",
            "celsius",
            query("gpu_temperature_limit_celsius{#}", "{{sensor}}"),
            query("gpu_temperature_margin_celsius{#}", "margin"),
            signed=True,
        ),
        graph("Clocks", "Each clock.", "hertz", query("gpu_clock_hertz{#}", "{{domain}}")),
        graph("Fan", "Commanded speed, which may exceed 100 %.", "percentunit", query("gpu_fan_speed_ratio{#}", "fan")),
        timeline(
            "Clocks held down", "When clocks were held down, by reason.", query("gpu_throttled{#} > 0", "{{reason}}")
        ),
        graph(
            "Time held down",
            "Share of time with clocks held down, by reason.",
            "percentunit",
            query("rate(gpu_throttle_seconds_total{#}[$__rate_interval]) > 0", "{{reason}}"),
            maximum=1,
        ),
    ]


def errors() -> list[dict[str, Any]]:
    return [
        row("Errors"),
        stat(
            "Uncorrected errors",
            "Uncorrected memory errors in the selected range.",
            "none",
            query('sum(increase(gpu_ecc_errors_total{#, class="uncorrected"}[$__range]))'),
            steps=ZERO_IS_GOOD,
            base=GOOD,
            width=6,
            decimals=0,
        ),
        stat(
            "Remap failed",
            "Whether a row could not be remapped: the board is to be replaced.",
            "bool_yes_no",
            query("max(gpu_memory_remap_failed{#})"),
            steps=ZERO_IS_GOOD,
            base=GOOD,
            width=6,
        ),
        stat(
            "Remap waiting",
            "Whether a row remap waits for a reset.",
            "bool_yes_no",
            query("max(gpu_memory_remap_pending{#})"),
            steps=(Step(1, FAIR),),
            base=GOOD,
            width=6,
        ),
        stat(
            "Pages retired",
            "Memory pages taken out of use.",
            "none",
            query("sum(gpu_retired_pages{#})"),
            steps=(Step(1, FAIR),),
            base=GOOD,
            width=6,
        ),
        graph(
            "Memory errors",
            "Errors in each interval, by class.",
            "none",
            query("increase(gpu_ecc_errors_total{#}[$__rate_interval])", "{{class}}"),
        ),
        graph(
            "Memory errors over the life of the board",
            "Growth of the counts that the board keeps, in each interval.",
            "none",
            query("increase(gpu_ecc_lifetime_errors_total{#}[$__rate_interval])", "{{class}}"),
        ),
        table(
            "Errors that the driver reported",
            "Codes that have been reported in the selected range or before, how often in the range, and when last.",
            (
                Column(
                    "In range",
                    "none",
                    "max by (kind, code) (increase(gpu_error_events_total{#}[$__range]) and on (job, instance, uuid, kind, code) gpu_error_event_last_timestamp_seconds{#})",
                ),
                Column(
                    "Last", "dateTimeAsLocal", "max by (kind, code) (gpu_error_event_last_timestamp_seconds{#}) * 1000"
                ),
            ),
            height=5,
        ),
    ]


def links() -> list[dict[str, Any]]:
    return [
        row("Links"),
        graph(
            "PCIe link",
            "Generation of the link, lanes now, and lanes that GPU and slot can use. The generation falls at idle.",
            "none",
            query("gpu_pcie_link_generation{#}", "generation"),
            query("gpu_pcie_link_width{#}", "lanes"),
            query("gpu_pcie_link_width_max{#}", "lanes at most"),
        ),
        graph(
            "PCIe traffic",
            "Bytes over PCIe; read only where the exporter is asked for it.",
            "Bps",
            query("rate(gpu_pcie_receive_bytes_total{#}[$__rate_interval])", "received"),
            query("rate(gpu_pcie_transmit_bytes_total{#}[$__rate_interval])", "sent"),
        ),
        graph(
            "PCIe replays",
            "Packets sent again.",
            "pps",
            query("rate(gpu_pcie_replays_total{#}[$__rate_interval])", "replays"),
        ),
        graph(
            "Traffic between GPUs",
            "Bytes over NVLink or XGMI, all links together.",
            "Bps",
            query(
                "sum by (kind) (rate(gpu_interconnect_receive_bytes_total{#}[$__rate_interval]))", "{{kind}} received"
            ),
            query("sum by (kind) (rate(gpu_interconnect_transmit_bytes_total{#}[$__rate_interval]))", "{{kind}} sent"),
        ),
        graph(
            "Links up",
            "Links to other GPUs and switches that are up, of all.",
            "none",
            query('sum by (kind) (gpu_interconnect_links{#, state="up"})', "{{kind}} up"),
            query("sum by (kind) (gpu_interconnect_links{#})", "{{kind}} in all"),
        ),
        timeline(
            "Links that are down",
            "Which ones; there where the exporter shows links one by one (metrics.links: each).",
            query("1 - gpu_interconnect_link_up{#}", "{{kind}} {{link}}"),
        ),
        graph(
            "Errors of links",
            "Errors of the links in each interval, by kind.",
            "none",
            query(
                "sum by (kind, error) (increase(gpu_interconnect_errors_total{#}[$__rate_interval]))",
                "{{kind}} {{error}}",
            ),
        ),
        table(
            "Fabric",
            "The fabric that the GPU belongs to.",
            (Column("Info", "none", "max by (cluster_uuid, clique) (gpu_fabric_info{#})"),),
            width=12,
            hide=("Info",),
        ),
        timeline(
            "Joining the fabric",
            "How far the GPU is in joining its fabric.",
            query("gpu_fabric_state{#} > 0", "{{state}}"),
            color=NEUTRAL,
        ),
    ]
