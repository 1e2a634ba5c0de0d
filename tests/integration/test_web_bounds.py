"""The HTTP server and clients that send nonsense, are slow, leave or are many, and a handler that fails."""

import asyncio
import logging
import subprocess
import sys
import time

import pytest

from exporter.web import routes
from exporter.web.limits import Limits
from exporter.web.messages import Request, Response, plain
from tests.integration.web import (
    GET,
    PAGE,
    PATIENCE,
    SHORT,
    debug_lines,
    endless,
    report,
    run,
    scrapes,
    serving,
)

pytestmark = pytest.mark.integration


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
    "a length and a coding": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG" + GET,
        400,
    ),
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
            # What is sent while the server hangs up makes TCP reset the connection, which is no end of the stream.
            while not (client.reader.at_eof() or client.writer.is_closing()) and time.monotonic() < began + PATIENCE:
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


def test_a_reader_that_is_too_slow_is_hung_up_on_and_keeps_no_place_from_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        limits = Limits(max_requests=1, response_seconds=0.3)
        async with serving(endless(30_000_000), limits) as served:
            slow = await served.connect(receive_buffer=4096)
            slow.send(GET)
            await slow.reader.readuntil(b"\r\n\r\n")
            other = await served.connect()
            assert len((await other.get()).body) == 30_000_000
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


WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, sys
from exporter.web.messages import plain
from exporter.web.server import serve

async def answer(_):
    return plain(200)

async def asked(of, request):
    of[1].write(request)
    return (await asyncio.wait_for(of[0].read(), 5)).partition(b"\\r\\n")[0].decode()

async def run():
    server = await serve(["127.0.0.1:0"], answer)
    port = int(server.addresses[0].rpartition(":")[2])
    peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    while server.connections < len(peers):
        await asyncio.sleep(0.001)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    assert "h11" not in sys.modules
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    print(await asked(peers[0], b"GET / HTTP/1.0\\r\\n\\r\\n"), server.refused)
    print(await asked(peers[1], b"GET / HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n"), server.refused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(await asked(peers[2], b"GET / HTTP/1.0\\r\\n\\r\\n"), server.refused)
    await server.close()

asyncio.run(run())
"""


def test_without_a_descriptor_to_load_what_reads_unusual_requests_they_are_refused() -> None:
    said = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=False)
    assert said.stderr == ""
    assert said.stdout.splitlines() == ["HTTP/1.1 503 Service Unavailable 1", "HTTP/1.1 200 OK 1", "HTTP/1.1 200 OK 1"]
