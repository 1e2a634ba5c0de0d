"""Temperatures, clocks, throttling, memory errors, links, fabric, recovery and the fan."""

from functools import lru_cache
from typing import Any

from exporter.providers.nvidia import pcie
from exporter.providers.nvidia.fabric import fabric
from exporter.providers.nvidia.fields import Field, Fields
from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.library import Known
from exporter.providers.nvidia.links import link_fields, links
from exporter.providers.nvidia.partitions import partitions
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import CELSIUS, COUNT, FAN_RATIO, HERTZ, PERFORMANCE_STATE, Range

_DIE = 0
_MEMORY_TEMPERATURE: Field = (82, 0)
_THRESHOLDS = {"shutdown": 0, "slowdown": 1, "memory": 2, "target": 5}
_DOMAINS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
_MEGA = 1e6
_PERCENT = 100
_NANO = 1_000_000_000
_UNKNOWN_PSTATE = 32

_SUPPORTED_REASONS = (
    "nvmlDeviceGetSupportedClocksEventReasons",
    "nvmlDeviceGetSupportedClocksThrottleReasons",
)
_REASON_BITS = {
    "idle": 0x1,
    "application_clocks": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
_REASON_TIMES: dict[Field, str] = {
    (74, 0): "sw_power_cap",
    (76, 0): "sync_boost",
    (77, 0): "board_limit",
    (269, 0): "sw_thermal",
    (270, 0): "hw_thermal",
    (271, 0): "hw_power_brake",
}
_RECOVERY: Field = (230, 0)
_RECOVERY_ACTIONS: dict[float, str] = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""By number; what newer drivers add is no action that could be named."""
_FIELDS: dict[Field, str] = {
    _MEMORY_TEMPERATURE: "temperature_celsius",
    **dict.fromkeys(_REASON_TIMES, "throttle_seconds"),
    _RECOVERY: "recovery_action",
}
_SECONDS = Range(0.0, 1e10)

_CLASSES = {"corrected": 0, "uncorrected": 1}
_VOLATILE, _AGGREGATE = 0, 1
_RETIREMENT_CAUSES = {"single_bit": 0, "double_bit": 1}


def state(reading: Reading, gpu: Gpu, moved: pcie.ByteCounters | None, now: float) -> dict[str, Any]:
    """Read Sample's fields of the state group, by name, at the monotonic time `now`.

    `moved`: None where bytes over PCIe are not asked for.
    """
    fields = reading.fields(_asked(link_fields(gpu, now), moved is not None))
    action = reading.number("recovery_action", fields.get(_RECOVERY), COUNT)
    return {
        **_temperatures(reading, gpu.fixed, fields.get(_MEMORY_TEMPERATURE)),
        **_clocks(reading),
        "throttled": _throttled(reading, gpu),
        "throttle_seconds": reading.numbers(
            "throttle_seconds",
            ((reason, fields.get(field)) for field, reason in _REASON_TIMES.items()),
            _SECONDS,
            per=_NANO,
            bits=64,
        ),
        "ecc_errors": _ecc(reading, gpu.fixed, "ecc_errors", _VOLATILE),
        "ecc_lifetime_errors": _ecc(reading, gpu.fixed, "ecc_lifetime_errors", _AGGREGATE),
        **_memory_repairs(reading, gpu.fixed),
        **pcie.link(reading, gpu.fixed),
        **({} if moved is None else moved.read(reading, gpu.device.key, fields)),
        "links": links(reading, gpu, fields, now),
        "recovery_action": None if action is None else _RECOVERY_ACTIONS.get(action),
        "fabric": fabric(reading, gpu.fixed),
        "fan_speed_ratio": reading.number(
            "fan_speed_ratio",
            reading.unless_refused(gpu.fixed, "fan_speed_ratio", "nvmlDeviceGetFanSpeed"),
            FAN_RATIO,
            per=_PERCENT,
        ),
        "partitions": partitions(reading, gpu),
    }


@lru_cache(maxsize=32)
def _asked(of_links: Fields, with_bytes: bool) -> Fields:
    return Fields({**_FIELDS, **of_links.names, **(pcie.BYTE_FIELDS if with_bytes else {})})


def _temperatures(reading: Reading, fixed: Known, memory: float | None) -> dict[str, Any]:
    name, limit, margin = "temperature_celsius", "temperature_limit_celsius", "temperature_margin_celsius"
    # The signed call came with later drivers; the older one is to be removed in CUDA 14.
    die = reading.first(name, "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", arguments=(_DIE,))
    thresholds = (
        (measure, reading.fixed(fixed, limit, "nvmlDeviceGetTemperatureThreshold", code))
        for measure, code in _THRESHOLDS.items()
    )
    return {
        # Boards without HBM are known to answer 0 for their memory.
        name: reading.numbers(name, (("gpu", die), ("memory", memory or None)), CELSIUS),
        limit: reading.numbers(limit, thresholds, CELSIUS),
        margin: reading.number(
            margin, reading.unless_refused(fixed, margin, "nvmlDeviceGetMarginTemperature"), CELSIUS
        ),
    }


def _clocks(reading: Reading) -> dict[str, Any]:
    pstate = reading.get("performance_state", "nvmlDeviceGetPerformanceState")
    clocks = ((domain, reading.get("clock_hertz", "nvmlDeviceGetClockInfo", code)) for domain, code in _DOMAINS.items())
    return {
        "clock_hertz": reading.numbers("clock_hertz", clocks, HERTZ, per=1 / _MEGA),
        "performance_state": reading.number(
            "performance_state", None if pstate == _UNKNOWN_PSTATE else pstate, PERFORMANCE_STATE
        ),
    }


def _throttled(reading: Reading, gpu: Gpu) -> dict[str, bool]:
    """Tell for each reason that the device knows whether it holds. Both calls have an older name."""
    name = "throttled"
    current = reading.first(name, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    mask = reading.number(name, current, COUNT, bits=64)
    if mask is None:
        return {}
    supported: int | None = next(
        filter(None, (reading.fixed(gpu.fixed, name, function) for function in _SUPPORTED_REASONS)), None
    )
    known = supported | int(mask) if supported else -1
    return {reason: bool(int(mask) & bit) for reason, bit in _REASON_BITS.items() if known & bit}


def _ecc(reading: Reading, fixed: Known, name: str, counter: int) -> dict[str, float]:
    errors = (
        (error_class, reading.unless_refused(fixed, name, "nvmlDeviceGetTotalEccErrors", code, counter))
        for error_class, code in _CLASSES.items()
    )
    return reading.numbers(name, errors, COUNT, bits=64)


def _memory_repairs(reading: Reading, fixed: Known) -> dict[str, Any]:
    """Rows are remapped from Ampere on (refused while MIG instances exist); before, pages were retired."""
    rows = reading.get("memory_remap_failed", "nvmlDeviceGetRemappedRows")
    pages = {
        cause: reading.unless_refused(fixed, "retired_pages", "nvmlDeviceGetRetiredPages", code)
        for cause, code in _RETIREMENT_CAUSES.items()
    }
    return {
        "memory_remap_pending": None if rows is None else bool(rows[2]),
        "memory_remap_failed": None if rows is None else bool(rows[3]),
        "retired_pages": {cause: float(len(addresses)) for cause, addresses in pages.items() if addresses is not None},
    }
