"""The HTTP server over real loopback sockets, with clients that behave and clients that do not.

Server and clients share one process and one event loop; the deadlines are short.
"""

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import shutil
import socket
import ssl
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Format
from exporter.metrics import Block
from exporter.model import World
from exporter.web import routes
from exporter.web.limits import Limits
from exporter.web.listen import ListenError
from exporter.web.messages import Handler, Request, Response, plain
from exporter.web.server import Server, serve

pytestmark = pytest.mark.integration

PAGE = b"".join(b'gpu_power_watts{gpu="nvidia%d"} 412.5\n' % n for n in range(2700))
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT = Limits(head_seconds=0.3, response_seconds=0.3, idle_seconds=0.3, linger_seconds=0.2)
PATIENCE = 5.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def page(_format: Format, _blocks: frozenset[Block] | None, _gzip: bool) -> bytes:
    await asyncio.sleep(0)
    return PAGE


EXPORTER = routes.build(page, lambda: World(snapshots=(), versions={}), time.time)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, head_only: bool = False) -> Answer:
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
            headers = {}
            for line in head[1:-1]:
                name, _, value = line.partition(": ")
                headers[name.lower()] = value
            body = b"" if head_only else await self.reader.readexactly(int(headers["content-length"]))
            return Answer(int(head[0].split()[1]), headers, body)

    async def ended(self) -> bytes:
        """What is left until the server hangs up."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(-1)
            except ConnectionResetError:
                return b""

    async def get(self, path: str = "/metrics") -> Answer:
        self.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return await self.answer()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


class Served:
    """A server and the clients that were connected to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.clients: list[Client] = []

    async def connect(self, *, tls: ssl.SSLContext | None = None, receive_buffer: int = 0) -> Client:
        plain_socket = socket.socket()
        plain_socket.setblocking(False)
        if receive_buffer:
            plain_socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        where = ("127.0.0.1", port_of(self.server.addresses[0]))
        try:
            await asyncio.get_running_loop().sock_connect(plain_socket, where)
        except OSError:
            plain_socket.close()
            raise
        name = "localhost" if tls else None
        # A small limit, so that a client that does not read holds the server back.
        streams = await asyncio.open_connection(sock=plain_socket, ssl=tls, server_hostname=name, limit=4096)
        self.clients.append(Client(*streams))
        return self.clients[-1]

    async def idle_peers(self, count: int) -> list[socket.socket]:
        peers = [socket.socket() for _ in range(count)]
        for peer in peers:
            peer.setblocking(False)
            where = ("127.0.0.1", port_of(self.server.addresses[0]))
            await asyncio.get_running_loop().sock_connect(peer, where)
        return peers

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110 - what is waited for happens in the server, which tells nobody
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def serving(
    handler: Handler = EXPORTER,
    limits: Limits | None = None,
    addresses: Sequence[str] = ("127.0.0.1:0",),
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Served]:
    server = await serve(
        addresses, handler, limits=limits, uncounted=routes.PROBES, tls=None if tls is None else lambda: tls
    )
    served = Served(server)
    try:
        yield served
    finally:
        for client in served.clients:
            client.writer.transport.abort()
        await server.close(grace=0.1)
        assert server.connections == 0


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run in an event loop of its own, in which an exception that nobody took is a failure."""
    stray: list[object] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
        await test()

    asyncio.run(guarded())
    gc.collect()
    assert stray == []


def debug_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    ours = [record for record in caplog.records if record.name.startswith("exporter.web")]
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []
    assert all(record.exc_info is None for record in ours)
    return [record.getMessage() for record in ours]


# Clients that behave.


def test_a_connection_is_kept_for_many_scrapes() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            for _ in range(3):
                answer = await client.get()
                assert answer.status == 200
                assert answer.body == PAGE
                assert answer.headers["content-length"] == str(len(PAGE))
                assert "connection" not in answer.headers
            assert served.server.connections == 1

    run(test)


def test_head_gives_the_headers_of_get_without_the_body() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            get = await client.get()
            client.send(GET.replace(b"GET", b"HEAD"))
            head = await client.answer(head_only=True)
            assert head.headers == get.headers
            assert (await client.get()).body == PAGE  # no byte of a body came in between

    run(test)


def test_requests_sent_ahead_are_answered_in_order() -> None:
    async def echo(request: Request) -> Response:
        await asyncio.sleep(0.02 if request.path == "/1" else 0)
        return plain(200, request.path)

    async def test() -> None:
        async with serving(echo) as served:
            client = await served.connect()
            client.send(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % n for n in range(50)))
            assert [(await client.answer()).body for _ in range(50)] == [b"/%d\n" % n for n in range(50)]

    run(test)


@pytest.mark.parametrize(
    "request_", [b"GET /metrics HTTP/1.0\r\n\r\n", GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")]
)
def test_the_server_hangs_up_after_the_response_when_asked_to(request_: bytes) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(request_ + GET)  # what is sent after a last request is not answered
            answer = await client.answer()
            assert answer.body == PAGE
            assert answer.headers["connection"] == "close"
            assert await client.ended() == b""

    run(test)


def test_a_client_that_closes_its_sending_side_gets_its_response() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(GET)
            client.writer.write_eof()
            assert (await client.answer()).body == PAGE
            assert await client.ended() == b""

    run(test)


@pytest.mark.parametrize(
    ("extra", "kept"),
    [
        (b"Content-Length: 5\r\n\r\nhello", True),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", True),
        (b"Content-Length: 16385\r\n\r\n" + b"x" * 1000, False),
        (b"Transfer-Encoding: chunked\r\n\r\n" + b"1000\r\n" + b"x" * 4096 + b"\r\n4000\r\n" + b"x" * 0x4000, False),
        (b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", False),
        (b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n", True),
    ],
    ids=["small", "small-chunked", "large", "large-chunked", "asks-first", "upgrade"],
)
def test_a_body_is_dropped_when_it_is_small_and_costs_the_connection_when_not(extra: bytes, kept: bool) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(GET[:-2] + extra)
            answer = await client.answer()
            assert (answer.status, answer.body) == (200, PAGE)
            assert answer.headers.get("connection") == (None if kept else "close")
            if kept:
                assert (await client.get()).body == PAGE
            else:
                assert await client.ended() == b""

    run(test)


@pytest.mark.parametrize("method", ["POST", "CONNECT", "OPTIONS"])
def test_methods_other_than_get_and_head_are_refused(method: str) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(f"{method} * HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            answer = await client.answer()
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")

    run(test)


def test_the_form_of_request_that_proxies_get_is_understood() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            for target in (b"http://gpu-node:10042/metrics?x=1", b"HTTPS://gpu-node/metrics"):
                client.send(b"GET " + target + b" HTTP/1.1\r\nHost: gpu-node\r\n\r\n")
                assert (await client.answer()).body == PAGE
            client.send(b"GET http://gpu-node HTTP/1.1\r\nHost: gpu-node\r\n\r\n")
            assert b"<h1>gpu-exporter</h1>" in (await client.answer()).body

    run(test)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 400), max_size=12))
def test_it_does_not_matter_in_which_pieces_requests_come(cuts: list[int]) -> None:
    sent = (
        GET
        + GET[:-2]
        + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        + GET.replace(b"GET", b"POST")
        + b"GET /-/healthy HTTP/1.0\r\n\r\n"
    )

    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            for start, end in itertools.pairwise([0, *sorted(cuts), len(sent)]):
                client.send(sent[start:end])
                await asyncio.sleep(0)
            answers = [await client.answer() for _ in range(4)]
            assert [(answer.status, len(answer.body)) for answer in answers] == [
                (200, len(PAGE)),
                (200, len(PAGE)),
                (405, len(b"Method Not Allowed\n")),
                (200, len(b"healthy\n")),
            ]
            assert await client.ended() == b""

    run(test)


# Clients that do not.

MALFORMED: dict[str, tuple[bytes, int]] = {
    "words": (b"hello\r\n\r\n", 400),
    "no version": (b"GET /metrics\r\nHost: a\r\n\r\n", 400),
    "space in the target": (b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no host": (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "header without colon": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nbroken\r\n\r\n", 400),
    "space before colon": (b"GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", 400),
    "NUL in a header": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n", 400),
    "bare CR in a header": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400),
    "continued first header": (b"GET /metrics HTTP/1.1\r\n Host: a\r\n\r\n", 400),
    "empty method": (b" /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "method with brackets": (b"G(E)T /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "TLS on a plain port": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "binary": (bytes(range(256)) + b"\r\n\r\n", 400),
    "target not ASCII": (b"GET /m\xc3\xa9trics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "length not a number": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
    "length negative": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    "length beyond all": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "two lengths": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
    "unknown coding": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
    "two codings": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    "chunk without size": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
    "HTTP/2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/3": (b"GET /metrics HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    "long target": (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 431),
    "large head at once": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"a" * 16_384 + b"\r\n\r\n", 431),
    "large head without end": (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 10_000, 431),
}


@pytest.mark.parametrize(("sent", "status"), MALFORMED.values(), ids=MALFORMED.keys())
def test_what_is_no_request_is_refused_once_with_one_debug_line(
    sent: bytes, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(sent)
            answer = await client.answer()
            assert answer.status == status
            assert answer.headers["connection"] == "close"
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert await client.ended() == b""
            lines = debug_lines(caplog)
            assert len(lines) == 1
            assert "sent what is no request" in lines[0]
            assert (await (await served.connect()).get()).body == PAGE

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_what_is_no_request_after_a_good_one_is_refused_after_its_response() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(GET + b"nonsense\r\n\r\n" + GET)
            assert (await client.answer()).body == PAGE
            assert (await client.answer()).status == 400
            assert await client.ended() == b""

    run(test)


def test_a_head_just_below_the_bound_is_served() -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            client.send(b"GET /metrics HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 16_300 + b"\r\n\r\n")
            assert (await client.answer()).body == PAGE

    run(test)


def test_a_head_that_comes_byte_by_byte_is_hung_up_on_in_time(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(limits=SHORT) as served:
            client = await served.connect()
            began = time.monotonic()
            while not client.reader.at_eof() and time.monotonic() < began + PATIENCE:
                client.send(b"G")
                await asyncio.sleep(0.01)
            assert 0.25 < time.monotonic() - began < 1.5
            assert served.server.connections == 0
        assert [line.partition(": ")[2] for line in debug_lines(caplog)] == ["no request came in time"]

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_a_later_head_has_its_time_from_its_first_byte() -> None:
    async def test() -> None:
        limits = Limits(head_seconds=0.3, idle_seconds=30)
        async with serving(limits=limits) as served:
            client = await served.connect()
            await client.get()
            await asyncio.sleep(0.5)
            assert (await client.get()).status == 200  # idle for longer than a head may take
            began = time.monotonic()
            client.send(GET[:10])
            assert await client.ended() == b""
            assert 0.25 < time.monotonic() - began < 1.5

    run(test)


def test_idle_connections_are_hung_up_on_in_time() -> None:
    async def test() -> None:
        async with serving(limits=Limits(idle_seconds=0.2)) as served:
            client = await served.connect()
            await client.get()
            began = time.monotonic()
            assert await client.ended() == b""
            assert 0.15 < time.monotonic() - began < 1.5

    run(test)


def test_a_peer_that_does_not_hang_up_after_the_last_response_is_hung_up_on() -> None:
    async def test() -> None:
        async with serving(limits=SHORT) as served:
            client = await served.connect()
            client.send(GET[:-2] + b"Connection: close\r\n\r\n")
            await client.answer()
            await served.until(lambda: served.server.connections == 0)

    run(test)


def endless(size: int) -> Handler:
    async def handler(_: Request) -> Response:
        return Response(200, (), bytes(size))

    return handler


def test_a_reader_that_is_too_slow_is_hung_up_on_and_gives_its_place_back(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        limits = Limits(max_requests=1, response_seconds=0.3)
        async with serving(endless(30_000_000), limits) as served:
            slow = await served.connect(receive_buffer=4096)
            slow.send(GET)
            await slow.reader.readuntil(b"\r\n\r\n")
            other = await served.connect()
            busy = await other.get()
            assert (busy.status, busy.headers["retry-after"]) == (503, "1")
            await served.until(lambda: served.server.connections == 1)
            with pytest.raises(ConnectionResetError):  # the kernel does not go on sending the rest
                await slow.reader.read(-1)
            other.send(GET)
            assert (await other.answer()).status == 200
        assert [line.partition(": ")[2] for line in debug_lines(caplog)] == ["the response was not taken within 0.3 s"]

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_slow_readers_do_not_slow_others_or_cost_a_page_each() -> None:
    async def test() -> None:
        async with serving() as served:
            for _ in range(20):
                slow = await served.connect(receive_buffer=4096)
                slow.send(GET * 50)
            await asyncio.sleep(0.1)
            took = await scrapes(served, 20)
            assert max(took) < 0.1

    run(test)


def test_a_client_that_leaves_in_the_middle_of_a_body_costs_one_debug_line(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving(endless(30_000_000)) as served:
            client = await served.connect(receive_buffer=4096)
            client.send(GET)
            await client.reader.readuntil(b"\r\n\r\n")
            client.writer.transport.abort()
            await served.until(lambda: served.server.connections == 0)
            await asyncio.sleep(0)
            lines = debug_lines(caplog)
            assert len(lines) == 1
            assert lines[0].endswith("left before the response was complete")

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_a_client_that_leaves_while_the_page_is_made_does_not_stop_its_making(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        made = asyncio.Event()
        asked = asyncio.Event()
        go_on = asyncio.Event()

        async def handler(_: Request) -> Response:
            asked.set()
            await go_on.wait()
            made.set()
            return Response(200, (), bytes(1_000_000))

        async with serving(handler) as served:
            client = await served.connect()
            client.send(GET)
            await asked.wait()
            client.writer.transport.abort()
            await asyncio.sleep(0.02)
            go_on.set()
            await asyncio.wait_for(made.wait(), PATIENCE)
            await served.until(lambda: served.server.connections == 0)
        assert len(debug_lines(caplog)) == 1

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


# Many clients.


async def scrapes(served: Served, count: int, tls: ssl.SSLContext | None = None) -> list[float]:
    """Seconds of each scrape over a new connection."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        client = await served.connect(tls=tls)
        answer = await client.get()
        took.append(time.perf_counter() - began)
        assert answer.body == PAGE
        client.writer.close()
    return took


