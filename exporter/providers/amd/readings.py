"""What load, memory, temperatures, clocks, throttling, errors and the link of a package say."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from exporter.model import PartitionSample
from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.amd.identity import partition_uuids
from exporter.providers.amd.packages import Package
from exporter.providers.sanitise import (
    BYTES,
    CELSIUS,
    COUNT,
    HERTZ,
    LINK_GENERATION,
    LINK_WIDTH,
    RATIO,
    Range,
    Readings,
)

_MIB = 2.0**20
_PERCENT = 100
_MEGAHERTZ = 1e6
_FAN_FULL = 255.0

_SENSORS = (
    ("edge", "EDGE"),
    ("hotspot", "HOTSPOT"),
    ("memory", "VRAM"),
    *((f"hbm{stack}", f"HBM_{stack}") for stack in range(4)),
)
_TEMPERATURE_LIMITS = (
    ("shutdown", "HOTSPOT", "EMERGENCY"),
    ("slowdown", "HOTSPOT", "CRITICAL"),
    ("memory", "VRAM", "CRITICAL"),
)
_CLOCKS = (("graphics", "GFX"), ("memory", "MEM"), ("soc", "SOC"), ("fabric", "DF"), ("video", "VCLK0"))
# Accumulators of the firmware (from ROCm 6.3) that advance while it holds clocks down. amdsmi_get_violation_status
# makes the same of them but sleeps 100 ms for it.
_RESIDENCIES = (
    ("processor_hot", "prochot_residency_acc"),
    ("sw_power_cap", "ppt_residency_acc"),
    ("hw_thermal", "socket_thm_residency_acc"),
    ("voltage_regulator_thermal", "vr_thm_residency_acc"),
    ("memory_thermal", "hbm_thm_residency_acc"),
)
_ECC = (("corrected", "correctable_count"), ("uncorrected", "uncorrectable_count"), ("deferred", "deferred_count"))
_GENERATION_OF_SPEED = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}
"""By MT/s."""
_SPEEDS = Range(0.0, 1e6)
_PARTS = Range(1.0, 64.0)

Residency = Mapping[str, float]


class State(NamedTuple):
    fields: dict[str, Any]
    """Of Sample."""
    residency: Residency
    """Throttle accumulators."""
    parts: int | None
    """How many partitions the firmware counts; None: it does not say (before ROCm 6.3)."""


class Memory(msgspec.Struct, frozen=True):
    used_bytes: float | None = None
    size_bytes: float | None = None


def read_load(calls: Calls, package: Package, readings: Readings) -> dict[str, Any]:
    """Read utilisation and memory, as fields of Sample."""
    activity = mapping(calls.reading(readings, "utilization_ratio", "amdsmi_get_gpu_activity", package.handle))
    media = readings.number("engine_utilization_ratio", activity.get("mm_activity"), RATIO, per=_PERCENT)
    memory = read_memory(calls, package.handle, readings)
    if memory.size_bytes is None:
        # Only the size: on ROCm up to 7.11 the usage of VRAM by this family of calls opens /dev/kfd in our process.
        memory = Memory(memory.used_bytes, _host_memory(calls, package, readings, "total", "VRAM"))
    return {
        "utilization_ratio": readings.number("utilization_ratio", activity.get("gfx_activity"), RATIO, per=_PERCENT),
        "memory_controller_utilization_ratio": readings.number(
            "memory_controller_utilization_ratio", activity.get("umc_activity"), RATIO, per=_PERCENT
        ),
        "engine_utilization_ratio": {} if media is None else {"media": media},
        "memory_used_bytes": memory.used_bytes,
        "memory_size_bytes": memory.size_bytes,
        "system_memory_used_bytes": _host_memory(calls, package, readings, "usage", "GTT"),
        "system_memory_size_bytes": _host_memory(calls, package, readings, "total", "GTT"),
    }


def read_memory(calls: Calls, handle: Any, readings: Readings) -> Memory:
    """Read the VRAM that one handle shows: of the package, or of a partition."""
    usage = mapping(calls.reading(readings, "memory_used_bytes", "amdsmi_get_gpu_vram_usage", handle))
    size = readings.number("memory_size_bytes", usage.get("vram_total"), BYTES, _MIB)
    used = readings.number("memory_used_bytes", usage.get("vram_used"), BYTES, _MIB)
    return Memory(used, size or None)


def read_state(calls: Calls, package: Package, profile: str | None, before: Residency, readings: Readings) -> State:
    """Read the slow readings. `profile`: compute mode of the partitions. `before`: `residency` of the read before."""
    metrics = mapping(calls.reading(readings, "throttled", "amdsmi_get_gpu_metrics_info", package.handle))
    residency = _residency(metrics, readings)
    fields = {
        "temperature_celsius": _temperatures(calls, package, readings),
        "temperature_limit_celsius": _temperature_limits(calls, package, readings),
        "clock_hertz": _clocks(calls, package, readings),
        "fan_speed_ratio": _fan(calls, package, readings),
        "throttled": {name: value > before[name] for name, value in residency.items() if name in before},
        "ecc_errors": _ecc(calls, package, readings),
        "partitions": _partitions(calls, package, profile, metrics, readings),
        **_link(calls, package, readings),
    }
    parts = Readings().number("partitions", metrics.get("num_partition"), _PARTS)
    return State(fields, residency, None if parts is None else int(parts))


def _host_memory(calls: Calls, package: Package, readings: Readings, what: str, kind: str) -> float | None:
    member = calls.member("AmdSmiMemoryType", kind)
    name = f"{'system_' if kind == 'GTT' else ''}memory_{'used' if what == 'usage' else 'size'}_bytes"
    raw = calls.reading(readings, name, f"amdsmi_get_gpu_memory_{what}", package.handle, member)
    return readings.number(name, raw, BYTES, bits=64)


def _temperature(calls: Calls, package: Package, readings: Readings, sensor: str, metric: str) -> float | None:
    kind, measure = calls.member("AmdSmiTemperatureType", sensor), calls.member("AmdSmiTemperatureMetric", metric)
    if kind is None or measure is None:
        return None
    name = "temperature_celsius" if metric == "CURRENT" else "temperature_limit_celsius"
    raw = calls.reading(readings, name, "amdsmi_get_temp_metric", package.handle, kind, measure)
    return readings.number(name, raw, CELSIUS)


def _temperatures(calls: Calls, package: Package, readings: Readings) -> dict[str, float]:
    return _known({name: _temperature(calls, package, readings, sensor, "CURRENT") for name, sensor in _SENSORS})


def _temperature_limits(calls: Calls, package: Package, readings: Readings) -> dict[str, float]:
    return _known(
        {
            name: _temperature(calls, package, readings, sensor, metric) or None  # 0: not set
            for name, sensor, metric in _TEMPERATURE_LIMITS
        }
    )


def _clocks(calls: Calls, package: Package, readings: Readings) -> dict[str, float]:
    clocks: dict[str, float | None] = {}
    for domain, member in _CLOCKS:
        kind = calls.member("AmdSmiClkType", member)
        clock = mapping(calls.reading(readings, "clock_hertz", "amdsmi_get_clock_info", package.handle, kind))
        raw = clock.get("clk", clock.get("cur_clk"))  # `cur_clk` up to ROCm 6.1
        clocks[domain] = readings.number("clock_hertz", raw, HERTZ, _MEGAHERTZ)
    return _known(clocks)


def _fan(calls: Calls, package: Package, readings: Readings) -> float | None:
    raw = calls.reading(readings, "fan_speed_ratio", "amdsmi_get_gpu_fan_speed", package.handle, 0)
    return readings.number("fan_speed_ratio", raw, RATIO, per=_FAN_FULL)


def _residency(metrics: Mapping[str, Any], readings: Readings) -> Residency:
    return _known({name: readings.number("throttled", metrics.get(key), COUNT, bits=64) for name, key in _RESIDENCIES})


def _ecc(calls: Calls, package: Package, readings: Readings) -> dict[str, float]:
    counts = mapping(calls.reading(readings, "ecc_errors", "amdsmi_get_gpu_total_ecc_count", package.handle))
    return _known({name: readings.number("ecc_errors", counts.get(key), COUNT, bits=64) for name, key in _ECC})


def _link(calls: Calls, package: Package, readings: Readings) -> dict[str, float | None]:
    info = mapping(calls.reading(readings, "pcie_link_width", "amdsmi_get_pcie_info", package.handle))
    metric, static = mapping(info.get("pcie_metric")), mapping(info.get("pcie_static"))
    if not info:  # ROCm 6.0
        old = mapping(calls.reading(readings, "pcie_link_width", "amdsmi_get_pcie_link_status", package.handle))
        caps = mapping(calls.reading(readings, "pcie_link_width", "amdsmi_get_pcie_link_caps", package.handle))
        metric = {"pcie_width": old.get("pcie_lanes"), "pcie_speed": old.get("pcie_speed")}
        static = {"max_pcie_width": caps.get("max_pcie_lanes")}
    return {
        "pcie_link_generation": _generation(readings, metric.get("pcie_speed")),
        "pcie_link_width": readings.number("pcie_link_width", metric.get("pcie_width"), LINK_WIDTH) or None,
        "pcie_link_width_max": readings.number("pcie_link_width_max", static.get("max_pcie_width"), LINK_WIDTH) or None,
        "pcie_replays": readings.number("pcie_replays", metric.get("pcie_replay_count"), COUNT, bits=64),
    }


def _generation(readings: Readings, raw: object) -> float | None:
    """Return the generation of a speed, which old releases give as a code up to 6 or in 0.1 GT/s."""
    name = "pcie_link_generation"
    speed = readings.number(name, raw, _SPEEDS)
    if not speed:
        return None
    if speed <= max(_GENERATION_OF_SPEED.values()):
        return speed
    generation = _GENERATION_OF_SPEED.get(int(speed)) or _GENERATION_OF_SPEED.get(int(speed * 100))
    return readings.number(name, LINK_GENERATION.high + 1 if generation is None else generation, LINK_GENERATION)


def _partitions(
    calls: Calls, package: Package, profile: str | None, metrics: Mapping[str, Any], readings: Readings
) -> tuple[PartitionSample, ...]:
    if not package.partitioned:
        return ()
    memories = own_memories([read_memory(calls, part.handle, readings) for part in package.parts])
    uuids = partition_uuids(calls, package)
    busy = metrics.get("xcp_stats.gfx_busy_inst")
    return tuple(
        PartitionSample(
            partition=str(part.number),
            uuid=uuid,
            profile=profile,
            memory_used_bytes=memory.used_bytes,
            memory_size_bytes=memory.size_bytes,
            utilization_ratio=_busy(busy, part.number, readings),
        )
        for part, memory, uuid in zip(package.parts, memories, uuids, strict=True)
    )


def own_memories(shown: list[Memory]) -> list[Memory]:
    """Leave of the memory that each partition shows what is its own.

    Up to ROCm 6.4.0 each shows the whole card. From 6.4.1 the first shows the whole card, the others their shares,
    which are equal.
    """
    first, *others = shown
    shares = {memory.size_bytes for memory in others}
    if first.size_bytes in shares or None in shares:
        return [memory if memory.size_bytes != first.size_bytes else Memory() for memory in shown]
    return [Memory(None, shares.pop() if len(shares) == 1 else None), *others]


def _busy(lists: object, number: int, readings: Readings) -> float | None:
    """Return the mean over the compute dies of a partition; the rest of its list is "N/A"."""
    if not isinstance(lists, list) or number >= len(lists) or not isinstance(lists[number], list):
        return None
    dies = [readings.number("partitions", raw, RATIO, per=_PERCENT) for raw in lists[number]]
    known = [die for die in dies if die is not None]
    return sum(known) / len(known) if known else None


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
