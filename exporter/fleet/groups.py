"""Which readings belong together: taken in one read, withheld together, shown in one block."""

import functools
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from exporter.config import SamplingConfig
from exporter.metrics import Block
from exporter.model import DeviceSnapshot, Group, Groups, PartitionSample, Sample

STALE_PERIODS = 3
STALE_SECONDS = 15.0
CUT_OFF_SECONDS = 5.0
"""How old readings may become while their provider is down: long enough for a worker to be replaced."""

ITS_OWN = frozenset({Group.ENERGY, Group.LOAD, Group.STATE})
"""What only the device itself can tell; processes are found without it."""

FIELDS: Mapping[Group, tuple[str, ...]] = MappingProxyType(
    {
        Group.ENERGY: (
            "power_watts",
            "power_kind",
            "power_window_seconds",
            "power_scope",
            "power_limit_watts",
            "power_limit_default_watts",
            "module_power_watts",
            "memory_power_watts",
            "energy_counter_joules",
            "energy_counter_scope",
            "energy_counter_range_joules",
            "energy_counter_at",
            "module_energy_counter_joules",
        ),
        Group.LOAD: (
            "utilization_ratio",
            "memory_controller_utilization_ratio",
            "engine_utilization_ratio",
            "memory_used_bytes",
            "memory_size_bytes",
            "memory_reserved_bytes",
            "system_memory_used_bytes",
            "system_memory_size_bytes",
            "memory_visible_used_bytes",
            "memory_visible_size_bytes",
        ),
        Group.STATE: (
            "temperature_celsius",
            "temperature_limit_celsius",
            "temperature_margin_celsius",
            "clock_hertz",
            "fan_speed_ratio",
            "performance_state",
            "throttled",
            "throttle_seconds",
            "ecc_errors",
            "ecc_lifetime_errors",
            "memory_remap_failed",
            "memory_remap_pending",
            "retired_pages",
            "pcie_link_generation",
            "pcie_link_width",
            "pcie_link_width_max",
            "pcie_replays",
            "pcie_receive_bytes",
            "pcie_transmit_bytes",
            "links",
            "recovery_action",
            "fabric",
            "partitions",
        ),
        Group.PROCESSES: ("processes", "process_counts"),
        Group.PROFILING: (
            "sm_active_ratio",
            "sm_occupancy_ratio",
            "tensor_active_ratio",
            "dram_active_ratio",
            "partition_sm_active_ratio",
        ),
    }
)
"""Fields of Sample by the group that reads them."""

ABOUT_THE_READ = (
    *("device", "lost", "asleep", "taken_at", "read_seconds", "failed", "rejected", "sources"),
    *("error_events", "error_event_kinds"),
)
"""Fields of Sample that belong to no group."""

BLOCKS: Mapping[Group, tuple[Block, ...]] = MappingProxyType(
    {
        Group.ENERGY: (Block.ENERGY, Block.WORKLOADS),
        Group.LOAD: (Block.LOAD,),
        Group.STATE: (Block.STATE, Block.PARTITIONS),
        Group.PROCESSES: (Block.PROCESSES,),
        Group.PROFILING: (Block.PROFILING,),
    }
)
"""Where the readings of a group are shown."""


def _shown(snapshot_fields: tuple[str, ...], group: Group | None = None, only: str = "", but: str = "") -> Any:
    fields = () if group is None else FIELDS[group]
    chosen = (name for name in fields if name != but and (not only or name == only))
    return attrgetter(*snapshot_fields, *(f"sample.{name}" for name in chosen))


