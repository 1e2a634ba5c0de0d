"""When a power reading stood still although the power did not.

Sensors were seen to repeat one value for minutes while the board heated by 30 K. A value that stands is no fault by
itself: AMD reads whole watts, a capped load is steady, and so is an idle GPU. It is one when the load moved meanwhile,
or the accumulator changed its pace or counts at quite another one, or the temperature moved after it had time to
settle.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from exporter.energy.accumulator import FROZEN_AFTER_SECONDS
from exporter.energy.powerwatch import LOAD_MOVED_RATIO, TEMPERATURE_MOVED_CELSIUS, TEMPERATURE_SETTLES_SECONDS
from exporter.measure.records import Point

SHORTEST_SECONDS = 5.0
FEWEST_READINGS = 5
FEWEST_CONTRADICTED = 40
"""Slow readings of a load that nearly keeps step with them repeat a value while utilisation, read as slowly, moves."""
LOAD_SETTLES_SECONDS = 3.0
"""Utilisation is a mean over up to a second, published after power, and may be read a second later."""
PACE_SECONDS = 10.0
"""Accumulators pause for up to two seconds and catch up: over ten that changes their pace by less than half."""
PACE_CHANGED = 2.0
PACE_APART_WATTS = 10.0
"""Beyond PACE_CHANGED times the power that stands. One of the two sensors is wrong then: a steady load leaves no other
sign of a power reading that froze before it began."""


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
    if all(p.utilization_ratio is p.temperature_celsius is p.counter_joules is None for p in stretch):
        return Standstill(since, until, watts, None)
    if len(stretch) < FEWEST_CONTRADICTED:
        return None
    evidence = _load_moved(stretch) or _temperature_moved(stretch) or _pace_changed(stretch)
    return None if evidence is None else Standstill(since, until, watts, evidence)


def _load_moved(stretch: list[Point]) -> str | None:
    settled = stretch[0].monotonic + LOAD_SETTLES_SECONDS
    ratios = sorted(p.utilization_ratio for p in stretch if p.utilization_ratio is not None and p.monotonic >= settled)
    # Single readings are left aside: power and utilisation are not of quite the same moment.
    ratios = ratios[len(ratios) // 10 : len(ratios) - len(ratios) // 10]
    if not ratios or ratios[-1] - ratios[0] < LOAD_MOVED_RATIO:
        return None
    return f"utilisation went between {100 * ratios[0]:.0f} % and {100 * ratios[-1]:.0f} %"


def _temperature_moved(stretch: list[Point]) -> str | None:
    settled = stretch[0].monotonic + TEMPERATURE_SETTLES_SECONDS
    celsius = [p.temperature_celsius for p in stretch if p.temperature_celsius is not None and p.monotonic >= settled]
    if not celsius or max(celsius) - min(celsius) < TEMPERATURE_MOVED_CELSIUS:
        return None
    return f"the temperature went between {min(celsius):.0f} and {max(celsius):.0f} degrees"


def _pace_changed(stretch: list[Point]) -> str | None:
    paces = list(_paces([p for p in stretch if p.counter_joules is not None]))
    if not paces:
        return None
    watts = stretch[0].power_watts or 0.0
    if min(paces) > PACE_CHANGED * watts + PACE_APART_WATTS or watts > PACE_CHANGED * max(paces) + PACE_APART_WATTS:
        return f"the accumulator counted {min(paces):.0f} W"
    if max(paces) <= PACE_CHANGED * min(paces):
        return None
    return f"the accumulator counted between {min(paces):.0f} W and {max(paces):.0f} W"


def _paces(points: list[Point]) -> Iterator[float]:
    """Yield the mean power that the accumulator counted in each ten seconds over which it did not freeze."""
    first: Point | None = None
    last: Point | None = None
    for point in points:
        if last is not None and point.counter_joules == last.counter_joules:
            continue
        if first is None or last is None or point.monotonic - last.monotonic > FROZEN_AFTER_SECONDS:
            first = point
        elif (elapsed := point.monotonic - first.monotonic) >= PACE_SECONDS:
            step = (point.counter_joules or 0.0) - (first.counter_joules or 0.0)
            if step > 0:
                yield step / elapsed
            first = point
        last = point
