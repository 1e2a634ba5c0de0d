"""Ten minutes with each kind of accumulator that was met in the field, at each way of being read."""

import itertools
import os
from collections.abc import Callable
from random import Random

import pytest

from exporter.energy import Ledger
from exporter.energy.ledger import Faults
from tests.benchmarks import naive_rule
from tests.unit.energy import sensors
from tests.unit.energy.sensors import Counter, Load, history, last, readings
from tests.unit.energy.test_accuracy import LOADS

SECONDS = 600.0
NONE = Faults()


class Way:
    """How a device is read: at which times, and through which power sensor."""

    def __init__(self, name: str, seconds: float = SECONDS) -> None:
        random = Random(name)
        self.period = 0.1 if "10 Hz" in name else 1.0
        self.window = 0.0 if "10 Hz" in name else 1.0
        self.times = (
            list(sensors.jittered(random, seconds, 0.1))
            if "10 Hz" in name
            else list(sensors.regular(seconds, 1.0, random.uniform(0, 0.1)))
        )
        if "scrapes" in name:
            self.times = sensors.scraped(random, self.times, seconds)

    def readings(self, load: Load, counter: Counter | None, size: float | None = None) -> list[object]:
        power = sensors.instant(load) if self.window == 0.0 else sensors.averaged(load)
        return list(readings(self.times, power, counter, period=self.period, window=self.window, size=size))

    def last(self, load: Load, counter: Counter | None, size: float | None = None) -> Ledger:
        return last(self.readings(load, counter, size))

    def truth(self, load: Load) -> float:
        return load.joules(self.times[-1]) - load.joules(self.times[0])


@pytest.fixture(params=["1 Hz", "10 Hz", "1 Hz and scrapes", "10 Hz and scrapes"])
def way(request: pytest.FixtureRequest) -> Way:
    return Way(request.param)


@pytest.fixture(params=["1 Hz", "10 Hz and scrapes"])
def extreme(request: pytest.FixtureRequest) -> Way:
    """Return the fewest reads and the most."""
    return Way(request.param)


def bursts() -> Load:
    return sensors.bursts(Random(1), 1.0, 7.0, SECONDS)


@pytest.fixture(params=["square", "bursts"])
def load(request: pytest.FixtureRequest) -> Load:
    return {
        "square": sensors.square(9.7, 0.5, SECONDS),
        "bursts": bursts(),
    }[request.param]


def near(load: Load, way: Way, ratio: float) -> object:
    return pytest.approx(way.truth(load), rel=ratio)


@pytest.mark.parametrize("update", [0.01, 0.1])
def test_an_honest_accumulator_raises_no_fault_and_is_followed_step_by_step(
    way: Way, load: Load, update: float
) -> None:
    counter = sensors.accumulator(load, update)
    states = list(history(way.readings(load, counter)))
    begin = next(index for index, state in enumerate(states) if state.qualified)
    assert states[begin].at <= 75
    assert all(state.qualified for state in states[begin:])
    assert states[-1].faults == NONE
    for time, state in zip(way.times[begin:], states[begin:], strict=True):
        followed = state.total_joules - states[begin].total_joules
        assert followed == pytest.approx(counter(time) - counter(way.times[begin]), abs=1e-6)
        assert abs(followed - load.joules(time) + load.joules(way.times[begin])) <= update * 650.0 + 1e-3
    assert states[-1].divergence_ratio == pytest.approx(0, abs=0.02)
    assert states[-1].total_joules == near(load, way, 0.01)


@pytest.mark.parametrize("phase", [0.0, 7.35])
def test_pauses_with_catch_up_are_neither_frozen_nor_jumps_nor_counted_twice(
    way: Way, load: Load, phase: float
) -> None:
    counter = sensors.paused(sensors.accumulator(load), 2.0, 20.0, phase)
    states = list(history(way.readings(load, counter)))
    assert states[-1].faults == NONE
    begin = next(index for index, state in enumerate(states) if state.qualified)
    for time, state in zip(way.times[begin:], states[begin:], strict=True):
        if (time - phase) % 20.0 > 2.2:
            followed = state.total_joules - states[begin].total_joules
            assert followed == pytest.approx(counter(time) - counter(way.times[begin]), abs=1e-6)
    assert states[-1].total_joules == near(load, way, 0.01)


