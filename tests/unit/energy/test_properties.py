"""What is true of every history, however wild."""

import itertools
import math
from fractions import Fraction
from random import Random

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exporter.energy import EnergyReading, Ledger, advance, detached
from exporter.energy.ledger import Faults
from exporter.energy.sums import Sum
from tests.unit.energy import reference, sensors
from tests.unit.energy.sensors import history, last, readings

unhurried = settings(deadline=None)  # a busy machine is no failure

WATTS = st.one_of(st.none(), st.sampled_from([0.0, 80.0, 412.5]), st.floats(0, 1_500))
HIGHEST = 690.0
PAUSES = st.sampled_from([0.0, 0.001, 0.013, 0.1, 0.98, 1.0, 1.9, 2.0, 2.1, 4.9, 5.1, 61.0])


class Move(msgspec.Struct):
    """What the accumulator does between two reads."""

    kind: str
    size: float


MOVES = st.one_of(
    st.builds(Move, st.sampled_from(["step"]), st.floats(0, 900)),
    st.builds(Move, st.sampled_from(["absent", "still"]), st.just(0.0)),
    st.builds(Move, st.sampled_from(["back", "jump"]), st.floats(0.5, 1e7)),
)


@st.composite
def histories(draw: st.DrawFn, size: float | None = None) -> list[EnergyReading]:
    period = draw(st.sampled_from([0.1, 1.0, 5.0]))
    raw, at, made = draw(st.floats(0, 60_000)), draw(st.floats(0, 1e7)), []
    for pause, watts, move in draw(st.lists(st.tuples(PAUSES, WATTS, MOVES), max_size=60)):
        at += pause
        if move.kind == "step":
            raw += move.size * max(pause, 0.1)
        elif move.kind == "jump":
            raw += 1e5 + move.size
        elif move.kind == "back":
            raw = max(0.0, raw - move.size)
        if size is not None:
            raw %= size
        made.append(
            EnergyReading(
                at=at,
                period_seconds=period,
                power_watts=watts,
                power_window_seconds=1.0,
                limit_watts=700.0,
                counter_joules=None if move.kind == "absent" else raw,
                counter_range_joules=size,
            )
        )
    return made


@st.composite
def freezes(draw: st.DrawFn) -> list[EnergyReading]:
    """Stand still for some seconds, then show a part of what was drawn, or all or more of it; again and again."""
    at, raw, made = 0.0, 0.0, []

    def read(watts: float) -> None:
        made.append(
            EnergyReading(at=at, power_watts=watts, power_window_seconds=1.0, limit_watts=700.0, counter_joules=raw)
        )

    rounds = st.tuples(st.integers(0, 9), st.floats(80, 650), st.floats(0, 1.3))
    for still, watts, share in draw(st.lists(rounds, min_size=1, max_size=12)):
        for _ in range(still):
            at += 1.0
            read(watts)
        at += 1.0
        raw += share * watts * (still + 1)
        read(watts)
    return made


def qualified() -> Ledger:
    """Return a ledger that has followed an honest accumulator for 70 s."""
    load = sensors.constant(400.0)
    ledger = last(readings(sensors.regular(70, 1.0), sensors.averaged(load), sensors.accumulator(load)))
    assert ledger.qualified
    return ledger


QUALIFIED = qualified()


def later(made: list[EnergyReading], seconds: float) -> list[EnergyReading]:
    return [msgspec.structs.replace(reading, at=reading.at + seconds) for reading in made]


@unhurried
@given(histories())
def test_nothing_ever_falls_and_sources_sum_to_the_total(made: list[EnergyReading]) -> None:
    for _ in history(made):
        pass  # history holds each state to it


@unhurried
@given(st.one_of(histories(), freezes()))
def test_nothing_ever_falls_once_qualified(made: list[EnergyReading]) -> None:
    for _ in history(later(made, 71.0), QUALIFIED):
        pass  # as above


