"""What do all GPUs of a host do, those of both vendors side by side?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.board import board, every_gpu
from tests.grafana.boards.panels import (
    BAD,
    FAIR,
    GOOD,
    ZERO_IS_GOOD,
    Column,
    Step,
    bars,
    graph,
    query,
    row,
    stat,
    table,
    timeline,
)

NAMED = "* on (job, instance, uuid) group_left (model) group by (job, instance, uuid, model) (topk by (job, instance, uuid) (1, gpu_info{#}))"
GPU = "{{instance}} {{gpu}}"
GPU_MODEL = "{{gpu}} {{model}}"


def _devices() -> list[dict[str, Any]]:
    return [
        row("Devices"),
        stat("GPUs up", "GPUs that answer, or sleep and would answer.", "none", query("sum(gpu_up{#})")),
        stat(
            "GPUs lost, hung or stale",
            "GPUs that should give readings and do not.",
            "none",
            query('sum(gpu_state{#, state=~"lost|hung|stale"})'),
            steps=ZERO_IS_GOOD,
            base=GOOD,
        ),
        stat(
            "Power",
            "What these GPUs draw, by their last readings.",
            "watt",
            query("sum(gpu_power_watts{#})"),
            decimals=1,
        ),
        stat(
            "Energy",
            "Joules that these GPUs drew in the selected range.",
            "joule",
            query("sum(increase(gpu_energy_joules_total{#}[$__range]))"),
            decimals=2,
        ),
        stat(
            "Hottest",
            "The highest temperature of these GPUs.",
            "celsius",
            query('max(gpu_temperature_celsius{#, sensor=~"gpu|edge|hotspot"})'),
            steps=(Step(80, FAIR), Step(95, BAD)),
            base=GOOD,
        ),
        stat(
            "Processes",
            "Processes that hold memory or a queue of a GPU.",
            "none",
            query('sum(gpu_processes{#, state=~"holding|unnamed"})'),
        ),
        table(
            "Devices",
            "The GPUs of the host, whoever made them, with their last readings.",
            (
                Column("Up", "none", "max by (instance, gpu, uuid) (gpu_up{#})"),
                Column(
                    "Identity",
                    "none",
                    "max by (instance, gpu, uuid, vendor, model, driver_version, pci_address) (gpu_info{#})",
                ),
                Column("Power", "watt", "max by (instance, gpu, uuid) (gpu_power_watts{#})"),
                Column("Load", "percentunit", "max by (instance, gpu, uuid) (gpu_utilization_ratio{#})"),
                Column("Memory in use", "bytes", "max by (instance, gpu, uuid) (gpu_memory_used_bytes{#})"),
                Column("Memory", "bytes", "max by (instance, gpu, uuid) (gpu_memory_size_bytes{#})"),
                Column(
                    "Temperature",
                    "celsius",
                    'max by (instance, gpu, uuid) (gpu_temperature_celsius{#, sensor=~"gpu|edge|hotspot"})',
                ),
                Column(
                    "Energy", "joule", "max by (instance, gpu, uuid) (increase(gpu_energy_joules_total{#}[$__range]))"
                ),
            ),
            hide=("Value #B", "uuid"),
        ),
    ]


def _load() -> list[dict[str, Any]]:
    return [
        row("Power and load"),
        graph(
            "Power by GPU",
            "Mean power of each GPU by the counter of energy.",
            "watt",
            query(f"rate(gpu_energy_joules_total{{#}}[$__rate_interval]) {NAMED}", GPU_MODEL),
        ),
        graph(
            "Load",
            "Share of time in which a kernel ran.",
            "percentunit",
            query(f"rate(gpu_busy_seconds_total{{#}}[$__rate_interval]) {NAMED}", GPU_MODEL),
            maximum=1,
        ),
        graph(
            "Memory in use",
            "Share of the device memory that is in use.",
            "percentunit",
            query("gpu_memory_used_bytes{#} / gpu_memory_size_bytes{#}", GPU),
            maximum=1,
        ),
        bars(
            "Energy by GPU",
            "Joules of the selected range.",
            "joule",
            query(f"increase(gpu_energy_joules_total{{#}}[$__range]) {NAMED}", GPU_MODEL),
        ),
    ]


def _state() -> list[dict[str, Any]]:
    return [
        row("Heat, clocks and errors"),
        graph(
            "Temperature",
            "The hottest sensor of the chip: what NVIDIA calls the GPU's temperature, and AMD's hotspot or edge.",
            "celsius",
            query('max by (instance, gpu) (gpu_temperature_celsius{#, sensor=~"gpu|edge|hotspot"})', GPU),
        ),
        graph(
            "Temperature of memory",
            "The hottest sensor of the memory.",
            "celsius",
            query('max by (instance, gpu) (gpu_temperature_celsius{#, sensor=~"memory|hbm.+"})', GPU),
        ),
        graph(
            "Clock",
            "Clock of the shaders: NVIDIA's SM clock, AMD's graphics clock.",
            "hertz",
            query('max by (instance, gpu) (gpu_clock_hertz{#, domain=~"sm|graphics"})', GPU),
        ),
        timeline(
            "Clocks held down",
            "When clocks were held down and why, idleness and applied settings left out.",
            query(
                'max by (instance, gpu, reason) (gpu_throttled{#, reason!~"idle|application_clocks|display_clocks"}) > 0',
                "{{gpu}} {{reason}}",
            ),
        ),
        graph(
            "Uncorrected memory errors",
            "Uncorrected errors in each interval.",
            "none",
            query('increase(gpu_ecc_errors_total{#, class="uncorrected"}[$__rate_interval])', GPU),
        ),
        graph(
            "Errors by the driver",
            "XIDs of NVIDIA and RAS events of AMD in each interval, by code.",
            "none",
            query(
                "sum by (gpu, kind, code) (increase(gpu_error_events_total{#}[$__rate_interval])) > 0",
                "{{gpu}} {{kind}} {{code}}",
            ),
        ),
        row("Links"),
        graph(
            "Between GPUs",
            "What each GPU sends over NVLink or XGMI, all of its links together.",
            "Bps",
            query(
                "sum by (instance, gpu, kind) (rate(gpu_interconnect_transmit_bytes_total{#}[$__rate_interval]))",
                "{{gpu}} {{kind}}",
            ),
        ),
        graph(
            "PCIe lanes",
            "Lanes of each link now, of those it could have.",
            "percentunit",
            query("gpu_pcie_link_width{#} / gpu_pcie_link_width_max{#}", GPU),
            maximum=1,
        ),
    ]


def _users() -> list[dict[str, Any]]:
    return [
        row("Who uses it"),
        graph(
            "Power by workload",
            "An estimate of what each workload draws: active by its work, idle by its allocation. Nobody's is what is left.",
            "watt",
            query("sum by (workload) (rate(gpu_workload_energy_joules_total{#}[$__rate_interval]))", "{{workload}}"),
            query("sum(rate(gpu_unattributed_energy_joules_total{#}[$__rate_interval]))", "nobody's"),
            stacked=True,
        ),
        table(
            "Processes by memory",
            "Processes by the device memory that they hold; those beyond the exporter's bound are summed as other.",
            (
                Column(
                    "Memory", "bytes", "topk(20, sum by (instance, gpu, pid, name) (gpu_process_memory_used_bytes{#}))"
                ),
            ),
            width=12,
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "node",
        "GPU node",
        "All GPUs of a host, those of both vendors side by side. Choose one instance, or several to compare hosts.",
        [*_devices(), *_load(), *_state(), *_users()],
        (every_gpu(),),
    )
