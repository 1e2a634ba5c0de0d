"""The sums of the ledger computed the slow, obvious way: over the whole history, in exact arithmetic.

All readings of a history have one period and one range.
"""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from exporter.energy import EnergyReading


class Integral(NamedTuple):
    joules: Fraction
    uncovered_seconds: Fraction
    """Between power readings too far apart, and before the first one."""


class Steps(NamedTuple):
    joules: Fraction
    resets: int
    jumps: int


def in_order(readings: Sequence[EnergyReading]) -> list[EnergyReading]:
    """Return the readings that are later than all before them."""
    later: list[EnergyReading] = []
    for reading in readings:
        if not later or reading.at > later[-1].at:
            later.append(reading)
    return later


def integral(readings: Sequence[EnergyReading]) -> Integral:
    later = in_order(readings)
    points = [(Fraction(r.at), Fraction(r.power_watts)) for r in later if r.power_watts is not None]
    joules, uncovered = Fraction(0), points[0][0] - Fraction(later[0].at) if points else Fraction(0)
    for (t0, p0), (t1, p1) in itertools.pairwise(points):
        if float(t1 - t0) > 2 and float(t1 - t0) > 5 * later[0].period_seconds:
            uncovered += t1 - t0
        else:
            joules += (p0 + p1) / 2 * (t1 - t0)
    return Integral(joules, uncovered)


def steps(readings: Sequence[EnergyReading]) -> Steps:
    counts = [r for r in in_order(readings) if r.counter_joules is not None]
    joules, resets, jumps, anchor = Fraction(0), 0, 0, 0
    for index, reading in enumerate(counts):
        base = counts[anchor]
        if reading.counter_joules == base.counter_joules:
            continue
        before = counts[anchor - 1].at if anchor else base.at - 3.0
        most = 1.2 * (reading.limit_watts or 5_000.0) * (reading.at - before + 0.1)
        size = reading.counter_range_joules
        step = Fraction(reading.counter_joules) - Fraction(base.counter_joules)
        if size is not None and step < 0 and step + Fraction(size) <= most:
            step += Fraction(size)
        anchor = index
        if size is not None and most >= size:
            continue
        resets += step < 0
        jumps += step > most
        joules += step if 0 <= step <= most else 0
    return Steps(joules, resets, jumps)
