"""How joules are parted into idle and active, and whose they are."""

import math
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.energy.idle import BLOCK_SECONDS, IdlePower, follow, idle_part
from exporter.energy.shares import Hold, Use, active_shares, allocation_ratios, idle_shares


def after(*rows: tuple[float, float | None], seconds: float = 1.0) -> IdlePower:
    """Return what is known after powers at loads, each for so long."""
    idle = IdlePower()
    for watts, load in rows:
        idle = follow(idle, watts * seconds, seconds, load)
    return idle


def test_idle_power_is_the_lowest_mean_over_some_seconds_at_zero_load() -> None:
    assert after(*[(60.0, 0.0)] * 9).watts is None
    assert after(*[(60.0, 0.0)] * 5, *[(40.0, 0.0)] * 5).watts == 50
    assert after(*[(60.0, 0.0)] * 10, *[(40.0, 0.0)] * 10, *[(80.0, 0.0)] * 10).watts == 40
    assert after((60.0, 0.0), seconds=BLOCK_SECONDS).watts == 60


def test_a_load_in_between_begins_anew() -> None:
    assert after(*[(60.0, 0.0)] * 9, (60.0, 0.01), *[(60.0, 0.0)] * 9).watts is None
    assert after(*[(60.0, 0.0)] * 9, (60.0, None), *[(60.0, 0.0)] * 9).watts is None
    assert after(*[(60.0, 0.0)] * 10, (400.0, 1.0)).watts == 60


def test_a_sensor_that_shows_nothing_says_nothing() -> None:
    assert after(*[(0.0, 0.0)] * 20).watts is None
    assert after(*[(60.0, 0.0)] * 10, *[(0.0, 0.0)] * 10).watts == 60


def test_all_is_idle_at_zero_load_and_the_idle_power_under_load() -> None:
    known = IdlePower(50.0)
    for idle in (known, IdlePower()):
        assert idle_part(idle, 400.0, 1.0, 0.0) == 400
    for load in (0.01, 1.0, None):
        assert idle_part(known, 400.0, 2.0, load) == 100
        assert idle_part(known, 60.0, 2.0, load) == 60
        assert idle_part(IdlePower(), 400.0, 1.0, load) == 0


def test_shares_of_the_idle_part_are_those_of_the_allocation() -> None:
    ratios = allocation_ratios([Hold("a", 0.25, "0"), Hold("a", 0.25, "1"), Hold("b", 0.125), Hold("c", 0.0)])
    assert ratios == {"a": 0.5, "b": 0.125}
    assert idle_shares(ratios) == ratios
    assert idle_shares({"a": 1.0, "b": 1.0}) == {"a": 0.5, "b": 0.5}
    assert allocation_ratios([Hold("a", 0.75), Hold("a", 0.75)]) == {"a": 1.0}


A, B = Hold("a", 1.0), Hold("b", 0.5)


@pytest.mark.parametrize(
    ("uses", "holds", "shares"),
    [
        ([], [], {}),
        ([], [A], {"a": 1.0}),
        ([], [B, B], {"b": 1.0}),
        ([], [A, B], {}),
        (None, [A], {"a": 1.0}),
        (None, [B], {}),
        (None, [A, B], {}),
        ([Use("a", None)], [], {"a": 1.0}),
        ([Use("a", None), Use("a", 0.0)], [B], {"a": 1.0}),
        ([Use(None, 1.0)], [A], {}),
        ([Use("a", None), Use("b", None)], [A], {}),
        ([Use("a", 0.5), Use("b", None)], [A], {}),
        ([Use("a", 0.0), Use("b", 0.0)], [A], {}),
        ([Use("a", 0.5), Use("b", 0.0)], [], {"a": 1.0}),
        ([Use("a", 0.6), Use("b", 0.1), Use("b", 0.1)], [], {"a": 0.75, "b": 0.25}),
        ([Use("a", 0.5), Use(None, 0.5)], [], {"a": 0.5}),
        ([Use("a", 0.5), Use(None, None)], [], {}),
        ([Use("a", 0.5), Use(None, 0.0)], [], {"a": 1.0}),
    ],
)
def test_shares_of_the_active_part(uses: list[Use] | None, holds: list[Hold], shares: Mapping[str, float]) -> None:
    assert active_shares(uses, holds) == pytest.approx(shares)


LOADS = {"0": 0.3, "1": 0.1}


@pytest.mark.parametrize(
    ("uses", "holds", "shares"),
    [
        ([Use("a", None, "0"), Use("b", None, "1")], [], {"a": 0.75, "b": 0.25}),
        ([Use("a", 0.1, "0"), Use("b", 0.1, "1")], [], {"a": 0.5, "b": 0.5}),
        ([Use("a", None, "0"), Use(None, None, "1")], [], {"a": 0.75}),
        ([Use("a", None, "0"), Use("b", None, "0")], [], {}),
        ([Use("a", None, "0"), Use("b", None)], [], {}),
        ([], [Hold("a", 0.5, "0"), Hold("b", 0.5, "1")], {"a": 0.75, "b": 0.25}),
        ([], [Hold("a", 0.5, "0"), Hold("b", 0.5)], {"a": 0.75}),
        ([Use("a", None, "2"), Use("b", None, "1")], [], {"b": 0.25}),
    ],
)
def test_shares_of_work_that_was_measured_by_partition(
    uses: list[Use], holds: list[Hold], shares: Mapping[str, float]
) -> None:
    assert active_shares(uses, holds, LOADS) == pytest.approx(shares)
    assert active_shares(uses, holds, {"0": 0.0, "1": 0.0}) in ({}, pytest.approx({"a": 0.5, "b": 0.5}))


names = st.sampled_from(["a", "b", "c"])
partitions = st.sampled_from([None, "0", "1"])
work = st.none() | st.floats(0, 1e300) | st.sampled_from([0.0, 5e-324, 0.5])
uses_ = st.none() | st.lists(st.builds(Use, st.none() | names, work, partitions), max_size=6)
holds_ = st.lists(st.builds(Hold, names, st.floats(0, 1), partitions), max_size=6)
loads_ = st.none() | st.fixed_dictionaries({"0": st.floats(0, 1), "1": st.floats(0, 1)})


@given(uses_, holds_, loads_)
@example(None, [Hold("a", 1.0), Hold("b", 5e-324), Hold("c", 1.0)], None)  # the smallest share, of more than all
def test_shares_never_give_away_more_than_there_is(
    uses: list[Use] | None, holds: list[Hold], loads: Mapping[str, float] | None
) -> None:
    for shares in (active_shares(uses, holds, loads), idle_shares(allocation_ratios(holds))):
        assert all(0 < share <= 1 for share in shares.values())
        assert math.fsum(shares.values()) <= 1 + 1e-12
    owners = {use.owner for use in uses or ()} | {hold.owner for hold in holds}
    assert active_shares(uses, holds, loads).keys() <= owners


@given(st.floats(0, 1e12), st.floats(0, 1e6), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1e4))
def test_the_idle_part_is_a_part(joules: float, seconds: float, load: float | None, watts: float | None) -> None:
    assert 0 <= idle_part(IdlePower(watts), joules, seconds, load) <= joules
