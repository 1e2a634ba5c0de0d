"""Logins, with a stand-in for bcrypt that says what it was asked."""

import asyncio
import base64
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.protection.form import cost
from exporter.web.protection.login import MAX_FROM_ONE, MAX_KNOWN, MAX_WAITING, BusyError, Known, Login, credentials


def hash_of(steps: int, letter: str = "a") -> bytes:
    return f"$2b${steps:02d}${letter * 53}".encode()


class Hashing:
    """Says which password belongs to which hash, and holds every hash up until it is let go."""

    def __init__(self, good: dict[bytes, bytes]) -> None:
        self.good = good
        self.asked: list[tuple[bytes, bytes]] = []
        self.go = threading.Event()
        self.go.set()
        self.running = 0
        self.most = 0

    def __call__(self, password: bytes, hashed: bytes) -> bool:
        self.running += 1
        self.most = max(self.most, self.running)
        self.asked.append((password, hashed))
        self.go.wait(5)
        self.running -= 1
        return self.good.get(hashed) == password


USERS = {"alice": hash_of(10, "a"), "bob": hash_of(10, "b")}
GOOD = {hash_of(10, "a"): b"wonder", hash_of(10, "b"): b"builder"}


def header(user: bytes, password: bytes) -> str:
    return "Basic " + base64.b64encode(user + b":" + password).decode()


@given(st.text(min_size=1).filter(lambda t: ":" not in t), st.binary(max_size=72))
def test_user_and_password_are_read_as_they_were_given(user: str, password: bytes) -> None:
    try:
        encoded = user.encode()
    except UnicodeEncodeError:
        return
    assert credentials(header(encoded, password)) == (user, password)


@pytest.mark.parametrize(
    "given_",
    [
        None,
        "",
        "Basic",
        "Basic ",
        "Basic !!!",
        "Bearer YTpi",
        "Basic YTpi, Basic YTpi",
        "Basic YT",
        "Basic " + base64.b64encode(b"no colon").decode(),
        header(b"", b"x"),
        header(b"\xff\xfe", b"x"),
        header(b"alice", b"x" * 73),
        "Basic ü",
    ],
)
def test_what_can_be_no_login_is_none(given_: str | None) -> None:
    assert credentials(given_) is None


@given(st.text())
def test_no_header_breaks_the_reading(text: str) -> None:
    read = credentials(text)
    assert read is None or (read[0] and len(read[1]) <= 72)


def test_the_scheme_may_be_written_in_any_case_and_a_password_may_hold_colons() -> None:
    assert credentials(header(b"a", b":b:").replace("Basic", "bAsIc")) == ("a", b":b:")


def test_a_good_login_costs_one_hash_for_all_its_requests_and_a_bad_one_as_well() -> None:
    hashing = Hashing(GOOD)

    async def test() -> None:
        login = Login(USERS, hashing)
        for _ in range(100):
            assert await login.admits("alice", b"wonder")
            assert not await login.admits("alice", b"wrong")
            assert not await login.admits("mallory", b"wonder")
        assert len(hashing.asked) == login.hashes == 3

    asyncio.run(test())


def test_a_login_ends_with_the_hash_that_it_was_good_for() -> None:
    hashing = Hashing({**GOOD, hash_of(10, "c"): b"other"})

    async def test() -> None:
        login = Login(USERS, hashing)
        assert await login.admits("alice", b"wonder")
        login.users = {"alice": hash_of(10, "c")}
        assert not await login.admits("alice", b"wonder")
        assert await login.admits("alice", b"other")
        login.users = USERS
        assert await login.admits("alice", b"wonder")
        login.users = {"bob": USERS["bob"]}
        assert not await login.admits("alice", b"wonder")

    asyncio.run(test())


def test_an_unknown_user_costs_a_hash_of_a_cost_that_some_user_has_and_always_the_same() -> None:
    hashing = Hashing({})
    users = {"a": hash_of(10), "b": hash_of(12, "b"), "c": hash_of(12, "c")}

    async def test() -> None:
        login = Login(users, hashing)
        for _ in range(2):
            for number in range(40):
                password = str(len(hashing.asked)).encode()
                assert not await login.admits(f"user{number}", password)

    asyncio.run(test())
    first = [hashed for _, hashed in hashing.asked[:40]]
    assert first == [hashed for _, hashed in hashing.asked[40:]]
    assert {cost(hashed.decode()) for hashed in first} == {10, 12}
    assert len(set(first)) == 40