_SHOWN: Mapping[Block, Callable[[DeviceSnapshot], object]] = MappingProxyType(
    {
        Block.DEVICE: _shown(("gpu", "provider", "device", "state")),
        Block.ENERGY: _shown(
            ("energy", "module_energy_joules", "last_sample_timestamp", "workloads", "unattributed_joules"),
            Group.ENERGY,
        ),
        Block.LOAD: _shown(("busy_seconds",), Group.LOAD),
        Block.STATE: _shown(
            ("throttle_seconds", "link_totals", "error_events", "error_event_timestamps"), Group.STATE, but="partitions"
        ),
        Block.PARTITIONS: _shown((), Group.STATE, only="partitions"),
        Block.PROCESSES: _shown(("process_series", "process_owners"), Group.PROCESSES, but="processes"),
        Block.PROFILING: _shown((), Group.PROFILING),
        Block.WORKLOADS: lambda shown: [(one.workload, one.allocation_ratio) for one in shown.workloads],
    }
)
"""All of a device that a block shows, besides its labels."""

DEVICE_BLOCKS = frozenset(_SHOWN)

_TOLD_WITHOUT_A_READ = frozenset(
    {
        *("power_kind", "power_window_seconds", "power_scope", "energy_counter_scope", "energy_counter_range_joules"),
        # Of AMD GPUs the limit is kept from one enumeration to the next, as the list of partitions is.
        *("power_limit_default_watts", "partitions"),
    }
)
_READ: Mapping[Group, Callable[[Sample], tuple[Any, ...]]] = MappingProxyType(
    {group: attrgetter(*(name for name in FIELDS[group] if name not in _TOLD_WITHOUT_A_READ)) for group in ITS_OWN}
)

_FIRST: Mapping[Group, str] = MappingProxyType(
    {Group.ENERGY: "power_watts", Group.LOAD: "utilization_ratio", Group.STATE: "performance_state"}
)
"""One of them that most devices give: the others need not be looked at."""

_GETTERS: Mapping[Group, Callable[[Sample], tuple[Any, ...]]] = MappingProxyType(
    {group: attrgetter(*names) for group, names in FIELDS.items() if names}
)
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        field.name: field.default_factory() if field.default is msgspec.NODEFAULT else field.default
        for field in msgspec.structs.fields(Sample)
        if field.name != "device"
    }
)


@functools.cache
def blocks_of(shown: Groups) -> frozenset[Block]:
    """Return where a snapshot may look different that has other readings of these groups."""
    return frozenset({Block.DEVICE}).union(*(BLOCKS[group] for group in shown))


def readings(group: Group, sample: Sample | None) -> dict[str, Any]:
    """Return the fields of a group with their values; without a sample, with the values that mean "none"."""
    if group not in _GETTERS:
        return {}
    if sample is None:
        return {name: _DEFAULTS[name] for name in FIELDS[group]}
    return dict(zip(FIELDS[group], _GETTERS[group](sample), strict=True))


def gave(sample: Sample, group: Group) -> bool:
    """Tell whether a read of a group in ITS_OWN gave a value. What a device does not have at all gives none either."""
    if getattr(sample, _FIRST[group]) is not None or any(
        value is not None and value != {} for value in _READ[group](sample)
    ):
        return True
    return group is Group.STATE and any(map(_has_reading, sample.partitions or ()))


def _has_reading(part: PartitionSample) -> bool:
    return any(value is not None for value in (part.memory_used_bytes, part.memory_size_bytes, part.utilization_ratio))


def changed(before: DeviceSnapshot, after: DeviceSnapshot, blocks: Iterable[Block]) -> set[Block]:
    """Return those of the blocks that look different after."""
    found = set()
    if before.last_sample_timestamp != after.last_sample_timestamp:
        found.add(Block.ENERGY)  # the usual case, and cheaper to see than to compare all the readings
    for block in blocks:
        if block not in found and _SHOWN[block](before) != _SHOWN[block](after):
            found.add(block)
    return found


def lifetimes(sampling: SamplingConfig) -> dict[Group, float]:
    """Return the age in seconds beyond which the readings of a group are withheld."""
    periods = {
        Group.ENERGY: sampling.energy_period(averaged=True),
        Group.LOAD: sampling.load_seconds,
        Group.STATE: sampling.state_seconds,
        Group.PROCESSES: sampling.processes_seconds,
        Group.PROFILING: sampling.profiling_seconds or 0.0,
    }
    return {group: max(STALE_SECONDS, STALE_PERIODS * periods.get(group, 0.0)) for group in Group}
