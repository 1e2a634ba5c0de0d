"""What a series of readings says about the sensor behind it: how often it moves, and over what it averages."""

import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

LEAST_CHANGES = 5


class Point(NamedTuple):
    at: float
    """Monotonic seconds."""
    value: float


def update_period(points: Sequence[Point]) -> float | None:
    """Return the median seconds between two changes of a value; None: it changed too seldom to tell."""
    changes = [after.at for before, after in itertools.pairwise(points) if after.value != before.value]
    if len(changes) <= LEAST_CHANGES:
        return None
    return statistics.median(after - before for before, after in itertools.pairwise(changes))


def integral(points: Sequence[Point]) -> float:
    """Return the area below the points by trapezoids."""
    return sum(
        (after.value + before.value) / 2 * (after.at - before.at) for before, after in itertools.pairwise(points)
    )


def rise_seconds(points: Sequence[Point], begun: float) -> float | None:
    """Return how long a reading takes from a tenth to nine tenths of its way after a load began; None: it did not rise.

    Of a moving average over W seconds it is 0.8 W; of an instant reading no more than its update period.
    """
    before = [point.value for point in points if point.at < begun]
    end = [point.value for point in points[-max(3, len(points) // 5) :]]
    if not before or len(points) < LEAST_CHANGES:
        return None
    low, high = statistics.median(before), statistics.median(end)
    if high - low < 0.1 * max(high, 1.0):
        return None
    after = [point for point in points if point.at >= begun]
    tenth = next((point.at for point in after if point.value >= low + 0.1 * (high - low)), None)
    most = next((point.at for point in after if point.value >= low + 0.9 * (high - low)), None)
    return None if tenth is None or most is None else most - tenth


class Cost(NamedTuple):
    calls: int
    median_microseconds: float
    worst_microseconds: float


def costs(seconds: dict[str, list[float]]) -> dict[str, Cost]:
    """Return what each call costs, dearest first."""
    found = {name: Cost(len(each), 1e6 * statistics.median(each), 1e6 * max(each)) for name, each in seconds.items()}
    return dict(sorted(found.items(), key=lambda item: -item[1].median_microseconds))
