"""Each decision of a ledger can be told afterwards: what was added, from what, and why."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.fleet.meter import Meter
from exporter.fleet.trail import LENGTH, Decision, Why
from exporter.model import Device, Sample

DEVICE = Device(vendor="nvidia", key="GPU-1")


class Told:
    """A meter that is read each second."""

    def __init__(self) -> None:
        self.meter = Meter(SamplingConfig())
        self.at = 100.0

    def read(
        self,
        power: float | None = 300.0,
        counter: float | None = None,
        after: float = 1.0,
        temperature: float | None = None,
        **also: object,
    ) -> Why:
        self.at += after
        sample = Sample(
            device=DEVICE,
            power_watts=power,
            power_kind="average",
            power_window_seconds=1.0,
            power_limit_watts=700.0,
            energy_counter_joules=counter,
            **also,
        )
        self.meter.observe(sample, self.at, self.at + 1e9, temperature, None)
        return self.newest.why

    def trusted(self) -> float:
        """Read until the accumulator is trusted, and return its value."""
        counter = 1e6
        while not self.read(300.0, counter := counter + 300.0) & Why.QUALIFIED:
            assert self.at < 1_000
        return counter

    @property
    def newest(self) -> Decision:
        return next(self.meter.decisions())


def test_what_is_counted_by_power_says_so() -> None:
    told = Told()
    assert told.read(counter=5.0) == Why.BEGUN
    assert told.read(counter=305.0) == Why.STEP
    assert told.newest == Decision(102.0, 300.0, 305.0, 0.0, 300.0, 0.0, 0.0, Why.STEP)
    assert told.read(counter=305.0) == Why.UNCHANGED
    assert told.read(counter=None) == Why(0)


def test_a_trusted_accumulator_is_what_the_total_follows() -> None:
    told = Told()
    counter = told.trusted()
    assert told.newest.why == Why.STEP | Why.QUALIFIED
    assert told.read(310.0, counter + 305.0) == Why.STEP | Why.TRUSTED
    assert (told.newest.hardware_joules, told.newest.integrated_joules) == (pytest.approx(305.0), 0.0)


def test_an_accumulator_without_power_is_what_there_is() -> None:
    told = Told()
    told.read(None, 10.0)
    assert told.read(None, 20.0) == Why.STEP | Why.TRUSTED


def test_one_that_stands_still_is_credited_and_catches_up() -> None:
    told = Told()
    counter = told.trusted()
    reasons = [told.read(300.0, counter) for _ in range(5)]
    assert Why.UNCHANGED | Why.TRUSTED in reasons
    assert reasons[-1] == Why.UNCHANGED | Why.CREDIT | Why.TRUSTED
    credit = told.newest.credit_joules
    assert credit == pytest.approx(1500.0)
    assert told.read(300.0, counter + 1800.0) == Why.STEP | Why.CATCH_UP | Why.TRUSTED
    assert told.newest.hardware_joules == pytest.approx(300.0)
    assert told.newest.credit_joules == 0.0


def test_a_reset_and_a_jump_are_named() -> None:
    told = Told()
    counter = told.trusted()
    assert told.read(300.0, 3.0) == Why.RESET | Why.TRUSTED
    assert told.newest.integrated_joules == pytest.approx(300.0)
    assert told.read(300.0, counter * 100) == Why.JUMP | Why.TRUSTED


def test_a_turn_that_cannot_be_told_is_named() -> None:
    told = Told()
    told.read(300.0, 100.0, energy_counter_range_joules=200.0)
    assert told.read(300.0, 150.0, energy_counter_range_joules=200.0) == Why.UNTOLD


def test_a_gap_is_named_with_its_seconds() -> None:
    told = Told()
    told.read()
    assert told.read(after=60.0) & Why.GAP
    assert told.newest.gap_seconds == pytest.approx(60.0)


def test_power_that_is_stuck_is_named() -> None:
    told = Told()
    reasons = [told.read(300.0, temperature=30.0 + second / 10) for second in range(400)]
    assert sum(bool(why & Why.STUCK) for why in reasons) == 1


def test_an_accumulator_that_lies_is_disqualified() -> None:
    told = Told()
    counter = told.trusted()
    reasons = [told.read(300.0, counter := counter + 200.0) for _ in range(700)]
    assert sum(bool(why & Why.DISQUALIFIED) for why in reasons) == 1


def test_another_sensor_and_a_journal_are_marked() -> None:
    told = Told()
    told.trusted()
    told.meter.detach()
    assert told.newest.why == Why.DETACHED
    kept = told.meter.record()
    assert kept is not None
    again = Meter(SamplingConfig())
    again.restore(kept, 2_000.0)
    assert [decision.why for decision in again.decisions()] == [Why.RESTORED]
    assert list(Meter(SamplingConfig()).decisions()) == []


def test_the_newest_are_kept_newest_first() -> None:
    told = Told()
    for watts in range(3 * LENGTH):
        told.read(float(watts))
    powers = [decision.power_watts for decision in told.meter.decisions()]
    assert powers == [float(watts) for watts in range(3 * LENGTH - 1, 2 * LENGTH - 1, -1)]


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(0.0, 800.0), st.none() | st.floats(0.0, 1e4), st.floats(0.1, 8.0), st.booleans()
        ),
        max_size=LENGTH // 2,
    )
)
def test_what_was_added_is_the_total(readings: list[tuple[float | None, float | None, float, bool]]) -> None:
    told = Told()
    for power, counter, after, detach in readings:
        told.at += after
        sample = Sample(
            device=DEVICE,
            power_watts=power,
            power_limit_watts=700.0,
            energy_counter_joules=counter,
            power_kind="instant",
        )
        told.meter.observe(sample, told.at, told.at, None, None)
        if detach:
            told.meter.detach()
    decisions = list(told.meter.decisions())
    account = told.meter.account()
    added = math.fsum(one.hardware_joules + one.integrated_joules for one in decisions)
    assert added == pytest.approx(0.0 if account is None else account.total_joules)
    gaps = math.fsum(one.gap_seconds for one in decisions)
    assert gaps == pytest.approx(0.0 if account is None else account.gap_seconds, abs=1e-6)
