"""The HTTP server carries TLS: peers without a handshake hold nobody up."""

import logging
import shutil
import ssl
import statistics
import subprocess
from pathlib import Path

import pytest

from exporter.web.limits import Limits
from tests.integration.web import (
    GET,
    PAGE,
    SHORT,
    debug_lines,
    report,
    run,
    scrapes,
    serving,
)
from tests.tools import unavailable

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        unavailable("openssl", "apt-get install openssl")
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
