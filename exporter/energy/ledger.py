"""How readings become the totals of one device.

The ledger is a fold: `advance` takes a state and a reading and returns the next state. The state is one record that can
be kept and restored. Readings may come at any rate, with extra ones in between; one that is not later than the last is
ignored.
"""

import msgspec

from exporter.energy import accumulator, books, crosscheck, integral, powerwatch, uncertainty
from exporter.energy.accumulator import Accumulator, Step, Verdict
from exporter.energy.books import Books
from exporter.energy.crosscheck import ALARM_BEYOND, CrossCheck
from exporter.energy.integral import PowerTrack, Segment
from exporter.energy.powerwatch import PowerWatch
from exporter.energy.reading import EnergyReading
from exporter.energy.sums import Sum
from exporter.energy.uncertainty import Doubt

FAST_SECONDS = 0.25
"""Instant power read at least this often sees a load well enough to be compared over minutes."""
WINDOW_SHARE = 0.9
"""Averaging windows that cover this share of the time between two reads leave none unseen that matters."""


class Faults(msgspec.Struct, frozen=True, gc=False):
    reset: int = 0
    jump: int = 0
    frozen: int = 0
    disqualified: int = 0
    power_frozen: int = 0


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one device's energy. Every figure of joules or seconds never falls."""

    at: float | None = None
    """Time of the last reading; None: there was none."""
    power: PowerTrack = PowerTrack()
    accumulator: Accumulator = Accumulator()
    steps: Sum = Sum()
    integral: Sum = Sum()
    books: Books = Books()
    check: CrossCheck = CrossCheck()
    watch: PowerWatch = PowerWatch()
    faults: Faults = Faults()
    doubt: Doubt = Doubt()

    @classmethod
    def start(cls) -> "Ledger":
        """Return a ledger at 0, before its first reading."""
        return cls()

    @property
    def total_joules(self) -> float:
        """The number to use: the sum of `joules_by_source`."""
        return self.books.hardware.value + self.books.integrated.value

    @property
    def joules_by_source(self) -> dict[str, float]:
        return {"hardware": self.books.hardware.value, "integrated": self.books.integrated.value}

    @property
    def hardware_joules(self) -> float | None:
        """Sum of accepted accumulator steps; None: no accumulator was ever read."""
        return self.steps.value if self.steps.value or self.accumulator.joules is not None else None

    @property
    def integrated_joules(self) -> float | None:
        """Integral of power; None: no power was ever read."""
        return self.integral.value if self.integral.value or self.power.seen else None

    @property
    def qualified(self) -> bool:
        return self.check.qualified

    @property
    def divergence_ratio(self) -> float | None:
        """Accumulator against integral, minus one; None while it stands still or cannot be told."""
        return None if self.accumulator.frozen else self.check.divergence

    @property
    def uncertainty_ratio(self) -> float | None:
        """The relative error expected of the newest five minutes of the total; None: nothing is known of it.

        While the two sensors disagree by more than honest ones do, one of them is wrong by as much.
        """
        ratio, divergence = self.doubt.ratio, self.divergence_ratio
        if ratio is None or divergence is None or not self.qualified or abs(divergence) <= ALARM_BEYOND:
            return ratio
        return max(ratio, abs(divergence))

    @property
    def covered_seconds(self) -> float:
        return self.books.covered_seconds.value

    @property
    def gap_seconds(self) -> float:
        return self.books.gap_seconds.value


def advance(ledger: Ledger, reading: EnergyReading) -> Ledger:
    """Return the ledger after one more reading.

    The total follows a qualified accumulator, else the integral. A device that never gave a power reading has nothing
    to check its accumulator against: its accepted steps are the total, and it stays unqualified.
    """
    if ledger.at is None:
        ledger = msgspec.structs.replace(ledger, books=Books(booked_at=reading.at))
    elif reading.at <= ledger.at:
        return ledger
    power, segment = integral.follow(ledger.power, reading)
    meter, step = accumulator.follow(ledger.accumulator, reading, segment, power.resolved_at)
    by_hardware = ledger.check.qualified or not ledger.power.seen
    booked = (
        books.by_hardware(ledger.books, step, segment, reading.at)
        if by_hardware
        else books.by_integral(ledger.books, segment)
    )
    watch = powerwatch.watch(ledger.watch, reading)
    check = _checked(ledger.check, step, reading, watch)
    return Ledger(
        at=reading.at,
        power=power,
        accumulator=meter,
        steps=ledger.steps.plus(step.joules),
        integral=ledger.integral.plus(segment.joules or 0.0) if segment else ledger.integral,
        books=booked,
        check=check,
        watch=watch,
        faults=_counted(
            ledger.faults,
            step,
            disqualified=ledger.check.qualified and not check.qualified,
            power_froze=watch.stuck and not ledger.watch.stuck,
        ),
        doubt=_doubted(ledger, booked, step, segment, reading, stuck=watch.stuck) if power.seen else ledger.doubt,
    )


def detached(ledger: Ledger) -> Ledger:
    """Return the ledger before its readings come from another sensor: no step spans two, and none has earned trust."""
    owed = max(0.0, ledger.accumulator.integral_joules - ledger.books.credit) if ledger.check.qualified else 0.0
    settled = books.by_integral(ledger.books, None)
    return msgspec.structs.replace(
        ledger,
        power=PowerTrack(resolved_at=ledger.power.resolved_at),
        accumulator=Accumulator(),
        books=msgspec.structs.replace(settled, integrated=settled.integrated.plus(owed)),
        check=CrossCheck(),
        watch=PowerWatch(),
    )


def _checked(check: CrossCheck, step: Step, reading: EnergyReading, watch: PowerWatch) -> CrossCheck:
    if step.verdict is not Verdict.ACCEPTED or not step.covered or step.resumed or watch.stuck:
        return check
    # As it was read, not as it should be: with many devices or slow calls that is less often.
    window, spacing = reading.power_window_seconds, max(reading.period_seconds, step.spacing)
    comparable = spacing <= FAST_SECONDS or (window is not None and window >= WINDOW_SHARE * spacing)
    return crosscheck.compare(check, reading.at - step.since, step.joules, step.integral_joules, comparable=comparable)


def _doubted(
    ledger: Ledger, booked: Books, step: Step, segment: Segment | None, reading: EnergyReading, *, stuck: bool
) -> Doubt:
    """Add the seconds that were booked, each with the error of what measured it."""
    covered = booked.covered_seconds.value - ledger.books.covered_seconds.value
    if ledger.check.qualified and step.verdict is Verdict.ACCEPTED and not step.resumed:
        error = uncertainty.BY_ACCUMULATOR
    elif stuck:
        error = uncertainty.NOTHING_KNOWN
    else:
        elapsed = reading.period_seconds if segment is None else segment.end - segment.start
        error = uncertainty.of_integral(reading.power_window_seconds, elapsed)
    gap = booked.gap_seconds.value - ledger.books.gap_seconds.value
    return ledger.doubt.plus(covered, error).plus(gap, uncertainty.NOTHING_KNOWN)


def _counted(faults: Faults, step: Step, *, disqualified: bool, power_froze: bool) -> Faults:
    reset, jump = step.verdict is Verdict.RESET, step.verdict is Verdict.JUMP
    if not (reset or jump or step.froze or disqualified or power_froze):
        return faults
    return Faults(
        faults.reset + reset,
        faults.jump + jump,
        faults.frozen + step.froze,
        faults.disqualified + disqualified,
        faults.power_frozen + power_froze,
    )
