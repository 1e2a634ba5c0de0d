"""How far the joules of a window may be off, by how they were measured.

A bound, not a standard deviation: under the loads of docs/energy.md, square waves of 0.26 to 31 s and bursts of 0.1 and
1 s, for windows of 5 s to 10 min, no window was further off (tests/unit/measure/test_bounds.py). It is made of what the
edges may hide, of what lies between two readings, and of the readings that are missing. What the sensor itself reads
wrongly (-8 % to +13 %, by card) is not in it: no software can know that.
"""

import itertools
import math
from statistics import median

from exporter.energy import uncertainty
from exporter.energy.accumulator import UPDATE_SECONDS
from exporter.measure.window import CounterLine, PowerLine

UNKNOWN_WINDOW_SECONDS = 1.0
"""The longest averaging window of a sensor that does not say which it has."""

_TILED_UP_TO = 1.12
"""Intervals per averaging window: timers are late now and then, and jitter is 10 %."""
_OVERLAPPING_UP_TO = 0.25
_STEPS_OVERLAPPING, _STEPS_TILED = 0.5, 1.0
"""Of the root of the sum of squares of (step of power x time of the step)."""
_FAST_SECONDS = 0.15
_STEPS_FAST, _STEPS_SLOW = 1.5, 3.0
"""The same for readings that are instant or of an unknown window: those that come at 10 Hz, and those that do not."""
_UNSEEN_FAST, _UNSEEN_SLOW = 1.5, 4.5
"""Bursts that no such reading met: intervals at the highest power that there may have been."""
_LOCKED_TILED, _LOCKED_FAST = 0.01, 0.015
"""What is missed of loads that nearly keep step with the readings, with the sensor's updates, or with its looking at 25
of each 100 ms. For means read often it is the error that the daemon publishes of them, for slow readings twice it."""
_STANDS_BEYOND_SECONDS = 1.5 * UPDATE_SECONDS
_HIGHEST_OVER_PEAK = 1.5
"""Where no limit is known: how much more than the highest reading the power may have been."""


def highest_watts(limit: float | None, line: PowerLine) -> float:
    """Return the power that the GPU cannot have exceeded for long, by its limit, else by its readings."""
    peak = max(line.watts, default=0.0)
    return _HIGHEST_OVER_PEAK * peak if limit is None else max(limit, peak)


def of_integral(
    line: PowerLine,
    start: float,
    end: float,
    *,
    window: float | None,
    interval: float,
    highest: float,
    resolution: float = 0.0,
) -> float:
    """Return the bound in joules of `line.joules(start, end)`.

    `window`: of the reading, as in `Identity`; `highest`: see `highest_watts`; `resolution`: of the times, in seconds.
    """
    span = line.span(start, end)
    readings = list(zip(line.times[span], line.watts[span], strict=True))
    pairs = list(itertools.pairwise(readings))
    steps = math.sqrt(sum(((t - s) * (q - p)) ** 2 for (s, p), (t, q) in pairs))
    spacing = max(interval, median(t - s for (s, _), (t, _) in pairs)) if pairs else interval
    missing = sum(max(0.0, t - s - 2 * spacing) for (s, _), (t, _) in pairs)

    # A mean that stands at its middle lets an eighth of its window leak over each edge; one of unknown length may stand
    # at its end instead. The value shown is as old as the last update.
    leaking = UNKNOWN_WINDOW_SECONDS / 2 if window is None else window / 4
    bound = highest * (leaking + UPDATE_SECONDS + 2 * resolution + missing)
    joules = line.joules(start, end) or 0.0
    if window and spacing <= _OVERLAPPING_UP_TO * window:
        bound += _STEPS_OVERLAPPING * steps + uncertainty.COVERING * joules
    elif window and spacing <= _TILED_UP_TO * window:
        bound += _STEPS_TILED * steps + _LOCKED_TILED * joules
    elif spacing <= _FAST_SECONDS:
        bound += _STEPS_FAST * steps + _UNSEEN_FAST * highest * spacing + _LOCKED_FAST * joules
    else:
        locked = 2 * uncertainty.of_integral(0.0, spacing)
        bound += _STEPS_SLOW * steps + _UNSEEN_SLOW * highest * spacing + locked * joules
    # The truth is neither below nothing nor above the highest power all the time.
    return min(bound, max(joules, highest * (end - start) - joules))


def of_accumulator(
    line: CounterLine, start: float, end: float, *, interval: float, highest: float, resolution: float = 0.0
) -> float:
    """Return the bound in joules of `line.joules(start, end)`, of an accumulator that counts honestly.

    Each edge is as old as the last update, and where it lies between two readings, power may have changed there.
    """
    stands = line.longest_standstill
    lag = UPDATE_SECONDS if stands <= _STANDS_BEYOND_SECONDS else stands + interval
    between = sum(line.spacing_at(edge) or 0.0 for edge in (start, end))
    return highest * (lag + between / 4 + 2 * resolution)
