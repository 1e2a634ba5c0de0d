from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.model import Device, Group, Sample
from exporter.supervision.schedule import Schedule

START = 1000.0


def sample(key: str, window: float | None = 1.0, *, lost: bool = False) -> Sample:
    device = Device(vendor="test", key=key)
    if lost:
        return Sample(device=device, lost=True)
    kind = "instant" if window == 0.0 else "average"
    return Sample(device=device, power_kind=kind, power_window_seconds=window)


def play(
    schedule: Schedule,
    windows: dict[str, float | None],
    until: float,
    took: float = 0.0,
    lost: frozenset[str] = frozenset(),
) -> tuple[Counter[tuple[str, Group]], list[float]]:
    """Run the schedule, each pass taking `took` seconds; return the reads, and when energy was read."""
    now = START
    reads: Counter[tuple[str, Group]] = Counter()
    passes = []
    while now < until:
        if schedule.enumeration_due(now):
            schedule.enumerated(tuple(windows), now)
        due = schedule.take(now)
        if any(Group.ENERGY in groups for _, groups in due):
            passes.append(now)
        for key, groups in due:
            reads.update((key, group) for group in groups)
            schedule.observed(sample(key, windows[key], lost=key in lost), now)
        now += took
        schedule.finished(now)
        now += schedule.wait(now) + 1e-6
    return reads, passes


def make(**sampling: float) -> Schedule:
    return Schedule(SamplingConfig(**sampling), Random(1), START)


def test_the_first_pass_reads_everything() -> None:
    schedule = make()
    schedule.enumerated(("a", "b"), START)
    everything = {Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES}
    assert schedule.take(START) == [("a", everything), ("b", everything)]


def test_a_device_that_appears_later_is_read_completely_at_once() -> None:
    schedule = make()
    schedule.enumerated(("a",), START)
    schedule.take(START)
    schedule.observed(sample("a"), START)
    schedule.enumerated(("a", "b"), START + 0.3)
    assert schedule.wait(START + 0.3) == 0.0
    assert schedule.take(START + 0.3) == [("b", {Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES})]


@pytest.mark.parametrize(("window", "per_minute"), [(1.0, 60), (0.5, 60), (0.1, 645), (0.0, 645), (None, 645)])
def test_the_averaging_window_decides_how_often_energy_is_read(window: float | None, per_minute: int) -> None:
    reads, _ = play(make(), {"a": window}, START + 60)
    assert reads["a", Group.ENERGY] == pytest.approx(per_minute, rel=0.05)
    assert reads["a", Group.LOAD] == pytest.approx(60, abs=2)
    assert reads["a", Group.STATE] == pytest.approx(12, abs=1)
    assert reads["a", Group.PROCESSES] == pytest.approx(6, abs=1)
    assert reads["a", Group.PROFILING] == 0


def test_a_configured_period_holds_for_every_device() -> None:
    reads, _ = play(make(energy_seconds=0.25), {"a": 1.0, "b": 0.0}, START + 60)
    assert reads["a", Group.ENERGY] == pytest.approx(240, rel=0.05)
    assert reads["b", Group.ENERGY] == pytest.approx(240, rel=0.05)


def test_devices_of_both_kinds_keep_their_own_cadence() -> None:
    reads, _ = play(make(), {"averaged": 1.0, "instant": 0.0}, START + 60)
    assert reads["averaged", Group.ENERGY] == pytest.approx(60, abs=2)
    assert reads["instant", Group.ENERGY] == pytest.approx(645, rel=0.05)


def test_averaged_devices_are_read_in_one_pass_a_second() -> None:
    _, passes = play(make(), {"a": 1.0, "b": 1.0}, START + 30)
    assert len(passes) == pytest.approx(30, abs=2)


def test_instant_power_is_read_at_times_that_no_load_can_lock_to() -> None:
    _, passes = play(make(), {"a": 0.0}, START + 60)
    steps = [later - earlier for earlier, later in pairwise(passes)]
    assert min(steps) >= 0.09021 - 1e-9
    assert max(steps) <= 0.09579 + 1e-9
    assert len({round(step, 4) for step in steps}) > 50


def test_no_burst_follows_a_stall() -> None:
    schedule = make()
    schedule.enumerated(("a",), START)
    schedule.take(START)
    schedule.observed(sample("a", 0.0), START)
    later = START + 30.0
    assert len(schedule.take(later)) == 1
    schedule.finished(later)
    assert schedule.take(later + 0.01) == []
    assert schedule.wait(later) >= 0.08


@given(took=st.floats(0.0, 3.0), window=st.sampled_from([1.0, 0.0]))
def test_a_slow_library_is_given_rest_between_passes(took: float, window: float) -> None:
    schedule = make()
    _, passes = play(schedule, {"a": window}, START + 20, took)
    period = 1.0 if window else 0.1
    assert len(passes) <= 20 / period * 1.15 + 3
    assert all(later - earlier >= took for earlier, later in pairwise(passes))


