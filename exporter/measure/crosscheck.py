"""Whether the accumulator of a GPU may give the joules, and how far it is from the integral.

It earns that as it does for the daemon: a minute of readings that agrees with the integral within 10 %, anywhere in the
run. The comparison of the two over a window is advisory and no part of the verdict.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.energy import EnergyReading, Ledger, advance
from exporter.energy.crosscheck import DISQUALIFY_BEYOND
from exporter.energy.ledger import Faults
from exporter.measure.records import Identity, Point, Policy


class Fault(NamedTuple):
    """What an accumulator did between two of its readings, in CLOCK_MONOTONIC seconds."""

    since: float
    until: float
    kind: str
    """reset, jump or frozen."""

    def touches(self, start: float, end: float) -> bool:
        return self.since < end and self.until > start


class Account(NamedTuple):
    """What a whole run says of one accumulator."""

    qualified: bool
    faults: tuple[Fault, ...]


def account(points: Sequence[Point], gpu: Identity, policy: Policy) -> Account:
    """Judge the accumulator of one GPU by all its readings of a run."""
    if gpu.counter_scope != gpu.power_scope or all(point.counter_joules is None for point in points):
        return Account(qualified=False, faults=())
    ledger = Ledger.start()
    faults: list[Fault] = []
    before = points[0].monotonic
    for point in points:
        after = advance(ledger, _reading(point, gpu, policy))
        if after.faults != ledger.faults:
            since = ledger.accumulator.at if after.faults.frozen > ledger.faults.frozen else before
            faults.extend(Fault(since, point.monotonic, kind) for kind in _new(ledger.faults, after.faults))
        elif ledger.accumulator.frozen and faults:
            # Until it moves again, and the step with which it does: that may be a catch-up.
            faults[-1] = faults[-1]._replace(until=point.monotonic)
        ledger = after
        if point.counter_joules is not None:
            before = point.monotonic
    return Account(ledger.qualified, tuple(faults))


def _reading(point: Point, gpu: Identity, policy: Policy) -> EnergyReading:
    return EnergyReading(
        at=point.monotonic,
        period_seconds=policy.interval_seconds,
        power_watts=point.power_watts,
        power_window_seconds=gpu.power_window_seconds,
        limit_watts=gpu.limit_watts,
        counter_joules=point.counter_joules,
        counter_range_joules=gpu.counter_range_joules,
    )


def _new(before: Faults, after: Faults) -> Iterable[str]:
    return (kind for kind in ("reset", "jump", "frozen") if getattr(after, kind) > getattr(before, kind))


def believable(hardware: float, integrated: float, bounds: float) -> bool:
    """Tell whether the two accounts of a window are no further apart than a qualified accumulator may be.

    `bounds`: the sum of how far each may be off, in joules.
    """
    return abs(hardware - integrated) <= DISQUALIFY_BEYOND * integrated + bounds


class Comparison(NamedTuple):
    """Accumulators against integrals of the same GPUs."""

    hardware_joules: float
    integrated_joules: float
    divergence_ratio: float | None
    """The first against the second, minus one; None: there is no power to compare with."""
    beyond: bool
    """Whether that is more than the policy's tolerance."""


def compare(hardware: float, integrated: float, policy: Policy) -> Comparison:
    ratio = hardware / integrated - 1 if integrated > 0 else None
    return Comparison(hardware, integrated, ratio, ratio is not None and abs(ratio) > policy.cross_check_ratio)
