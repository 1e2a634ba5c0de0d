"""When a power reading stood still although the power did not.

Sensors were seen to repeat one value for minutes while the board heated by 30 K. A value that stands is no fault by
itself: AMD reads whole watts, a capped load is steady, and so is an idle GPU. It is one when the load moved meanwhile,
or the accumulator changed its pace, or the temperature moved after it had time to settle.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.energy.powerwatch import LOAD_MOVED_RATIO, TEMPERATURE_MOVED_CELSIUS, TEMPERATURE_SETTLES_SECONDS
from exporter.measure.records import Point

SHORTEST_SECONDS = 5.0
FEWEST_READINGS = 5
LOAD_SETTLES_SECONDS = 3.0
"""Utilisation is a mean over up to a second, published after power, and may be read a second later."""
PACE_SECONDS = 10.0
"""Accumulators pause for up to two seconds and catch up: over ten that changes their pace by less than half."""
PACE_CHANGED = 2.0


class Standstill(NamedTuple):
    """Readings of one GPU that repeat one value, in CLOCK_MONOTONIC seconds."""

    since: float
    until: float
    watts: float
    evidence: str | None
    """What moved meanwhile, in words; None: nothing could, since nothing else was read."""


def standstills(points: Sequence[Point]) -> tuple[Standstill, ...]:
    """Return where the power readings of one GPU stand and are contradicted, or where nothing could contradict them."""
    return tuple(found for stretch in _stretches(points) if (found := _judged(stretch)) is not None)


def _stretches(points: Sequence[Point]) -> Iterator[list[Point]]:
    stretch: list[Point] = []
    for point in points:
        if point.power_watts is None:
            continue
        if stretch and stretch[-1].power_watts != point.power_watts:
            yield stretch
            stretch = []
        stretch.append(point)
    if stretch:
        yield stretch


def _judged(stretch: list[Point]) -> Standstill | None:
    since, until, watts = stretch[0].monotonic, stretch[-1].monotonic, stretch[0].power_watts
    if watts is None or until - since < SHORTEST_SECONDS or len(stretch) < FEWEST_READINGS:
        return None
    load = [p.utilization_ratio for p in stretch if p.utilization_ratio is not None]
    celsius = [p.temperature_celsius for p in stretch if p.temperature_celsius is not None]
    counted = [p for p in stretch if p.counter_joules is not None]
    if not load and not celsius and not counted:
        return Standstill(since, until, watts, None)
    settled = [
        p.utilization_ratio
        for p in stretch
        if p.utilization_ratio is not None and p.monotonic >= since + LOAD_SETTLES_SECONDS
    ]
    if settled and max(settled) - min(settled) >= LOAD_MOVED_RATIO:
        moved = f"utilisation went between {100 * min(settled):.0f} % and {100 * max(settled):.0f} %"
        return Standstill(since, until, watts, moved)
    warm = [
        p.temperature_celsius
        for p in stretch
        if p.temperature_celsius is not None and p.monotonic >= since + TEMPERATURE_SETTLES_SECONDS
    ]
    if warm and max(warm) - min(warm) >= TEMPERATURE_MOVED_CELSIUS:
        moved = f"the temperature went between {min(warm):.0f} and {max(warm):.0f} degrees"
        return Standstill(since, until, watts, moved)
    paces = list(_paces(counted))
    if paces and max(paces) > PACE_CHANGED * min(paces):
        moved = f"the accumulator counted between {min(paces):.0f} W and {max(paces):.0f} W"
        return Standstill(since, until, watts, moved)
    return None


def _paces(points: list[Point]) -> Iterator[float]:
    """Yield the mean power that the accumulator counted in each ten seconds in which it moved."""
    first: Point | None = None
    for point in points:
        if first is None:
            first = point
        elif (elapsed := point.monotonic - first.monotonic) >= PACE_SECONDS:
            step = (point.counter_joules or 0.0) - (first.counter_joules or 0.0)
            if step > 0:
                yield step / elapsed
            first = point
