"""Does the published uncertainty hold for loads that are hard to sample, and does it say what the total was made of?"""

import itertools
from collections.abc import Iterable, Iterator
from random import Random

import pytest

from exporter.energy import EnergyReading, Ledger
from exporter.energy.uncertainty import BY_ACCUMULATOR, COVERING, Doubt, of_integral
from tests.unit.energy import sensors
from tests.unit.energy.sensors import Load, Power, history, last
from tests.unit.energy.test_accuracy import LOADS, SPAN, WARM_UP, WINDOW, rms

WATTS = 400.0
LEAST_USED = 0.25
"""A bound of which less than this is ever used tells nobody anything."""

# Averaging window, update, seconds between reads. The reads have a jitter of 10 % except those of averages.
WAYS = [
    *((1.0, 0.1, period) for period in (1.0, 1.5, 2.0, 5.0, 15.0, 60.0)),
    (0.1, 0.1, 0.1),
    *((0.025, 0.1, period) for period in (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)),
]


def starts(load: str, phases: int) -> Iterator[tuple[Load, Random, float]]:
    # What is locked to the sensor's own rhythm of 100 ms is excluded: no software sees it.
    made_by = LOADS | {"2.1 s square": lambda _: sensors.square(2.117, 0.3, SPAN)}
    for phase in range(phases):
        random = Random(f"{load}{phase}")
        yield made_by[load](random), random, WARM_UP + random.uniform(0, 31)


def trapezoid(power: Power, times: Iterable[float]) -> float:
    points = [(t, power(t) or 0.0) for t in times]
    return sum((p + q) / 2 * (t - s) for (s, p), (t, q) in itertools.pairwise(points))


def errors(load: str, window: float, update: float, period: float) -> list[float]:
    found = []
    for made, random, start in starts(load, 6 if period < 1 else 20):
        jitter = 0.0 if window == 1.0 else 0.1
        times = [start + t for t in sensors.jittered(random, WINDOW, period, jitter)]
        joules = trapezoid(sensors.averaged(made, window, update), times)
        found.append(joules / (made.joules(times[-1]) - made.joules(times[0])) - 1)
    return found


@pytest.mark.parametrize(("window", "update", "period"), WAYS)
def test_the_error_of_an_integral_stays_within_it(window: float, update: float, period: float) -> None:
    # Sensors that see 25 of 100 ms are instant to the exporter: nobody says how much they see.
    said = of_integral(0.0 if window == 0.025 else window, period)
    by_load = [errors(load, window, update, period) for load in LOADS]
    worst = max(map(rms, by_load))
    assert LEAST_USED * said <= worst <= said
    assert max(map(abs, itertools.chain.from_iterable(by_load))) <= 2 * said


def test_the_error_of_an_accumulator_stays_within_it() -> None:
    by_load = []
    for load in LOADS:
        found = []
        for made, _, start in starts(load, 60):
            counter = sensors.accumulator(made)
            true = made.joules(start + WINDOW) - made.joules(start)
            found.append((counter(start + WINDOW) - counter(start)) / true - 1)  # type: ignore[operator]  # never None
        by_load.append(found)
    assert LEAST_USED * BY_ACCUMULATOR <= max(map(rms, by_load)) <= BY_ACCUMULATOR
    assert max(map(abs, itertools.chain.from_iterable(by_load))) <= 2 * BY_ACCUMULATOR


def steady(
    times: Iterable[float],
    *,
    period: float = 1.0,
    window: float | None = 1.0,
    counter: bool = False,
    power: float | None = WATTS,
) -> Iterator[EnergyReading]:
    for t in times:
        yield EnergyReading(
            at=t,
            period_seconds=period,
            power_watts=power,
            power_window_seconds=window,
            limit_watts=700.0,
            counter_joules=1_000.0 + WATTS * t if counter else None,
        )


def seconds(until: int, since: int = 0) -> list[float]:
    return [float(t) for t in range(since, until)]


