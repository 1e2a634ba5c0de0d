"""Seconds that are counted from samples, and failures by name."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.fleet.counters import Integral, NameCounts, Steps, ThrottleSeconds
from exporter.model import Group
from tests.unit.fleet.hosts import ALL, Host, card


def test_busy_seconds_are_the_time_integral_of_utilisation() -> None:
    host = Host(card(1))
    assert host.cards["nvidia0"].busy_seconds is None
    for ratio in (0.0, 1.0, 1.0, None, 0.5):
        host.read(card(1), Group.LOAD, utilization_ratio=ratio)
        host.wait(1)
    assert host.cards["nvidia0"].busy_seconds == pytest.approx(0.5 + 1.0 + 2 * 0.75)


def test_busy_seconds_do_not_bridge_a_gap() -> None:
    total = Integral(1.0)
    for at in (0.0, 1.0, 6.0, 12.0, 13.0):
        total.observe(at, 1.0)
    assert total.seconds == 7


def test_a_device_that_is_idle_has_zero_busy_seconds_and_one_that_cannot_tell_has_none() -> None:
    host = Host(card(1), card(2))
    for _ in range(3):
        host.read(card(1), Group.LOAD, utilization_ratio=0.0)
        host.read(card(2), Group.LOAD)
        host.wait(1)
    assert [shown.busy_seconds for shown in host.cards.values()] == [0.0, None]


def test_throttling_is_counted_from_flags_where_there_is_no_counter() -> None:
    host = Host(card(1))
    for held in (True, True, False, False):
        host.read(card(1), Group.STATE, throttled={"sw_power_cap": held, "hw_thermal": False})
        host.wait(5)
    assert host.cards["nvidia0"].throttle_seconds == {"sw_power_cap": 7.5, "hw_thermal": 0}


def test_the_hardware_counter_is_preferred_starts_at_zero_and_survives_resets() -> None:
    host = Host(card(1))
    for raw in (5_000.0, 5_004.0, 5_004.0, 1.0, 3.0):
        host.read(card(1), Group.STATE, throttled={"hw_thermal": True}, throttle_seconds={"hw_thermal": raw})
        host.wait(5)
    assert host.cards["nvidia0"].throttle_seconds == {"hw_thermal": 6}


def test_a_counter_step_that_time_does_not_allow_is_not_counted() -> None:
    steps = Steps()
    for at, raw in ((0.0, 10.0), (5.0, 1e9), (10.0, 1e9 + 5), (10.0, 2e9), (15.0, 1e9 + 10)):
        steps.observe(at, raw)
    assert steps.seconds == 10


def test_a_counter_that_appears_late_continues_what_its_flag_has_given() -> None:
    total = ThrottleSeconds(5.0)
    total.observe(0.0, {"hw_thermal": True}, {})
    total.observe(5.0, {"hw_thermal": True}, {})
    total.observe(10.0, {"hw_thermal": True}, {"hw_thermal": 100.0})
    total.observe(15.0, {"hw_thermal": True}, {"hw_thermal": 103.0})
    assert total.seconds == {"hw_thermal": 8.0}


ROWS = st.tuples(
    st.sampled_from([0.0, 0.5, 5.0, 60.0]),
    st.dictionaries(st.sampled_from(["idle", "hw_thermal"]), st.booleans()),
    st.dictionaries(st.sampled_from(["idle", "hw_thermal"]), st.floats(0, 1e6)),
)


@settings(deadline=None)
@given(st.lists(ROWS, max_size=40))
def test_throttle_seconds_never_fall_and_never_outrun_the_clock_by_far(
    rows: list[tuple[float, dict[str, bool], dict[str, float]]],
) -> None:
    total, at, before = ThrottleSeconds(5.0), 0.0, {}
    for pause, flags, counters in rows:
        at += pause
        total.observe(at, flags, counters)
        assert all(total.seconds[reason] >= seconds for reason, seconds in before.items())
        assert all(seconds <= 1.2 * at + len(rows) for seconds in total.seconds.values())
        before = dict(total.seconds)


def test_failures_and_rejections_are_counted_by_reading() -> None:
    host = Host(card(1), card(2))
    for device in (card(1), card(2)):
        host.read(device, *ALL, failed=("power_watts", "ecc_errors"), rejected=("fan_speed_ratio",))
    host.read(card(1), Group.LOAD, failed=("power_watts",))
    snapshot = host.world.snapshots[0]
    assert snapshot.read_failures == {"power_watts": 3, "ecc_errors": 2}
    assert snapshot.rejected_readings == {"fan_speed_ratio": 2}


def test_made_up_names_are_counted_together() -> None:
    counts = NameCounts()
    for number in range(1_000):
        counts.add(f"reading{number}")
    counts.add("reading3")
    assert len(counts.counts) == NameCounts.LIMIT + 1
    assert counts.counts["reading3"] == 2
    assert sum(counts.counts.values()) == 1_001
