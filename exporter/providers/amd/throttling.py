"""For how long did the firmware hold the clocks of a package down.

From ROCm 6.3 the table of metrics has accumulators that advance in each cycle of the firmware in which it does, and one
that advances in every cycle. `amdsmi_get_violation_status` makes percentages of them, and sleeps 100 ms for it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

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


class Cycles(NamedTuple):
    """What the accumulators said, and when."""

    at: float
    """Seconds, on the clock of the driver or on ours: which of them is `by_driver`."""
    by_driver: bool
    every: float | None
    held: Mapping[str, float]


class Throttling:
    """Counts the seconds of one package since its first read."""

    def __init__(self) -> None:
        self._before: Cycles | None = None
        self._seconds: dict[str, float] = {}

    def observe(self, metrics: Mapping[str, Any], at: float, readings: Readings) -> dict[str, dict[str, Any]]:
        """Take a table that was read at `at`, and return `throttled` and `throttle_seconds` of Sample."""
        now, before = _cycles(metrics, at, readings), self._before
        steps = (
            {}
            if before is None
            else {reason: held - before.held[reason] for reason, held in now.held.items() if reason in before.held}
        )
        passed = {} if before is None else self._passed(before, now, steps)
        if now.every is not None:
            for reason in now.held:
                self._seconds[reason] = self._seconds.get(reason, 0.0) + passed.get(reason, 0.0)
        if now.held:
            self._before = now
        known = {reason: seconds for reason, seconds in self._seconds.items() if reason in now.held}
        return {"throttled": {reason: step > 0 for reason, step in steps.items()}, "throttle_seconds": known}

    def interrupt(self) -> None:
        """Forget the read before: the package slept or was away meanwhile, and its cycles were not those of a clock."""
        self._before = None

    @staticmethod
    def _passed(before: Cycles, now: Cycles, steps: Mapping[str, float]) -> dict[str, float]:
        """Return for how long of the time between two reads it was held down, by reason.

        A cycle is about a millisecond, which AMD does not promise: its share of all cycles is what can be relied on.
        """
        if now.every is None or before.every is None or now.by_driver != before.by_driver:
            return {}
        cycles, elapsed = now.every - before.every, now.at - before.at
        if cycles <= 0 or elapsed <= 0:  # reset, or the library has answered from its cache
            return {}
        return {reason: elapsed * min(step / cycles, 1.0) for reason, step in steps.items() if step >= 0}


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
