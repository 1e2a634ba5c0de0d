"""For how long does the firmware of an AMD GPU hold its clocks down? Told by its own counters of cycles.

One advances in every cycle, and one for each reason in those in which it holds them down. A cycle is about a
millisecond, which AMD does not promise: the share of all cycles is what can be relied on.
"""

from collections.abc import Mapping
from typing import NamedTuple

_WRAP = 2.0**32
"""Where the counters of most tables wrap."""


class Cycles(NamedTuple):
    """What the counters said, and when."""

    at: float
    """Seconds, on the clock of the driver or on ours: which of them is `by_driver`."""
    by_driver: bool
    every: float | None
    held: Mapping[str, float]
    """By reason of metrics.REASONS."""


class Residency:
    """Counts the seconds of one GPU since its first read."""

    def __init__(self) -> None:
        self._before: Cycles | None = None
        self._seconds: dict[str, float] = {}

    def observe(self, now: Cycles) -> tuple[dict[str, bool], dict[str, float]]:
        """Return which reasons held the clocks down since the read before, and for how many seconds in all."""
        before = self._before
        steps = {} if before is None else _steps(before.held, now.held)
        passed = {} if before is None else _passed(before, now, steps)
        if now.every is not None:
            for reason in now.held:
                self._seconds[reason] = self._seconds.get(reason, 0.0) + passed.get(reason, 0.0)
        if now.held:
            self._before = now
        known = {reason: seconds for reason, seconds in self._seconds.items() if reason in now.held}
        return {reason: step > 0 for reason, step in steps.items()}, known

    def interrupt(self) -> None:
        """Forget the read before: the GPU slept or was away meanwhile, and its cycles were not those of a clock."""
        self._before = None


def _steps(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    return {reason: _step(before[reason], held) for reason, held in now.items() if reason in before}


def _passed(before: Cycles, now: Cycles, steps: Mapping[str, float]) -> dict[str, float]:
    """Return for how long of the time between two reads the clocks were held down, by reason."""
    if now.every is None or before.every is None or now.by_driver != before.by_driver:
        return {}
    cycles, elapsed = _step(before.every, now.every), now.at - before.at
    if cycles <= 0 or elapsed <= 0:  # reset, or the table is the one that was there before
        return {}
    return {reason: elapsed * min(step / cycles, 1.0) for reason, step in steps.items() if step >= 0}


def _step(before: float, now: float) -> float:
    """Return how far a counter went, over its wrap too; negative: it was reset."""
    step = now - before
    return step + _WRAP if step < -_WRAP / 2 and before < _WRAP else step
