"""A thousand scrapes at the same time: each is served or refused, none hangs, and nothing is left of them."""

import asyncio
import logging
import threading
import time
from collections import Counter

import pytest

from exporter.web.guard import Guard
from exporter.web.limits import Limits
from tests.integration.web import (
    EXPORTER,
    GET,
    PAGE,
    Served,
    debug_lines,
    open_descriptors,
    run,
    serving,
)
from tests.integration.web_files import Authority, write

pytestmark = pytest.mark.integration

SCRAPES = 1000


async def outcome(served: Served, authority: Authority | None) -> str:
    """What one client with a connection of its own gets."""
    try:
        client = await served.connect(tls=None if authority is None else authority.client())
        client.send(GET[:-2] + b"Connection: close\r\n\r\n")
        async with asyncio.timeout(30):
            head = await client.reader.readuntil(b"\r\n\r\n")
            body = await client.reader.read(-1)
            while more := await client.reader.read(-1):
                body += more
        client.writer.close()
        if head.startswith(b"HTTP/1.1 503 "):
            return "refused"
        return "served" if body == PAGE and head.startswith(b"HTTP/1.1 200 ") else "broken"
    except (ConnectionError, asyncio.IncompleteReadError, OSError) as error:
        return "hung up on" if not isinstance(error, TimeoutError) else "hangs"


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "tls"])
def test_1000_scrapes_at_once_are_served_or_refused(
    encrypted: bool, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    authority = guard = None
    if encrypted:
        authority = Authority(tmp_path_factory.mktemp("tls"))
        text = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
        guard = Guard.load(write(authority.directory / "web.yml", text))

    async def test() -> None:
        limits = Limits()
        async with serving(EXPORTER, limits, guard=guard) as served:
            before, threads = open_descriptors(), threading.active_count()
            began = time.monotonic()
            scraping = [asyncio.ensure_future(outcome(served, authority)) for _ in range(SCRAPES)]
            most = 0
            while not all(each.done() for each in scraping):
                most = max(most, served.server.connections)
                await asyncio.sleep(0.005)
            outcomes = Counter([await each for each in scraping])
            print(f"{dict(outcomes)} in {time.monotonic() - began:.1f} s, at most {most} connections")
            assert set(outcomes) <= {"served", "refused", "hung up on"}
            assert outcomes["served"] > 0
            assert most <= limits.max_requests + limits.max_idle
            assert threading.active_count() == threads
            await served.until(lambda: served.server.connections == 0)
            for client in served.clients:
                client.writer.transport.abort()
            await served.until(lambda: open_descriptors() <= before)
            client = await served.connect(tls=None if authority is None else authority.client())
            assert (await client.get()).body == PAGE
        assert len(debug_lines(caplog)) <= SCRAPES

    caplog.set_level(logging.DEBUG, "exporter")
    run(test)