@unhurried
@given(st.one_of(histories(), histories(65_536.0)))
def test_the_sums_are_those_of_the_slow_reference(made: list[EnergyReading]) -> None:
    ledger = Ledger.start()
    for reading in made:
        ledger = advance(ledger, reading)
    steps, integral = reference.steps(made), reference.integral(made)
    assert (ledger.faults.reset, ledger.faults.jump) == (steps.resets, steps.jumps)
    assert (ledger.integrated_joules or 0.0) == pytest.approx(float(integral.joules), rel=1e-9, abs=1e-6)
    assert (ledger.hardware_joules or 0.0) == pytest.approx(float(steps.joules), rel=1e-9, abs=1e-6)


HONEST = list(
    readings(
        sensors.regular(70, 1.0),
        sensors.averaged(sensors.constant(400.0)),
        sensors.accumulator(sensors.constant(400.0)),
    )
)
"""What QUALIFIED has read."""


@unhurried
@given(st.one_of(histories(), freezes()))
def test_the_total_of_a_qualified_accumulator_is_that_of_the_slow_reference(made: list[EnergyReading]) -> None:
    # The accumulator goes on where it was, and one period holds for all that the reference is given.
    base = HONEST[-1].counter_joules - next((r.counter_joules for r in made if r.counter_joules is not None), 0.0)
    moved = [
        msgspec.structs.replace(
            reading,
            counter_joules=None if reading.counter_joules is None else reading.counter_joules + base,
            period_seconds=1.0,
        )
        for reading in later(made, 71.0 - (made[0].at if made else 0.0))
    ]
    states = [QUALIFIED, *history(moved, QUALIFIED)]
    assume(all(state.qualified for state in states))
    since = next(i for i, state in enumerate(history(HONEST)) if state.qualified)
    try:
        hardware, integrated = reference.total(reference.in_order([*HONEST, *moved]), since)
    except reference.TieError:
        assume(False)
    by_source = states[-1].joules_by_source
    assert by_source["hardware"] == pytest.approx(float(hardware), rel=1e-9, abs=1e-5)
    assert by_source["integrated"] == pytest.approx(float(integrated), rel=1e-9, abs=1e-5)


@unhurried
@given(histories())
def test_every_second_is_covered_a_gap_or_waits_for_the_next_reading(made: list[EnergyReading]) -> None:
    for state in history(later(made, 71.0), QUALIFIED):
        books = state.books
        waiting = books.waiting_covered_seconds + books.waiting_gap_seconds
        booked = state.covered_seconds + state.gap_seconds + waiting
        assert booked == pytest.approx(books.booked_at, rel=1e-9, abs=1e-6)
        assert books.booked_at <= state.at


@unhurried
@given(histories())
def test_gaps_of_the_integral_are_those_of_the_slow_reference(made: list[EnergyReading]) -> None:
    without = [msgspec.structs.replace(reading, counter_joules=None) for reading in reference.in_order(made)]
    while without and without[-1].power_watts is None:
        without.pop()
    assume(without)
    state = last(without)
    # Time before the first power reading waits for the one after it: an accumulator alone might have covered it.
    gaps = state.gap_seconds + state.books.waiting_gap_seconds
    assert gaps == pytest.approx(float(reference.integral(without).uncovered_seconds), rel=1e-9, abs=1e-6)


@unhurried
@given(histories(), st.data())
def test_readings_that_are_not_later_change_nothing(made: list[EnergyReading], data: st.DataObject) -> None:
    ledger = Ledger.start()
    for reading in made:
        ledger = advance(ledger, reading)
        late = data.draw(st.sampled_from([0.0, 0.001, 5.0]))
        assert advance(ledger, msgspec.structs.replace(reading, at=ledger.at - late, power_watts=9e3)) is ledger


@unhurried
@given(
    st.lists(st.tuples(st.floats(0.001, 1.9), st.floats(0, 1_500)), min_size=2, max_size=30),
    st.data(),
)
def test_splitting_an_interval_changes_nothing_for_linear_power(
    corners: list[tuple[float, float]], data: st.DataObject
) -> None:
    at, whole, split = 100.0, [], []
    for pause, watts in corners:
        if whole:
            share = data.draw(st.floats(0.01, 0.99))
            between = whole[-1].power_watts + share * (watts - whole[-1].power_watts)
            split.append(EnergyReading(at=at + share * pause, power_watts=between))
            at += pause
        whole.append(EnergyReading(at=at, power_watts=watts))
        split.append(whole[-1])
    assert last(split).total_joules == pytest.approx(last(whole).total_joules, rel=1e-9, abs=1e-9)


