"""The reference page of all metrics, made from the tables."""

from collections.abc import Iterator, Mapping

from exporter.exposition.subjects import TABLES
from exporter.metrics import (
    ATTRIBUTION_SOURCES,
    CLASSES,
    DOMAINS,
    ENERGY_PARTS,
    ENGINES,
    EVENT_KINDS,
    FABRIC_STATES,
    FAULTS,
    HTTP_ERRORS,
    LIMITS,
    LINK_ERRORS,
    LINK_STATES,
    PROCESS_STATES,
    REASONS,
    RECOVERY_ACTIONS,
    RESTART_CAUSES,
    RETIREMENT_CAUSES,
    SENSORS,
    SOURCES,
    WORKLOAD_KINDS,
    Block,
)
from exporter.model import GpuState, Group

CLOSED_LABELS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("gpu_state", "state"): tuple(GpuState),
    ("gpu_energy_source_joules_total", "source"): SOURCES,
    ("gpu_energy_faults_total", "fault"): FAULTS,
    ("gpu_engine_utilization_ratio", "engine"): ENGINES,
    ("gpu_temperature_celsius", "sensor"): SENSORS,
    ("gpu_temperature_limit_celsius", "sensor"): LIMITS,
    ("gpu_clock_hertz", "domain"): DOMAINS,
    ("gpu_throttled", "reason"): REASONS,
    ("gpu_throttle_seconds_total", "reason"): REASONS,
    ("gpu_ecc_errors_total", "class"): CLASSES,
    ("gpu_ecc_lifetime_errors_total", "class"): CLASSES,
    ("gpu_retired_pages", "cause"): RETIREMENT_CAUSES,
    ("gpu_error_events_total", "kind"): EVENT_KINDS,
    ("gpu_error_event_last_timestamp_seconds", "kind"): EVENT_KINDS,
    ("gpu_recovery_action", "action"): RECOVERY_ACTIONS,
    ("gpu_fabric_state", "state"): FABRIC_STATES,
    ("gpu_interconnect_links", "state"): LINK_STATES,
    ("gpu_interconnect_errors_total", "error"): LINK_ERRORS,
    ("gpu_processes", "state"): PROCESS_STATES,
    ("gpu_workload_info", "kind"): WORKLOAD_KINDS,
    ("gpu_workload_energy_joules_total", "part"): ENERGY_PARTS,
    ("gpu_exporter_attribution_up", "source"): ATTRIBUTION_SOURCES,
    ("gpu_exporter_attribution_info", "source"): ATTRIBUTION_SOURCES,
    ("gpu_exporter_sample_duration_seconds", "group"): tuple(Group),
    ("gpu_exporter_worker_restarts_total", "cause"): RESTART_CAUSES,
    ("gpu_exporter_http_errors_total", "cause"): HTTP_ERRORS,
}
"""All values of a label, by family and label; labels that are not here may have any value."""

_TITLES: Mapping[Block, str] = {
    Block.DEVICE: "Identity and state",
    Block.ENERGY: "Power and energy",
    Block.LOAD: "Load and memory",
    Block.STATE: "Temperatures, clocks, errors, links",
    Block.PARTITIONS: "MIG instances and AMD partitions",
    Block.PROCESSES: "Processes",
    Block.WORKLOADS: "Workloads",
    Block.PROFILING: "Profiling (off by default)",
    Block.EXPORTER: "The exporter itself",
}

