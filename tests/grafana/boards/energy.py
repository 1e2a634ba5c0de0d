"""What energy did the selected range take, how far is the number to be trusted, and who used it?"""

# ruff: noqa: E501 -- descriptions and queries stay whole

from typing import Any

from tests.grafana.boards.board import PRICE, PUE, board, every_gpu
from tests.grafana.boards.panels import (
    BAD,
    DARK_SECONDS,
    FAIR,
    GOOD,
    Column,
    Step,
    bars,
    graph,
    query,
    row,
    stat,
    table,
)

TOTAL = "sum(increase(gpu_energy_joules_total{#}[$__range]))"
COVERED = "increase(gpu_energy_covered_seconds_total{#}[$__range])"
GAP = "increase(gpu_energy_gap_seconds_total{#}[$__range])"
USED = "sum by (job, instance, uuid, workload) (increase(gpu_workload_energy_joules_total{#}[$__range]))"
GPU = "{{instance}} {{gpu}}"


def _used_by(label: str) -> str:
    """Joules of workloads by a label of theirs; of workloads that have ended the last names in the range count."""
    named = f'last_over_time(gpu_workload_info{{#, {label}!=""}}[$__range])'
    key = f"job, instance, uuid, workload, {label}"
    return f"sum by ({label}) ({USED} * on (job, instance, uuid, workload) group_left ({label}) group by ({key}) (topk by (job, instance, uuid, workload) (1, {named})))"


def _owned() -> str:
    """Joules by person: the user of the Slurm job, else that of the processes. `vector(1)` is those without an owner."""
    named = "last_over_time(gpu_workload_info{#}[$__range])"
    owner = f'label_replace(label_replace({named}, "owner", "$1", "user", "(.*)"), "owner", "$1", "slurm_user", "(.+)")'
    return (
        f"sum by (owner) ({USED} * on (job, instance, uuid, workload) group_left (owner) "
        f"group by (job, instance, uuid, workload, owner) (topk by (job, instance, uuid, workload) (1, {owner}))) "
        "unless on (owner) vector(1)"
    )


def _total() -> list[dict[str, Any]]:
    return [
        row("Selected range"),
        stat("Energy", "Joules that the chosen GPUs drew in the selected range.", "joule", query(TOTAL), decimals=3),
        stat("Energy in kWh", "The same in kilowatt-hours.", "kwatth", query(f"{TOTAL} / 3.6e6"), decimals=3),
        stat(
            "Cost",
            "Kilowatt-hours times price and PUE, in the currency of the price.",
            "short",
            query(f"{TOTAL} / 3.6e6 * $price * $pue"),
            decimals=2,
        ),
        stat(
            "Mean power",
            "Energy by the length of the selected range.",
            "watt",
            query(f"{TOTAL} / $__range_s"),
            decimals=1,
        ),
        stat(
            "Energy, gaps filled",
            "Energy as if time that was not measured had drawn what the rest of the GPU's range did. It is as long as the range only if the GPUs were seen for all of it.",
            "joule",
            query(f"sum(increase(gpu_energy_joules_total{{#}}[$__range]) * ({COVERED} + {GAP}) / ({COVERED} > 0))"),
            decimals=3,
        ),
        stat(
            "Cost of an hour",
            "What an hour costs at the power of now.",
            "short",
            query("sum(rate(gpu_energy_joules_total{#}[$__rate_interval])) * 3600 / 3.6e6 * $price * $pue"),
            decimals=3,
        ),
    ]


