"""Is the yardstick itself right: does it find what is wrong, and are the others counted as they publish it?"""

import itertools
from random import Random

import pytest

from tests.benchmarks.energy import methods, promql, report, traces, yardstick
from tests.benchmarks.energy.traces import AVERAGE, FULL, SENSORS, WARM_SECONDS, Trace
from tests.benchmarks.energy.yardstick import ACCUMULATOR, ALL_SMI, NO_ACCUMULATOR, OURS, RAW, ZEUS, Error, Row
from tests.unit.energy import sensors
from tests.unit.energy.sensors import Counter, Load

STEADY = sensors.constant(400.0)


def trace(load: Load = STEADY, counter: Counter | None = None, blind: tuple[float, float] | None = None) -> Trace:
    return Trace(load, SENSORS[FULL].see(load), counter, SENSORS[FULL], WARM_SECONDS + 0.03, blind)


def row(section: str, sensor: str, *, ours: float = 0.001, other: float = 0.2, updates: float | None = None) -> Row:
    errors = {OURS: Error(ours, ours), ALL_SMI: Error(other, other), ZEUS: Error(other, other)}
    return Row(section, sensor, "load", 40, errors, expected=0.005, updates=updates)


def good() -> list[Row]:
    return [
        row(NO_ACCUMULATOR, AVERAGE),
        row(NO_ACCUMULATOR, traces.QUARTER),
        row(ACCUMULATOR, AVERAGE, updates=0.9),
    ]


def test_what_is_within_the_budgets_is_no_failure() -> None:
    assert report.failures(good()) == []


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row(NO_ACCUMULATOR, AVERAGE, ours=0.006), "integrated, average over 1 s"),
        (row(NO_ACCUMULATOR, traces.QUARTER, ours=0.011), "integrated, 25 of 100 ms"),
        (row(ACCUMULATOR, AVERAGE, updates=1.1), "within one update"),
        (row(ACCUMULATOR, AVERAGE, updates=0.5)._replace(qualified=False), "had not qualified"),
        (row(ACCUMULATOR, AVERAGE, ours=0.004, other=0.001, updates=0.5), "ours is not first"),
        (row(NO_ACCUMULATOR, AVERAGE, ours=0.004, other=0.001), "ours is not first"),
        (row(ACCUMULATOR, AVERAGE, ours=0.006, updates=0.5), "further off than it says"),
    ],
)
def test_what_is_not_as_promised_is_named(bad: Row, says: str) -> None:
    assert any(says in failure for failure in report.failures([*good(), bad]))


def test_everybody_is_right_at_constant_power() -> None:
    steady = trace(counter=sensors.accumulator(STEADY))
    counted = (methods.riemann(steady), methods.zeus(steady, Random(1)), methods.raw(steady))
    assert counted == pytest.approx([400.0 * 300] * 3, abs=50)
    # Its page lags by up to one turn of its timer at each edge.
    assert methods.all_smi(steady, Random(1)) == pytest.approx(400.0 * 300, abs=1200)


def test_all_smi_takes_the_last_power_for_a_whole_gap() -> None:
    load = Load([(0.0, 100.0), (WARM_SECONDS + 100.0, 600.0)])
    blind = (WARM_SECONDS + 90.0, WARM_SECONDS + 150.0)
    counted = methods.all_smi(trace(load, blind=blind), Random(1))
    # 60 s, and up to a turn of its timer on either side, at 100 W.
    assert counted == pytest.approx(100.0 * 150 + 600.0 * 150, abs=600.0 * 6)


def test_zeus_believes_an_accumulator_that_is_43_percent_low_and_not_one_that_is_100_times_too_high() -> None:
    honest = sensors.accumulator(STEADY)
    low = methods.zeus(trace(counter=sensors.scaled(honest, 0.57)), Random(1))
    high = methods.zeus(trace(counter=sensors.scaled(honest, 100.0)), Random(1))
    assert low == pytest.approx(0.57 * 400 * 300, rel=0.01)
    assert high == pytest.approx(400 * 300, rel=0.01)


def test_a_raw_accumulator_that_falls_is_counted_anew() -> None:
    counter = sensors.reset_at(sensors.accumulator(STEADY), WARM_SECONDS + 150.0, to=5_000.0)
    lost = methods.raw(trace(counter=counter))
    assert lost is not None
    assert lost == pytest.approx(400.0 * 300 + 5_000, abs=400.0 * methods.SCRAPE_SECONDS)


def test_ours_is_read_at_the_cadence_of_the_worker() -> None:
    slow = methods.cadence(SENSORS[AVERAGE], Random(1), 100.0)
    fast = methods.cadence(SENSORS[FULL], Random(1), 100.0)
    assert len(slow) == pytest.approx(100, abs=2)
    assert len(fast) == pytest.approx(1075, rel=0.02)
    steps = {round(b - a, 5) for a, b in itertools.pairwise(fast)}
    assert len(steps) > 100, "10 Hz comes with jitter"


def test_rows_without_an_accumulator_have_no_raw_one() -> None:
    made = yardstick.integrated(1)
    assert RAW not in next(made).errors


def test_increase_extrapolates_as_prometheus_documents() -> None:
    samples = [(float(t), 10.0 * t + 1000) for t in range(0, 61, 15)]
    # All five samples; the left edge is open, the right one 5 s after the last sample.
    assert promql.increase(samples, 65.0, 65.1) == pytest.approx(651.0)
    assert promql.increase(samples, 65.0, 20.0) is None, "one sample is none"
    born = [(15.0, 5.0), (30.0, 155.0)]
    assert promql.increase(born, 30.0, 60.0) == pytest.approx(155.0), "not below zero at the left"
