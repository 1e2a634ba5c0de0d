"""What the live line says."""

import pytest

from exporter.measure.live import Tally, live_line, scaled
from exporter.measure.records import Point


def point(gpu: str, at: float, watts: float | None) -> Point:
    return Point(at=at, monotonic=at, gpu=gpu, power_watts=watts)


def test_joules_are_those_between_readings_of_the_same_gpu() -> None:
    tally = Tally()
    assert tally.watts is None
    tally.take([point("a", 0.0, 100.0), point("b", 0.0, 300.0), point("a", 2.0, 200.0)])
    assert tally.joules == 300.0
    assert tally.watts == 500.0


def test_a_gpu_without_power_adds_nothing_until_it_has_two_readings_again() -> None:
    tally = Tally()
    tally.take([point("a", 0.0, 100.0), point("a", 1.0, None), point("a", 5.0, 100.0)])
    assert tally.joules == 0.0
    tally.take([point("a", 6.0, 100.0)])
    assert tally.joules == 100.0
    tally.take([point("a", 7.0, None)])
    assert tally.watts is None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 W"),
        (412.5, "412.5 W"),
        (999.96, "1000 W"),
        (3210.0, "3.21 kW"),
        (45_678.0, "45.68 kW"),
        (1_234_567.0, "1.235 MW"),
        (9_876_543_210.0, "9877 MW"),
    ],
)
def test_numbers_have_four_digits_and_a_unit_that_suits(value: float, text: str) -> None:
    assert scaled(value, "W") == text


def test_a_line_fits_into_its_columns() -> None:
    tally = Tally()
    tally.take([point("a", 0.0, 400.0), point("a", 10.0, 400.0)])
    assert tally.text("running", 10.2, 1, 80) == "gpu-exporter  running  10 s  1 GPU  400 W  4 kJ"
    assert tally.text("running", 10.2, 1, 20) == "gpu-exporter  runni"
    assert tally.text("x", 0.0, 2, 0) == ""
    assert "no power" in Tally().text("x", 0.0, 2, 80)


@pytest.mark.parametrize("terminal", [None, "", "dumb"])
def test_no_terminal_gets_no_line(terminal: str | None) -> None:
    assert live_line(2, terminal) is None
