"""What several runs say together: how many, their mean, and how far they scatter."""

import statistics
from collections.abc import Iterable

import msgspec


class Statistic(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    mean: float
    variation_ratio: float | None
    """Coefficient of variation: the standard deviation of a sample (n - 1) over the mean; None: one run, or mean 0."""


def statistic(values: Iterable[float | None]) -> Statistic | None:
    """Return mean and coefficient of variation; None: one of the values is missing, or there are none."""
    known: list[float] = []
    for value in values:
        if value is None:
            return None
        known.append(value)
    if not known:
        return None
    mean = statistics.fmean(known)
    scatter = statistics.stdev(known) / mean if len(known) > 1 and mean > 0 else None
    return Statistic(count=len(known), mean=mean, variation_ratio=scatter)