def report(what: str, took: list[float]) -> None:
    print(f"{what}: p50 {statistics.median(took) * 1e3:.2f} ms, worst {max(took) * 1e3:.2f} ms")


def test_a_scrape_beside_20_idle_peers_takes_less_than_100_ms() -> None:
    async def test() -> None:
        async with serving() as served:
            peers = await served.idle_peers(20)
            took = await scrapes(served, 20)
            for peer in peers:
                peer.close()
            report("scrape beside 20 idle peers", took)
            assert max(took) < 0.1

    run(test)


def test_of_200_scrapes_at_once_those_beyond_the_bound_get_503_at_once() -> None:
    async def test() -> None:
        running = 0
        most = 0
        release = asyncio.Event()

        async def handler(request: Request) -> Response:
            nonlocal running, most
            if request.path in routes.PROBES:
                return plain(200)
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1
            return Response(200, (), PAGE)

        async with serving(handler, Limits(max_requests=40)) as served:
            clients = [await served.connect() for _ in range(200)]
            answers = [asyncio.ensure_future(client.get()) for client in clients]
            await served.until(lambda: sum(each.done() for each in answers) == 160)
            assert (await (await served.connect()).get("/-/healthy")).status == 200
            release.set()
            statuses = [(await each).status for each in answers]
            assert statuses.count(200) == 40
            assert statuses.count(503) == 160
            assert most == 40
            assert served.server.refused == 160
            assert (await clients[0].get()).status == 200

    run(test)


