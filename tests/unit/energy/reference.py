"""The sums of the ledger computed the slow, obvious way: over the whole history, in exact arithmetic."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from exporter.energy import EnergyReading


class Sums(NamedTuple):
    integrated: Fraction
    hardware: Fraction
    uncovered: Fraction
    """Seconds between power readings too far apart, up to the last one."""
    resets: int
    jumps: int


def sums(readings: Sequence[EnergyReading]) -> Sums:
    """Return what a device that has never been qualified must have; all readings have one period and one range."""
    later: list[EnergyReading] = []
    for reading in readings:
        if not later or reading.at > later[-1].at:
            later.append(reading)

    powers = [(Fraction(r.at), Fraction(r.power_watts), r.period_seconds) for r in later if r.power_watts is not None]
    integrated, uncovered = Fraction(0), Fraction(0)
    if powers:
        uncovered += powers[0][0] - Fraction(later[0].at)
    for (t0, p0, _), (t1, p1, period) in itertools.pairwise(powers):
        if t1 - t0 > 2 and float(t1 - t0) > 5 * period:
            uncovered += t1 - t0
        else:
            integrated += (p0 + p1) / 2 * (t1 - t0)

    counts = [(r.at, r.counter_joules, r.limit_watts or 5_000.0) for r in later if r.counter_joules is not None]
    size = next((r.counter_range_joules for r in later if r.counter_range_joules is not None), None)
    hardware, resets, jumps, anchor = Fraction(0), 0, 0, 0
    for index, (at, raw, limit) in enumerate(counts):
        base_at, base, _ = counts[anchor]
        if raw == base:
            continue
        before = counts[anchor - 1][0] if anchor else base_at - 3.0
        most = 1.2 * limit * (at - before + 0.1)
        step = Fraction(raw) - Fraction(base)
        wraps = size is not None and most < size
        if step < 0 and wraps and step + Fraction(size) <= most:
            step += Fraction(size)
        if size is not None and not wraps:
            pass
        elif step < 0:
            resets += 1
        elif step > most:
            jumps += 1
        else:
            hardware += step
        anchor = index
    return Sums(integrated, hardware, uncovered, resets, jumps)
