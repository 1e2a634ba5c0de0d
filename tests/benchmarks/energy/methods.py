"""How does each exporter, library or query turn what the sensors show into joules of a window?

All see the same trace. What others do is taken from what they publish: all-smi's timer and integral, the polling and
the check of Zeus, watts integrated in PromQL, and the accumulator as exporters of raw counters pass it on.
"""

import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from exporter.config import SamplingConfig, is_averaged
from exporter.energy import EnergyReading, Ledger, advance
from exporter.model import Device, Group, Sample
from exporter.supervision.schedule import Schedule
from tests.benchmarks.energy.traces import WARM_SECONDS, WINDOW_SECONDS, Sensor, Trace

SCRAPE_SECONDS = 15.0
LIMIT_WATTS = 700.0

ALL_SMI_PERIOD = 3.0
ALL_SMI_BRIDGE = 10.0

ZEUS_LONGEST_PERIOD = 0.1
ZEUS_CHECK_SECONDS = 0.5
ZEUS_ACCEPTS = (0.1, 10.0)
SENSOR_UPDATE = 0.1
"""How often the sensors renew their value; Zeus measures it, and finds it."""


def period(sensor: Sensor) -> float:
    """Return the exporter's period of reading a sensor, by default."""
    return SamplingConfig().energy_period(averaged=is_averaged(sensor.kind, sensor.window))


def cadence(sensor: Sensor, random: Random, seconds: float) -> list[float]:
    """Return when the worker reads energy within so many seconds, by its own schedule."""
    now = random.uniform(0.0, 1.0)
    schedule = Schedule(SamplingConfig(), random, now)
    device = Device(vendor="nvidia", key="GPU-0", pci_address="0000:01:00.0")
    schedule.enumerated([device.key], now)
    sample = Sample(
        device=device, taken_at={}, power_watts=1.0, power_kind=sensor.kind, power_window_seconds=sensor.window
    )
    times: list[float] = []
    while now < seconds:
        if any(Group.ENERGY in groups for _, groups in schedule.take(now)):
            times.append(now)
            schedule.observed(sample, now)
        if schedule.enumeration_due(now):
            schedule.enumerated([device.key], now)
        now += max(schedule.wait(now), 1e-6)
    return times


class Ours(NamedTuple):
    """What the page says over a window."""

    joules: float
    at_scrapes: tuple[float, ...]
    """Joules since the start of the window, at each scrape in it."""
    qualified: bool
    """At the start of the window."""
    gap_seconds: float
    covered_truth: float
    """True joules of the seconds that are not in a gap."""
    expected: float
    """The error that the page itself says is to be expected, at the end of the window."""


def scrapes(trace: Trace) -> list[float]:
    """Return the scrapes of a window, with its edges."""
    return [trace.start + SCRAPE_SECONDS * n for n in range(int(WINDOW_SECONDS / SCRAPE_SECONDS) + 1)]


def ours(trace: Trace, times: Sequence[float]) -> Ours:
    """Fold the readings of the worker, and a fresh one at each scrape, into the ledger.

    `times` are seconds since `WARM_SECONDS` before the window.
    """
    scraped = scrapes(trace)
    base = trace.start - WARM_SECONDS
    at = sorted({base + t for t in times if base + t <= trace.end} | set(scraped))
    nominal = period(trace.sensor)
    ledger, totals, first, last_before, first_after = Ledger.start(), [], Ledger.start(), 0.0, 0.0
    due = set(scraped)
    for t in at:
        if not trace.readable(t):
            continue
        if trace.blind is not None and t < trace.blind[0]:
            last_before = t
        elif trace.blind is not None and not first_after:
            first_after = t
        reading = EnergyReading(
            at=t,
            period_seconds=nominal,
            power_watts=trace.power(t),
            power_window_seconds=trace.sensor.window,
            limit_watts=LIMIT_WATTS,
            counter_joules=None if trace.counter is None else trace.counter(t),
        )
        ledger = advance(ledger, reading)
        if t in due:
            totals.append(ledger.total_joules)
            if t == trace.start:
                first = ledger
    gap = ledger.gap_seconds - first.gap_seconds
    lost = trace.load.joules(first_after) - trace.load.joules(last_before) if gap else 0.0
    return Ours(
        joules=ledger.total_joules - totals[0],
        at_scrapes=tuple(total - totals[0] for total in totals),
        qualified=first.qualified,
        gap_seconds=gap,
        covered_truth=trace.truth - lost,
        expected=1.0 if ledger.uncertainty_ratio is None else ledger.uncertainty_ratio,
    )


def riemann(trace: Trace) -> float:
    """Multiply the mean of the scraped watts by the window, as `avg_over_time` in PromQL does."""
    seen = [trace.power(t) or 0.0 for t in scrapes(trace)[:-1] if trace.readable(t)]
    return sum(seen) / len(seen) * WINDOW_SECONDS


def all_smi(trace: Trace, random: Random) -> float:
    """Integrate from a timer: trapezoids up to 10 s, beyond that the last power for the whole gap."""
    ticks = _regular(trace.start - random.uniform(1, 2) * ALL_SMI_PERIOD, trace.end, ALL_SMI_PERIOD)
    total, at_start = 0.0, 0.0
    for (t, watts), (after, later) in itertools.pairwise(_seen(trace, ticks)):
        mean = (watts + later) / 2 if after - t <= ALL_SMI_BRIDGE else watts
        total += mean * (after - t)
        if after <= trace.start:
            at_start = total
    return total - at_start


def zeus(trace: Trace, random: Random) -> float:
    """Take the accumulator as it is if it passes the check, else poll at twice the rate of the sensor."""
    if trace.counter is not None and _zeus_accepts(trace):
        return (trace.counter(trace.end) or 0.0) - (trace.counter(trace.start) or 0.0)
    step = min(SENSOR_UPDATE / 2, ZEUS_LONGEST_PERIOD)
    polled = _seen(trace, _regular(trace.start + random.uniform(0, step), trace.end, step))
    return sum((a + b) / 2 * (after - t) for (t, a), (after, b) in itertools.pairwise(polled))


def _zeus_accepts(trace: Trace) -> bool:
    assert trace.counter is not None
    begin = trace.start - WARM_SECONDS
    watts = trace.power(begin) or 0.0
    counted = (trace.counter(begin + ZEUS_CHECK_SECONDS) or 0.0) - (trace.counter(begin) or 0.0)
    low, high = (bound * watts * ZEUS_CHECK_SECONDS for bound in ZEUS_ACCEPTS)
    return watts > 0 and low <= counted <= high


def raw(trace: Trace) -> float | None:
    """Take what `increase` makes of the scraped accumulator: after a fall, the whole new value is counted."""
    if trace.counter is None:
        return None
    shown = [trace.counter(t) for t in scrapes(trace) if trace.readable(t)]
    values = [value for value in shown if value is not None]
    return sum(b - a if b >= a else b for a, b in itertools.pairwise(values))


def _regular(start: float, end: float, step: float) -> Iterator[float]:
    return (start + n * step for n in range(int((end - start) / step) + 1))


def _seen(trace: Trace, times: Iterator[float]) -> list[tuple[float, float]]:
    return [(t, trace.power(t) or 0.0) for t in times if trace.readable(t)]
