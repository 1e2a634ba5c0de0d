"""A web server on a loopback port, and clients for it, in one event loop. Deadlines are short."""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from exporter.exposition import Format
from exporter.metrics import Block
from exporter.model import World
from exporter.web import routes
from exporter.web.guard import Guard
from exporter.web.limits import Limits
from exporter.web.messages import Handler, Request, Response
from exporter.web.server import Server, serve

PAGE = b"".join(b'gpu_power_watts{gpu="nvidia%d"} 412.5\n' % n for n in range(2700))
GET = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
SHORT = Limits(head_seconds=0.3, response_seconds=0.3, idle_seconds=0.3, linger_seconds=0.2)
PATIENCE = 5.0


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def page(_format: Format, _blocks: frozenset[Block] | None, _gzip: bool, _client: str) -> bytes:
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
    guard: Guard | None = None,
    sockets: Sequence[socket.socket] | None = None,
) -> AsyncIterator[Served]:
    server = await serve(addresses, handler, limits=limits, uncounted=routes.PROBES, guard=guard, sockets=sockets)
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


def endless(size: int) -> Handler:
    async def handler(_: Request) -> Response:
        return Response(200, (), bytes(size))

    return handler


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
