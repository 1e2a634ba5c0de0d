"""How many joules lie between two moments, by power readings and by accumulator readings, and how well they cover it.

Readings are joined by straight lines, so that the edge of a window between two readings is interpolated, and joules of
windows that follow each other add up to those of the whole. A reading that is a mean over a time before it stands at
the middle of that time: at the edges it would otherwise tell of what was before the window.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from exporter.measure.records import Point


class Readings:
    """Readings in the order in which they were taken, which need not be that of their times."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.points = tuple(points)
        times = [point.monotonic for point in self.points]
        self._before = list(itertools.accumulate(times, max))
        self._after = list(itertools.accumulate(reversed(times), min))[::-1]

    def within(self, start: float, end: float) -> Sequence[Point]:
        """Return those of the window, edges included."""
        return [point for point in self.points[self._span(start, end)] if start <= point.monotonic <= end]

    def around(self, start: float, end: float) -> Sequence[Point]:
        """Return all from one before the first to one after the last of the window; none, if it has none."""
        span = self._span(start, end)
        inside = [n for n in range(span.start, span.stop) if start <= self.points[n].monotonic <= end]
        return self.points[max(0, inside[0] - 1) : inside[-1] + 2] if inside else ()

    def nearest(self, moment: float) -> Point | None:
        """Return one that is as near to the moment as any; None: there are none."""
        span = self._span(moment, moment)
        near = self.points[max(0, min(span.start, span.stop) - 1) : max(span.start, span.stop) + 1]
        return min(near, key=lambda point: abs(point.monotonic - moment), default=None)

    def _span(self, start: float, end: float) -> slice:
        """Return a stretch that all readings of the window lie in."""
        return slice(bisect_left(self._before, start), bisect_right(self._after, end))


class PowerLine:
    """The power readings of one GPU over time, in the order of their times."""

    def __init__(self, points: Iterable[Point], window_seconds: float | None = None) -> None:
        """Take the readings of one GPU; those without power, and those earlier than the one before, are left out."""
        shift = (window_seconds or 0.0) / 2
        self.times: list[float] = []
        self.watts: list[float] = []
        for point in points:
            at = point.monotonic - shift
            if point.power_watts is not None and (not self.times or at >= self.times[-1]):
                self.times.append(at)
                self.watts.append(point.power_watts)
        self._areas = [
            0.0,
            *itertools.accumulate(
                (q + p) / 2 * (t - s) for (s, p), (t, q) in itertools.pairwise(zip(self.times, self.watts, strict=True))
            ),
        ]

    def begins_by(self, moment: float) -> bool:
        """Tell whether there is a reading at or before the moment."""
        return bool(self.times) and self.times[0] <= moment

    def reaches(self, moment: float) -> bool:
        """Tell whether there is a reading at or after the moment."""
        return bool(self.times) and self.times[-1] >= moment

    def joules(self, start: float, end: float) -> float | None:
        """Return the integral; None: an edge has no reading beyond it."""
        if not self.begins_by(start) or not self.reaches(end):
            return None
        return self._area(end) - self._area(start)

    def within(self, start: float, end: float) -> Sequence[float]:
        """Return the watts of the readings within the window, edges included."""
        return self.watts[bisect_left(self.times, start) : bisect_right(self.times, end)]

    def span(self, start: float, end: float) -> slice:
        """Return which readings the joules of the window are made of: those within, and one beyond each edge."""
        first = max(0, bisect_right(self.times, start) - 1)
        last = min(len(self.times), bisect_left(self.times, end) + 1)
        return slice(first, last)

    def longest_gap(self, start: float, end: float) -> float:
        """Return the longest time between two readings next to each other that the window lies on, in seconds."""
        times = self.times[self.span(start, end)]
        return max((t - s for s, t in itertools.pairwise(times)), default=0.0)

    def _area(self, moment: float) -> float:
        index = min(max(0, bisect_right(self.times, moment) - 1), max(0, len(self.times) - 2))
        if len(self.times) == 1:
            return 0.0
        (s, t), (p, q) = self.times[index : index + 2], self.watts[index : index + 2]
        into = moment - s
        if t <= s:
            return self._areas[index]
        at = p + (q - p) * into / (t - s)
        return self._areas[index] + (p + at) / 2 * into


class CounterLine:
    """The accumulator readings of one GPU over time, as read."""

    def __init__(self, points: Iterable[Point]) -> None:
        self.times: list[float] = []
        self.joules_read: list[float] = []
        for point in points:
            if point.counter_joules is not None and (not self.times or point.monotonic >= self.times[-1]):
                self.times.append(point.monotonic)
                self.joules_read.append(point.counter_joules)
        self.longest_standstill = self._longest_standstill()
        """The longest time over which readings repeated one value, in seconds."""

    def spacing_at(self, moment: float) -> float | None:
        """Return the time between the two readings around the moment, in seconds; 0: one is there; None: no two."""
        index = bisect_left(self.times, moment)
        if index == len(self.times):
            return None
        if self.times[index] == moment:
            return 0.0
        return None if index == 0 else self.times[index] - self.times[index - 1]

    def joules(self, start: float, end: float) -> float | None:
        """Return the difference between the readings at the edges, interpolated; None: an edge has none beyond it."""
        before, after = self._at(start), self._at(end)
        return None if before is None or after is None else after - before

    def _at(self, moment: float) -> float | None:
        index = bisect_left(self.times, moment)
        if index == len(self.times):
            return None
        if self.times[index] == moment:
            return self.joules_read[index]
        if index == 0:
            return None
        s, t = self.times[index - 1 : index + 1]
        p, q = self.joules_read[index - 1 : index + 1]
        return p + (q - p) * (moment - s) / (t - s)

    def _longest_standstill(self) -> float:
        longest, since = 0.0, 0
        for index in range(1, len(self.times)):
            if self.joules_read[index] != self.joules_read[since]:
                since = index
            longest = max(longest, self.times[index] - self.times[since])
        return longest
