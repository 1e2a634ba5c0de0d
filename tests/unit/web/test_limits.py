"""The bounds on clients, without any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.limits import KEPT, Crowd, Limits, fitted, needed


class Guest:
    def __init__(self) -> None:
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def crowd_of(requests: int, idle: int) -> Crowd:
    return Crowd(Limits(max_requests=requests, max_idle=idle))


def test_the_peer_that_has_waited_longest_goes_when_another_arrives() -> None:
    crowd = crowd_of(1, 2)
    first, second, third, fourth = (Guest() for _ in range(4))
    for guest in (first, second, third):
        assert crowd.arrived(guest, 0.0)
    crowd.answering(first)
    crowd.waiting(first)
    assert crowd.arrived(fourth, 0.0)
    assert [guest.evicted for guest in (first, second, third, fourth)] == [False, True, False, False]
    assert len(crowd) == 3
    assert crowd.refused == 1


def test_a_newcomer_is_turned_away_when_all_others_are_being_answered() -> None:
    crowd = crowd_of(1, 1)
    guests = [Guest(), Guest()]
    for guest in guests:
        crowd.arrived(guest, 0.0)
        crowd.answering(guest)
    assert not crowd.arrived(Guest(), 0.0)
    assert not any(guest.evicted for guest in guests)
    assert len(crowd) == 2


def test_requests_beyond_the_bound_are_refused_until_one_ends() -> None:
    crowd = crowd_of(2, 5)
    with crowd.request() as one:
        with crowd.request() as two, crowd.request() as three:
            assert (one, two, three) == (True, True, False)
        with crowd.request() as again:
            assert again
    assert crowd.requests == 0
    assert crowd.refused == 1


def test_a_request_that_fails_gives_its_place_back() -> None:
    crowd = crowd_of(1, 1)
    with pytest.raises(RuntimeError), crowd.request():
        raise RuntimeError
    with crowd.request() as admitted:
        assert admitted


def test_what_is_not_counted_has_a_place_when_all_are_taken() -> None:
    crowd = crowd_of(1, 1)
    with crowd.request(), crowd.request(counted=False) as admitted:
        assert admitted
        assert crowd.requests == 1


def test_zero_requests_means_no_bound_but_that_of_the_connections() -> None:
    crowd = crowd_of(0, 3)
    with crowd.request() as one, crowd.request() as two:
        assert one
        assert two


@given(st.lists(st.tuples(st.sampled_from(["arrived", "answering", "waiting", "left"]), st.integers(0, 9))))
def test_there_are_never_more_peers_than_allowed_and_none_twice(history: list[tuple[str, int]]) -> None:
    crowd = crowd_of(2, 3)
    guests = [Guest() for _ in range(10)]
    inside: set[Guest] = set()
    for what, number in history:
        guest = guests[number]
        if (what == "arrived") == (guest in inside):
            continue  # a peer arrives once, and only one that is there does anything else
        if what == "arrived":
            guest.evicted = False
            if crowd.arrived(guest, 0.0):
                inside.add(guest)
        else:
            getattr(crowd, what)(guest)
            if what == "left":
                inside.discard(guest)
        inside = {each for each in inside if not each.evicted}
        assert set(crowd) == inside
        assert len(crowd) == len(inside) <= 5


def test_room_is_made_by_those_that_have_waited_longest_until_nobody_waits() -> None:
    crowd = crowd_of(1, 20)
    guests = [Guest() for _ in range(11)]
    for guest in guests:
        crowd.arrived(guest, 0.0)
    crowd.answering(guests[0])
    assert crowd.make_room()
    assert [guest.evicted for guest in guests] == [False] + [True] * 8 + [False] * 2
    assert crowd.make_room()
    assert not crowd.make_room()
    assert not guests[0].evicted
    assert len(crowd) == 1


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5000))
def test_connections_leave_descriptors_to_the_workers(requests: int, idle: int, descriptors: int) -> None:
    limits = Limits(max_requests=requests, max_idle=idle)
    fit = fitted(limits, descriptors)
    assert fit.max_requests + fit.max_idle <= max(2, descriptors - KEPT)
    assert (fit.max_requests > 0) == (requests > 0)
    assert fit.max_requests <= requests
    assert fit.max_idle <= idle
    if descriptors >= needed(limits):
        assert fit == limits


def test_slow_readers_of_equal_pages_share_one_until_the_last_has_gone() -> None:
    crowd = crowd_of(1, 5)
    guests = [Guest() for _ in range(3)]
    for guest in guests:
        crowd.arrived(guest, 0.0)
        crowd.answering(guest)
    first = bytes(1000)
    assert crowd.slow(guests[0], first, 0.0) is first
    assert crowd.slow(guests[1], bytes(bytearray(1000)), 1.0) is first
    assert crowd.slow(guests[2], b"other", 2.0) == b"other"
    assert crowd.pages == 2
    crowd.waiting(guests[0])
    crowd.left(guests[2])
    assert crowd.pages == 1
    crowd.left(guests[1])
    assert crowd.pages == 0


def test_the_readers_of_the_oldest_page_go_when_pages_take_too_much_and_are_more_than_a_few() -> None:
    crowd = crowd_of(40, 256)
    guests = [Guest() for _ in range(20)]
    for number, guest in enumerate(guests):
        crowd.arrived(guest, 0.0)
        crowd.answering(guest)
        crowd.slow(guest, bytes([number // 2]) * (300 << 10), float(number))
    # Two readers each of ten pages, of which two megabytes hold six, and eight are few.
    assert [guest.evicted for guest in guests] == [True] * 4 + [False] * 16
    assert crowd.pages == 8
    assert crowd.refused == 4


def test_slow_readers_keep_no_place_from_requests_and_give_their_connection_up_after_a_second() -> None:
    crowd = crowd_of(1, 1)
    guests = [Guest(), Guest()]
    for guest in guests:
        crowd.arrived(guest, 0.0)
        crowd.answering(guest)
        crowd.slow(guest, b"page of " + str(id(guest)).encode(), 10.0)
    with crowd.request() as admitted:
        assert admitted
    assert not crowd.arrived(Guest(), 10.9)
    assert crowd.arrived(Guest(), 11.1)
    assert [guest.evicted for guest in guests] == [True, False]


@given(
    st.lists(
        st.tuples(st.sampled_from(["arrived", "slow", "waiting", "left"]), st.integers(0, 29), st.integers(0, 12)),
        max_size=150,
    )
)
def test_pages_are_forgotten_with_their_readers(history: list[tuple[str, int, int]]) -> None:
    crowd = crowd_of(2, 20)
    guests = [Guest() for _ in range(30)]
    reading: dict[Guest, bytes] = {}
    for now, (what, number, page) in enumerate(history):
        guest = guests[number]
        if what == "arrived" and guest not in set(crowd):
            guest.evicted = False
            crowd.arrived(guest, float(now))
        elif what == "slow" and guest in set(crowd) and guest not in reading:
            crowd.answering(guest)
            reading[guest] = crowd.slow(guest, bytes([page]) * (200 << 10), float(now))
        elif what in ("waiting", "left") and guest in set(crowd):
            getattr(crowd, what)(guest)
            reading.pop(guest, None)
        reading = {each: content for each, content in reading.items() if not each.evicted}
        assert crowd.pages == len(set(reading.values())) == len({id(content) for content in reading.values()})
        assert crowd.pages <= 10


def test_other_bounds_hold_from_when_they_are_given_and_send_nobody_away() -> None:
    crowd = crowd_of(2, 2)
    with crowd.request() as one, crowd.request() as two:
        assert (one, two) == (True, True)
        crowd.limit(Limits(max_requests=1, max_idle=0))
        with crowd.request() as third:
            assert third is False
        assert crowd.requests == 2
    with crowd.request() as alone, crowd.request() as more:
        assert (alone, more) == (True, False)
    crowd.limit(Limits(max_requests=0, max_idle=1))
    with crowd.request() as first, crowd.request() as second:
        assert (first, second) == (True, True)
