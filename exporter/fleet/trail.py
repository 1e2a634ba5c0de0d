"""What did the ledger of a device make of its newest readings, and why? A few bytes each, for who asks later."""

import enum
import math
import struct
from collections.abc import Iterator
from typing import NamedTuple

from exporter.energy import Ledger

LENGTH = 100
"""Decisions of one device that are kept: the newest."""
_PLACE = struct.Struct("8d")


class Why(enum.IntFlag):
    """What a decision was made for; several may come together."""

    BEGUN = enum.auto()
    """The first reading: there is nothing before it to count from."""
    STEP = enum.auto()
    """The accumulator moved, and its step was accepted."""
    UNCHANGED = enum.auto()
    """The accumulator gave the value that it gave before."""
    CREDIT = enum.auto()
    """The accumulator stands still, so that the integral of power is credited in its place."""
    CATCH_UP = enum.auto()
    """The accumulator went on after standing still; what was credited meanwhile is taken off its step."""
    RESET = enum.auto()
    JUMP = enum.auto()
    UNTOLD = enum.auto()
    """The accumulator may have turned over since: its step cannot be told."""
    GAP = enum.auto()
    """Seconds whose energy nobody knows were booked as such."""
    QUALIFIED = enum.auto()
    DISQUALIFIED = enum.auto()
    STUCK = enum.auto()
    """The power reading was found to be stuck."""
    DETACHED = enum.auto()
    """Readings come from another sensor or provider from here on."""
    RESTORED = enum.auto()
    """The ledger went on from what a journal kept."""
    TRUSTED = enum.auto()
    """The accumulator is what the total follows."""


class Decision(NamedTuple):
    at: float
    """Monotonic time of the reading."""
    power_watts: float | None
    counter_joules: float | None
    """As read; None: the accumulator gave none."""
    hardware_joules: float
    """Added to the total from the accumulator."""
    integrated_joules: float
    """Added to the total from the integral of power."""
    gap_seconds: float
    credit_joules: float
    """How far the total is ahead of the accumulator afterwards, since the integral was credited in its place."""
    why: Why


class Trail:
    """The newest decisions of one ledger, as numbers in one piece of memory; words are for who shows them."""

    def __init__(self) -> None:
        self._places = bytearray(LENGTH * _PLACE.size)
        self._count = 0

    def note(self, before: Ledger, after: Ledger, power: float | None, counter: float | None) -> None:
        """Add the step from one state of the ledger to the next, made by this reading."""
        at = after.at
        if after is before or at is None:
            return
        was, books = before.books, after.books
        self._add(
            at,
            power,
            counter,
            books.hardware.value - was.hardware.value,
            books.integrated.value - was.integrated.value,
            books.gap_seconds.value - was.gap_seconds.value,
            books.credit,
            _reasons(before, after, counter),
        )

    def mark(self, before: Ledger, after: Ledger, at: float | None, why: Why) -> None:
        """Add a decision that no reading made: why is DETACHED or RESTORED. `at` None: there was no reading yet."""
        if at is not None:
            was, books = before.books, after.books
            settled = books.integrated.value - was.integrated.value
            gap = books.gap_seconds.value - was.gap_seconds.value
            self._add(at, None, None, 0.0, settled, gap, books.credit, why)

    def decisions(self) -> Iterator[Decision]:
        """Yield the newest first."""
        for number in range(self._count - 1, max(0, self._count - LENGTH) - 1, -1):
            at, power, counter, hardware, integrated, gap, credit, why = _PLACE.unpack_from(
                self._places, number % LENGTH * _PLACE.size
            )
            yield Decision(at, _known(power), _known(counter), hardware, integrated, gap, credit, Why(int(why)))

    def _add(
        self,
        at: float,
        power: float | None,
        counter: float | None,
        hardware: float,
        integrated: float,
        gap: float,
        credit: float,
        why: int,
    ) -> None:
        _PLACE.pack_into(
            self._places,
            self._count % LENGTH * _PLACE.size,
            at,
            math.nan if power is None else power,
            math.nan if counter is None else counter,
            hardware,
            integrated,
            gap,
            credit,
            why,
        )
        self._count += 1


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


# Plain numbers: members of a flag are joined by a call into Python, ten times a second for each device.
_BEGUN, _STEP, _UNCHANGED, _CREDIT, _CATCH_UP = (
    int(why) for why in (Why.BEGUN, Why.STEP, Why.UNCHANGED, Why.CREDIT, Why.CATCH_UP)
)
_UNTOLD, _GAP, _TRUSTED = int(Why.UNTOLD), int(Why.GAP), int(Why.TRUSTED)


def _reasons(before: Ledger, after: Ledger, counter: float | None) -> int:
    was, meter = before.accumulator, after.accumulator
    reasons = _TRUSTED if before.check.qualified or not after.power.seen else 0
    if before.at is None:
        reasons |= _BEGUN
    if counter is not None and was.joules is not None:
        if was.joules == counter:
            reasons |= _UNCHANGED
        elif after.steps is not before.steps:
            reasons |= _CATCH_UP | _STEP if was.frozen else _STEP
        elif after.faults is before.faults:
            reasons |= _UNTOLD
    if reasons & _TRUSTED and meter.frozen and after.books.integrated is not before.books.integrated:
        reasons |= _CREDIT
    if after.books.gap_seconds is not before.books.gap_seconds:
        reasons |= _GAP
    if after.faults is not before.faults:
        reasons |= _faults(before, after)
    if after.check.qualified and not before.check.qualified:
        reasons |= int(Why.QUALIFIED)
    return reasons


def _faults(before: Ledger, after: Ledger) -> int:
    was, faults = before.faults, after.faults
    reasons = 0
    for grown, why in (
        (faults.reset > was.reset, Why.RESET),
        (faults.jump > was.jump, Why.JUMP),
        (faults.disqualified > was.disqualified, Why.DISQUALIFIED),
        (faults.power_frozen > was.power_frozen, Why.STUCK),
    ):
        reasons |= int(why) if grown else 0
    return reasons