def test_one_hash_at_a_time_and_few_wait_and_equal_ones_wait_together() -> None:
    hashing = Hashing(GOOD)
    hashing.go.clear()

    async def test() -> None:
        login = Login(USERS, hashing)
        same = [asyncio.ensure_future(login.admits("alice", b"wonder")) for _ in range(50)]
        others = [
            asyncio.ensure_future(login.admits("alice", str(n).encode(), f"10.0.0.{n}")) for n in range(MAX_WAITING - 1)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await login.admits("bob", b"builder", "10.0.0.99")
        hashing.go.set()
        assert all([await each for each in same])
        assert not any([await each for each in others])
        assert await login.admits("bob", b"builder")
        assert hashing.most == 1

    asyncio.run(test())
    assert len(hashing.asked) == MAX_WAITING + 1


@pytest.mark.parametrize(
    ("guesser", "again", "other"),
    [
        ("10.0.0.1", "10.0.0.1", "10.0.0.2"),
        ("", "", "10.0.0.2"),
        ("[2001:db8::1]", "[2001:db8::ffff:0:0:1]", "[2001:db8:0:1::1]"),
        ("[::ffff:10.0.0.1]", "[::ffff:10.0.0.1]", "[::ffff:10.0.0.2]"),
        ("[fe80::1%eth0]", "[fe80::2%eth0]", "10.0.0.1"),
    ],
)
def test_who_guesses_takes_few_places_and_keeps_nobody_elsewhere_waiting(guesser: str, again: str, other: str) -> None:
    hashing = Hashing(GOOD)
    hashing.go.clear()

    async def test() -> None:
        login = Login(USERS, hashing)
        guesses = [asyncio.ensure_future(login.admits("alice", str(n).encode(), guesser)) for n in range(MAX_FROM_ONE)]
        await asyncio.sleep(0)
        for _ in range(2):
            with pytest.raises(BusyError):
                await login.admits("bob", b"builder", again)
        good = asyncio.ensure_future(login.admits("bob", b"builder", other))
        await asyncio.sleep(0)
        hashing.go.set()
        assert await good
        assert not any([await each for each in guesses])
        assert not await login.admits("alice", b"another", again)

    asyncio.run(test())


def test_hashing_rests_after_a_login_that_failed_and_not_after_a_good_one() -> None:
    async def test() -> tuple[float, float]:
        def slow(password: bytes, _: bytes) -> bool:
            time.sleep(0.02)  # as long as a hash takes
            return password == b"wonder"

        login = Login(USERS, slow)
        began = time.perf_counter()
        await login.admits("alice", b"wonder")
        await login.admits("bob", b"wonder")
        good = time.perf_counter() - began
        await login.admits("alice", b"no")
        began = time.perf_counter()
        await login.admits("alice", b"never")
        return good, time.perf_counter() - began

    good, after_bad = asyncio.run(test())
    assert after_bad > 0.02 * 3.9
    assert good >= 0.04


def test_a_waiting_client_that_leaves_stops_neither_its_hash_nor_the_next() -> None:
    hashing = Hashing(GOOD)
    hashing.go.clear()

    async def test() -> None:
        login = Login(USERS, hashing)
        left = asyncio.ensure_future(login.admits("alice", b"wonder"))
        await asyncio.sleep(0)
        other = asyncio.ensure_future(login.admits("bob", b"builder"))
        await asyncio.sleep(0)
        left.cancel()
        hashing.go.set()
        assert await other
        assert hashing.most == 1
        assert await login.admits("alice", b"wonder")
        assert len(hashing.asked) == 2

    asyncio.run(test())


@pytest.mark.parametrize("error", [ValueError("NUL"), RuntimeError("bug"), SystemExit(1)])
def test_a_hash_that_breaks_is_a_login_that_failed(error: BaseException) -> None:
    def broken(_: bytes, __: bytes) -> bool:
        raise error

    async def test() -> None:
        login = Login(USERS, broken)
        assert not await login.admits("alice", b"wonder")
        assert not await login.admits("bob", b"builder")

    asyncio.run(test())


@given(st.lists(st.integers(0, 250), max_size=400))
def test_what_is_remembered_is_bounded_and_the_newest_is_never_forgotten(members: list[int]) -> None:
    known = Known()
    for member in members:
        known.add(bytes([member]))
        assert bytes([member]) in known
        assert len(known) <= MAX_KNOWN
    assert all(bytes([member]) in known for member in dict.fromkeys(reversed(members[-MAX_KNOWN:])))
