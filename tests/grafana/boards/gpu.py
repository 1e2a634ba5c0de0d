"""What is there to know about one GPU?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards import gpu_health
from tests.grafana.boards.board import GPU_INFO, board, variable
from tests.grafana.boards.panels import (
    BAD,
    FAIR,
    GOOD,
    NEUTRAL,
    ONE_IS_GOOD,
    Column,
    Step,
    graph,
    query,
    row,
    stat,
    table,
    timeline,
)

ASK = f'query_result(label_join(group by (instance, gpu, uuid) ({GPU_INFO}), "name", " ", "instance", "gpu"))'
"""A uuid says nothing to people, and the short name is not unique over hosts: one is shown and the other used."""
CHOSEN = '/name="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/'


def _identity() -> list[dict[str, Any]]:
    return [
        row("Identity and state"),
        table(
            "Identity",
            "What the GPU is, where it sits, and who reads it.",
            (Column("Info", "none", "gpu_info{#}"),),
            hide=("job", "Value", "Info"),
            height=4,
        ),
        timeline(
            "State",
            "The state that the GPU is in.",
            query("gpu_state{#} > 0", "{{state}}"),
            color=NEUTRAL,
            width=8,
            height=4,
        ),
        stat(
            "Up",
            "Whether it answers, or sleeps and would answer.",
            "bool_yes_no",
            query("max(gpu_up{#})"),
            steps=ONE_IS_GOOD,
            base=BAD,
        ),
        stat(
            "Age of readings",
            "Time since it last gave a reading.",
            "s",
            query("max(time() - gpu_last_sample_timestamp_seconds{#})"),
            decimals=1,
            steps=(Step(15, FAIR), Step(60, BAD)),
            base=GOOD,
        ),
        stat(
            "Recovery",
            "What the driver asks for to bring the GPU back; none when all is well.",
            "none",
            query("gpu_recovery_action{#} == 1", "{{action}}"),
        ),
        stat(
            "Performance state", "NVIDIA's P-state: 0 is the fastest.", "none", query("max(gpu_performance_state{#})")
        ),
        table(
            "Firmware",
            "Version of each firmware component.",
            (Column("Info", "none", "max by (component, version) (gpu_firmware_info{#})"),),
            width=12,
            hide=("Info",),
            height=5,
        ),
        table(
            "Sensor of power",
            "What the reading of power is: average or instant, over which window, of what.",
            (Column("Info", "none", "max by (kind, window, scope) (gpu_power_reading_info{#})"),),
            width=12,
            hide=("Info",),
            height=5,
        ),
    ]


def _power() -> list[dict[str, Any]]:
    return [
        row("Power and energy"),
        stat(
            "Energy",
            "Joules of the selected range.",
            "joule",
            query("max(increase(gpu_energy_joules_total{#}[$__range]))"),
            decimals=2,
        ),
        stat(
            "Counting since",
            "When its total began at 0.",
            "dateTimeAsLocal",
            query("max(gpu_energy_start_timestamp_seconds{#}) * 1000"),
        ),
        stat(
            "Accumulator trusted",
            "Whether the hardware accumulator has earned its place as the source of the total.",
            "bool_yes_no",
            query("max(gpu_energy_qualified{#})"),
            steps=ONE_IS_GOOD,
            base=FAIR,
        ),
        stat(
            "Divergence",
            "Hardware accumulator against integrated power over five minutes, minus one.",
            "percentunit",
            query("max(gpu_energy_divergence_ratio{#})"),
            decimals=2,
            steps=(Step(-0.05, GOOD), Step(0.05, BAD)),
            base=BAD,
        ),
        stat(
            "Uncertainty",
            "Error to be expected of five minutes of the total, besides that of the sensor itself.",
            "percentunit",
            query("max(gpu_energy_uncertainty_ratio{#})"),
            decimals=2,
        ),
        stat(
            "Time not measured",
            "Time of the selected range whose energy is not in the total; counted once a gap has ended.",
            "s",
            query("max(increase(gpu_energy_gap_seconds_total{#}[$__range]))"),
            decimals=1,
        ),
        graph(
            "Power",
            "The last reading, the mean by the counter of energy, and the limit in force and by default.",
            "watt",
            query("gpu_power_watts{#}", "reading"),
            query("rate(gpu_energy_joules_total{#}[$__rate_interval])", "mean by energy"),
            query("gpu_power_limit_watts{#}", "limit"),
            query("gpu_power_limit_default_watts{#}", "default limit"),
        ),
        graph(
            "Power of module and memory",
            "Power of the module that the GPU sits on, by its reading and by its accumulator, and of the GPU's memory, on hardware that tells them.",
            "watt",
            query("gpu_module_power_watts{#}", "module"),
            query("rate(gpu_module_energy_joules_total{#}[$__rate_interval])", "module by energy"),
            query("gpu_memory_power_watts{#}", "memory"),
        ),
        graph(
            "Energy by source",
            "Mean power by who counted it: both lines together are the total.",
            "watt",
            query("rate(gpu_energy_source_joules_total{#}[$__rate_interval])", "{{source}}"),
            stacked=True,
        ),
        graph(
            "Hardware against integrated",
            "The two independent accounts, as mean power.",
            "watt",
            query("rate(gpu_energy_hardware_joules_total{#}[$__rate_interval])", "accumulator"),
            query("rate(gpu_energy_integrated_joules_total{#}[$__rate_interval])", "integrated power"),
        ),
        graph(
            "Faults of the energy sensors",
            "Faults in each interval, by kind.",
            "none",
            query("increase(gpu_energy_faults_total{#}[$__rate_interval])", "{{fault}}"),
        ),
        graph(
            "Time measured",
            "Share of time whose energy is in the total.",
            "percentunit",
            query("rate(gpu_energy_covered_seconds_total{#}[$__rate_interval])", "measured"),
            maximum=1.1,
        ),
    ]


def _load() -> list[dict[str, Any]]:
    return [
        row("Load and memory"),
        graph(
            "Load",
            "Share of time in which a kernel ran, by the last reading and by its integral, and in which memory was read or written.",
            "percentunit",
            query("gpu_utilization_ratio{#}", "reading"),
            query("rate(gpu_busy_seconds_total{#}[$__rate_interval])", "mean"),
            query("gpu_memory_controller_utilization_ratio{#}", "memory controller"),
            maximum=1,
        ),
        graph(
            "Engines",
            "Share of time in which each fixed-function engine was busy.",
            "percentunit",
            query("gpu_engine_utilization_ratio{#}", "{{engine}}"),
            maximum=1,
        ),
        graph(
            "Device memory",
            "Memory in use, reserved by driver and firmware, and in all.",
            "bytes",
            query("gpu_memory_used_bytes{#}", "in use"),
            query("gpu_memory_reserved_bytes{#}", "reserved"),
            query("gpu_memory_size_bytes{#}", "in all"),
        ),
        graph(
            "Host memory and window",
            "Host memory that the GPU uses and may use, and device memory within reach of the CPU, on hardware that tells them.",
            "bytes",
            query("gpu_system_memory_used_bytes{#}", "host, in use"),
            query("gpu_system_memory_size_bytes{#}", "host, allowed"),
            query("gpu_memory_visible_used_bytes{#}", "visible, in use"),
            query("gpu_memory_visible_size_bytes{#}", "visible, in all"),
        ),
        graph(
            "Profiling",
            "Share of time with work on the multiprocessors, of warps of those that fit, of time of the tensor cores, and of memory bandwidth. Off unless the exporter is asked for it.",
            "percentunit",
            query("gpu_sm_active_ratio{#}", "SM active"),
            query("gpu_sm_occupancy_ratio{#}", "SM occupancy"),
            query("gpu_tensor_active_ratio{#}", "tensor active"),
            query("gpu_dram_active_ratio{#}", "memory bandwidth"),
            maximum=1,
        ),
        graph(
            "Processes by state",
            "Processes that the driver lists, by what they are.",
            "none",
            query("gpu_processes{#}", "{{state}}"),
            stacked=True,
        ),
    ]


def _parts() -> list[dict[str, Any]]:
    return [
        row("Partitions"),
        table(
            "Partitions",
            "MIG instances or AMD partitions. They may share memory, so do not add it up.",
            (
                Column("Identity", "none", "max by (partition, profile, partition_uuid) (gpu_partition_info{#})"),
                Column("Memory in use", "bytes", "max by (partition) (gpu_partition_memory_used_bytes{#})"),
                Column("Memory", "bytes", "max by (partition) (gpu_partition_memory_size_bytes{#})"),
            ),
            hide=("Value #A",),
        ),
        graph(
            "Load of partitions",
            "Share of time in which a kernel ran in each partition; NVIDIA does not tell it of MIG instances.",
            "percentunit",
            query("gpu_partition_utilization_ratio{#}", "{{partition}}"),
            maximum=1,
        ),
        graph(
            "Multiprocessors of partitions",
            "Share of time in which a warp was resident in each MIG instance; profiling, off unless asked for.",
            "percentunit",
            query("gpu_partition_sm_active_ratio{#}", "{{partition}}"),
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
            query(
                "sum by (workload, part) (rate(gpu_workload_energy_joules_total{#}[$__rate_interval]))",
                "{{workload}} {{part}}",
            ),
            query("rate(gpu_unattributed_energy_joules_total{#}[$__rate_interval])", "nobody's"),
            stacked=True,
        ),
        graph(
            "Load by workload",
            "An estimate of each workload's part of the load.",
            "percentunit",
            query("rate(gpu_workload_busy_seconds_total{#}[$__rate_interval])", "{{workload}}"),
            stacked=True,
        ),
        table(
            "Workloads",
            "Who uses the GPU or has it allocated: its share of the GPU, and GPU seconds held and joules used in the selected range.",
            (
                Column(
                    "Identity",
                    "none",
                    "max by (workload, kind, k8s_namespace, k8s_pod, slurm_job, slurm_user, user) (gpu_workload_info{#})",
                ),
                Column("Allocated", "percentunit", "max by (workload) (gpu_workload_allocation_ratio{#})"),
                Column(
                    "GPU time held",
                    "s",
                    "max by (workload) (increase(gpu_workload_allocated_seconds_total{#}[$__range]))",
                ),
                Column(
                    "Energy", "joule", "sum by (workload) (increase(gpu_workload_energy_joules_total{#}[$__range]))"
                ),
            ),
            hide=("Value #A",),
        ),
        table(
            "Processes",
            "Processes by the device memory that they hold, with their owner where that is known.",
            (
                Column(
                    "Memory",
                    "bytes",
                    """sum by (job, instance, pid, name) (gpu_process_memory_used_bytes{#})
                    * on (job, instance, pid) group_left (user, container_id, k8s_namespace, k8s_pod, slurm_job, systemd_unit)
                    group by (job, instance, pid, user, container_id, k8s_namespace, k8s_pod, slurm_job, systemd_unit) (
                      topk by (job, instance, pid) (1, gpu_process_info{@})
                    )""",
                ),
            ),
            hide=("job", "instance"),
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "gpu",
        "GPU",
        "Everything about one GPU. What a model does not tell stays empty.",
        [
            *_identity(),
            *_power(),
            *_load(),
            *gpu_health.state(),
            *gpu_health.errors(),
            *gpu_health.links(),
            *_parts(),
            *_users(),
        ],
        (
            variable(
                "uuid",
                "GPU",
                ASK,
                regex=CHOSEN,
                many=False,
                description="The exporter's address and the GPU's short name.",
            ),
        ),
        gpus='uuid="$uuid"',
    )
