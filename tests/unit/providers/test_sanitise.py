"""The gate for vendor values: whatever comes in, a reading is a plausible number or absent."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.sanitise import BYTES, CELSIUS, RATIO, WATTS, Range, Readings, text


@pytest.mark.parametrize(
    "blank",
    [None, "N/A", "n/a", "", "[N/A]", 0xFFFF, 0xFFFFFFFF, 2**64 - 1, 2**47, 2**63 - 16, 2**63 - 1, math.nan],
)
def test_every_known_blank_is_absent_and_no_fault(blank: object) -> None:
    readings = Readings()
    assert readings.number("power_watts", blank, Range(0, 1e30)) is None
    assert readings.rejected == ()
    assert readings.failed == ()


@pytest.mark.parametrize(
    "garbage", [True, False, "[Unknown Error]", "12 W", [], {}, object(), b"12", math.inf, -math.inf, -1, 10**400]
)
def test_garbage_is_absent_and_counted(garbage: object) -> None:
    readings = Readings()
    assert readings.number("power_watts", garbage, WATTS) is None
    assert readings.rejected == ("power_watts",)


def test_255_watts_and_zero_are_readings() -> None:
    readings = Readings()
    assert readings.number("power_watts", 255, WATTS) == 255.0
    assert readings.number("power_watts", 0, WATTS) == 0.0
    assert readings.rejected == ()


def test_bounds_belong_to_the_range_and_apply_after_scaling() -> None:
    readings = Readings()
    assert readings.number("load", 100, RATIO, 0.01) == 1.0
    assert readings.number("load", 2619, RATIO, 0.01) is None
    assert readings.number("temperature", -20, CELSIUS) == -20.0
    assert readings.rejected == ("load",)


def test_all_ones_of_the_fields_own_width_is_the_only_sentinel_when_the_width_is_given() -> None:
    readings = Readings()
    assert readings.number("memory", 0xFFFF, BYTES, bits=64) == 65535.0
    assert readings.number("memory", 2**64 - 1, BYTES, bits=64) is None
    assert readings.number("memory", 0xFFFF, BYTES, bits=16) is None
    assert readings.rejected == ()


def test_a_name_is_noted_once_however_often_it_breaks() -> None:
    readings = Readings()
    for _ in range(3):
        readings.number("power_watts", -5, WATTS)
        readings.fail("clock")
    assert readings.rejected == ("power_watts",)
    assert readings.failed == ("clock",)


@given(
    st.one_of(
        st.none(),
        st.integers(),
        st.floats(allow_nan=True, allow_infinity=True),
        st.text(),
        st.binary(),
        st.booleans(),
        st.lists(st.integers()),
    )
)
def test_no_value_leaves_the_gate_outside_its_range(raw: object) -> None:
    value = Readings().number("power_watts", raw, WATTS, 0.001)
    assert value is None or (type(value) is float and WATTS.low <= value <= WATTS.high)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"NVIDIA H100\0\0", "NVIDIA H100"),
        (b"\xff\xfeGPU", "��GPU"),
        ("  AMD Instinct  ", "AMD Instinct"),
        ("N/A", None),
        ("", None),
        (b"", None),
        (None, None),
        (42, None),
    ],
)
def test_identity_strings_come_as_bytes_or_text(raw: object, expected: str | None) -> None:
    assert text(raw) == expected
