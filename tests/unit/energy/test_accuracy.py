"""How far is the integral from the truth over five minutes, under loads that are hard to sample?"""

import math
from collections.abc import Callable, Iterable
from random import Random

import pytest

from tests.unit.energy import sensors
from tests.unit.energy.sensors import Load, Power, last, readings

WINDOW = 300.0
WARM_UP = 5.0
SPAN = WINDOW + 40.0

LOADS: dict[str, Callable[[Random], Load]] = {
    "263 ms square": lambda _: sensors.square(0.263, 0.3, SPAN),
    "1.04 s square": lambda _: sensors.square(1.04, 0.5, SPAN),
    "2.1 s square": lambda _: sensors.square(2.1, 0.3, SPAN),
    "9.7 s square": lambda _: sensors.square(9.7, 0.5, SPAN),
    "31 s square": lambda _: sensors.square(31.0, 0.2, SPAN),
    "rare bursts of 1 s": lambda random: sensors.bursts(random, 1.0, 7.0, SPAN),
    "frequent bursts of 0.1 s": lambda random: sensors.bursts(random, 0.1, 0.4, SPAN),
}


def errors(
    load: str, phases: int, sensor: Callable[[Load], Power], times: Callable[[Random, float], Iterable[float]]
) -> list[float]:
    """Return the relative error of one window at each of so many random phases."""
    found = []
    for phase in range(phases):
        random = Random(f"{load}{phase}")
        made = LOADS[load](random)
        start = WARM_UP + random.uniform(0, 31)
        moments = [start + t for t in times(random, WINDOW)]
        end = last(readings(moments, sensor(made), None, period=0.1))
        found.append(end.total_joules / (made.joules(moments[-1]) - made.joules(moments[0])) - 1)
    return found


def rms(found: list[float]) -> float:
    return math.sqrt(sum(error**2 for error in found) / len(found))


@pytest.mark.parametrize("load", LOADS)
def test_a_one_second_average_read_once_a_second(load: str) -> None:
    found = errors(load, 20, sensors.averaged, lambda _, seconds: sensors.regular(seconds, 1.0))
    assert rms(found) <= 0.005
    assert max(map(abs, found)) <= 0.01


@pytest.mark.parametrize("load", LOADS)
def test_a_sensor_of_full_coverage_read_ten_times_a_second(load: str) -> None:
    sensor = lambda made: sensors.averaged(made, 0.1)  # noqa: E731 -- one parameter of many is set
    found = errors(load, 4, sensor, lambda _, seconds: sensors.regular(seconds, 0.1))
    assert rms(found) <= 0.001
    assert max(map(abs, found)) <= 0.003


@pytest.mark.parametrize("load", LOADS)
def test_jitter_keeps_it_within_its_bounds(load: str) -> None:
    sensor = lambda made: sensors.averaged(made, 0.1)  # noqa: E731 -- as above
    found = errors(load, 4, sensor, lambda random, seconds: sensors.jittered(random, seconds, 0.1))
    assert rms(found) <= 0.005
    assert max(map(abs, found)) <= 0.01