@pytest.mark.parametrize(
    ("window", "period", "said"),
    [
        (1.0, 1.0, COVERING),
        (1.0, 0.1, COVERING),
        (0.1, 0.1, COVERING),
        (0.0, 0.1, 0.01),
        (None, 0.1, 0.01),
        (0.0, 1.0, 0.075),
        (None, 1.0, 0.075),
        (1.0, 5.0, 0.17),
        (1.0, 15.0, 0.30),
        (0.0, 15.0, 0.40),
        (0.0, 60.0, 1.0),
        (1.0, 60.0, 0.75),
    ],
)
def test_it_follows_from_window_and_cadence(window: float | None, period: float, said: float) -> None:
    times = [period * step for step in range(max(20, round(330 / period)))]
    assert last(steady(times, period=period, window=window)).uncertainty_ratio == pytest.approx(said)


def test_a_slow_driver_makes_it_wider_than_the_nominal_cadence_would() -> None:
    late = last(steady((0.4 * step for step in range(800)), period=0.1, window=0.0))
    assert late.uncertainty_ratio == pytest.approx(0.04)


def test_it_falls_within_five_minutes_to_that_of_a_qualified_accumulator() -> None:
    states = list(history(steady(seconds(400), counter=True)))
    ratios = [state.uncertainty_ratio for state in states]
    assert ratios[0] is None
    assert ratios[60] == pytest.approx(COVERING)
    assert all(after <= before + 1e-12 for before, after in itertools.pairwise(ratios[1:]))  # type: ignore[operator]  # never None
    assert ratios[-1] == pytest.approx(BY_ACCUMULATOR)


def test_while_an_accumulator_is_frozen_it_is_that_of_the_integral() -> None:
    ledger = last(steady(seconds(400), counter=True))
    frozen = (
        EnergyReading(at=t, power_watts=WATTS, power_window_seconds=1.0, limit_watts=700.0, counter_joules=160_600.0)
        for t in seconds(800, 400)
    )
    assert last(frozen, ledger).uncertainty_ratio == pytest.approx(COVERING)


@pytest.mark.parametrize(("gap", "said"), [(60, 0.2), (150, 0.5), (3_600, 1.0)])
def test_a_gap_widens_it_by_its_share_of_the_window_until_it_has_passed(gap: int, said: float) -> None:
    ledger = last(steady(seconds(400)))
    after = last(steady(seconds(402 + gap, 400 + gap)), ledger)
    assert after.uncertainty_ratio == pytest.approx(said, abs=0.05)
    later = last(steady(seconds(402 + gap + 340, 402 + gap)), after)
    assert later.uncertainty_ratio == pytest.approx(COVERING)


def test_an_accumulator_that_nothing_checks_has_none() -> None:
    assert last(steady(seconds(400), counter=True, power=None)).uncertainty_ratio is None
    assert Ledger.start().uncertainty_ratio is None


def test_power_that_is_stuck_says_nothing() -> None:
    stuck = [
        EnergyReading(at=t, power_watts=46.0, power_window_seconds=1.0, utilization_ratio=float(t % 40 < 20))
        for t in seconds(500)
    ]
    assert last(stuck).uncertainty_ratio == pytest.approx(1.0)


def test_while_a_qualified_accumulator_is_contradicted_it_is_at_least_the_difference() -> None:
    def turning(t: float) -> float:
        return 1_000.0 + WATTS * (t - 0.43 * max(0.0, t - 100.0))

    states = list(
        history(
            EnergyReading(
                at=t,
                power_watts=WATTS,
                power_window_seconds=1.0,
                limit_watts=700.0,
                counter_joules=turning(t),
            )
            for t in seconds(1_100)
        )
    )
    before_dismissal = next(state for state in states if state.at == 500)
    assert before_dismissal.qualified
    assert before_dismissal.uncertainty_ratio == pytest.approx(0.43, abs=0.01)
    assert not states[-1].qualified
    assert states[-1].uncertainty_ratio == pytest.approx(COVERING)


def test_what_is_kept_is_bounded() -> None:
    doubt = Doubt()
    for _ in range(1_000):
        doubt = doubt.plus(7.0, 0.01)
    assert len(doubt.slices) <= 10
    assert doubt.ratio == pytest.approx(0.01)
