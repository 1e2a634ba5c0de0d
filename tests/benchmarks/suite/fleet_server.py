"""Stands for many exporters: serves the page of one running daemon to many targets, each with GPUs and jobs of its own.

    python -m tests.benchmarks.suite.fleet_server URL CHURN_FROM CHURN_SECONDS

Prints its port. /N is the page of target N. The page is fetched each second, so its values move as the daemon's do.
From CHURN_FROM seconds on each target has other jobs and processes after each CHURN_SECONDS, not all of them at once.
"""

import asyncio
import re
import sys
import time
from typing import Any

MARK = b"@@@@@@"
JOB, PID = b"777000", b"888000"
"""How numbers of jobs and processes begin in the scenario: what stands for them in each target's page."""
FETCH_SECONDS = 1.0
DIGITS = 10**6


class Pages:
    """The page as it was fetched last, with a mark wherever targets differ."""

    def __init__(self, url: str, churn_from: float, churn_seconds: float) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._address = (host, int(port))
        self._churn = (churn_from, churn_seconds)
        self._began = time.monotonic()
        self._marked = b""

    async def keep(self) -> None:
        while True:
            self._marked = marked(await self._fetched())
            await asyncio.sleep(FETCH_SECONDS)

    async def fetch_once(self) -> None:
        self._marked = marked(await self._fetched())

    async def _fetched(self) -> bytes:
        reader, writer = await asyncio.open_connection(*self._address)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: fleet\r\nAccept: text/plain\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split()[1] == b"200", head
        return body

    def of(self, target: int) -> bytes:
        page = self._marked.replace(MARK + b"-", b"%06x-" % (target % DIGITS))
        return page.replace(MARK, b"%06d" % ((target * 64 + self._generation(target)) % DIGITS))

    def _generation(self, target: int) -> int:
        begin, every = self._churn
        shifted = time.monotonic() - self._began - begin + every * (target % 60) / 60
        return max(0, int(shifted / every))


def marked(page: bytes) -> bytes:
    """Put marks in place of the end of the first part of a UUID, and of the numbers of jobs and processes."""
    page = re.sub(rb"GPU-(..)[0-9a-f]{6}-", rb"GPU-\1" + MARK + b"-", page)
    return page.replace(JOB, MARK).replace(PID, MARK)


class Connection(asyncio.Protocol):
    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._buffer = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            request, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            body = self._pages.of(int(request.split()[1].strip(b"/")))
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
            self._transport.write(head % len(body))
            self._transport.write(body)


async def serve(url: str, churn_from: float, churn_seconds: float) -> None:
    pages = Pages(url, churn_from, churn_seconds)
    await pages.fetch_once()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(pages), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await pages.keep()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