BAD: dict[str, tuple[Callable[[Counter], Counter], set[str]]] = {
    "43 % low": (lambda honest: sensors.scaled(honest, 0.57), set()),
    "times 100": (lambda honest: sensors.scaled(honest, 100.0), {"jump"}),
    "15.3 times low": (lambda honest: sensors.scaled(honest, 1 / 15.3), set()),
    "ticks for joules": (lambda honest: sensors.scaled(honest, 65_536.0), {"jump"}),
    "frozen": (lambda _: lambda _t: 20_909_145.914, {"frozen"}),
    "zero for ever": (lambda _: lambda _t: 0.0, {"frozen"}),
    "absent": (lambda _: lambda _t: None, set()),
    "backwards": (lambda honest: lambda t: 1e9 - honest(t), {"reset"}),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_accumulator_never_earns_its_place_and_the_total_is_the_integral(way: Way, load: Load, kind: str) -> None:
    spoil, faults = BAD[kind]
    states = list(history(way.readings(load, spoil(sensors.accumulator(load)))))
    assert not any(state.qualified for state in states)
    end = states[-1]
    assert end.total_joules == near(load, way, 0.02)
    assert end.total_joules == end.integrated_joules
    assert {name for name in Faults.__struct_fields__ if getattr(end.faults, name)} == faults


@pytest.mark.parametrize("factor", [0.57, 1 / 15.3, 1.15])
def test_an_accumulator_that_is_off_is_flagged_within_one_window(extreme: Way, factor: float) -> None:
    load = bursts()
    states = history(extreme.readings(load, sensors.scaled(sensors.accumulator(load), factor)))
    flagged = next(state for state in states if state.divergence_ratio is not None)
    assert flagged.at < 330
    assert flagged.divergence_ratio == pytest.approx(factor - 1, abs=0.02)
    assert not flagged.qualified


def test_a_frozen_accumulator_is_one_fault_however_long_it_stands(extreme: Way) -> None:
    load = bursts()
    assert extreme.last(load, lambda _: 5.0).faults == Faults(frozen=1)


def test_zero_for_the_first_seconds_does_not_count_as_energy(extreme: Way) -> None:
    load = bursts()
    end = extreme.last(load, sensors.zero_until(sensors.accumulator(load), 4.0))
    assert end.qualified
    assert end.faults.jump == 1
    assert end.total_joules == near(load, extreme, 0.02)


def test_values_of_another_device_now_and_then_are_not_added(extreme: Way) -> None:
    load = bursts()
    honest = sensors.accumulator(load)
    end = extreme.last(load, sensors.sometimes(honest, sensors.accumulator(load, start=20_000_000.0)))
    assert end.qualified
    assert end.faults.jump >= 10
    assert end.faults.reset >= 10
    assert end.total_joules == near(load, extreme, 0.02)


def test_a_reset_costs_at_most_the_error_of_the_integral_over_one_step(extreme: Way) -> None:
    load = bursts()
    counter = sensors.reset_at(sensors.accumulator(load), 150.0, 155.5, 400.03)
    states = list(history(extreme.readings(load, counter)))
    assert states[-1].faults == Faults(reset=3)
    begin = next(index for index, state in enumerate(states) if state.qualified)
    followed = states[-1].total_joules - states[begin].total_joules
    true = load.joules(extreme.times[-1]) - load.joules(extreme.times[begin])
    # Each reset leaves out one update, adds the lag of one reading, and so does each end.
    assert abs(followed - true) <= 4 * (0.1 + extreme.window + extreme.period) * 570.0


def test_a_wrap_of_a_32_bit_table_loses_nothing(extreme: Way) -> None:
    load = bursts()
    counter = sensors.accumulator(load, start=65_000.0)
    states = list(history(extreme.readings(load, sensors.wrapping(counter, 65_536.0), size=65_536.0)))
    end = states[-1]
    assert end.faults == NONE
    assert end.hardware_joules == pytest.approx(counter(extreme.times[-1]) - counter(extreme.times[0]), abs=1e-6)
    assert end.total_joules == near(load, extreme, 0.01)


def test_a_freeze_is_credited_and_its_catch_up_is_not_counted_again(extreme: Way) -> None:
    load = bursts()
    counter = sensors.frozen(sensors.accumulator(load), 200.0, 260.0)
    states = list(history(extreme.readings(load, counter)))
    assert states[-1].faults == Faults(frozen=1)
    inside = next(state for state in states if state.at >= 250)
    assert inside.total_joules == pytest.approx(load.joules(inside.at) - load.joules(extreme.times[0]), rel=0.02)
    assert states[-1].total_joules == near(load, extreme, 0.01)


def test_a_freeze_without_catch_up_is_made_good_by_the_integral(extreme: Way) -> None:
    load = bursts()
    counter = sensors.frozen(sensors.accumulator(load), 200.0, 260.0, catches_up=False)
    end = extreme.last(load, counter)
    assert end.faults == Faults(frozen=1)
    assert end.qualified
    assert end.total_joules == near(load, extreme, 0.02)


@pytest.mark.parametrize("name", ["1 Hz and scrapes", "10 Hz"])
@pytest.mark.parametrize("since", [75.0, 410.0])
def test_an_accumulator_that_turns_bad_costs_at_most_two_windows(name: str, since: float) -> None:
    way, load = Way(name, 1_200.0), sensors.bursts(Random(2), 1.0, 7.0, 1_200.0)
    honest = sensors.accumulator(load)

    def turning(t: float) -> float:
        return honest(t) if t < since else honest(since) + 0.57 * (honest(t) - honest(since))

    states = list(history(way.readings(load, turning)))
    dismissed = next(state for state in states if state.faults.disqualified)
    assert since < dismissed.at <= since + 600
    assert states[-1].faults == Faults(disqualified=1)
    assert not states[-1].qualified
    lost = way.truth(load) - states[-1].total_joules
    assert 0 < lost <= 0.43 * (load.joules(since + 600) - load.joules(since)) + 0.005 * way.truth(load)


def test_an_accumulator_earns_its_place_again_without_a_jump() -> None:
    load, way = sensors.constant(500.0), Way("1 Hz", 1_800.0)
    honest = sensors.accumulator(load)

    def lapsing(t: float) -> float:
        return honest(t) - 0.5 * (honest(min(max(t, 90.0), 900.0)) - honest(90.0))

    states = list(history(way.readings(load, lapsing)))
    flags = [state.qualified for state in states]
    assert [flag for flag, _ in itertools.groupby(flags)] == [False, True, False, True]
    for before, after in itertools.pairwise(states):
        assert after.total_joules - before.total_joules <= 500.0 * 1.2


def mixed(seconds: float) -> Load:
    random = Random(24)
    edges, t = [(0.0, 80.0)], 0.0
    while t < seconds:
        t += random.choice([0.13, 1.0, 5.0, 60.0]) * random.uniform(0.5, 2)
        edges.append((t, random.choice([80.0, 300.0, 650.0])))
    return Load(edges)


HOURS_AT_10_HZ = float(os.environ.get("LEDGER_HOURS_AT_10_HZ", "1"))
"""24 in .ci/long: a simulated day at 10 Hz takes a minute."""


@pytest.mark.parametrize(
    ("sensor", "hours"), [("1 s average", 24.0), ("instant", HOURS_AT_10_HZ), ("25 of 100 ms", HOURS_AT_10_HZ)]
)
def test_a_day_of_mixed_honest_loads_raises_no_alarm(sensor: str, hours: float) -> None:
    seconds = hours * 3_600
    load = mixed(seconds)
    slow = sensor == "1 s average"
    times = sensors.regular(seconds, 1.0) if slow else sensors.jittered(Random(10), seconds, 0.1)
    power = {
        "1 s average": sensors.averaged(load),
        "instant": sensors.instant(load),
        "25 of 100 ms": sensors.averaged(load, 0.025),
    }[sensor]
    counter = sensors.paused(sensors.accumulator(load), 2.0, 61.0)
    stream = readings(times, power, counter, period=1.0 if slow else 0.1, window=1.0 if slow else 0.0)
    worst, state = 0.0, Ledger.start()
    for state in history(stream):
        worst = max(worst, abs(state.divergence_ratio or 0.0))
    assert 0 < worst < 0.05
    print(f"{sensor}, {hours:g} h: the two differed by {worst:.2%} at most")
    assert state.faults == NONE
    assert state.qualified
    assert state.total_joules == pytest.approx(load.joules(seconds), rel=2e-3)


@pytest.mark.parametrize("name", LOADS)
def test_an_accumulator_read_each_15_s_is_right_to_one_update(name: str) -> None:
    load = LOADS[name](Random(name))
    counter = sensors.accumulator(load)
    ledger = last(readings(sensors.regular(70.0, 1.0), sensors.averaged(load), counter))
    assert ledger.qualified
    slow = readings([85.0 + 15 * step for step in range(15)], sensors.averaged(load), counter)
    for state in history(slow, ledger):
        grown, true = state.total_joules - ledger.total_joules, load.joules(state.at) - load.joules(70.0)
        assert grown == pytest.approx(true, abs=0.1 * 650.0 + 1e-3)
    assert state.faults == NONE
    assert state.gap_seconds == 0


@pytest.mark.parametrize(("period", "window"), [(1.0, 0.0), (1.0, None), (5.0, 1.0), (15.0, 1.0), (0.5, 0.0)])
@pytest.mark.parametrize("factor", [1.0, 0.57])
def test_reads_too_slow_for_the_sensor_judge_no_accumulator(period: float, window: float | None, factor: float) -> None:
    """The power readings stray by more than any accumulator does: no divergence, and no dismissal."""
    load = sensors.bursts(Random(4), 1.0, 7.0, 4_000.0)
    counter = sensors.scaled(sensors.accumulator(load), factor)
    ledger = last(readings(sensors.regular(70.0, 1.0), sensors.averaged(load), sensors.accumulator(load)))
    assert ledger.qualified
    power = sensors.averaged(load) if window else sensors.instant(load)
    offset = (counter(70.0) or 0.0) - (sensors.accumulator(load)(70.0) or 0.0)
    slow = readings(
        [70.0 + period * step for step in range(1, round(3_600 / period))],
        power,
        lambda t: (counter(t) or 0.0) - offset,
        period=period,
        window=window,
    )
    states = list(history(slow, ledger))
    assert states[-1].faults == NONE
    assert states[-1].qualified
    after_the_change = [state for state in states if state.at > 110]
    assert all(state.divergence_ratio is None for state in after_the_change)


@pytest.mark.parametrize("accumulator", naive_rule.ACCUMULATORS)
@pytest.mark.parametrize("way", naive_rule.WAYS)
def test_a_naive_rule_that_compares_reads_cries_wolf_where_this_one_does_not(accumulator: str, way: str) -> None:
    row = naive_rule.compare(accumulator, way, 0.25)
    assert row.our_faults == 0
    assert abs(row.our_error) < 1e-3
    if (accumulator, way) == ("updates each 100 ms", "1 Hz"):
        return  # the only case in which a reading always finds something new
    assert row.naive_frozen > 100
    assert abs(row.naive_error) > 5 * max(abs(row.our_error), 1e-3)
    if "10 Hz" in way:
        assert row.naive_jumps > 50


@pytest.mark.parametrize(("period", "window", "apart"), [(0.1, 0.0, 0.9), (1.0, 1.0, 3.1)])
def test_a_library_too_slow_for_its_cadence_raises_no_alarm(period: float, window: float, apart: float) -> None:
    """Many devices, or calls that take long: what is read seldom sees the load as badly as if it was meant to."""
    seconds = 2400.0
    loads = (sensors.bursts(Random(4), 0.1, 0.4, seconds), sensors.square(0.263, 0.3, seconds), bursts())
    for load in loads:
        power = sensors.instant(load) if window == 0.0 else sensors.averaged(load)
        times = list(sensors.jittered(Random(5), seconds, apart))
        counter = sensors.accumulator(load)
        seen = list(history(readings(times, power, counter, period=period, window=window)))
        assert {ledger.divergence_ratio for ledger in seen} == {None}
        assert seen[-1].faults == NONE


def test_a_read_that_is_late_now_and_then_does_not_blind_the_cross_check() -> None:
    random, load = Random(6), bursts()
    times = [at for at in sensors.jittered(random, SECONDS, 0.1) if random.random() > 0.02]
    ledger = last(readings(times, sensors.instant(load), sensors.accumulator(load), period=0.1, window=0.0))
    assert ledger.divergence_ratio == pytest.approx(0, abs=0.01)
