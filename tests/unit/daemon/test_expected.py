import math

from hypothesis import given
from hypothesis import strategies as st

from exporter.daemon.expected import LEAST_SECONDS, MOST_CLIENTS, MOST_SECONDS, TOLERANCE_SECONDS, Expected

PERIODS = st.floats(LEAST_SECONDS + 1, MOST_SECONDS - 1)
JITTER = st.floats(-TOLERANCE_SECONDS / 4, TOLERANCE_SECONDS / 4)


def told(times: list[float]) -> list[float | None]:
    expected = Expected()
    return [expected.came("a", at) for at in times]


@given(PERIODS, st.lists(JITTER, min_size=3, max_size=20), st.floats(0, 1e7))
def test_who_keeps_a_clock_is_expected_from_the_third_scrape_on(
    period: float, jitter: list[float], start: float
) -> None:
    times = [start + turn * period + off for turn, off in enumerate(jitter)]
    first, second, *others = told(times)
    assert first is second is None
    for at, next_at in zip(times[2:], others, strict=True):
        assert next_at is not None
        assert abs(next_at - (at + period)) <= TOLERANCE_SECONDS


@given(st.lists(st.floats(0.01, 600), min_size=1, max_size=30))
def test_nothing_is_expected_but_after_two_intervals_that_agree(gaps: list[float]) -> None:
    at, times = 0.0, [0.0]
    for gap in gaps:
        at += gap
        times.append(at)
    for turn, expected in enumerate(told(times)):
        if expected is None:
            continue
        last, before = times[turn] - times[turn - 1], times[turn - 1] - times[turn - 2]
        assert abs(last - before) <= TOLERANCE_SECONDS
        assert LEAST_SECONDS <= last <= MOST_SECONDS
        assert expected == times[turn] + last


def test_one_scrape_out_of_turn_is_not_followed_by_an_expectation() -> None:
    assert told([0, 15, 30, 37, 45, 60, 75]) == [None, None, 45, None, None, None, 90]


def test_who_asks_without_pause_is_not_expected() -> None:
    assert told([turn * 0.01 for turn in range(50)]) == [None] * 50


def test_clients_do_not_disturb_each_other() -> None:
    expected = Expected()
    for turn in range(4):
        a = expected.came("a", 15.0 * turn)
        b = expected.came("b", 15.0 * turn + 4)
    assert (a, b) == (60, 64)


def test_only_so_many_clients_are_remembered() -> None:
    expected = Expected()
    for turn in range(3):
        for client in range(MOST_CLIENTS):
            expected.came(client, 15.0 * turn + client)
    assert expected.came("one too many", 100) is None
    assert expected.came(0, 45.0) is None, "it was the oldest"
    assert expected.came(2, 47.0) == 62.0


def test_a_clock_that_jumps_is_none() -> None:
    assert told([0, 15, 30, math.inf, 60])[3:] == [None, None]