def test_connections_are_bounded_and_the_one_idle_for_longest_goes() -> None:
    async def test() -> None:
        async with serving(limits=Limits(max_requests=2, max_idle=3)) as served:
            clients = []
            for _ in range(8):
                clients.append(await served.connect())
                assert (await clients[-1].get()).status == 200
            assert served.server.connections == 5
            for client in clients[:3]:
                assert await client.ended() == b""
            for client in clients[3:]:
                assert (await client.get()).status == 200

    run(test)


# A handler that fails.


def test_a_failing_handler_is_a_500_and_one_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise RuntimeError("secret detail")
        return plain(200)

    async def test() -> None:
        async with serving(handler) as served:
            client = await served.connect()
            for _ in range(3):
                answer = await client.get("/bad")
                assert answer.status == 500
                assert b"secret" not in answer.body
            assert (await client.get("/good")).status == 200
            assert served.server.failures == 3
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert len(errors) == 1
        assert errors[0].exc_info is not None

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_a_response_that_cannot_be_sent_costs_its_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        return Response(200, (("X", "a\nb"),)) if request.path == "/bad" else plain(200)

    async def test() -> None:
        async with serving(handler) as served:
            client = await served.connect()
            client.send(GET.replace(b"/metrics", b"/bad"))
            assert await client.ended() == b""
            assert (await (await served.connect()).get()).status == 200
        assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1

    caplog.set_level(logging.INFO, "exporter")
    run(test)


