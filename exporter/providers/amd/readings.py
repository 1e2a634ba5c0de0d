"""What load, memory, temperatures, clocks, throttling, errors and the link of a package say."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.amd.links import read_links
from exporter.providers.amd.packages import Package
from exporter.providers.amd.partitions import Memory, read_memory, read_partitions
from exporter.providers.amd.throttling import Throttling
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
_ECC = (("corrected", "correctable_count"), ("uncorrected", "uncorrectable_count"), ("deferred", "deferred_count"))
_GENERATION_OF_SPEED = {2500: 1, 5000: 2, 8000: 3, 16000: 4, 32000: 5, 64000: 6}
"""By MT/s."""
_MEMORIES = {"VRAM": "memory", "VIS_VRAM": "memory_visible", "GTT": "system_memory"}
_SPEEDS = Range(0.0, 1e6)
_PARTS = Range(1.0, 64.0)


class State(NamedTuple):
    fields: dict[str, Any]
    """Of Sample."""
    parts: int | None
    """How many partitions the firmware counts; None: it does not say (before ROCm 6.3)."""


def read_load(calls: Calls, package: Package, readings: Readings) -> dict[str, Any]:
    """Read utilisation and memory, as fields of Sample."""
    activity = mapping(calls.reading(readings, "utilization_ratio", "amdsmi_get_gpu_activity", package.handle))
    media = readings.number("engine_utilization_ratio", activity.get("mm_activity"), RATIO, per=_PERCENT)
    memory = read_memory(calls, package.handle, readings)
    if memory.size_bytes is None:
        # Only the size: on ROCm up to 7.11 the usage of VRAM by this family of calls opens /dev/kfd in our process.
        memory = Memory(memory.used_bytes, _memory(calls, package, readings, "total", "VRAM"))
    return {
        "utilization_ratio": readings.number("utilization_ratio", activity.get("gfx_activity"), RATIO, per=_PERCENT),
        "memory_controller_utilization_ratio": readings.number(
            "memory_controller_utilization_ratio", activity.get("umc_activity"), RATIO, per=_PERCENT
        ),
        "engine_utilization_ratio": {} if media is None else {"media": media},
        "memory_used_bytes": memory.used_bytes,
        "memory_size_bytes": memory.size_bytes,
        "memory_visible_used_bytes": _memory(calls, package, readings, "usage", "VIS_VRAM"),
        "memory_visible_size_bytes": _memory(calls, package, readings, "total", "VIS_VRAM"),
        "system_memory_used_bytes": _memory(calls, package, readings, "usage", "GTT"),
        "system_memory_size_bytes": _memory(calls, package, readings, "total", "GTT"),
    }


def read_state(
    calls: Calls, package: Package, profile: str | None, throttling: Throttling, at: float, readings: Readings
) -> State:
    """Read the slow readings at `at` (monotonic seconds). `profile`: compute mode of the partitions."""
    metrics = mapping(calls.reading(readings, "throttled", "amdsmi_get_gpu_metrics_info", package.handle))
    fields = {
        "temperature_celsius": _temperatures(calls, package, readings),
        "temperature_limit_celsius": _temperature_limits(calls, package, readings),
        "clock_hertz": _clocks(calls, package, readings),
        "fan_speed_ratio": _fan(calls, package, readings),
        **throttling.observe(metrics, at, readings),
        "ecc_errors": _ecc(calls, package, readings),
        "links": read_links(metrics, readings),
        "partitions": read_partitions(calls, package, profile, metrics, readings),
        **_link(calls, package, readings),
    }
    parts = Readings().number("partitions", metrics.get("num_partition"), _PARTS)
    return State(fields, None if parts is None else int(parts))


def _memory(calls: Calls, package: Package, readings: Readings, what: str, kind: str) -> float | None:
    member = calls.member("AmdSmiMemoryType", kind)
    name = f"{_MEMORIES[kind]}_{'used' if what == 'usage' else 'size'}_bytes"
    raw = calls.reading(readings, name, f"amdsmi_get_gpu_memory_{what}", package.handle, member)
    value = readings.number(name, raw, BYTES, bits=64)
    return value if what == "usage" else value or None  # a memory of 0 bytes is none


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


def _known(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}
