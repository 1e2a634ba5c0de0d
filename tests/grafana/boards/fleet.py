"""How many GPUs are up, what do all of them draw and cost, who uses most of it, and what is wasted?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.board import PRICE, PUE, board, number
from tests.grafana.boards.panels import (
    BAD,
    DARK_SECONDS,
    FAIR,
    GOOD,
    UP,
    ZERO_IS_GOOD,
    Column,
    Step,
    bars,
    graph,
    query,
    row,
    stat,
    table,
)

ON_GPU = "on (job, instance, uuid)"
MODEL = "group by (job, instance, uuid, model) (topk by (job, instance, uuid) (1, gpu_info{@}))"
"""One of each GPU: there are two for a while after an upgrade of the driver, or when Prometheus was not there."""
HELD = "gpu_memory_used_bytes{@} / gpu_memory_size_bytes{@} > 0.1"
IDLE = "increase(gpu_busy_seconds_total{@}[$__range]) / $__range_s < $idle / 100"
WASTED = f"{HELD} and {ON_GPU} {IDLE}"
IDLE_LIMIT = number(
    "idle", "Idle below %", "5", "Load, in per cent over the selected range, below which a GPU counts as idle."
)


def _now() -> list[dict[str, Any]]:
    return [
        row("Now"),
        stat("GPUs up", "GPUs that answer, or sleep and would answer.", "none", query("sum(gpu_up{@})")),
        stat(
            "GPUs lost, hung or stale",
            "GPUs that should give readings and do not: fallen off the bus, hung in a call, or silent. The dashboard of the GPU says since when.",
            "none",
            query('sum(gpu_state{@, state=~"lost|hung|stale"})'),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
        stat(
            "Exporters down",
            "Exporters that Prometheus could not scrape.",
            "none",
            query(f"sum(1 - {UP})"),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
        stat(
            "Power", "What all GPUs draw, by their last readings.", "watt", query("sum(gpu_power_watts{@})"), decimals=2
        ),
        stat(
            "Power of the limit",
            "What all GPUs draw, of what their power limits allow.",
            "percentunit",
            query(
                f"sum(gpu_power_watts{{@}} and {ON_GPU} gpu_power_limit_watts{{@}}) / sum(gpu_power_limit_watts{{@}} and {ON_GPU} gpu_power_watts{{@}})"
            ),
            decimals=1,
        ),
        stat(
            "Load",
            "Mean share of time in which kernels ran, by the last readings.",
            "percentunit",
            query("avg(gpu_utilization_ratio{@})"),
            decimals=1,
        ),
        row("Selected range"),
        stat(
            "Energy",
            "Joules that all GPUs drew in the selected range.",
            "joule",
            query("sum(increase(gpu_energy_joules_total{@}[$__range]))"),
            decimals=2,
        ),
        stat(
            "Energy in kWh",
            "The same in kilowatt-hours.",
            "kwatth",
            query("sum(increase(gpu_energy_joules_total{@}[$__range])) / 3.6e6"),
            decimals=3,
        ),
        stat(
            "Cost",
            "Energy of the selected range times the price of a kWh and the PUE, in the currency of the price.",
            "short",
            query("sum(increase(gpu_energy_joules_total{@}[$__range])) / 3.6e6 * $price * $pue"),
            decimals=2,
        ),
        stat(
            "Time measured",
            "Share of the GPUs' time whose energy is in the total. Gaps that go on count as well.",
            "percentunit",
            query(
                """sum(increase(gpu_energy_covered_seconds_total{@}[$__range]))
                / (sum(increase(gpu_energy_covered_seconds_total{@}[$__range]))
                + sum(increase(gpu_energy_gap_seconds_total{@}[$__range])) + DARK)""".replace(
                    "DARK", DARK_SECONDS.replace("{#", "{@")
                )
            ),
            decimals=2,
            steps=(Step(0.98, FAIR), Step(0.999, GOOD)),
            base=BAD,
        ),
        stat(
            "Oldest reading",
            "Time since the GPU that is silent for longest gave a reading, sleeping ones left out.",
            "s",
            query(
                f"""max(time() - gpu_last_sample_timestamp_seconds{{@}} unless {ON_GPU} gpu_state{{@, state=~"asleep|released"}} == 1)"""
            ),
            decimals=1,
            steps=(Step(15, FAIR), Step(60, BAD)),
            base=GOOD,
        ),
        stat(
            "Alerts firing",
            "Alerts about GPUs that fire, by the rules that come with the exporter.",
            "none",
            query('count(ALERTS{@, alertname=~"Gpu.+", alertstate="firing"}) or vector(0)'),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
    ]


def _over_time() -> list[dict[str, Any]]:
    return [
        row("Over time"),
        graph(
            "Power by model",
            "Mean power by the counter of energy, so that nothing between two scrapes is missed.",
            "watt",
            query(
                f"sum by (model) (rate(gpu_energy_joules_total{{@}}[$__rate_interval]) * {ON_GPU} group_left (model) {MODEL})",
                "{{model}}",
            ),
            stacked=True,
        ),
        graph(
            "GPUs by state",
            "How many GPUs are in each state.",
            "none",
            query("sum by (state) (gpu_state{@}) > 0", "{{state}}"),
            stacked=True,
        ),
        graph(
            "Load over time",
            "Share of time in which kernels ran: the mean of all GPUs, and the tenth of them that does least and most.",
            "percentunit",
            query("quantile(0.9, rate(gpu_busy_seconds_total{@}[$__rate_interval]))", "busiest tenth"),
            query("avg(rate(gpu_busy_seconds_total{@}[$__rate_interval]))", "mean"),
            query("quantile(0.1, rate(gpu_busy_seconds_total{@}[$__rate_interval]))", "idlest tenth"),
            maximum=1,
        ),
        graph(
            "Memory in use",
            "Device memory in use and in all.",
            "bytes",
            query("sum(gpu_memory_used_bytes{@})", "in use"),
            query("sum(gpu_memory_size_bytes{@})", "in all"),
        ),
    ]


def _top() -> list[dict[str, Any]]:
    return [
        row("Top consumers"),
        bars(
            "GPUs by energy",
            "The ten GPUs that drew most in the selected range.",
            "joule",
            query(
                f"topk(10, sum by (instance, gpu, model) (increase(gpu_energy_joules_total{{@}}[$__range]) * {ON_GPU} group_left (model) {MODEL}))",
                "{{instance}} {{gpu}} {{model}}",
            ),
        ),
        bars(
            "Workloads by energy",
            "The ten workloads that used most in the selected range: pods, jobs, containers, services, users. An estimate: active joules by work, idle ones by allocation.",
            "joule",
            query(
                "topk(10, sum by (workload) (increase(gpu_workload_energy_joules_total{@}[$__range])))", "{{workload}}"
            ),
        ),
    ]


def _waste() -> list[dict[str, Any]]:
    return [
        row("Waste"),
        stat(
            "GPUs held and idle",
            "GPUs of whose memory more than a tenth is in use and that did nearly nothing in the selected range.",
            "none",
            query(f"count({WASTED}) or vector(0)"),
            steps=(Step(1, FAIR),),
            base=GOOD,
        ),
        stat(
            "Their power",
            "Mean power of the GPUs that are held and idle, over the selected range.",
            "watt",
            query(
                f"sum(increase(gpu_energy_joules_total{{@}}[$__range]) and {ON_GPU} ({WASTED})) / $__range_s or vector(0)"
            ),
            decimals=1,
        ),
        stat(
            "Idle energy of holders",
            "Joules of the selected range that went to workloads for holding a GPU, and not for what they did on it.",
            "joule",
            query('sum(increase(gpu_workload_energy_joules_total{@, part="idle"}[$__range]))'),
            decimals=2,
        ),
        stat(
            "Energy of nobody",
            "Joules of the selected range that belong to no workload that is known.",
            "joule",
            query("sum(increase(gpu_unattributed_energy_joules_total{@}[$__range]))"),
            decimals=2,
        ),
        stat(
            "Allocated and idle",
            "Whole GPUs that are allocated now, less what their holders did with them in the selected range.",
            "none",
            query(
                """sum(clamp_min(
                  gpu_workload_allocation_ratio{@}
                  - on (job, instance, gpu, uuid, workload) increase(gpu_workload_busy_seconds_total{@}[$__range]) / $__range_s, 0
                ))"""
            ),
            width=8,
            decimals=1,
        ),
        table(
            "Held and idle",
            "The GPUs that are held and idle: how much memory is in use, their load and power over the selected range.",
            (
                Column("Memory in use", "percentunit", f"max by (instance, gpu, uuid) ({WASTED})"),
                Column(
                    "Load",
                    "percentunit",
                    f"max by (instance, gpu, uuid) (increase(gpu_busy_seconds_total{{@}}[$__range]) / $__range_s and {ON_GPU} ({WASTED}))",
                ),
                Column(
                    "Power",
                    "watt",
                    f"max by (instance, gpu, uuid) (increase(gpu_energy_joules_total{{@}}[$__range]) / $__range_s and {ON_GPU} ({WASTED}))",
                ),
            ),
            width=12,
        ),
        table(
            "Silent GPUs",
            "GPUs that give no readings, and since when.",
            (
                Column(
                    "Silent for",
                    "s",
                    f"""max by (instance, gpu, uuid, state) (
                      (gpu_state{{@, state=~"lost|hung|stale"}} == 1) * 0 + {ON_GPU} group_left () (time() - gpu_last_sample_timestamp_seconds{{@}})
                    )""",
                ),
            ),
            width=12,
        ),
        graph(
            "Age of the readings",
            "For how long the GPUs of each exporter have been silent, the longest of each.",
            "s",
            query("max by (instance) (time() - gpu_last_sample_timestamp_seconds{@})", "{{instance}}"),
        ),
        table(
            "Alerts",
            "Alerts about GPUs that fire or are about to, by the rules that come with the exporter.",
            (
                Column(
                    "Series",
                    "none",
                    'count by (alertname, severity, alertstate, instance) (ALERTS{@, alertname=~"Gpu.+"})',
                ),
            ),
            width=12,
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "fleet",
        "GPU fleet",
        "All GPUs of all exporters: how many are up, what they draw and cost, who uses most, and what is wasted.",
        [*_now(), *_over_time(), *_top(), *_waste()],
        (PRICE, PUE, IDLE_LIMIT),
    )