@unhurried
@given(histories(), histories())
def test_the_state_can_be_kept_and_restored_at_any_moment(made: list[EnergyReading], more: list[EnergyReading]) -> None:
    ledger = QUALIFIED
    for reading in later(made, 71.0):
        ledger = advance(ledger, reading)
    kept = msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger)
    assert kept == ledger
    for reading in later(more, ledger.at + 1):
        ledger, kept = advance(ledger, reading), advance(kept, reading)
    assert kept == ledger


@unhurried
@given(histories(), histories())
def test_a_change_of_sensor_never_makes_anything_fall(made: list[EnergyReading], more: list[EnergyReading]) -> None:
    ledger = last(later(made, 71.0), QUALIFIED) if made else QUALIFIED
    before = sensors.ascending(ledger)
    switched = detached(ledger)
    assert all(a <= b for a, b in zip(before, sensors.ascending(switched), strict=True))
    for _ in history(later(more, ledger.at), switched):
        pass


class Followed(msgspec.Struct):
    """A ledger over 150 s of a random load that two sensors see honestly."""

    load: sensors.Load
    update: float
    window: float
    states: list[Ledger]
    """Those from the first qualified one on."""

    @property
    def error(self) -> float:
        """Joules by which the total is off since the accumulator is qualified, at worst."""
        first, *_ = self.states
        return max(
            abs(
                state.total_joules
                - first.total_joules
                - (self.load.joules(state.at or 0) - self.load.joules(first.at or 0))
            )
            for state in self.states
        )


def followed(seed: int, period: float, *resets: float) -> Followed:
    random = Random(seed)
    pauses = itertools.accumulate(random.choice([0.05, 0.4, 1.0, 3.0, 20.0]) * random.random() for _ in range(60))
    load = sensors.Load([(0.0, 100.0), *((t, random.uniform(10, HIGHEST)) for t in pauses)])
    update = random.choice([0.01, 0.05, 0.1])
    counter = sensors.reset_at(sensors.accumulator(load, update), *resets)
    times = sensors.scraped(random, sensors.jittered(random, 150.0, period), 150.0)
    power, window = (sensors.averaged(load), 1.0) if period == 1.0 else (sensors.instant(load), 0.0)
    states = list(history(readings(times, power, counter, period=period, window=window)))
    return Followed(load, update, window, [state for state in states if state.qualified])


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0]))
@settings(max_examples=30, deadline=None)
def test_an_honest_accumulator_is_followed_under_any_load(seed: int, period: float) -> None:
    run = followed(seed, period)
    assert run.error <= run.update * HIGHEST + 1e-3
    assert run.states[-1].faults == Faults()


@given(st.integers(0, 10_000), st.sampled_from([0.1, 1.0]), st.floats(90, 140))
@settings(max_examples=30, deadline=None)
def test_the_total_over_a_reset_is_the_truth_within_one_step(seed: int, period: float, moment: float) -> None:
    run = followed(seed, period, moment)
    # The step in which it happens is credited by the integral, which lags by the window of the power reading.
    step = run.update + run.window + period * 1.1
    assert run.error <= (run.update + step) * HIGHEST
    assert run.states[-1].faults == Faults(reset=1)


@unhurried
@given(st.lists(st.floats(0, 1e6), max_size=200))
def test_a_sum_never_falls_and_is_right_to_the_last_place(terms: list[float]) -> None:
    total, exact = Sum(), Fraction(0)
    for term in terms:
        grown = total.plus(term)
        assert grown.value >= total.value
        total, exact = grown, exact + Fraction(term)
    assert total.value == pytest.approx(float(exact), rel=2**-52)


def test_a_million_steps_do_not_drift() -> None:
    random = Random(6)
    terms = [random.uniform(0, 70) for _ in range(1_000_000)]
    total = Sum(4e9)
    for term in terms:
        total = total.plus(term)
    assert total.value == pytest.approx(math.fsum([4e9, *terms]), rel=1e-15)
