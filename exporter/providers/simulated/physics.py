"""What a quantity does over time: piecewise-constant tracks, what a sensor shows of them, and heat.

Times are seconds since the machine's epoch; before it nothing happens. tests/native/plan.c evaluates the same with the
same operations in the same order, so both give the same bits.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

MAX_HEATED = 20_000
"""Segments of a temperature, about: a load of many changes gets coarser steps."""

MAX_WARMING = 2_000
"""Segments over which warming up is shown lap by lap; longer ones warm up under their mean power."""

SETTLED = 12.0
"""Time constants after which a body counts as settled: what is left is 1/160,000 of the way."""


class Segment(NamedTuple):
    seconds: float
    value: float


class Window(NamedTuple):
    """When something is in force: from `start` until `end`; where `every` is not 0, only `lasting` seconds of each."""

    start: float = 0.0
    end: float = math.inf
    every: float = 0.0
    lasting: float = 0.0

    def open_at(self, t: float) -> bool:
        if t < self.start or t >= self.end:
            return False
        return self.every <= 0 or math.fmod(t - self.start, self.every) < self.lasting

    def closes(self, t: float) -> float:
        """Return the end of the opening that `t` lies in."""
        if self.every <= 0:
            return self.end
        return min(self.end, t - math.fmod(t - self.start, self.every) + self.lasting)


class Track:
    """A quantity over time: `prefix` once, then `period` for ever. Constant within each segment."""

    def __init__(self, prefix: Iterable[Segment], period: Iterable[Segment]) -> None:
        self.prefix, self.period = tuple(prefix), tuple(period)
        if not self.period or any(not s.seconds > 0 for s in (*self.prefix, *self.period)):
            raise ValueError("a track needs a period, and segments that last")
        first, second = _sums(self.prefix), _sums(self.period)
        self._starts, self._areas = (first.starts, second.starts), (first.areas, second.areas)
        self._values = (tuple(s.value for s in self.prefix), tuple(s.value for s in self.period))
        self.prefix_seconds, self._prefix_area = first.seconds, first.area
        self.period_seconds, self._period_area = second.seconds, second.area

    @classmethod
    def constant(cls, value: float) -> "Track":
        return cls((), (Segment(1.0, value),))

    def value(self, t: float) -> float:
        return self._locate(t)[2]

    def integral(self, t: float) -> float:
        """From 0 to `t`."""
        laps, area, _ = self._locate(t)
        return laps * self._period_area + area

    def between(self, a: float, b: float) -> float:
        """Integral from `a` to `b`: exact for short spans at any age, unlike the difference of two integrals."""
        laps_a, area_a, _ = self._locate(a)
        laps_b, area_b, _ = self._locate(b)
        return (laps_b - laps_a) * self._period_area + (area_b - area_a)

    def mean(self, t: float, window: float, period: float) -> float:
        """Return what a sensor shows at `t` that takes the mean over `window` at each multiple of `period`."""
        end = last_update(t, period)
        window = min(window, end)
        return self.between(end - window, end) / window if window > 0 else self.value(end)

    def map(self, function: Callable[[float], float]) -> "Track":
        """Return the track of `function` of the values."""
        known = {value: function(value) for value in {*self._values[0], *self._values[1]}}
        prefix, period = (
            merged(Segment(s.seconds, known[s.value]) for s in part) for part in (self.prefix, self.period)
        )
        return Track(prefix, period)

    @property
    def highest(self) -> float:
        return max(s.value for s in (*self.prefix, *self.period))

    @property
    def lowest(self) -> float:
        return min(s.value for s in (*self.prefix, *self.period))

    def _locate(self, t: float) -> tuple[float, float, float]:
        """Return whole periods before `t`, the integral over the rest, and the value."""
        laps, x, part, before = 0.0, max(t, 0.0), 0, 0.0
        if x >= self.prefix_seconds:
            x -= self.prefix_seconds
            laps = float(math.floor(x / self.period_seconds))
            x -= laps * self.period_seconds
            x, part, before = max(x, 0.0), 1, self._prefix_area
        starts = self._starts[part]
        index = bisect_right(starts, x) - 1
        value = self._values[part][index]
        return laps, before + (self._areas[part][index] + value * (x - starts[index])), value


def last_update(t: float, period: float) -> float:
    """Return the last multiple of `period` that is not after `t`; 0 is continuous."""
    if t <= 0:
        return 0.0
    return min(t, math.floor(t / period) * period) if period > 0 else t  # the product may be rounded up


def merged(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Join neighbours of equal value."""
    result: list[Segment] = []
    last: Segment | None = None
    for s in segments:
        if last is not None and last.value == s.value:
            last = result[-1] = Segment(last.seconds + s.seconds, s.value)
        else:
            result.append(s)
            last = s
    return tuple(result)


class Warmth(NamedTuple):
    """A body with `ambient` + `per_watt` x power degrees, which it approaches with `time_constant` seconds."""

    ambient: float
    per_watt: float
    time_constant: float


def heated(power: Track, warmth: Warmth, *, step: float = 0.5) -> Track:
    """Return the temperature under a power, in steps of `step` degrees; it starts settled at the first power."""
    ambient, per_watt, tau = warmth
    lap = power.period_seconds
    mean = power.between(power.prefix_seconds, power.prefix_seconds + lap) / lap
    if power.prefix:
        prefix, degrees = _warmed(power.prefix, ambient + per_watt * power.prefix[0].value, warmth, step)
        laps = math.ceil(SETTLED * tau / lap)
        warming = power.period * laps if laps * len(power.period) <= MAX_WARMING else (Segment(laps * lap, mean),)
        more, _ = _warmed(warming, degrees, warmth, step)
        prefix += more
    else:
        prefix = []
    # Over a lap the end is a linear function of the beginning, so the beginning to which it returns is known.
    from_zero = 0.0
    for s in power.period:
        goal = ambient + per_watt * s.value
        from_zero = goal + (from_zero - goal) * math.exp(-s.seconds / tau)
    period, _ = _warmed(power.period, from_zero / -math.expm1(-lap / tau), warmth, step)
    return Track(merged(prefix), merged(period))


def _warmed(segments: Iterable[Segment], degrees: float, warmth: Warmth, step: float) -> tuple[list[Segment], float]:
    """Return temperatures over the segments, beginning at `degrees`, and the exact one at their end."""
    ambient, per_watt, tau = warmth
    result: list[Segment] = []
    segments = tuple(segments)
    finest = max(1, MAX_HEATED // len(segments))
    for s in segments:
        goal = ambient + per_watt * s.value
        moving = min(s.seconds, SETTLED * tau)
        pieces = min(finest, math.ceil(20 * moving / tau)) if abs(goal - degrees) > step / 4 else 1
        for piece in range(pieces):
            middle = goal + (degrees - goal) * math.exp(-moving * (piece + 0.5) / pieces / tau)
            result.append(Segment(moving / pieces, round(middle / step) * step))
        if s.seconds > moving:
            result.append(Segment(s.seconds - moving, round(goal / step) * step))
        degrees = goal + (degrees - goal) * math.exp(-s.seconds / tau)
    return result, degrees


class _Sums(NamedTuple):
    starts: tuple[float, ...]
    areas: tuple[float, ...]
    seconds: float
    area: float


def _sums(segments: Sequence[Segment]) -> _Sums:
    starts, areas, seconds, area = [], [], 0.0, 0.0
    for s in segments:
        starts.append(seconds)
        areas.append(area)
        seconds += s.seconds
        area += s.value * s.seconds
    return _Sums(tuple(starts), tuple(areas), seconds, area)
