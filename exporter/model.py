"""What is known of a GPU: its identity, what one read gave, and the view of it that is published.

Every number is in the base unit that its name says. `None` is the only spelling of "no value"; zero is a reading.
Records are frozen; mappings in them are never changed after the record is made.
"""

import enum
from collections.abc import Mapping
from typing import Literal

import msgspec


class Group(enum.StrEnum):
    """Readings that are taken together, each group with a cadence of its own."""

    ENERGY = "energy"
    """Power, its limits, and the energy accumulator."""
    LOAD = "load"
    """Utilisation and memory."""
    STATE = "state"
    """Temperatures, clocks, throttling, errors, links, fan, partitions."""
    PROCESSES = "processes"
    PROFILING = "profiling"
    """Counters that cost power or exclude other profilers: off unless asked for."""


Groups = frozenset[Group]

Scope = Literal["gpu", "module", "package"]
"""What a power or energy sensor covers: one GPU, a module with its CPU and memory, or a package of several dies."""


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Identity of one physical GPU. Partitions of it are `PartitionSample`s, never devices."""

    vendor: str
    """nvidia, amd, intel, ... in lower case; never a label of a reading."""
    key: str
    """Stable over restarts and library upgrades: NVIDIA UUID, AMD unique_id, else the PCI address."""
    model: str | None = None
    pci_address: str | None = None
    """dddd:bb:dd.f in lower case."""
    serial: str | None = None
    vendor_uuid: str | None = None
    index: int | None = None
    """Where the vendor's own tools list it; may change between boots."""
    minor: int | None = None
    """The N of /dev/nvidiaN or the minor number of the DRM render node."""
    architecture: str | None = None
    driver_version: str | None = None
    memory_kind: Literal["dedicated", "unified"] | None = None
    partition_mode: str | None = None
    """mig, or AMD's compute and memory mode such as SPX/NPS1."""
    package: str | None = None
    """Devices that share one physical package (MI250 dies, dual-GPU boards) have the same."""
    firmware: Mapping[str, str] = {}
    """Version by component."""


class PartitionSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One MIG instance or AMD partition. It owns no power sensor and so has no energy."""

    partition: str
    """Unique on its device: `gi3` or `gi3ci1` for MIG, the partition number for AMD."""
    uuid: str | None = None
    profile: str | None = None
    memory_used_bytes: float | None = None
    memory_size_bytes: float | None = None
    utilization_ratio: float | None = None


class LinkSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One link of the device to another GPU or a switch. Counters are as read: since the driver was loaded."""

    kind: str
    """Of metrics.LINK_KINDS."""
    link: str
    """Number of the link on its device."""
    up: bool | None = None
    receive_bytes: float | None = None
    transmit_bytes: float | None = None
    errors: Mapping[str, float] = {}
    """By error of metrics.LINK_ERRORS."""


class LinkTotal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was counted on all links of a kind together, from the first reading of each on; it never falls."""

    kind: str
    """Of metrics.LINK_KINDS."""
    receive_bytes: float | None = None
    transmit_bytes: float | None = None
    errors: Mapping[str, float] = {}
    """By error of metrics.LINK_ERRORS."""


class Fabric(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where the device stands in a fabric of GPUs over several hosts."""

    state: str
    """Of metrics.FABRIC_STATES."""
    cluster_uuid: str | None = None
    clique: int | None = None


