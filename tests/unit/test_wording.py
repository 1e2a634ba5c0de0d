"""Amounts are put to a person in units that can be read at a glance."""

import pytest

from exporter.wording import advice, duration, in_words, joules, kilowatt_hours


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0.0 s"),
        (59.94, "59.9 s"),
        (60.0, "1 min 0 s"),
        (3_599.9, "59 min 59 s"),
        (3_661.0, "1 h 1 min"),
        (86_400.0 * 400 + 7_300, "400 d 2 h"),
    ],
)
def test_a_span_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("amount", "words", "paid"),
    [
        (0.0, "0 J", "0.0000 kWh"),
        (999.96, "1000 J", "0.0003 kWh"),
        (1_234.56, "1.235 kJ", "0.0003 kWh"),
        (3.6e6, "3.600 MJ", "1.0 kWh"),
        (4.4e12, "4.400 TJ", "1222222.2 kWh"),
    ],
)
def test_energy_has_four_digits(amount: float, words: str, paid: str) -> None:
    assert (joules(amount), kilowatt_hours(amount)) == (words, paid)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("power_watts", 0.0, "0 W"),
        ("power_watts", None, ""),
        ("clock_hertz", {}, ""),
        ("clock_hertz", dict.fromkeys("abcdef", 1e9), "a 1000 MHz, b 1000 MHz, c 1000 MHz, d 1000 MHz and 2 more"),
        ("throttled", {"idle": False}, "idle no"),
        ("memory_used_bytes", 1024.0**2, "1.0 MiB"),
        ("utilization_ratio", 0.5, "50.0 %"),
        ("processes", (), "0"),
        ("recovery_action", "none", "none"),
    ],
)
def test_a_reading_has_its_unit_and_zero_is_one(name: str, value: object, words: str) -> None:
    assert in_words(name, value) == words


def test_advice_is_given_where_there_is_some() -> None:
    assert "lsmod" in advice("the driver is not loaded")
    assert advice("something else") == ""
