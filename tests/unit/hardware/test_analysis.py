"""The measures of a real sensor, tried on sensors whose period and window are known."""

from collections.abc import Callable

import pytest

from tests.hardware.analysis import Cost, Point, costs, integral, rise_seconds, update_period


def polled(seconds: float, step: float, value: Callable[[float], float]) -> list[Point]:
    return [Point(i * step, value(i * step)) for i in range(int(seconds / step))]


@pytest.mark.parametrize("period", [0.01, 0.1, 1.0])
def test_the_period_of_a_stepping_counter_is_found(period: float) -> None:
    points = polled(12 * period, period / 20, lambda at: float(int(at / period + 1e-9)))
    assert update_period(points) == pytest.approx(period, rel=0.1)


def test_a_counter_that_does_not_move_has_no_period() -> None:
    assert update_period(polled(1, 0.01, lambda _: 5.0)) is None
    assert update_period([]) is None


def test_the_integral_is_the_area() -> None:
    assert integral([Point(0, 100), Point(1, 200), Point(3, 200)]) == 550
    assert integral([]) == 0


@pytest.mark.parametrize("window", [0.025, 0.1, 1.0])
def test_the_rise_of_a_moving_average_is_four_fifths_of_its_window(window: float) -> None:
    def average(at: float) -> float:
        return 100 + 400 * min(1.0, max(0.0, (at - 1) / window))

    assert rise_seconds(polled(4, window / 50, average), 1.0) == pytest.approx(0.8 * window, rel=0.1)


def test_a_reading_that_does_not_rise_has_no_window() -> None:
    assert rise_seconds(polled(4, 0.1, lambda _: 100.0), 1.0) is None
    assert rise_seconds([], 1.0) is None


def test_costs_are_sorted_by_what_a_call_takes() -> None:
    assert list(costs({"cheap": [1e-6, 3e-6, 2e-6], "dear": [0.02]}).items()) == [
        ("dear", Cost(1, pytest.approx(20_000), pytest.approx(20_000))),
        ("cheap", Cost(3, pytest.approx(2), pytest.approx(3))),
    ]
