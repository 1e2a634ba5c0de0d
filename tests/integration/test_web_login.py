"""Users and passwords over HTTP: who passes, what an attempt costs, and that it tells nothing."""

import asyncio
import base64
import logging
import statistics
import time
from pathlib import Path

import bcrypt
import pytest

from exporter.web.guard import Guard
from exporter.web.limits import Limits
from tests.integration.web import GET, PAGE, Answer, Client, debug_lines, open_descriptors, port_of, run, serving
from tests.integration.web_files import HASH, PASSWORD, write

pytestmark = pytest.mark.integration

COST = 8


def slow_hash(password: bytes) -> str:
    return bcrypt.hashpw(password, bcrypt.gensalt(COST)).decode()


def guard_of(tmp_path: Path, text: str = f"basic_auth_users: {{scraper: {HASH}}}") -> Guard:
    return Guard.load(write(tmp_path / "web.yml", text))


def header(user: bytes, password: bytes) -> bytes:
    return b"Authorization: Basic " + base64.b64encode(user + b":" + password) + b"\r\n"


async def ask(client: Client, *headers: bytes, path: bytes = b"/metrics") -> Answer:
    client.send(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n" + b"".join(headers) + b"\r\n")
    return await client.answer()


def test_nothing_is_served_without_a_valid_login_on_any_path(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(guard=guard_of(tmp_path)) as served:
            client = await served.connect()
            for path in (
                b"/metrics",
                b"/",
                b"/device/sim0",
                b"/-/healthy",
                b"/-/ready",
                b"/nothing",
                b"/metrics?collect[]=x",
            ):
                answer = await ask(client, path=path)
                assert answer.status == 401
                assert answer.headers["www-authenticate"].startswith("Basic ")
                assert answer.body == b"Unauthorized\n"
            wrong = [
                header(b"scraper", b"wrong"),
                header(b"Scraper", PASSWORD),
                header(b"scraper", PASSWORD + b" "),
                header(b"scraper", b""),
                header(b"scraper", PASSWORD + b"x" * 72),
                header(b"scraper", b"a\0b"),
                header(b"\xff", PASSWORD),
                b"Authorization: Basic scraper\r\n",
                b"Authorization: Bearer " + PASSWORD.replace(b" ", b"") + b"\r\n",
                header(b"scraper", PASSWORD) * 2,
            ]
            assert [(await ask(client, each)).status for each in wrong] == [401] * len(wrong)
            assert served.server.counts.denied == 7 + len(wrong)
            assert (await ask(client, header(b"scraper", PASSWORD))).body == PAGE
            assert (await ask(client, header(b"scraper", PASSWORD), path=b"/-/healthy")).status == 200
        assert not any("wrong" in record.getMessage() for record in caplog.records)

    caplog.set_level(logging.DEBUG)
    run(test)


def test_a_refused_request_is_no_smuggled_one(tmp_path: Path) -> None:
    """What was sent ahead is judged by its own head, also after a body."""

    async def test() -> None:
        async with serving(guard=guard_of(tmp_path)) as served:
            client = await served.connect()
            client.send(
                b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
                + header(b"scraper", PASSWORD)
                + b"\r\nhello"
                + GET
                + GET[:-2]
                + header(b"scraper", PASSWORD)
                + b"\r\n"
            )
            assert [(await client.answer()).status for _ in range(3)] == [405, 401, 200]

    run(test)


def test_100_scrapes_with_the_same_login_cost_one_hash(tmp_path: Path) -> None:
    async def test() -> None:
        guard = guard_of(tmp_path, f"basic_auth_users: {{scraper: {slow_hash(PASSWORD)}}}")
        async with serving(guard=guard) as served:
            client = await served.connect()
            good, bad = header(b"scraper", PASSWORD), header(b"scraper", b"no")
            assert (await ask(client, good)).status == 200
            assert (await ask(client, bad)).status == 401
            for _ in range(100):
                assert (await ask(client, good)).status == 200
                assert (await ask(client, bad)).status == 401
            assert guard.hashes == 2

    run(test)


def running_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def seconds_of_hash() -> float:
    """Return what a hash takes, or took when the machine had least else to do."""
    hashed = slow_hash(b"y").encode()

    def once() -> float:
        began = time.perf_counter()
        bcrypt.checkpw(b"x", hashed)
        return time.perf_counter() - began

    return min(once() for _ in range(8))


def test_unknown_users_take_as_long_as_wrong_passwords(tmp_path: Path) -> None:
    async def test() -> None:
        text = f"basic_auth_users: {{scraper: {slow_hash(PASSWORD)}, other: {slow_hash(b'x')}}}"
        async with serving(guard=guard_of(tmp_path, text)) as served:
            client = await served.connect()
            took: dict[bytes, list[float]] = {b"scraper": [], b"nobody": []}
            for number in range(12):
                for user, each in took.items():
                    await asyncio.sleep(0.1)  # hashing rests after a failure
                    began = time.perf_counter()
                    assert (await ask(client, header(user, b"%d" % number))).status == 401
                    each.append(time.perf_counter() - began)
            known, unknown = (min(each) for each in took.values())
            print(f"wrong password {known * 1e3:.2f} ms, unknown user {unknown * 1e3:.2f} ms")
            assert 0.5 < unknown / known < 2  # without a hash it would be a hundredth
            assert known > 0.005

    run(test)


def test_a_storm_of_wrong_logins_leaves_scrapes_undisturbed_and_is_bounded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        guard = guard_of(tmp_path, f"basic_auth_users: {{scraper: {slow_hash(PASSWORD)}}}")
        async with serving(limits=Limits(max_requests=2), guard=guard) as served:
            scraper = await served.connect()
            assert (await ask(scraper, header(b"scraper", PASSWORD))).status == 200
            statuses: list[int] = []
            threads = running_threads()
            before = open_descriptors()

            async def guess(number: int) -> None:
                client = await served.connect()
                # However slow the machine is, there must be hashes enough to judge their number by.
                while time.monotonic() < began + 2 or (guard.hashes < 8 and time.monotonic() < began + 60):
                    answer = await ask(client, header(b"scraper", b"%d %d" % (number, len(statuses))))
                    statuses.append(answer.status)
                client.writer.close()

            began = time.monotonic()
            guessing = [asyncio.ensure_future(guess(number)) for number in range(30)]
            took = []
            most = 0
            while not all(each.done() for each in guessing):
                asked = time.perf_counter()
                assert (await ask(scraper, header(b"scraper", PASSWORD))).body == PAGE
                took.append(time.perf_counter() - asked)
                most = max(most, running_threads())
                await asyncio.sleep(0.01)
            for each in guessing:
                await each
            assert set(statuses) == {401, 503}
            # A quarter of the time, in hashes of the cost that the configured user has.
            assert 8 <= guard.hashes < (time.monotonic() - began) / 4 / seconds_of_hash() * 2
            assert served.server.counts.refused == statuses.count(503)
            assert most <= threads + 1
            print(f"scrapes in the storm: p50 {statistics.median(took) * 1e3:.1f} ms, worst {max(took) * 1e3:.1f} ms")
            assert statistics.median(took) < 0.1
            await served.until(lambda: open_descriptors() <= before)
        assert debug_lines(caplog) == []

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_a_storm_of_wrong_logins_keeps_nobody_elsewhere_from_the_first_login(tmp_path: Path) -> None:
    """As after a restart, when no login is known yet."""

    async def test() -> None:
        guard = guard_of(tmp_path, f"basic_auth_users: {{scraper: {slow_hash(PASSWORD)}}}")
        async with serving(guard=guard) as served:
            statuses: list[int] = []
            over = asyncio.Event()

            async def guess(number: int) -> None:
                client = await served.connect()
                while not over.is_set():
                    answer = await ask(client, header(b"scraper", b"%d %d" % (number, len(statuses))))
                    statuses.append(answer.status)

            guessing = [asyncio.ensure_future(guess(number)) for number in range(50)]
            await served.until(lambda: statuses.count(503) > 100)
            where = ("127.0.0.1", port_of(served.server.addresses[0]))
            elsewhere = Client(*await asyncio.open_connection(*where, local_addr=("127.0.0.2", 0)))
            served.clients.append(elsewhere)
            assert (await ask(elsewhere, header(b"scraper", PASSWORD))).body == PAGE
            over.set()
            await asyncio.gather(*guessing)
            assert set(statuses) == {401, 503}

    run(test)


def test_headers_of_the_file_are_on_every_response_and_replace_our_own(tmp_path: Path) -> None:
    text = f"""
http_server_config:
  headers: {{Content-Security-Policy: default-src 'none', X-Frame-Options: deny, Strict-Transport-Security: max-age=1}}
basic_auth_users: {{scraper: {HASH}}}
"""

    async def test() -> None:
        async with serving(guard=guard_of(tmp_path, text)) as served:
            client = await served.connect()
            login = header(b"scraper", PASSWORD)
            answers = [await ask(client), await ask(client, login), await ask(client, login, path=b"/")]
            client.send(b"nonsense\r\n\r\n")
            answers.append(await client.answer())
            assert [answer.status for answer in answers] == [401, 200, 200, 400]
            for answer in answers:
                assert answer.headers["content-security-policy"] == "default-src 'none'"
                assert answer.headers["x-frame-options"] == "deny"
                assert answer.headers["strict-transport-security"] == "max-age=1"

    run(test)


def test_requests_beyond_the_rate_get_429_and_probes_are_not_counted(tmp_path: Path) -> None:
    now = 100.0
    path = write(tmp_path / "web.yml", "rate_limit: {interval: 2s, burst: 3}")
    guard = Guard.load(path, clock=lambda: now)

    async def test() -> None:
        nonlocal now
        async with serving(guard=guard) as served:
            client = await served.connect()
            assert [(await ask(client)).status for _ in range(5)] == [200, 200, 200, 429, 429]
            last = await ask(client)
            assert (last.status, last.headers["retry-after"]) == (429, "2")
            assert (await ask(client, path=b"/-/healthy")).status == 200
            now += 2.1
            assert [(await ask(client)).status for _ in range(2)] == [200, 429]
            assert served.server.counts.refused == 4

    run(test)
