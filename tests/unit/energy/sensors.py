"""Loads of known energy, and sensors that see them as real ones do: well, coarsely, late, or wrongly."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from exporter.energy import EnergyReading, Ledger, advance

LIMIT_WATTS = 700.0

Counter = Callable[[float], float | None]
Power = Callable[[float], float | None]


class Load:
    """Power that is constant between times, the last value for ever; its energy is known exactly."""

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        """Take (from second, watts), ascending, the first from 0."""
        self._times = [time for time, _ in steps]
        self._watts = [watts for _, watts in steps]
        spans = zip(itertools.pairwise(self._times), self._watts, strict=False)
        self._joules = [0.0, *itertools.accumulate((end - start) * watts for (start, end), watts in spans)]

    def watts(self, t: float) -> float:
        return self._watts[max(0, bisect_right(self._times, t) - 1)]

    def joules(self, t: float) -> float:
        index = max(0, bisect_right(self._times, t) - 1)
        return self._joules[index] + (t - self._times[index]) * self._watts[index]


def constant(watts: float) -> Load:
    return Load([(0.0, watts)])


def square(period: float, duty: float, seconds: float, low: float = 80.0, high: float = 650.0) -> Load:
    edges = []
    for index in range(math.ceil(seconds / period)):
        edges += [(index * period, high), (index * period + duty * period, low)]
    return Load(edges)


def bursts(random: Random, length: float, pause: float, seconds: float, low: float = 80.0, high: float = 650.0) -> Load:
    edges, t = [(0.0, low)], 0.0
    while t < seconds:
        t += random.expovariate(1 / pause) + 0.001
        edges += [(t, high), (t + length, low)]
        t += length
    return Load(edges)


def instant(load: Load) -> Power:
    """See the power of the moment."""
    return load.watts


def averaged(load: Load, window: float = 1.0, update: float = 0.1) -> Power:
    """See the mean over `window`, anew each `update`."""

    def read(t: float) -> float:
        end = math.floor(t / update) * update
        start = max(0.0, end - window)
        return (load.joules(end) - load.joules(start)) / (end - start) if end > start else load.watts(0.0)

    return read


def accumulator(load: Load, update: float = 0.1, resolution: float = 2**-16, start: float = 123_456.0) -> Counter:
    """Count honestly, in steps of time and of energy."""

    def read(t: float) -> float:
        seen = load.joules(math.floor(t / update + 1e-9) * update)
        return start + math.floor(seen / resolution) * resolution

    return read


def scaled(counter: Counter, factor: float) -> Counter:
    def read(t: float) -> float | None:
        raw = counter(t)
        return None if raw is None else raw * factor

    return read


def paused(counter: Counter, length: float = 2.0, every: float = 20.0, phase: float = 7.0) -> Counter:
    """Stand still for `length` in every `every` seconds, then catch up."""

    def read(t: float) -> float | None:
        into = (t - phase) % every
        return counter(t - into if into < length and t >= phase else t)

    return read


def frozen(counter: Counter, since: float, until: float = math.inf, *, catches_up: bool = True) -> Counter:
    """Stand still for a while; without catch-up, what was drawn meanwhile is never counted."""

    def read(t: float) -> float | None:
        if t < since:
            return counter(t)
        stood = counter(since)
        if t < until or stood is None:
            return stood
        after, before = counter(t), counter(until)
        return after if catches_up or after is None or before is None else stood + after - before

    return read


def zero_until(counter: Counter, moment: float) -> Counter:
    return lambda t: 0.0 if t < moment else counter(t)


def reset_at(counter: Counter, *moments: float, to: float = 0.0) -> Counter:
    def read(t: float) -> float | None:
        last = max((moment for moment in moments if moment <= t), default=None)
        raw, base = counter(t), None if last is None else counter(last)
        return raw if raw is None or base is None else to + raw - base

    return read


def wrapping(counter: Counter, size: float) -> Counter:
    def read(t: float) -> float | None:
        raw = counter(t)
        return None if raw is None else raw % size

    return read


def sometimes(counter: Counter, other: Counter, every: float = 47.0, length: float = 1.5) -> Counter:
    """Now and then answer for another device."""
    return lambda t: other(t) if t % every > every - length else counter(t)


def regular(seconds: float, period: float, start: float = 0.0) -> Iterator[float]:
    return (start + index * period for index in range(math.floor((seconds - start) / period) + 1))


def jittered(random: Random, seconds: float, period: float, jitter: float = 0.1) -> Iterator[float]:
    t = 0.0
    while t <= seconds:
        yield t
        t += period * random.uniform(1 - jitter, 1 + jitter)


def scraped(random: Random, times: Iterable[float], seconds: float) -> list[float]:
    """Mix in the reads of three scrapers, which may be a few milliseconds from another one."""
    extra = [t for every in (15.0, 5.0, 1.0) for t in regular(seconds, every, random.uniform(0, every))]
    extra += [t + random.uniform(0.001, 0.008) for t in extra[::2]]
    return sorted({*times, *(t for t in extra if t <= seconds)})


def readings(
    times: Iterable[float],
    power: Power | None,
    counter: Counter | None,
    *,
    period: float = 1.0,
    window: float | None = 1.0,
    size: float | None = None,
) -> Iterator[EnergyReading]:
    for t in times:
        yield EnergyReading(
            at=t,
            period_seconds=period,
            power_watts=None if power is None else power(t),
            power_window_seconds=window,
            limit_watts=LIMIT_WATTS,
            counter_joules=None if counter is None else counter(t),
            counter_range_joules=size,
        )


def ascending(ledger: Ledger) -> tuple[float, ...]:
    """All figures that must never fall."""
    return (
        ledger.total_joules,
        *ledger.joules_by_source.values(),
        ledger.hardware_joules or 0.0,
        ledger.integrated_joules or 0.0,
        ledger.covered_seconds,
        ledger.gap_seconds,
        ledger.faults.reset,
        ledger.faults.jump,
        ledger.faults.frozen,
        ledger.faults.disqualified,
        ledger.faults.power_frozen,
    )


def history(stream: Iterable[EnergyReading], ledger: Ledger | None = None) -> Iterator[Ledger]:
    """Fold the readings, and hold every state to what is true of all states."""
    state = ledger or Ledger.start()
    before = ascending(state)
    for reading in stream:
        state = advance(state, reading)
        now = ascending(state)
        assert all(a <= b for a, b in zip(before, now, strict=True)), (reading, before, now)
        assert state.total_joules == sum(state.joules_by_source.values())
        assert state.doubt.ratio is None or 0 <= state.doubt.ratio <= 1 + 1e-9
        before = now
        yield state


def last(stream: Iterable[EnergyReading], ledger: Ledger | None = None) -> Ledger:
    *_, end = history(stream, ledger)
    return end
