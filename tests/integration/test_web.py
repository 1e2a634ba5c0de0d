"""The HTTP server over real loopback sockets: clients that behave, listening and closing."""

import asyncio
import itertools
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.web.listen import ListenError
from exporter.web.messages import Request, Response, plain
from exporter.web.server import serve
from tests.integration.web import (
    EXPORTER,
    GET,
    PAGE,
    Client,
    endless,
    open_descriptors,
    port_of,
    run,
    serving,
)

pytestmark = pytest.mark.integration


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
            assert b"<title>gpu-exporter</title>" in (await client.answer()).body

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


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_asked_as_the_server_closes_is_answered(kept: bool) -> None:
    async def test() -> None:
        async with serving() as served:
            client = await served.connect()
            if kept:
                await client.get()
                client.send(GET)  # the server has not been told of it
            closing = asyncio.ensure_future(served.server.close())
            await asyncio.sleep(0)
            if not kept:
                client.send(GET)
            answer = await client.answer()
            assert (answer.status, answer.body, answer.headers["connection"]) == (200, PAGE, "close")
            await closing

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