class ErrorEvent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that the driver reported once, such as an XID."""

    kind: str
    """Of metrics.EVENT_KINDS."""
    code: str
    at: float | None = None
    """Unix time; None: not known, it is that of the read."""
    count: int = 1


class ProcessSample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One process that holds memory or a queue on the device, in one partition of it where it has partitions."""

    pid: int
    """As the vendor's driver tells it: of the host's namespace."""
    started: int | None = None
    """Start time in clock ticks since boot, of /proc/PID/stat: with the pid it names one process for the life of the
    boot. None: it has ended, or it cannot be seen."""
    name: str | None = None
    memory_used_bytes: float | None = None
    partition: str | None = None
    busy_ratio: float | None = None
    """Share of the device's time of work that this process took since the read before; None: not measured."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one read of one device gave. A reading that was not asked for, or has no value, is None or empty."""

    device: Device
    lost: bool = False
    """The device is gone (off the bus, needs a reset): `device` is the identity from before, nothing else is set."""
    asleep: bool = False
    """The device is suspended and was not woken."""
    taken_at: Mapping[Group, float] = {}
    """CLOCK_MONOTONIC seconds in the middle of the read, for each group that was read."""
    read_seconds: Mapping[Group, float] = {}
    """How long the read of each group took."""
    failed: tuple[str, ...] = ()
    """Readings that broke, by field of this record: the vendor answered an unexpected error."""
    rejected: tuple[str, ...] = ()
    """Readings whose value was outside its physical range, by field of this record."""
    sources: Mapping[str, str] = {}
    """Of metrics.READING_SOURCES, by field of this record, where a provider has several: gpu_metrics, hwmon, ..."""
    error_events: tuple[ErrorEvent, ...] = ()
    """What happened since the read before: each event is in one sample only."""
    error_event_kinds: tuple[str, ...] = ()
    """Kinds of metrics.EVENT_KINDS that this device is listened to for."""

    power_watts: float | None = None
    power_kind: Literal["average", "instant"] | None = None
    power_window_seconds: float | None = None
    """Averaging window of the power reading; 0: instant; None: not known."""
    power_scope: Scope = "gpu"
    power_limit_watts: float | None = None
    power_limit_default_watts: float | None = None
    module_power_watts: float | None = None
    memory_power_watts: float | None = None
    energy_counter_joules: float | None = None
    """Hardware accumulator as read; may reset, wrap, pause or lie. Accounted for in `energy`."""
    energy_counter_scope: Scope = "gpu"
    energy_counter_range_joules: float | None = None
    """Where the accumulator wraps to 0; None: beyond any lifetime."""
    energy_counter_at: float | None = None
    """The sensor's own time of the accumulator in seconds, on a clock of its own."""
    module_energy_counter_joules: float | None = None

    utilization_ratio: float | None = None
    memory_controller_utilization_ratio: float | None = None
    engine_utilization_ratio: Mapping[str, float] = {}
    memory_used_bytes: float | None = None
    memory_size_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    system_memory_used_bytes: float | None = None
    system_memory_size_bytes: float | None = None
    memory_visible_used_bytes: float | None = None
    memory_visible_size_bytes: float | None = None
    """The part of the device's memory that the CPU can address."""

    temperature_celsius: Mapping[str, float] = {}
    """By sensor of metrics.SENSORS."""
    temperature_limit_celsius: Mapping[str, float] = {}
    temperature_margin_celsius: float | None = None
    clock_hertz: Mapping[str, float] = {}
    """By domain of metrics.DOMAINS."""
    fan_speed_ratio: float | None = None
    performance_state: float | None = None
    throttled: Mapping[str, bool] = {}
    """By reason of metrics.REASONS; a reason that the device cannot tell is missing."""
    throttle_seconds: Mapping[str, float] = {}
    """Hardware counters by reason, as read."""
    ecc_errors: Mapping[str, float] = {}
    """Since driver load, by class of metrics.CLASSES."""
    ecc_lifetime_errors: Mapping[str, float] = {}
    memory_remap_failed: bool | None = None
    memory_remap_pending: bool | None = None
    retired_pages: Mapping[str, float] = {}
    """By cause."""
    pcie_link_generation: float | None = None
    pcie_link_width: float | None = None
    pcie_link_width_max: float | None = None
    pcie_replays: float | None = None
    pcie_receive_bytes: float | None = None
    pcie_transmit_bytes: float | None = None
    """Counters, widened by the provider where the hardware's wrap."""
    links: tuple[LinkSample, ...] | None = None
    """(): it has none; None: they cannot be told."""
    recovery_action: str | None = None
    """What the driver asks for to bring the device back, of metrics.RECOVERY_ACTIONS."""
    fabric: Fabric | None = None
    partitions: tuple[PartitionSample, ...] | None = None
    """(): not partitioned now; None: this device has none, or they could not be listed."""

    processes: tuple[ProcessSample, ...] | None = None
    """(): none; None: could not look."""
    process_counts: Mapping[str, int] = {}
    """By state of metrics.PROCESS_STATES."""

    sm_active_ratio: float | None = None
    """Share of time, averaged over all multiprocessors, in which a warp was resident."""
    sm_occupancy_ratio: float | None = None
    """Warps resident, of those that would fit."""
    tensor_active_ratio: float | None = None
    dram_active_ratio: float | None = None
    partition_sm_active_ratio: Mapping[str, float] = {}
    """By `PartitionSample.partition`."""


class GpuState(enum.StrEnum):
    OK = "ok"
    STALE = "stale"
    HUNG = "hung"
    LOST = "lost"
    RELEASED = "released"
    ASLEEP = "asleep"

    @property
    def answers(self) -> bool:
        """Whether the device gives readings, or sleeps and would."""
        return self in (GpuState.OK, GpuState.ASLEEP)


class Workload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who uses a GPU or has it allocated; an empty field does not apply or is not known."""

    key: str
    """Value of the label `workload`, unique on the host, such as pod/NAMESPACE/POD/CONTAINER or slurm/JOB."""
    kind: Literal["pod", "slurm", "container", "service", "user"]
    k8s_namespace: str = ""
    k8s_pod: str = ""
    k8s_container: str = ""
    pod_uid: str = ""
    container_id: str = ""
    slurm_job: str = ""
    slurm_user: str = ""
    slurm_account: str = ""
    slurm_partition: str = ""
    systemd_unit: str = ""
    user: str = ""


class Owner(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose process it is, for gpu_process_info."""

    pid: int
    started: int | None = None
    """As in ProcessSample."""
    name: str = ""
    user: str = ""
    workload: Workload | None = None
    """None: it could not be placed."""


class Allocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device, or one partition of it, that a workload was given, whether it runs anything there or not."""

    workload: Workload
    device: str
    """Key of the device."""
    partition: str | None = None
    share: float = 1.0
    """1 of a device or partition that it has alone, 1/n of one that n workloads share."""


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    source: str
    """Of metrics.ATTRIBUTION_SOURCES."""
    up: bool
    reason: str = ""
    """What keeps it from telling, in words; empty when all is well."""


class Attribution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of who uses the GPUs."""

    owners: tuple[Owner, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    sources: tuple[SourceStatus, ...] = ()
    unplaced_devices: int = 0
    """Allocated ids that belong to no device that is known."""
    unplaced_processes: int = 0


class WorkloadSnapshot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One workload on one device, as it is published. What is counted began at 0 when it was first seen there."""

    workload: Workload
    allocation_ratio: float | None = None
    """Share of the device that it was given; None: it has no allocation, and uses the device all the same."""
    active_joules: float | None = None
    idle_joules: float | None = None
    busy_seconds: float | None = None
    allocated_seconds: float | None = None
    start_timestamp: float | None = None
    """Unix time at which the counters began at 0."""


class ProcessSeries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Processes of one device that agree in the labels that are shown; a label that is not shown is empty."""

    pid: str = ""
    name: str = ""
    user: str = ""
    workload: str = ""
    memory_used_bytes: float | None = None


class EnergyAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The published side of an energy ledger; see energy.Ledger for the rules."""

    total_joules: float
    by_source_joules: Mapping[str, float]
    """hardware and integrated; they sum to the total."""
    hardware_joules: float | None
    """None: no accumulator was ever seen."""
    integrated_joules: float | None
    qualified: bool
    divergence_ratio: float | None
    uncertainty_ratio: float | None = None
    """The relative error expected of the newest five minutes, without that of the sensor itself."""
    covered_seconds: float
    gap_seconds: float
    faults: Mapping[str, int]
    start_timestamp: float
    """Unix time at which the total began at 0."""


class DeviceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The parent's view of one device: the newest readings of every group, without those that are too old."""

    gpu: str
    """Unique on the host, pinned to the key, such as nvidia0."""
    provider: str
    device: Device
    state: GpuState
    sample: Sample
    sources: Mapping[str, str] = {}
    """Where readings are from, by field of Sample: PROVIDER, or PROVIDER/SOURCE with one of metrics.READING_SOURCES.

    What is not named is from `provider`, which has only one source of it.
    """
    last_sample_timestamp: float | None = None
    energy: EnergyAccount | None = None
    module_energy_joules: float | None = None
    busy_seconds: float | None = None
    throttle_seconds: Mapping[str, float] = {}
    link_totals: tuple[LinkTotal, ...] = ()
    error_events: Mapping[tuple[str, str], float] = {}
    """Counted by kind and code since the start; the fatal codes of a kind that is listened to begin at 0."""
    error_event_timestamps: Mapping[tuple[str, str], float] = {}
    """Unix time of the newest, by kind and code."""
    workloads: tuple[WorkloadSnapshot, ...] = ()
    unattributed_joules: float | None = None
    """What of `energy.total_joules` no workload was charged since it is divided; None: it is not divided."""
    process_series: tuple[ProcessSeries, ...] = ()
    """Those that hold the most memory, and the rest as one."""
    process_owners: tuple[Owner, ...] = ()
    """Of the pids that have a series of their own."""


NOT_OPENED = "not open yet"
"""`Snapshot.reason` until the first attempt to open the provider is over."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The parent's view of one provider. Data and health are separate fields."""

    provider: str
    up: bool
    wanted: bool
    """Asked for by name, was up before, or the host has hardware for it: its `up` is published even when it is 0."""
    reason: str
    """Why it is not up, in words; empty when all is well."""
    library_version: str | None = None
    devices: tuple[DeviceSnapshot, ...] = ()
    devices_expected: int | None = None
    """How many PCI shows; None: this provider does not read PCI devices."""
    last_sample_timestamp: float | None = None
    sample_duration_seconds: Mapping[str, float] = {}
    """By group: the last pass over all devices."""
    read_failures: Mapping[str, int] = {}
    rejected_readings: Mapping[str, int] = {}
    worker_restarts: Mapping[str, int] = {}
    """By cause of metrics.RESTART_CAUSES."""


class WebCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What the server for HTTP could not do, since its start."""

    refused: int = 0
    """Requests and connections turned away because there were too many, or came too fast."""
    failed: int = 0
    """Requests whose page could not be made."""
    denied: int = 0
    """Requests without a valid login, and TLS handshakes without a valid certificate."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a page shows."""

    snapshots: tuple[Snapshot, ...]
    versions: Mapping[str, int]
    """By metrics.Block: changes whenever a rendered block would."""
    workers_abandoned: int = 0
    released: bool = False
    config_reloaded: bool = True
    """Whether the files of the configuration could be read when they were last asked for; at the start they could."""
    config_reloaded_timestamp: float | None = None
    """Unix time at which all of them last could."""
    journal_up: bool | None = None
    """Whether totals are kept over a restart; None: no directory is configured."""
    series_dropped: Mapping[str, int] = {}
    """By family, as counted by the renderer of the page before."""
    web: WebCounts = WebCounts()
    attribution: Attribution | None = None
    """None: nobody looks."""
