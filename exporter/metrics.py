"""The vocabulary: each metric name exists here once; the page, its reference and all checks are loops over the tables.

A row reads one subject. `read` gives a number, None (no series), or a mapping from the values of `labels` to numbers:
keyed by the value itself for one label, by a tuple for several.
"""

import enum
import functools
import platform
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from exporter import __version__
from exporter.model import (
    DeviceSnapshot,
    EnergyAccount,
    GpuState,
    LinkSample,
    LinkTotal,
    Owner,
    PartitionSample,
    ProcessSeries,
    Snapshot,
    Workload,
    WorkloadSnapshot,
    World,
)

T = TypeVar("T")

Reading = float | Mapping[str, float] | Mapping[tuple[str, ...], float] | None


class Kind(enum.StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    INFO = "info"


class Block(enum.StrEnum):
    """Families that are rendered, cached and selected by `collect[]` together."""

    DEVICE = "device"
    ENERGY = "energy"
    LOAD = "load"
    STATE = "state"
    PARTITIONS = "partitions"
    PROCESSES = "processes"
    WORKLOADS = "workloads"
    PROFILING = "profiling"
    EXPORTER = "exporter"


class MetricSpec(msgspec.Struct, Generic[T], frozen=True):
    """One family. `name` is as exposed, with its unit and `_total`; `help` is one sentence."""

    name: str
    help: str
    read: Callable[[T], Reading]
    block: Block
    unit: str = ""
    labels: tuple[str, ...] = ()
    kind: Kind = Kind.GAUGE
    created: Callable[[T], float | None] | None = None
    """Of a counter: the Unix time at which all series of the subject were 0; None where that is not known."""


# Closed lists: providers map the vendor's words to these, and a test refuses any other value.
SENSORS = ("gpu", "edge", "hotspot", "memory", *(f"hbm{stack}" for stack in range(8)))
LIMITS = ("shutdown", "slowdown", "memory", "target")
"""Values of `sensor` on temperature limits: the measure taken there."""
DOMAINS = ("graphics", "sm", "memory", "video", "soc", "fabric")
ENGINES = ("encoder", "decoder", "jpeg", "ofa", "media")
REASONS = (
    "application_clocks",
    "board_limit",
    "display_clocks",
    "hw_power_brake",
    "hw_slowdown",
    "hw_thermal",
    "idle",
    "memory_thermal",
    "processor_hot",
    "sw_power_cap",
    "sw_thermal",
    "sync_boost",
    "voltage_regulator_thermal",
)
CLASSES = ("corrected", "uncorrected", "deferred")
EVENT_KINDS = ("xid", "afid", "ras")
FATAL_EVENTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "xid": ("48", "62", "63", "64", "74", "79", "92", "94", "95", "119", "120", "154"),
        "ras": ("fatal",),
    }
)
"""Codes after which a GPU, or what runs on it, is lost or soon will be: they are shown before they happen."""
RECOVERY_ACTIONS = (
    *("none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset"),
    *("recover_imex_domain", "bus_reset", "system_reboot"),
)
FABRIC_STATES = ("not_started", "in_progress", "completed")
LINK_KINDS = ("nvlink", "xgmi")
LINK_STATES = ("up", "down")
LINK_ERRORS = ("crc", "recovery", "replay", "symbol")
READING_SOURCES = ("library", "gpu_metrics", "sysfs", "hwmon", "fdinfo", "kfd")
"""Where a provider has a reading from."""
RETIREMENT_CAUSES = ("single_bit", "double_bit")
PROCESS_STATES = ("holding", "unnamed", "bystander", "uninspectable", "self")
ATTRIBUTION_SOURCES = ("proc", "kubelet", "pod_logs", "api_server", "job_files", "slurm")
WORKLOAD_KINDS = ("pod", "slurm", "container", "service", "user")
ENERGY_PARTS = ("active", "idle")
SOURCES = ("hardware", "integrated")
FAULTS = ("reset", "jump", "frozen", "disqualified", "power_frozen")
_NO_FAULTS: Mapping[str, float] = MappingProxyType(dict.fromkeys(FAULTS, 0.0))
RESTART_CAUSES = ("hang", "crash", "lost", "reload", "recycle")
HTTP_ERRORS = ("refused", "failed", "denied")

