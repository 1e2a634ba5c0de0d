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


class TieError(Exception):
    """Two figures that a rule compares are as good as equal: rounding would decide."""


def total(readings: Sequence[EnergyReading], since: int) -> tuple[Fraction, Fraction]:
    """Return the joules of the total by hardware and by integral, when the accumulator is its source after `since`.

    Up to the reading of that index, at which the accumulator has a value, the integral is the source.
    """
    hardware, integrated, credit = Fraction(0), integral(readings[: since + 1]).joules, Fraction(0)
    anchor, frozen = since, False
    for now in range(since + 1, len(readings)):
        raw, base = readings[now].counter_joules, readings[anchor].counter_joules
        owed = _between(readings[: now + 1], readings[anchor].at)
        if raw is None or raw == base:
            stands = readings[now].at - readings[anchor].at >= 3.0 and _more(owed, Fraction(1, 10))
            frozen = frozen or stands
            if frozen:
                integrated += max(Fraction(0), owed - credit)
                credit = max(credit, owed)
            continue
        step = _believed(readings, anchor, now)
        resumes = frozen and step is not None and (_more(credit / 2, step))
        if step is None or resumes:
            integrated += max(Fraction(0), owed - credit)
            credit = Fraction(0)
        else:
            hardware += max(Fraction(0), step - credit)
            credit = max(Fraction(0), credit - step)
        anchor, frozen = now, False
    return hardware, integrated


def _believed(readings: Sequence[EnergyReading], anchor: int, now: int) -> Fraction | None:
    """Return the step from the anchor; None: it is a reset or a jump."""
    reading, base = readings[now], readings[anchor]
    before = max(i for i in range(anchor) if readings[i].counter_joules is not None)
    most = 1.2 * (reading.limit_watts or 5_000.0) * (reading.at - readings[before].at + 0.1)
    step = Fraction(reading.counter_joules or 0) - Fraction(base.counter_joules or 0)
    return None if step < 0 or _more(step, Fraction(most)) else step


def _between(readings: Sequence[EnergyReading], start: float) -> Fraction:
    """Return the integral from `start` on, a trapezoid counting for its share of time."""
    points = [(r.at, r.power_watts) for r in readings if r.power_watts is not None]
    joules = Fraction(0)
    for (t0, p0), (t1, p1) in itertools.pairwise(points):
        if t1 > start and not (float(t1 - t0) > 2 and float(t1 - t0) > 5 * readings[0].period_seconds):
            share = (Fraction(t1) - max(Fraction(t0), Fraction(start))) / (Fraction(t1) - Fraction(t0))
            joules += (Fraction(p0) + Fraction(p1)) / 2 * (Fraction(t1) - Fraction(t0)) * share
    return joules


def _more(a: Fraction, b: Fraction) -> bool:
    if 0 < abs(a - b) <= Fraction(1, 10**7) * (1 + max(abs(a), abs(b))):
        raise TieError
    return a > b
