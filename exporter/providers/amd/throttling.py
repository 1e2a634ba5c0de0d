"""For how long did the firmware hold the clocks of a package down.

From ROCm 6.3 the table of metrics has accumulators that advance in each cycle of the firmware in which it does, and one
that advances in every cycle. `amdsmi_get_violation_status` makes percentages of them, and sleeps 100 ms for it.
"""

from collections.abc import Mapping
from typing import Any

from exporter.providers.residency import Cycles, Residency
from exporter.providers.sanitise import COUNT, Range, Readings

_RESIDENCIES = (
    ("processor_hot", "prochot_residency_acc"),
    ("sw_power_cap", "ppt_residency_acc"),
    ("hw_thermal", "socket_thm_residency_acc"),
    ("voltage_regulator_thermal", "vr_thm_residency_acc"),
    ("memory_thermal", "hbm_thm_residency_acc"),
)
_NAME = "throttled"
_DRIVER_SECONDS = Range(0.0, 1e10)
_NANO = 1e9


class Throttling:
    """Counts the seconds of one package since its first read."""

    def __init__(self) -> None:
        self._residency = Residency()

    def observe(self, metrics: Mapping[str, Any], at: float, readings: Readings) -> dict[str, dict[str, Any]]:
        """Take a table that was read at `at`, and return `throttled` and `throttle_seconds` of Sample."""
        throttled, seconds = self._residency.observe(_cycles(metrics, at, readings))
        return {"throttled": throttled, "throttle_seconds": seconds}

    def interrupt(self) -> None:
        """As of `Residency`."""
        self._residency.interrupt()


def _cycles(metrics: Mapping[str, Any], at: float, readings: Readings) -> Cycles:
    held = {name: readings.number(_NAME, metrics.get(key), COUNT, bits=64) for name, key in _RESIDENCIES}
    # When the driver filled in the table, which the library may keep for 100 ms.
    clock = metrics.get("system_clock_counter") or None
    driver = Readings().number(_NAME, clock, _DRIVER_SECONDS, per=_NANO, bits=64)
    return Cycles(
        at=at if driver is None else driver,
        by_driver=driver is not None,
        every=readings.number(_NAME, metrics.get("accumulation_counter") or None, COUNT, bits=64),
        held={name: value for name, value in held.items() if value is not None},
    )