DEVICE_LABELS = ("gpu", "uuid")
PARTITION_LABELS = (*DEVICE_LABELS, "partition")
LINK_TOTAL_LABELS = (*DEVICE_LABELS, "kind")
LINK_LABELS = (*LINK_TOTAL_LABELS, "link")
PROCESS_LABELS = ("pid", "name")
"""By default; they stand beside those of the device."""
WORKLOAD_LABELS = (*DEVICE_LABELS, "workload")
PROVIDER_LABELS = ("provider",)

_INFO_LABELS = (
    "vendor",
    "model",
    "pci_address",
    "serial",
    "vendor_uuid",
    "index",
    "minor",
    "driver_version",
    "architecture",
    "provider",
    "memory_kind",
    "partition_mode",
)


def _ones(*rows: tuple[object, ...]) -> Mapping[tuple[str, ...], float]:
    """One series of value 1 for each row of label values; None is an empty label."""
    return {tuple("" if value is None else str(value) for value in row): 1.0 for row in rows}


def _flag(value: bool | None) -> float | None:
    return None if value is None else float(value)


def _info(d: DeviceSnapshot) -> Reading:
    identity = d.device
    values = (
        identity.vendor,
        identity.model,
        identity.pci_address,
        identity.serial,
        identity.vendor_uuid,
        identity.index,
        identity.minor,
        identity.driver_version,
        identity.architecture,
        d.provider,
        identity.memory_kind,
        identity.partition_mode,
    )
    return _ones(values)


def _power_reading(d: DeviceSnapshot) -> Reading:
    s = d.sample
    if s.power_watts is None:
        return None
    return _kind_of_power(s.power_kind, s.power_window_seconds, s.power_scope)


@functools.lru_cache(maxsize=64)
def _kind_of_power(kind: str | None, seconds: float | None, scope: str) -> Reading:
    window = "unknown" if seconds is None else f"{seconds:g}s"
    return _ones((kind or "unknown", window, scope))


def _states(d: DeviceSnapshot) -> Reading:
    return {state.value: float(state is d.state) for state in GpuState}


def _flags(values: Mapping[str, bool]) -> Mapping[str, float]:
    return {name: float(value) for name, value in values.items()}


def _by_code(values: Mapping[tuple[str, str], float]) -> Reading:
    shown: Mapping[tuple[str, ...], float] = {(kind, code): value for (kind, code), value in values.items()}
    return shown


def _recovery(d: DeviceSnapshot) -> Reading:
    action = d.sample.recovery_action
    return None if action is None else {each: float(each == action) for each in RECOVERY_ACTIONS}


def _fabric_state(d: DeviceSnapshot) -> Reading:
    fabric = d.sample.fabric
    return None if fabric is None else {each: float(each == fabric.state) for each in FABRIC_STATES}


def _fabric(d: DeviceSnapshot) -> Reading:
    fabric = d.sample.fabric
    if fabric is None or fabric.cluster_uuid is None:
        return None
    return _ones((fabric.cluster_uuid, fabric.clique))


def _links(d: DeviceSnapshot) -> Reading:
    states = [(link.kind, link.up) for link in d.sample.links or () if link.up is not None]
    counts: dict[tuple[str, ...], float] = {}
    for kind in dict.fromkeys(kind for kind, _ in states):
        for state, up in zip(LINK_STATES, (True, False), strict=True):
            counts[kind, state] = float(states.count((kind, up)))
    return counts


def _account(read: Callable[[EnergyAccount], Reading]) -> Callable[[DeviceSnapshot], Reading]:
    return lambda d: None if d.energy is None else read(d.energy)


def _faults(e: EnergyAccount) -> Reading:
    if not any(e.faults.values()):
        return _NO_FAULTS
    return {fault: float(e.faults.get(fault, 0)) for fault in FAULTS}


def _ledger_began(d: DeviceSnapshot) -> float | None:
    return None if d.energy is None else d.energy.start_timestamp