def _trust() -> list[dict[str, Any]]:
    return [
        row("How far to trust it"),
        stat(
            "Time measured",
            "Share of the GPUs' time whose energy is in the total. Gaps that go on count as well.",
            "percentunit",
            query(f"sum({COVERED}) / (sum({COVERED}) + sum({GAP}) + {DARK_SECONDS})"),
            decimals=2,
            steps=(Step(0.98, FAIR), Step(0.999, GOOD)),
            base=BAD,
        ),
        stat(
            "Counted by accumulators",
            "Share of the energy that a hardware accumulator counted; the rest was integrated from power.",
            "percentunit",
            query(f'sum(increase(gpu_energy_source_joules_total{{#, source="hardware"}}[$__range])) / {TOTAL}'),
            decimals=1,
        ),
        stat(
            "Accumulators in use",
            "GPUs whose hardware accumulator is trusted, of all.",
            "percentunit",
            query("avg(gpu_energy_qualified{#})"),
            decimals=0,
        ),
        stat(
            "Worst divergence",
            "Largest disagreement of a hardware accumulator with integrated power over five minutes. Honest pairs stay within 2 %.",
            "percentunit",
            query("max(abs(gpu_energy_divergence_ratio{#}))"),
            decimals=1,
            steps=(Step(0.02, FAIR), Step(0.05, BAD)),
            base=GOOD,
        ),
        stat(
            "Uncertainty",
            "Error to be expected of the last five minutes, weighted by power, besides that of the sensors themselves.",
            "percentunit",
            query(
                "sum(gpu_energy_uncertainty_ratio{#} * gpu_power_watts{#}) / sum(gpu_power_watts{#} and on (job, instance, uuid) gpu_energy_uncertainty_ratio{#})"
            ),
            decimals=2,
        ),
        stat(
            "Faults of sensors",
            "Faults of the energy sensors in the selected range; all are handled.",
            "none",
            query("sum(increase(gpu_energy_faults_total{#}[$__range]))"),
            decimals=0,
            steps=(Step(1, FAIR),),
            base=GOOD,
        ),
        graph(
            "Hardware against integrated",
            "The two independent accounts as mean power, of GPUs that have both.",
            "watt",
            query(
                "sum(rate(gpu_energy_hardware_joules_total{#}[$__rate_interval]) and on (job, instance, uuid) gpu_energy_divergence_ratio{#})",
                "accumulators",
            ),
            query(
                "sum(rate(gpu_energy_integrated_joules_total{#}[$__rate_interval]) and on (job, instance, uuid) gpu_energy_divergence_ratio{#})",
                "integrated power",
            ),
        ),
        graph(
            "Divergence",
            "Hardware accumulator against integrated power over five minutes, minus one, of each GPU.",
            "percentunit",
            query("gpu_energy_divergence_ratio{#}", GPU),
            signed=True,
        ),
        table(
            "GPUs",
            "Energy of each GPU in the selected range, by both accounts, and what is known of its worth.",
            (
                Column(
                    "Energy", "joule", "max by (instance, gpu, uuid) (increase(gpu_energy_joules_total{#}[$__range]))"
                ),
                Column(
                    "Accumulator",
                    "joule",
                    "max by (instance, gpu, uuid) (increase(gpu_energy_hardware_joules_total{#}[$__range]))",
                ),
                Column(
                    "Integrated",
                    "joule",
                    "max by (instance, gpu, uuid) (increase(gpu_energy_integrated_joules_total{#}[$__range]))",
                ),
                Column("Accumulator trusted", "bool_yes_no", "max by (instance, gpu, uuid) (gpu_energy_qualified{#})"),
                Column("Divergence", "percentunit", "max by (instance, gpu, uuid) (gpu_energy_divergence_ratio{#})"),
                Column("Uncertainty", "percentunit", "max by (instance, gpu, uuid) (gpu_energy_uncertainty_ratio{#})"),
                Column("Not measured", "s", f"max by (instance, gpu, uuid) ({GAP})"),
                Column(
                    "Faults", "none", "sum by (instance, gpu, uuid) (increase(gpu_energy_faults_total{#}[$__range]))"
                ),
            ),
            hide=("uuid",),
        ),
    ]


def _who() -> list[dict[str, Any]]:
    estimate = "An estimate: active joules by work, idle ones by allocation."
    return [
        row("Who used it"),
        stat(
            "Known users",
            "Share of the energy that belongs to a workload that is known.",
            "percentunit",
            query(f"sum({USED}) / {TOTAL}"),
            decimals=1,
            width=6,
        ),
        stat(
            "Nobody's",
            "Joules that belong to no workload that is known.",
            "joule",
            query("sum(increase(gpu_unattributed_energy_joules_total{#}[$__range]))"),
            decimals=2,
            width=6,
        ),
        stat(
            "By work",
            "Joules of workloads for what they did.",
            "joule",
            query('sum(increase(gpu_workload_energy_joules_total{#, part="active"}[$__range]))'),
            decimals=2,
            width=6,
        ),
        stat(
            "By allocation",
            "Joules of workloads for GPUs that they held while nothing ran.",
            "joule",
            query('sum(increase(gpu_workload_energy_joules_total{#, part="idle"}[$__range]))'),
            decimals=2,
            width=6,
        ),
        bars(
            "By namespace",
            f"Joules of the selected range by Kubernetes namespace. {estimate}",
            "joule",
            query(f"topk(20, {_used_by('k8s_namespace')})", "{{k8s_namespace}}"),
            width=8,
        ),
        bars(
            "By Slurm job",
            f"Joules of the selected range by Slurm job. {estimate}",
            "joule",
            query(f"topk(20, {_used_by('slurm_job')})", "{{slurm_job}}"),
            width=8,
        ),
        bars(
            "By user",
            f"Joules of the selected range by person: the user of the Slurm job, else that of the processes. {estimate}",
            "joule",
            query(f"topk(20, {_owned()})", "{{owner}}"),
            width=8,
        ),
        table(
            "By workload",
            f"Energy, kilowatt-hours and cost of the selected range by workload. {estimate}",
            (
                Column("Energy", "joule", f"sum by (workload) ({USED})"),
                Column("kWh", "kwatth", f"sum by (workload) ({USED}) / 3.6e6"),
                Column("Cost", "short", f"sum by (workload) ({USED}) / 3.6e6 * $price * $pue"),
            ),
            width=12,
        ),
        bars(
            "By instance",
            "Joules of the selected range by exporter.",
            "joule",
            query("topk(20, sum by (instance) (increase(gpu_energy_joules_total{#}[$__range])))", "{{instance}}"),
        ),
        graph(
            "Power by workload",
            f"What workloads draw over time, and what is nobody's. {estimate}",
            "watt",
            query(
                "topk(20, sum by (workload) (rate(gpu_workload_energy_joules_total{#}[$__rate_interval])))",
                "{{workload}}",
            ),
            query("sum(rate(gpu_unattributed_energy_joules_total{#}[$__rate_interval]))", "nobody's"),
            width=24,
            stacked=True,
        ),
    ]


def dashboard() -> dict[str, Any]:
    return board(
        "energy",
        "GPU energy",
        "Joules, kilowatt-hours and cost of the selected range, how far they are to be trusted, and who used them.",
        [*_total(), *_trust(), *_who()],
        (every_gpu(), PRICE, PUE),
        since="now-24h",
    )