def test_a_handler_that_does_not_come_back_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: Request) -> Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def test() -> None:
        async with serving(handler, SHORT) as served:
            assert (await (await served.connect()).get()).status == 500
            assert served.server.failures == 1

    with caplog.at_level(logging.CRITICAL, "exporter"):
        run(test)


# Listening.


def test_it_listens_on_several_addresses_at_once() -> None:
    async def test() -> None:
        async with serving(addresses=("127.0.0.1:0", "127.0.0.2:0", "localhost:0", ":0")) as served:
            assert [each.rpartition(":")[0] for each in served.server.addresses[:3]] == [
                "127.0.0.1",
                "127.0.0.2",
                "127.0.0.1",
            ]
            for address in served.server.addresses:
                host = address.rpartition(":")[0]
                reader, writer = await asyncio.open_connection(
                    host if host[0].isdigit() else "127.0.0.1", port_of(address)
                )
                served.clients.append(Client(reader, writer))
                assert (await served.clients[-1].get()).body == PAGE

    run(test)


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on its loopback interface")
def test_it_listens_on_ipv6() -> None:
    async def test() -> None:
        async with serving(addresses=("[::1]:0", ":0")) as served:
            assert [each.rpartition(":")[0] for each in served.server.addresses] == ["[::1]", "[::]"]
            for address in served.server.addresses:
                served.clients.append(Client(*await asyncio.open_connection("::1", port_of(address))))
                assert (await served.clients[-1].get()).body == PAGE

    run(test)