_NOTES: Mapping[Block, str] = {
    Block.STATE: """\
`metrics.links` says how links between GPUs are shown. With `total`, the default, bytes and errors are sums over all
links of a kind, without the label `link`. They begin at 0 with the exporter and add up by how much each link's counters
grow: a link that is not there for a while, and one whose counters begin anew as after a reset of the GPU, make them
neither fall nor jump. With `each` they are the driver's own counters of each link, and `gpu_interconnect_link_up` is
there. `sum without (link) (rate(gpu_interconnect_receive_bytes_total[5m]))` reads the same in both.
""",
    Block.PROCESSES: """\
The `processes.top` processes of each GPU by memory have series of their own. One that is shown keeps its place until
another holds a tenth more. The rest, and those below `processes.minimum_bytes`, are summed in one series whose labels
are all `other`; `gpu_exporter_series_dropped` says how many they are. `pid` and `name` are the default of
`processes.labels`; processes that agree in all chosen labels are summed. `gpu_process_info` is there only where `pid`
is among them. Command lines are never exported.
""",
    Block.WORKLOADS: """\
A workload is on a GPU while it has it allocated or runs a process on it, and for `attribution.linger_seconds` after
that. Its counters begin at 0 and are charged from the step after it was first seen; they stand in the block `energy`,
so that each page adds up: between any two pages `gpu_energy_joules_total` grows by as much as
`gpu_workload_energy_joules_total` of all workloads and `gpu_unattributed_energy_joules_total` together. A workload that
is not shown any longer takes its joules along, and begins at 0 if it comes back.

Each step of the GPU's total is divided at once:

- At zero load all of it is idle; where no load is told (MIG), that is while nobody runs anything there. Under load, as
  much is idle as the lowest power that was seen at zero load (the mean of 10 s) would have used; before that was seen,
  nothing is.
- The idle part goes to whoever holds the GPU, by `gpu_workload_allocation_ratio`; what nobody holds is unattributed.
- The active part goes to the one workload that runs processes there, or, where none does, that holds it. Where there
  are several, it goes by the work that was measured of each process, or of each partition. Where that was not measured,
  and for processes that could not be placed, it is unattributed. Memory in use has no say.
- Shares of work are those of the newest look at the processes (`sampling.processes_seconds`), and count from there on:
  where loads change faster, one workload gets now and then what another has used.
- Processes that may not be inspected (`gpu_processes{state="uninspectable"}`) are taken for absent.
- Of a card whose one sensor covers two dies (MI250), all is charged to those on the first.
- What is used from a start of the exporter until its sources have told is unattributed.

A partition is the share of the GPU that its memory is; partitions that share memory are alike. At most 64 workloads
have counters on a GPU, and 4096 in all; what others use is unattributed, and `gpu_exporter_series_dropped` says how
many they are.
""",
}

_HEAD = """\
# Metrics

Made from the tables in `exporter/metrics.py`; write it anew with `gpu-exporter metrics > docs/metrics.md`.

A series whose value is not known is absent. All values are in base units. An info metric is always 1 and says what it
has to say in its labels; join it, for example `gpu_power_watts * on (instance, uuid) group_left (model) gpu_info`.
"""


def markdown() -> str:
    """Return the reference page: one table of metrics for each block, then the values of the closed labels."""
    return "\n".join([_HEAD, *_blocks(), *_closed_labels()])


def _blocks() -> Iterator[str]:
    for block, title in _TITLES.items():
        yield f"## {title}\n\nBlock `{block}`: `collect[]={block}` serves it alone.\n"
        if block in _NOTES:
            yield _NOTES[block]
        yield "| name | type | unit | labels | meaning |"
        yield "| --- | --- | --- | --- | --- |"
        for table in TABLES:
            for spec in table.specs:
                if spec.block is block:
                    labels = ", ".join(f"`{label}`" for label in (*table.labels, *spec.labels))
                    yield f"| `{spec.name}` | {spec.kind} | {spec.unit} | {labels} | {spec.help} |"
        yield ""


def _closed_labels() -> Iterator[str]:
    yield "## Values of labels\n\nThese labels have no other values than the ones listed.\n"
    yield "| name | label | values |"
    yield "| --- | --- | --- |"
    for (family, label), values in CLOSED_LABELS.items():
        yield f"| `{family}` | `{label}` | {', '.join(f'`{value}`' for value in values)} |"
    yield ""
