"""How states that are sampled become seconds that are counted."""

from collections.abc import Mapping

from exporter.energy.integral import longest_bridge
from exporter.energy.sums import Sum

LARGEST_RATE = 1.2
"""A counter of seconds that runs faster than the clock, beyond the jitter of reading it, is not believed."""
READ_JITTER_SECONDS = 1.0


class Integral:
    """Time integral of a ratio between 0 and 1, by trapezoid, without bridging gaps."""

    def __init__(self, period: float) -> None:
        self._longest = longest_bridge(period)
        self._sum = Sum()
        self._last: tuple[float, float] | None = None
        self.seconds: float | None = None
        """None: there was no reading."""

    def observe(self, at: float, value: float | None) -> None:
        """Add a reading; None is none, and what is not later than the last one is ignored."""
        if value is None or (self._last is not None and at <= self._last[0]):
            return
        if self._last is not None and at - self._last[0] <= self._longest:
            self._sum = self._sum.plus((self._last[1] + value) / 2 * (at - self._last[0]))
        self._last = (at, value)
        self.seconds = self._sum.value


class Steps:
    """Sum of the steps of a hardware counter of seconds, which may be reset."""

    def __init__(self) -> None:
        self._sum = Sum()
        self._last: tuple[float, float] | None = None

    @property
    def seconds(self) -> float:
        return self._sum.value

    def observe(self, at: float, raw: float) -> None:
        """Add a reading; a step back or one that time does not allow is not counted, and the next starts there."""
        if self._last is not None:
            elapsed, step = at - self._last[0], raw - self._last[1]
            if elapsed <= 0:
                return
            if 0 <= step <= LARGEST_RATE * elapsed + READ_JITTER_SECONDS:
                self._sum = self._sum.plus(step)
        self._last = (at, raw)

    def detach(self) -> None:
        """Another counter is read from here on: no step spans the two."""
        self._last = None


class ThrottleSeconds:
    """Seconds with clocks held down, by reason: from the hardware's own counter where there is one, else from flags."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._counted: dict[str, Steps] = {}
        self._flagged: dict[str, Integral] = {}
        self._has_counter: set[str] = set()
        """Reasons of which the provider that tells has shown a counter."""
        self.seconds: Mapping[str, float] = {}

    def detach(self) -> None:
        """Another provider tells from here on, which may have other counters or none."""
        self._has_counter.clear()
        for counter in self._counted.values():
            counter.detach()

    def observe(self, at: float, flags: Mapping[str, bool], counters: Mapping[str, float]) -> None:
        for reason, raw in counters.items():
            self._has_counter.add(reason)
            self._counted.setdefault(reason, Steps()).observe(at, raw)
        for reason, held in flags.items():
            if reason not in self._has_counter:
                self._flagged.setdefault(reason, Integral(self._period)).observe(at, float(held))
        by_flag = {reason: total.seconds or 0.0 for reason, total in self._flagged.items()}
        by_counter = {reason: total.seconds for reason, total in self._counted.items()}
        # A counter that appears late must not make the series fall below what its flag has given.
        self.seconds = {
            reason: by_flag.get(reason, 0.0) + by_counter.get(reason, 0.0) for reason in (by_flag | by_counter)
        }


class NameCounts:
    """Counts by name of reading; the names are few, and are kept so if a provider makes them up."""

    LIMIT = 64
    OTHER = "other"

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def add(self, name: str, count: int = 1, *, ours: bool = False) -> None:
        """Count a name; `ours`: it is no provider's word, and has its place in any case."""
        known = ours or name in self.counts or len(self.counts) < self.LIMIT
        key = name if known else self.OTHER
        self.counts[key] = self.counts.get(key, 0) + count