def test_an_address_in_use_is_told_in_words_and_none_is_left_open() -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            before = open_descriptors()
            with pytest.raises(ListenError, match=f"^cannot listen on {address}: another process listens there$"):
                await serve(("127.0.0.1:0", address), EXPORTER)
            assert open_descriptors() == before

    run(test)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("192.0.2.1:0", "this host does not have the address"),
        ("no-such-host.invalid:0", "the host name is not known"),
        ("nonsense", "expected host:port"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_told_in_words(address: str, said: str) -> None:
    async def test() -> None:
        with pytest.raises(ListenError) as caught:
            await serve((address,), EXPORTER)
        assert said in str(caught.value)
        assert address in str(caught.value)

    run(test)


# Closing.


def test_closing_lets_the_response_in_progress_end_and_hangs_up_on_the_others() -> None:
    async def test() -> None:
        asked = asyncio.Event()

        async def handler(_: Request) -> Response:
            asked.set()
            await asyncio.sleep(0.05)
            return Response(200, (), PAGE)

        async with serving(handler) as served:
            idle, busy = await served.connect(), await served.connect()
            busy.send(GET)
            await asked.wait()
            closing = asyncio.ensure_future(served.server.close())
            answer = await busy.answer()
            assert answer.body == PAGE
            assert answer.headers["connection"] == "close"
            assert await idle.ended() == b""
            await closing
            with pytest.raises(ConnectionRefusedError):
                await served.connect()

    run(test)


def test_closing_does_not_wait_for_a_client_that_does_not_read() -> None:
    async def test() -> None:
        async with serving(endless(30_000_000)) as served:
            client = await served.connect(receive_buffer=4096)
            client.send(GET)
            await client.reader.readuntil(b"\r\n\r\n")
            began = time.monotonic()
            await served.server.close(grace=0.2)
            assert time.monotonic() - began < 1
            assert served.server.connections == 0

    run(test)


# TLS, which the server carries.


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        reason = "no openssl: apt-get install openssl"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("tls")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", "server.key"]
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    command = ["openssl", "req", "-x509", *key, "-out", "server.pem", *subject]
    subprocess.run(command, cwd=directory, check=True, capture_output=True, timeout=30)
    return directory / "server.pem"


def tls_contexts(certificate: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return server, ssl.create_default_context(cafile=str(certificate))


def test_a_scrape_over_tls_beside_20_half_open_peers_takes_less_than_100_ms(certificate: Path) -> None:
    server, client = tls_contexts(certificate)

    async def test() -> None:
        async with serving(tls=server) as served:
            peers = await served.idle_peers(20)
            took = await scrapes(served, 20, client)
            for peer in peers:
                peer.close()
            report("scrape over TLS beside 20 half-open peers", took)
            assert statistics.median(took) < 0.1

    run(test)


def test_half_open_tls_peers_are_counted_and_hung_up_on_in_time(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server, _ = tls_contexts(certificate)

    async def test() -> None:
        async with serving(limits=SHORT, tls=server) as served:
            peers = await served.idle_peers(5)
            await served.until(lambda: served.server.connections == 5)
            await served.until(lambda: served.server.connections == 0)
            for peer in peers:
                peer.close()
        lines = debug_lines(caplog)
        assert len(lines) == 5
        assert all("no TLS handshake" in line for line in lines)

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_plain_http_on_a_tls_port_is_one_debug_line(certificate: Path, caplog: pytest.LogCaptureFixture) -> None:
    server, _ = tls_contexts(certificate)

    async def test() -> None:
        async with serving(tls=server) as served:
            client = await served.connect()
            client.send(GET)
            await client.ended()
            await served.until(lambda: served.server.connections == 0)
        assert len(debug_lines(caplog)) == 1

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)


def test_requests_sent_ahead_over_tls_are_answered_in_order_and_a_slow_reader_is_hung_up_on(certificate: Path) -> None:
    server, client_context = tls_contexts(certificate)

    async def test() -> None:
        async with serving(limits=Limits(response_seconds=0.3), tls=server) as served:
            client = await served.connect(tls=client_context)
            client.send(GET * 5 + b"GET / HTTP/1.0\r\n\r\n")
            assert [(await client.answer()).body == PAGE for _ in range(5)] == [True] * 5
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.ended() == b""
            slow = await served.connect(tls=client_context, receive_buffer=4096)
            slow.send(GET * 200)
            await slow.reader.readuntil(b"\r\n\r\n")
            await served.until(lambda: served.server.connections == 0)

    run(test)