@pytest.mark.parametrize("seed", range(8))
def test_reads_are_spread_over_the_phases_of_a_load_at_their_own_pace(seed: int) -> None:
    """Else ten reads a second of a load that repeats in 100 ms see the same part of it for seconds."""
    schedule = Schedule(SamplingConfig(), Random(seed), START)
    _, passes = play(schedule, {"a": 0.0}, START + 300)
    share = sum((at - START) % 0.1 < 0.05 for at in passes) / len(passes)
    assert share == pytest.approx(0.5, abs=0.06)


def test_a_lost_device_is_enumerated_anew_at_once_and_then_asked_now_and_then() -> None:
    schedule = make()
    schedule.enumerated(("a", "b"), START)
    schedule.take(START)
    for key in ("a", "b"):
        schedule.observed(sample(key, 0.0), START)
    assert not schedule.enumeration_due(START + 1)
    schedule.observed(sample("a", lost=True), START + 1)
    assert schedule.enumeration_due(START + 1)
    schedule.enumerated(("a", "b"), START + 1)
    schedule.observed(sample("a", lost=True), START + 1.1)
    assert not schedule.enumeration_due(START + 2)
    assert schedule.enumeration_due(START + 11)


def test_a_lost_device_is_not_hammered() -> None:
    reads, _ = play(make(), {"a": 0.0, "b": 0.0}, START + 60, lost=frozenset({"a"}))
    assert reads["a", Group.ENERGY] <= 14
    assert reads["b", Group.ENERGY] >= 550


def test_there_is_no_hope_once_every_device_has_been_lost_for_a_while() -> None:
    schedule = make()
    schedule.enumerated(("a", "b"), START)
    schedule.observed(sample("a", lost=True), START)
    assert not schedule.hopeless(START)
    assert not schedule.hopeless(START + 60)
    schedule.observed(sample("b", lost=True), START + 60)
    assert not schedule.hopeless(START + 60)
    assert not schedule.hopeless(START + 69)
    schedule.observed(sample("a"), START + 69)
    assert not schedule.hopeless(START + 70)
    schedule.observed(sample("a", lost=True), START + 71)
    assert not schedule.hopeless(START + 71)
    assert schedule.hopeless(START + 81)


def test_devices_are_enumerated_every_minute() -> None:
    schedule = make()
    schedule.enumerated(("a",), START)
    assert not schedule.enumeration_due(START + 59)
    assert schedule.enumeration_due(START + 60)


def test_while_one_is_missing_devices_are_enumerated_more_often() -> None:
    schedule = make()
    schedule.enumerated(("a",), START, missing=True)
    assert not schedule.enumeration_due(START + 9)
    assert schedule.enumeration_due(START + 10)
    schedule.enumerated(("a", "b"), START + 10)
    assert not schedule.enumeration_due(START + 69)


def test_without_devices_there_is_nothing_to_do_but_to_enumerate() -> None:
    schedule = make()
    assert schedule.enumeration_due(START)
    schedule.enumerated((), START)
    assert schedule.take(START) == []
    assert schedule.wait(START) == 10.0
    assert not schedule.hopeless(START + 100)


def test_a_device_that_is_left_out_is_not_read() -> None:
    schedule = make()
    schedule.enumerated(("a", "b"), START)
    schedule.enumerated(("b",), START)
    assert [key for key, _ in schedule.take(START)] == ["b"]


def test_energy_that_another_provider_delivers_is_read_at_the_pace_of_state() -> None:
    schedule = make()
    schedule.relieve(frozenset({"a"}))
    reads, _ = play(schedule, {"a": 0.0, "b": 0.0}, START + 18)
    assert reads["a", Group.ENERGY] == reads["a", Group.STATE] == 4
    assert reads["a", Group.LOAD] >= 17
    assert reads["b", Group.ENERGY] > 150


def test_a_worker_all_of_whose_energy_another_provider_delivers_rests_between_its_grids() -> None:
    schedule = make()
    schedule.relieve(frozenset({"a"}))
    schedule.enumerated(("a",), START)
    schedule.take(START)
    schedule.observed(sample("a", 0.0), START)
    assert schedule.wait(START + 0.1) == pytest.approx(0.9)
    schedule.relieve(frozenset())
    assert schedule.wait(START + 0.5) == 0.0, "it is needed at once"
    assert schedule.take(START + 0.5) == [("a", {Group.ENERGY})]


def test_a_device_that_comes_back_to_the_list_is_still_delivered_elsewhere() -> None:
    schedule = make()
    schedule.relieve(frozenset({"a"}))
    schedule.enumerated((), START)
    schedule.enumerated(("a",), START)
    schedule.take(START)
    schedule.observed(sample("a", 0.0), START)
    assert schedule.take(START + 1.0) == [("a", {Group.LOAD})]
    assert schedule.take(START + 5.0) == [("a", {Group.ENERGY, Group.LOAD, Group.STATE})]
