"""How long the firmware held clocks down is told by its own counters, against all that it counted meanwhile."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.providers.drm.gpu_metrics import Metrics, Throttling

WRAP = 1 << 32


def told(seconds: float | None, counted: int | None, **residencies: int) -> Metrics:
    return Metrics(
        table="v1_6",
        energy_counter_at=seconds,
        accumulations=None if counted is None else counted % WRAP,
        residencies={reason: count % WRAP for reason, count in residencies.items()},
    )


def test_the_share_of_what_is_counted_is_a_share_of_the_time() -> None:
    throttling = Throttling()
    assert throttling.step(told(100.0, 5000, sw_power_cap=70, hw_thermal=1)) == (
        {},
        {"sw_power_cap": 0.0, "hw_thermal": 0.0},
    )
    throttled, seconds = throttling.step(told(110.0, 7000, sw_power_cap=570, hw_thermal=1))
    assert throttled == {"sw_power_cap": True, "hw_thermal": False}
    assert seconds == {"sw_power_cap": 2.5, "hw_thermal": 0.0}
    throttled, seconds = throttling.step(told(111.0, 7200, sw_power_cap=570, hw_thermal=201))
    assert throttled == {"sw_power_cap": False, "hw_thermal": True}
    assert seconds == {"sw_power_cap": 2.5, "hw_thermal": 1.0}


@settings(deadline=None)
@given(
    start=st.integers(0, WRAP - 1),
    steps=st.lists(st.tuples(st.integers(1, 1_000_000), st.floats(0, 1)), min_size=1, max_size=20),
)
def test_counters_of_32_bits_wrap(start: int, steps: list[tuple[int, float]]) -> None:
    throttling, counted, held, seconds = Throttling(), start, start, 0.0
    throttling.step(told(0.0, counted, sw_power_cap=held))
    for count, share in steps:
        counted, held, seconds = counted + count, held + int(count * share), seconds + count / 1000
        throttled, total = throttling.step(told(seconds, counted, sw_power_cap=held))
        assert throttled == {"sw_power_cap": int(count * share) > 0}
    assert total["sw_power_cap"] == pytest.approx((held - start) / 1000)


def test_a_reset_counts_nothing() -> None:
    throttling = Throttling()
    throttling.step(told(100.0, 5000, sw_power_cap=700))
    throttling.step(told(101.0, 6000, sw_power_cap=1200))
    assert throttling.step(told(102.0, 30, sw_power_cap=10)) == ({"sw_power_cap": False}, {"sw_power_cap": 0.5})
    assert throttling.step(told(103.0, 1030, sw_power_cap=260)) == ({"sw_power_cap": True}, {"sw_power_cap": 0.75})


@pytest.mark.parametrize(
    ("seconds", "counted"), [(None, 6000), (101.0, None), (101.0, 5000), (100.0, 6000), (99.0, 6000)]
)
def test_without_a_step_of_both_clocks_there_are_no_seconds(seconds: float | None, counted: int | None) -> None:
    throttling = Throttling()
    throttling.step(told(100.0, 5000, sw_power_cap=700))
    throttled, total = throttling.step(told(seconds, counted, sw_power_cap=1200))
    assert throttled == {"sw_power_cap": True}
    assert total == {"sw_power_cap": 0.0}


def test_an_apu_tells_whether_and_not_for_how_long() -> None:
    throttling = Throttling()
    assert throttling.step(told(1.0, None, processor_hot=5)) == ({}, {})
    assert throttling.step(told(2.0, None, processor_hot=6)) == ({"processor_hot": True}, {})


def test_flags_are_passed_on() -> None:
    flags = Metrics(table="v1_3", throttled={"sw_power_cap": True})
    throttling = Throttling()
    assert throttling.step(flags) == ({"sw_power_cap": True}, {})
    assert throttling.step(Metrics(table="v1_3")) == ({}, {})


def test_the_time_that_a_card_slept_is_not_counted() -> None:
    throttling = Throttling()
    throttling.step(told(100.0, 5000, sw_power_cap=700))
    throttling.step(told(101.0, 6000, sw_power_cap=1200))
    throttling.interrupt()
    assert throttling.step(told(5000.0, 6500, sw_power_cap=1700)) == ({}, {"sw_power_cap": 0.5})
