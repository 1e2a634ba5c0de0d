"""Connections and sessions that are kept while the rules for clients change: they are asked what new ones are asked."""

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest

from exporter.web.guard import Guard
from tests.integration.test_web_login import ask, header
from tests.integration.test_web_rotation import LOGIN, TLS, Clock, put
from tests.integration.test_web_tls import refused
from tests.integration.web import GET, PAGE, PATIENCE, Client, debug_lines, port_of, run, serving
from tests.integration.web_files import PASSWORD, Authority, write

pytestmark = pytest.mark.integration

CLIENTS = TLS.replace("}", ", client_ca_file: ca.pem, client_auth_type: RequireAndVerifyClientCert}")


def allowing(*names: str) -> str:
    return CLIENTS.replace("}", f", client_allowed_sans: [{', '.join(names)}]}}")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.signed("client", "DNS:scraper.example")
    return made


@pytest.fixture(params=[ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
def scraper(request: pytest.FixtureRequest, authority: Authority) -> ssl.SSLContext:
    context = authority.client("client")
    context.minimum_version = context.maximum_version = request.param
    return context


async def is_hung_up_on(client: Client) -> bool:
    """Ask for a page; true when the connection ends without one."""
    client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return await client.ended() == b""


STRICTER = {
    "another name": (allowing("scraper.example"), allowing("other.example")),
    "a list of names": (CLIENTS, allowing("other.example")),
    "another authority": (CLIENTS, CLIENTS.replace("ca.pem", "other.pem")),
    "certificates of clients": (TLS, CLIENTS.replace("ca.pem", "other.pem")),
    "a newer version": (CLIENTS, allowing("other.example").replace("}", ", min_version: TLS13}")),
}


@pytest.mark.parametrize(("before", "after"), STRICTER.values(), ids=STRICTER.keys())
def test_who_would_not_be_let_in_any_more_gets_nothing_over_the_connection_of_before(
    before: str,
    after: str,
    scraper: ssl.SSLContext,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(authority, tmp_path, "server.pem", "server.key", "ca.pem")
    (tmp_path / "other").mkdir()
    (tmp_path / "other.pem").write_bytes(Authority(tmp_path / "other").ca.read_bytes())
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, before), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            kept, idle = await served.connect(tls=scraper), await served.connect(tls=scraper)
            assert (await kept.get()).body == PAGE
            write(path, after)
            clock.tick()
            assert await is_hung_up_on(kept)
            assert await is_hung_up_on(idle)
            assert await refused(served, scraper)
            assert guard.problems == ()
        assert any("what is asked of clients has changed" in line for line in debug_lines(caplog))

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


def resumed(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool]:
    """Return the session of a scrape, and whether the one that was given was taken up. Raises OSError."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as connection,
    ):
        connection.sendall(GET)
        if not connection.recv(1):
            raise ConnectionError
        return connection.session, bool(connection.session_reused)


def test_a_session_that_is_resumed_is_no_way_around_the_rules(
    scraper: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    put(authority, tmp_path, "server.pem", "server.key", "ca.pem")
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, allowing("scraper.example")), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            port = port_of(served.server.addresses[0])
            session, _ = await asyncio.to_thread(resumed, port, scraper, None)
            _, reused = await asyncio.to_thread(resumed, port, scraper, session)
            # Of TLS 1.3 there are none: a ticket would let in until it ends.
            assert reused is (scraper.maximum_version is ssl.TLSVersion.TLSv1_2)
            write(path, allowing("other.example"))
            clock.tick()
            with pytest.raises(OSError):  # noqa: PT011 - TLS 1.3 tells the client at its first read, 1.2 at the handshake
                await asyncio.to_thread(resumed, port, scraper, session)
            assert served.server.denied == 1

    run(test)


def test_nobody_goes_on_in_the_clear_once_there_is_encryption(authority: Authority, tmp_path: Path) -> None:
    put(authority, tmp_path, "server.pem", "server.key")
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, LOGIN), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            login = header(b"scraper", PASSWORD)
            kept = await served.connect()
            assert (await ask(kept, login)).body == PAGE
            write(path, TLS + LOGIN)
            clock.tick()
            assert await is_hung_up_on(kept)
            assert (await ask(await served.connect(tls=authority.client()), login)).body == PAGE

    run(test)


def test_a_connection_in_the_clear_is_asked_for_a_login_once_there_are_users(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, "http_server_config: {http2: false}\n"), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            kept = await served.connect()
            assert (await kept.get()).body == PAGE
            write(path, LOGIN)
            clock.tick()
            assert (await kept.get()).status == 401
            assert (await ask(kept, header(b"scraper", PASSWORD))).body == PAGE

    run(test)


def test_a_connection_outlives_what_asks_no_more_of_it(
    scraper: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    put(authority, tmp_path, "server.pem", "server.key", "ca.pem")
    clock = Clock()
    path = tmp_path / "web.yml"
    guard = Guard.load(write(path, CLIENTS), clock=clock)

    async def test() -> None:
        async with serving(guard=guard) as served:
            kept = await served.connect(tls=scraper)
            assert (await kept.get()).body == PAGE
            put(authority, tmp_path, "server.pem", "server.key")  # renewed
            write(path, f"{CLIENTS}rate_limit: {{interval: 1ms, burst: 99}}\n")
            clock.tick()
            assert (await kept.get()).body == PAGE
            write(path, LOGIN)
            assert guard.reload() == []  # also encryption that ends does not end it
            assert (await kept.get()).status == 401
            assert (await ask(kept, header(b"scraper", PASSWORD))).body == PAGE

    run(test)