D, E, L, S = Block.DEVICE, Block.ENERGY, Block.LOAD, Block.STATE
G, C = Kind.GAUGE, Kind.COUNTER

DEVICE_METRICS: tuple[MetricSpec[DeviceSnapshot], ...] = (
    MetricSpec("gpu_info", "Identity of the GPU; join on (instance, uuid).", _info, D, "", _INFO_LABELS, Kind.INFO),
    MetricSpec(
        "gpu_firmware_info",
        "Version of each firmware component.",
        lambda d: _ones(*d.device.firmware.items()),
        D,
        "",
        ("component", "version"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_up",
        "Whether the GPU answers, or sleeps and would answer.",
        lambda d: float(d.state.answers),
        D,
    ),
    MetricSpec("gpu_state", "1 for the state that the GPU is in, 0 for the others.", _states, D, "", ("state",)),
    MetricSpec(
        "gpu_power_watts",
        "Power that the GPU draws; gpu_power_reading_info says what the reading is.",
        lambda d: d.sample.power_watts,
        E,
        "watts",
    ),
    MetricSpec(
        "gpu_module_power_watts",
        "Power of the module that the GPU sits on, with its CPU and memory.",
        lambda d: d.sample.module_power_watts,
        E,
        "watts",
    ),
    MetricSpec(
        "gpu_memory_power_watts", "Power of the GPU's memory.", lambda d: d.sample.memory_power_watts, E, "watts"
    ),
    MetricSpec("gpu_power_limit_watts", "Power limit in force.", lambda d: d.sample.power_limit_watts, E, "watts"),
    MetricSpec(
        "gpu_power_limit_default_watts",
        "Power limit that the board starts with.",
        lambda d: d.sample.power_limit_default_watts,
        E,
        "watts",
    ),
    MetricSpec(
        "gpu_power_reading_info",
        "What gpu_power_watts is: average or instant, over which window, of gpu, module or package.",
        _power_reading,
        E,
        "",
        ("kind", "window", "scope"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_energy_joules_total",
        "Energy used since gpu_energy_start_timestamp_seconds: the number to use; it never falls.",
        _account(lambda e: e.total_joules),
        E,
        "joules",
        (),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_source_joules_total",
        "Parts of gpu_energy_joules_total by where they came from.",
        _account(lambda e: e.by_source_joules),
        E,
        "joules",
        ("source",),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_hardware_joules_total",
        "Accepted steps of the hardware accumulator, as evidence.",
        _account(lambda e: e.hardware_joules),
        E,
        "joules",
        (),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_integrated_joules_total",
        "Integral of sampled power, as evidence.",
        _account(lambda e: e.integrated_joules),
        E,
        "joules",
        (),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_module_energy_joules_total",
        "Accepted steps of the accumulator of the module, with its CPU and memory.",
        lambda d: d.module_energy_joules,
        E,
        "joules",
        (),
        C,
    ),
    MetricSpec(
        "gpu_energy_qualified",
        "Whether the hardware accumulator has earned its place as the source of the total.",
        _account(lambda e: float(e.qualified)),
        E,
    ),
    MetricSpec(
        "gpu_energy_divergence_ratio",
        "Hardware accumulator against integrated power over five minutes covered by both, minus one.",
        _account(lambda e: e.divergence_ratio),
        E,
        "ratio",
    ),
    MetricSpec(
        "gpu_energy_uncertainty_ratio",
        "Relative error to be expected of five minutes of gpu_energy_joules_total, besides that of the sensor itself.",
        _account(lambda e: e.uncertainty_ratio),
        E,
        "ratio",
    ),
    MetricSpec(
        "gpu_energy_covered_seconds_total",
        "Time whose energy is in the total.",
        _account(lambda e: e.covered_seconds),
        E,
        "seconds",
        (),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_gap_seconds_total",
        "Time whose energy is not known and not in the total.",
        _account(lambda e: e.gap_seconds),
        E,
        "seconds",
        (),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_faults_total",
        "Faults of the energy sensors, by kind.",
        _account(_faults),
        E,
        "",
        ("fault",),
        C,
        _ledger_began,
    ),
    MetricSpec(
        "gpu_energy_start_timestamp_seconds",
        "When gpu_energy_joules_total began at 0.",
        _account(lambda e: e.start_timestamp),
        E,
        "seconds",
    ),
    MetricSpec(
        "gpu_unattributed_energy_joules_total",
        "Rest of gpu_energy_joules_total that is in no workload's estimate; with those it grows by as much.",
        lambda d: d.unattributed_joules,
        E,
        "joules",
        (),
        C,
    ),
    MetricSpec(
        "gpu_last_sample_timestamp_seconds",
        "When the GPU last gave a reading: they are taken on a timer, and a scrape waits for power and energy alone.",
        lambda d: d.last_sample_timestamp,
        E,
        "seconds",
    ),
    MetricSpec(
        "gpu_utilization_ratio",
        "Share of the last sampling window in which at least one kernel ran.",
        lambda d: d.sample.utilization_ratio,
        L,
        "ratio",
    ),
    MetricSpec(
        "gpu_busy_seconds_total",
        "Time integral of gpu_utilization_ratio: its rate is the load of any window.",
        lambda d: d.busy_seconds,
        L,
        "seconds",
        (),
        C,
    ),
    MetricSpec(
        "gpu_memory_controller_utilization_ratio",
        "Share of time in which memory was read or written; not the memory in use.",
        lambda d: d.sample.memory_controller_utilization_ratio,
        L,
        "ratio",
    ),
    MetricSpec(
        "gpu_engine_utilization_ratio",
        "Share of time in which a fixed-function engine was busy.",
        lambda d: d.sample.engine_utilization_ratio,
        L,
        "ratio",
        ("engine",),
    ),
    MetricSpec(
        "gpu_memory_used_bytes",
        "Device memory in use, without what the driver reserves where that is known.",
        lambda d: d.sample.memory_used_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_memory_size_bytes",
        "Device memory in all; absent where there is none of its own.",
        lambda d: d.sample.memory_size_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_memory_reserved_bytes",
        "Device memory that the driver and firmware keep.",
        lambda d: d.sample.memory_reserved_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_system_memory_used_bytes",
        "Host memory that the GPU uses (GTT, unified memory).",
        lambda d: d.sample.system_memory_used_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_system_memory_size_bytes",
        "Host memory that the GPU may use (GTT, unified memory).",
        lambda d: d.sample.system_memory_size_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_memory_visible_used_bytes",
        "Device memory in use within reach of the CPU.",
        lambda d: d.sample.memory_visible_used_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_memory_visible_size_bytes",
        "Device memory that the CPU can address.",
        lambda d: d.sample.memory_visible_size_bytes,
        L,
        "bytes",
    ),
    MetricSpec(
        "gpu_temperature_celsius",
        "Temperature by sensor.",
        lambda d: d.sample.temperature_celsius,
        S,
        "celsius",
        ("sensor",),
    ),
    MetricSpec(
        "gpu_temperature_limit_celsius",
        "Temperature at which the GPU takes a measure, by measure.",
        lambda d: d.sample.temperature_limit_celsius,
        S,
        "celsius",
        ("sensor",),
    ),
    MetricSpec(
        "gpu_temperature_margin_celsius",
        "How far the GPU is below its slowdown temperature; may be negative.",
        lambda d: d.sample.temperature_margin_celsius,
        S,
        "celsius",
    ),
    MetricSpec("gpu_clock_hertz", "Current clock by domain.", lambda d: d.sample.clock_hertz, S, "hertz", ("domain",)),
    MetricSpec(
        "gpu_fan_speed_ratio", "Commanded fan speed; may exceed 1.", lambda d: d.sample.fan_speed_ratio, S, "ratio"
    ),
    MetricSpec("gpu_performance_state", "NVIDIA P-state: 0 is the fastest.", lambda d: d.sample.performance_state, S),
    MetricSpec(
        "gpu_throttled",
        "Whether clocks are held down now, by reason.",
        lambda d: _flags(d.sample.throttled),
        S,
        "",
        ("reason",),
    ),
    MetricSpec(
        "gpu_throttle_seconds_total",
        "Time with clocks held down, by reason.",
        lambda d: d.throttle_seconds,
        S,
        "seconds",
        ("reason",),
        C,
    ),
    MetricSpec(
        "gpu_ecc_errors_total",
        "Memory errors since the driver was loaded, by class.",
        lambda d: d.sample.ecc_errors,
        S,
        "",
        ("class",),
        C,
    ),
    MetricSpec(
        "gpu_ecc_lifetime_errors_total",
        "Memory errors over the life of the board, by class.",
        lambda d: d.sample.ecc_lifetime_errors,
        S,
        "",
        ("class",),
        C,
    ),
    MetricSpec(
        "gpu_memory_remap_failed",
        "Whether a row could not be remapped: the board is to be replaced.",
        lambda d: _flag(d.sample.memory_remap_failed),
        S,
    ),
    MetricSpec(
        "gpu_memory_remap_pending",
        "Whether a row remap waits for a reset.",
        lambda d: _flag(d.sample.memory_remap_pending),
        S,
    ),
    MetricSpec(
        "gpu_retired_pages",
        "Memory pages taken out of use, by cause.",
        lambda d: d.sample.retired_pages,
        S,
        "",
        ("cause",),
    ),
    MetricSpec(
        "gpu_pcie_link_generation",
        "PCIe generation of the link now; falls at idle.",
        lambda d: d.sample.pcie_link_generation,
        S,
    ),
    MetricSpec("gpu_pcie_link_width", "PCIe lanes of the link now.", lambda d: d.sample.pcie_link_width, S),
    MetricSpec(
        "gpu_pcie_link_width_max",
        "PCIe lanes that the GPU and its slot can use.",
        lambda d: d.sample.pcie_link_width_max,
        S,
    ),
    MetricSpec("gpu_pcie_replays_total", "PCIe packets sent again.", lambda d: d.sample.pcie_replays, S, "", (), C),
    MetricSpec(
        "gpu_pcie_receive_bytes_total",
        "Bytes that the GPU received over PCIe; read only where sampling.pcie_bytes asks for it.",
        lambda d: d.sample.pcie_receive_bytes,
        S,
        "bytes",
        (),
        C,
    ),
    MetricSpec(
        "gpu_pcie_transmit_bytes_total",
        "Bytes that the GPU sent over PCIe; read only where sampling.pcie_bytes asks for it.",
        lambda d: d.sample.pcie_transmit_bytes,
        S,
        "bytes",
        (),
        C,
    ),
    MetricSpec(
        "gpu_error_events_total",
        "Errors that the driver reported while the exporter listened, by kind and code; fatal ones are there at 0.",
        lambda d: _by_code(d.error_events),
        S,
        "",
        ("kind", "code"),
        C,
    ),
    MetricSpec(
        "gpu_error_event_last_timestamp_seconds",
        "When the driver last reported the error.",
        lambda d: _by_code(d.error_event_timestamps),
        S,
        "seconds",
        ("kind", "code"),
    ),
    MetricSpec(
        "gpu_recovery_action",
        "1 for what the driver asks for to bring the GPU back, 0 for the others.",
        _recovery,
        S,
        "",
        ("action",),
    ),
    MetricSpec(
        "gpu_fabric_state",
        "1 for how far the GPU is in joining its fabric, 0 for the others.",
        _fabric_state,
        S,
        "",
        ("state",),
    ),
    MetricSpec(
        "gpu_fabric_info",
        "The fabric that the GPU belongs to.",
        _fabric,
        S,
        "",
        ("cluster_uuid", "clique"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_interconnect_links",
        "Links to other GPUs or switches by their state; what nothing is wired to is down.",
        _links,
        S,
        "",
        ("kind", "state"),
    ),
    MetricSpec(
        "gpu_sm_active_ratio",
        "Share of time in which a warp was resident, over all multiprocessors; profiling, off by default.",
        lambda d: d.sample.sm_active_ratio,
        Block.PROFILING,
        "ratio",
    ),
    MetricSpec(
        "gpu_sm_occupancy_ratio",
        "Resident warps, of those that would fit; profiling, off by default.",
        lambda d: d.sample.sm_occupancy_ratio,
        Block.PROFILING,
        "ratio",
    ),
    MetricSpec(
        "gpu_tensor_active_ratio",
        "Share of time in which the tensor cores worked; profiling, off by default.",
        lambda d: d.sample.tensor_active_ratio,
        Block.PROFILING,
        "ratio",
    ),
    MetricSpec(
        "gpu_dram_active_ratio",
        "Share of the memory's bandwidth that was used; profiling, off by default.",
        lambda d: d.sample.dram_active_ratio,
        Block.PROFILING,
        "ratio",
    ),
    MetricSpec(
        "gpu_partition_sm_active_ratio",
        "Share of time in which a warp was resident in a MIG instance; profiling, off by default.",
        lambda d: d.sample.partition_sm_active_ratio,
        Block.PROFILING,
        "ratio",
        ("partition",),
    ),
    MetricSpec(
        "gpu_processes",
        "Processes: holding memory or a queue; the same, with a pid that /proc does not show; bystanders without "
        "either; not open to inspection; the exporter's own.",
        lambda d: {state: float(n) for state, n in d.sample.process_counts.items()},
        Block.PROCESSES,
        "",
        ("state",),
    ),
)

PARTITION_METRICS: tuple[MetricSpec[PartitionSample], ...] = (
    MetricSpec(
        "gpu_partition_info",
        "Identity of a MIG instance or AMD partition.",
        lambda p: _ones((p.uuid, p.profile)),
        Block.PARTITIONS,
        "",
        ("partition_uuid", "profile"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_partition_memory_used_bytes",
        "Memory in use in the partition; partitions may share memory, so do not add these up.",
        lambda p: p.memory_used_bytes,
        Block.PARTITIONS,
        "bytes",
    ),
    MetricSpec(
        "gpu_partition_memory_size_bytes",
        "Memory of the partition; partitions may share memory, so do not add these up.",
        lambda p: p.memory_size_bytes,
        Block.PARTITIONS,
        "bytes",
    ),
    MetricSpec(
        "gpu_partition_utilization_ratio",
        "Share of time in which a kernel ran in the partition.",
        lambda p: p.utilization_ratio,
        Block.PARTITIONS,
        "ratio",
    ),
)

LINK_METRICS: tuple[MetricSpec[LinkSample], ...] = (
    MetricSpec(
        "gpu_interconnect_link_up",
        "Whether the link to another GPU or a switch is up.",
        lambda link: _flag(link.up),
        S,
    ),
)

LINK_COUNTERS: tuple[MetricSpec[LinkSample | LinkTotal], ...] = (
    MetricSpec(
        "gpu_interconnect_receive_bytes_total",
        "Bytes received over the links of a kind, or over each.",
        lambda link: link.receive_bytes,
        S,
        "bytes",
        (),
        C,
    ),
    MetricSpec(
        "gpu_interconnect_transmit_bytes_total",
        "Bytes sent over the links of a kind, or over each.",
        lambda link: link.transmit_bytes,
        S,
        "bytes",
        (),
        C,
    ),
    MetricSpec(
        "gpu_interconnect_errors_total",
        "Errors of the links of a kind, or of each, by kind of error.",
        lambda link: link.errors,
        S,
        "",
        ("error",),
        C,
    ),
)

PROCESS_METRICS: tuple[MetricSpec[ProcessSeries], ...] = (
    MetricSpec(
        "gpu_process_memory_used_bytes",
        "Device memory that the process holds, without bystanders; those beyond the bound are summed as other.",
        lambda p: p.memory_used_bytes,
        Block.PROCESSES,
        "bytes",
    ),
)

_PLACE_LABELS = ("container_id", "pod_uid", "k8s_namespace", "k8s_pod", "k8s_container", "slurm_job", "systemd_unit")
_OWNER_LABELS = ("name", "user", *_PLACE_LABELS)
_WORKLOAD_INFO_LABELS = (
    "kind",
    "k8s_namespace",
    "k8s_pod",
    "k8s_container",
    "slurm_job",
    "slurm_user",
    "slurm_account",
    "slurm_partition",
    "systemd_unit",
    "user",
)


def _fields(workload: Workload, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(workload, name) for name in names)


def _owner(o: Owner) -> Reading:
    places = ("",) * len(_PLACE_LABELS) if o.workload is None else _fields(o.workload, _PLACE_LABELS)
    return _ones((o.name, o.user, *places))


def _energy_parts(w: WorkloadSnapshot) -> Reading:
    active, idle = w.active_joules, w.idle_joules
    if active is not None and idle is not None:  # at each scrape, of every workload
        return {"active": active, "idle": idle}
    return {part: joules for part, joules in (("active", active), ("idle", idle)) if joules is not None}


OWNER_METRICS: tuple[MetricSpec[Owner], ...] = (
    MetricSpec(
        "gpu_process_info",
        "Whose process it is, once for each pid on however many GPUs; join on (instance, pid).",
        _owner,
        Block.PROCESSES,
        "",
        _OWNER_LABELS,
        Kind.INFO,
    ),
)

W = Block.WORKLOADS

WORKLOAD_METRICS: tuple[MetricSpec[WorkloadSnapshot], ...] = (
    MetricSpec(
        "gpu_workload_info",
        "Who uses the GPU or has it allocated, or did until a short time ago; join on (instance, uuid, workload).",
        lambda w: _ones(_fields(w.workload, _WORKLOAD_INFO_LABELS)),
        W,
        "",
        _WORKLOAD_INFO_LABELS,
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_workload_allocation_ratio",
        "Share of the GPU that the workload was given, whether it runs anything there or not.",
        lambda w: w.allocation_ratio,
        W,
        "ratio",
    ),
    MetricSpec(
        "gpu_workload_energy_joules_total",
        "Estimate of the workload's part of gpu_energy_joules_total: active by work, idle by allocation.",
        _energy_parts,
        E,
        "joules",
        ("part",),
        C,
        lambda w: w.start_timestamp,
    ),
    MetricSpec(
        "gpu_workload_busy_seconds_total",
        "Estimate of the workload's part of gpu_busy_seconds_total, by work.",
        lambda w: w.busy_seconds,
        E,
        "seconds",
        (),
        C,
        lambda w: w.start_timestamp,
    ),
    MetricSpec(
        "gpu_workload_allocated_seconds_total",
        "Time integral of gpu_workload_allocation_ratio: seconds of a whole GPU.",
        lambda w: w.allocated_seconds,
        E,
        "seconds",
        (),
        C,
        lambda w: w.start_timestamp,
    ),
)

X = Block.EXPORTER

PROVIDER_METRICS: tuple[MetricSpec[Snapshot], ...] = (
    MetricSpec(
        "gpu_exporter_provider_info",
        "Version of the vendor's library, and why the provider is down; reason is empty when all is well.",
        lambda s: _ones((s.library_version, s.reason)),
        X,
        "",
        ("library_version", "reason"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_exporter_provider_up",
        "Whether the provider delivers readings; absent where the host has no such hardware and nobody asked for it.",
        lambda s: float(s.up) if s.wanted or s.up else None,
        X,
    ),
    MetricSpec(
        "gpu_exporter_devices",
        "Devices that the provider has seen and that answer.",
        lambda s: float(sum(d.state.answers for d in s.devices)),
        X,
    ),
    MetricSpec(
        "gpu_exporter_devices_expected", "Devices of this vendor that PCI shows.", lambda s: s.devices_expected, X
    ),
    MetricSpec(
        "gpu_exporter_sample_duration_seconds",
        "How long the last pass over all devices took, by group of readings.",
        lambda s: s.sample_duration_seconds,
        X,
        "seconds",
        ("group",),
    ),
    MetricSpec(
        "gpu_exporter_last_sample_timestamp_seconds",
        "When the provider last gave a reading: they are taken on a timer, and not by the scrape.",
        lambda s: s.last_sample_timestamp,
        X,
        "seconds",
    ),
    MetricSpec(
        "gpu_exporter_read_failures_total",
        "Readings that broke with an unexpected error, by reading.",
        lambda s: {name: float(n) for name, n in s.read_failures.items()},
        X,
        "",
        ("reading",),
        C,
    ),
    MetricSpec(
        "gpu_exporter_rejected_readings_total",
        "Readings outside their physical range, by reading.",
        lambda s: {name: float(n) for name, n in s.rejected_readings.items()},
        X,
        "",
        ("reading",),
        C,
    ),
    MetricSpec(
        "gpu_exporter_worker_restarts_total",
        "Ends of the child process that reads the vendor's library, by cause.",
        lambda s: {cause: float(s.worker_restarts.get(cause, 0)) for cause in RESTART_CAUSES},
        X,
        "",
        ("cause",),
        C,
    ),
)

EXPORTER_METRICS: tuple[MetricSpec[World], ...] = (
    MetricSpec(
        "gpu_exporter_build_info",
        "Version of the exporter and of Python.",
        lambda _: _ones((__version__, platform.python_version())),
        X,
        "",
        ("version", "python_version"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_exporter_workers_abandoned",
        "Child processes that could not be killed and are waited for.",
        lambda w: float(w.workers_abandoned),
        X,
    ),
    MetricSpec("gpu_exporter_released", "Whether the devices are released on request.", lambda w: float(w.released), X),
    MetricSpec(
        "gpu_exporter_config_last_reload_successful",
        "Whether the configuration and its files could be read when they last were; if not, what was before holds.",
        lambda w: float(w.config_reloaded),
        X,
    ),
    MetricSpec(
        "gpu_exporter_config_last_reload_success_timestamp_seconds",
        "When all of the configuration was last read, at the start or on SIGHUP.",
        lambda w: w.config_reloaded_timestamp,
        X,
        "seconds",
    ),
    MetricSpec(
        "gpu_exporter_journal_up",
        "Whether totals are kept over a restart; absent where no directory is configured for that.",
        lambda w: None if w.journal_up is None else float(w.journal_up),
        X,
    ),
    MetricSpec(
        "gpu_exporter_series_dropped",
        "Series left off the page by family: beyond the bounds, as duplicates, or without a number.",
        lambda w: {family: float(n) for family, n in w.series_dropped.items()},
        X,
        "",
        ("family",),
    ),
    MetricSpec(
        "gpu_exporter_attribution_up",
        "Whether the source tells who uses the GPUs, by source; absent where it is not asked.",
        lambda w: {} if w.attribution is None else {s.source: float(s.up) for s in w.attribution.sources},
        X,
        "",
        ("source",),
    ),
    MetricSpec(
        "gpu_exporter_attribution_info",
        "Why a source does not tell who uses the GPUs; reason is empty when all is well.",
        lambda w: {} if w.attribution is None else _ones(*((s.source, s.reason) for s in w.attribution.sources)),
        X,
        "",
        ("source", "reason"),
        Kind.INFO,
    ),
    MetricSpec(
        "gpu_exporter_attribution_unplaced_devices",
        "Device ids that were given to somebody and belong to no GPU that is known.",
        lambda w: None if w.attribution is None else float(w.attribution.unplaced_devices),
        X,
    ),
    MetricSpec(
        "gpu_exporter_attribution_unplaced_processes",
        "Processes on GPUs that could not be placed in a workload.",
        lambda w: None if w.attribution is None else float(w.attribution.unplaced_processes),
        X,
    ),
    MetricSpec(
        "gpu_exporter_http_errors_total",
        "Requests that got no page: refused as one too many, failed in the making, denied for want of a valid login.",
        lambda w: {cause: float(getattr(w.web, cause)) for cause in HTTP_ERRORS},
        X,
        "",
        ("cause",),
        C,
    ),
)

METRIC_NAMES: frozenset[str] = frozenset(
    spec.name
    for table in (
        DEVICE_METRICS,
        PARTITION_METRICS,
        LINK_METRICS,
        LINK_COUNTERS,
        PROCESS_METRICS,
        OWNER_METRICS,
        WORKLOAD_METRICS,
        PROVIDER_METRICS,
        EXPORTER_METRICS,
    )
    for spec in table
)
