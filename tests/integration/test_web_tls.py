"""The HTTP server over TLS: what it speaks, whom it lets in, and peers that break off, say nothing or nonsense."""

import asyncio
import logging
import socket
import ssl
import statistics
import struct
import subprocess
import time
import warnings
from pathlib import Path

import pytest

from exporter.web.guard import Guard
from exporter.web.limits import Limits
from tests.integration.web import (
    GET,
    PAGE,
    PATIENCE,
    SHORT,
    Served,
    debug_lines,
    endless,
    port_of,
    report,
    run,
    scrapes,
    serving,
)
from tests.integration.web_files import Authority, write

pytestmark = pytest.mark.integration

TLS = """
tls_server_config:
  cert_file: server.pem
  key_file: server.key
"""
CLIENTS = f"""{TLS}
  client_ca_file: ca.pem
  client_auth_type: RequireAndVerifyClientCert
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def guard_of(authority: Authority, text: str = TLS) -> Guard:
    return Guard.load(write(authority.directory / "web.yml", text))


def test_a_scrape_over_tls_beside_20_half_open_peers_takes_less_than_100_ms(authority: Authority) -> None:
    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            peers = await served.idle_peers(20)
            took = await scrapes(served, 20, authority.client())
            for peer in peers:
                peer.close()
            report("scrape over TLS beside 20 half-open peers", took)
            assert statistics.median(took) < 0.1

    run(test)


def test_half_open_tls_peers_are_counted_and_hung_up_on_in_time(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(limits=SHORT, guard=guard_of(authority)) as served:
            peers = await served.idle_peers(5)
            await served.until(lambda: served.server.connections == 5)
            await served.until(lambda: served.server.connections == 0)
            for peer in peers:
                peer.close()
            assert served.server.counts.denied == 0
        assert [line.partition(": ")[2] for line in debug_lines(caplog)] == ["no TLS handshake came in time"] * 5

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


def test_plain_http_on_a_tls_port_is_told_so_with_one_debug_line(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            client = await served.connect()
            client.send(GET)
            said = await client.ended()
            assert said.startswith(b"HTTP/1.0 400 Bad Request\r\n")
            assert b"HTTPS" in said
            client.writer.close()
            await served.until(lambda: served.server.connections == 0)
        assert len(debug_lines(caplog)) == 1

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


BROKEN: dict[str, bytes] = {
    "noise": bytes(range(256)),
    "no handshake record": b"\x17\x03\x03\x00\x10" + bytes(16),
    "hello cut short": b"\x16\x03\x01\x00\x20\x01\x00\x00\x1c\x03\x03" + bytes(27),
    "record too long": b"\x16\x03\x01\xff\xff" + bytes(0x4000),
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN.keys())
def test_a_handshake_that_is_none_costs_its_connection_and_one_debug_line(
    sent: bytes, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            client = await served.connect()
            client.send(sent)
            await client.ended()
            await served.until(lambda: served.server.connections == 0)
            lines = debug_lines(caplog)
            assert len(lines) == 1
            assert "no TLS handshake: " in lines[0]
            assert (await (await served.connect(tls=authority.client())).get()).body == PAGE

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


def shaken_hands(served: Served, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A client whose plain socket can be got at. Blocks, so it is for `asyncio.to_thread`."""
    plain = socket.create_connection(("127.0.0.1", port_of(served.server.addresses[0])), PATIENCE)
    return context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)


@pytest.mark.parametrize(
    "last", [b"\x17\x03\x03\x00\x40" + bytes(64), b"\x17\x03\x03\x40", GET], ids=["forged", "cut", "plain"]
)
def test_a_broken_record_after_the_handshake_costs_its_connection_and_one_debug_line(
    last: bytes, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def attack(served: Served) -> None:
        with shaken_hands(served, authority.client()) as client:
            client.send(GET[:20])
            socket.socket.send(client, last)
            if len(last) < 10:
                client.shutdown(socket.SHUT_WR)

    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            await asyncio.to_thread(attack, served)
            await served.until(lambda: served.server.connections == 0)
            lines = debug_lines(caplog)
            assert len(lines) == 1
            assert "Traceback" not in lines[0]

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


def test_the_end_of_a_connection_is_said_within_tls(authority: Authority) -> None:
    def ask(served: Served) -> bytes:
        with shaken_hands(served, authority.client()) as client:
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            received = b""
            while piece := client.recv(1 << 16):  # raises SSLEOFError where the end could be anybody's
                received += piece
            return received

    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            assert (await asyncio.to_thread(ask, served)).endswith(PAGE)

    run(test)


def test_requests_sent_ahead_over_tls_are_answered_in_order_and_a_slow_reader_is_hung_up_on(
    authority: Authority,
) -> None:
    async def test() -> None:
        async with serving(limits=Limits(response_seconds=0.3), guard=guard_of(authority)) as served:
            client = await served.connect(tls=authority.client())
            client.send(GET * 5 + b"GET / HTTP/1.0\r\n\r\n")
            assert [(await client.answer()).body == PAGE for _ in range(5)] == [True] * 5
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.ended() == b""
            slow = await served.connect(tls=authority.client(), receive_buffer=4096)
            slow.send(GET * 200)
            await slow.reader.readuntil(b"\r\n\r\n")
            await served.until(lambda: served.server.connections == 0)

    run(test)


def test_a_long_page_comes_whole_over_tls_also_to_a_reader_that_takes_its_time(authority: Authority) -> None:
    async def test() -> None:
        async with serving(endless(8_000_000), guard=guard_of(authority)) as served:
            client = await served.connect(tls=authority.client(), receive_buffer=65536)
            client.send(GET)
            await asyncio.sleep(0.05)
            assert (await client.answer()).body == bytes(8_000_000)
            assert (await client.get()).body == bytes(8_000_000)

    run(test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_spoken_and_http_1_1_is_agreed_on(version: ssl.TLSVersion, authority: Authority) -> None:
    context = authority.client()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])

    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            client = await served.connect(tls=context)
            assert (await client.get()).body == PAGE
            tls = client.writer.get_extra_info("ssl_object")
            assert tls.version() == version.name.replace("_", ".")
            assert tls.selected_alpn_protocol() == "http/1.1"

    run(test)


def test_older_tls_is_not_spoken_whatever_the_file_says(authority: Authority) -> None:
    context = authority.client()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1

    async def test() -> None:
        async with serving(guard=guard_of(authority, f"{TLS}  min_version: TLS10\n")) as served:
            with pytest.raises(ssl.SSLError):
                await served.connect(tls=context)

    run(test)


def test_suites_and_curves_are_those_of_the_file(authority: Authority) -> None:
    text = f"""{TLS}
  max_version: TLS12
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384]
  curve_preferences: [CurveP384]
"""

    async def test() -> None:
        async with serving(guard=guard_of(authority, text)) as served:
            client = await served.connect(tls=authority.client())
            assert client.writer.get_extra_info("cipher")[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
            other = authority.client()
            other.set_ecdh_curve("prime256v1")
            with pytest.raises(ssl.SSLError):
                await served.connect(tls=other)
            other = authority.client()
            other.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
            with pytest.raises(ssl.SSLError):
                await served.connect(tls=other)

    run(test)


SANS = {
    "dns": ("DNS:scraper.example", "scraper.example"),
    "email": ("email:scraper@example.org", "scraper@example.org"),
    "ip": ("IP:192.0.2.7", "192.0.2.7"),
    "ipv6": ("IP:2001:db8::7", "2001:db8::7"),
    "uri": ("URI:spiffe://example.org/scraper", "spiffe://example.org/scraper"),
}


@pytest.mark.parametrize(("san", "allowed"), SANS.values(), ids=SANS.keys())
def test_only_clients_with_an_allowed_name_are_served(
    san: str, allowed: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    authority.signed("allowed", f"DNS:other.example,{san}")
    authority.signed("stranger", "DNS:scraper.example.evil.test,URI:spiffe://example.org/scraper/x,IP:192.0.2.8")
    text = f"{CLIENTS}  client_allowed_sans: [no.example, '{allowed}']\n"

    async def test() -> None:
        async with serving(guard=guard_of(authority, text)) as served:
            client = await served.connect(tls=authority.client("allowed"))
            assert (await client.get()).body == PAGE
            assert served.server.counts.denied == 0
            stranger = await served.connect(tls=authority.client("stranger"))
            stranger.send(GET)
            assert await stranger.ended() == b""
            assert served.server.counts.denied == 1
        lines = debug_lines(caplog)
        assert len(lines) == 1
        assert "its certificate does not do: none of its names is allowed: scraper.example.evil.test" in lines[0]

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


async def refused(served: Served, context: ssl.SSLContext) -> bool:
    """Whether the client gets nothing: in TLS 1.3 it hears after its own handshake that it is not let in."""
    try:
        client = await served.connect(tls=context)
        client.send(GET)
        async with asyncio.timeout(PATIENCE):
            return await client.reader.read(-1) == b""
    except (ssl.SSLError, ConnectionError):
        return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_without_a_certificate_of_the_authority_are_denied_and_counted(
    version: ssl.TLSVersion, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority.signed("client", "DNS:scraper.example")
    foreign = Authority(tmp_path)
    foreign.signed("client", "DNS:scraper.example")
    with_foreign = authority.client()
    with_foreign.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")
    of_the_authority = authority.client("client")

    async def test() -> None:
        async with serving(guard=guard_of(authority, CLIENTS)) as served:
            contexts = [authority.client(), with_foreign]
            for context in (*contexts, of_the_authority):
                context.minimum_version = context.maximum_version = version
            assert [await refused(served, context) for context in contexts] == [True, True]
            await served.until(lambda: served.server.counts.denied == 2)
            client = await served.connect(tls=of_the_authority)
            assert (await client.get()).body == PAGE
            assert len(debug_lines(caplog)) == 2

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)


def test_a_certificate_may_be_left_out_where_only_given_ones_are_verified(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path)
    foreign.signed("client", "DNS:scraper.example")
    with_foreign = authority.client()
    with_foreign.load_cert_chain(tmp_path / "client.pem", tmp_path / "client.key")

    async def test() -> None:
        text = CLIENTS.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven")
        async with serving(guard=guard_of(authority, text)) as served:
            assert (await (await served.connect(tls=authority.client())).get()).body == PAGE
            assert await refused(served, with_foreign)

    run(test)


def test_a_session_that_is_taken_up_again_is_no_way_round_the_allowed_names(authority: Authority) -> None:
    authority.signed("allowed", "DNS:scraper.example")
    authority.signed("stranger", "DNS:other.example")
    context = authority.client("stranger")
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def ask(served: Served, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None, bool | None]:
        plain = socket.create_connection(("127.0.0.1", port_of(served.server.addresses[0])), PATIENCE)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as client:
            try:
                client.sendall(GET)
                return client.recv(100), client.session, client.session_reused
            except ConnectionError:
                return b"", client.session, client.session_reused

    async def test() -> None:
        text = f"{CLIENTS}  client_allowed_sans: [scraper.example]\n"
        async with serving(guard=guard_of(authority, text)) as served:
            said, session, _ = await asyncio.to_thread(ask, served, None)
            assert said == b""
            said, _, reused = await asyncio.to_thread(ask, served, session)
            assert (said, reused) == (b"", True)
            assert served.server.counts.denied == 2

    run(test)


def test_sessions_of_clients_that_cannot_keep_them_do_not_pile_up(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "exporter")
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET

    now = 0.0
    guard = Guard.load(write(authority.directory / "web.yml", TLS), clock=lambda: now)

    async def test() -> None:
        nonlocal now
        async with serving(guard=guard) as served:
            for _ in range(260):
                client = await served.connect(tls=context)
                client.send(b"GET /-/healthy HTTP/1.0\r\n\r\n")
                assert (await client.ended()).endswith(b"healthy\n")
                client.writer.close()
            kept = guard.encryption()
            assert kept is not None
            assert kept.context.session_stats()["number"] > 250
            now = 2.0
            assert (await (await served.connect(tls=context)).get()).body == PAGE
            made_anew = guard.encryption()
            assert made_anew is not None
            assert made_anew.context.session_stats()["number"] < 10

    run(test)
    assert "read again" not in caplog.text, "clients would fill the log"


@pytest.mark.parametrize(
    ("http", "said"),
    [("", False), ("http_server_config: {http2: false}\n", False), ("http_server_config: {http2: true}\n", True)],
)
def test_that_http_2_is_not_served_is_told_to_who_wants_it(
    http: str, said: bool, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "exporter")
    guard_of(authority, TLS + http)
    assert ("http_server_config.http2: HTTP/1.1 is served" in caplog.text) is said


@pytest.mark.parametrize(
    ("version", "command"), [("-tls1_2", b"R\n"), ("-tls1_3", b"K\n" * 20)], ids=["negotiation", "keys"]
)
def test_a_peer_that_wants_keys_anew_again_and_again_is_served_or_dropped(
    version: str, command: bytes, authority: Authority
) -> None:
    def attack(served: Served) -> bytes:
        where = f"127.0.0.1:{port_of(served.server.addresses[0])}"
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", where, version, "-CAfile", str(authority.ca)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert client.stdin is not None
        try:
            for line in (*command.splitlines(keepends=True), b"GET / HTTP/1.0\r\n\r\n"):
                time.sleep(0.05)  # it takes a command for one only at the beginning of what it reads
                client.stdin.write(line)
                client.stdin.flush()
            client.wait(PATIENCE)  # the server hangs up; at the end of its input the client would, and not wait
        except BrokenPipeError:
            pass
        return client.communicate(timeout=PATIENCE)[0]

    async def test() -> None:
        async with serving(guard=guard_of(authority)) as served:
            said = await asyncio.to_thread(attack, served)
            if version == "-tls1_3":
                assert b"<title>gpu-exporter" in said
                assert said.count(b"KEYUPDATE") == 20
            else:
                assert b"no renegotiation" in said
            assert (await (await served.connect(tls=authority.client())).get()).body == PAGE

    run(test)


def test_a_client_that_resets_in_the_middle_of_a_body_over_tls_costs_one_debug_line(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    def leave(served: Served) -> None:
        with shaken_hands(served, authority.client()) as client:
            client.send(GET)
            client.recv(100)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def test() -> None:
        async with serving(endless(30_000_000), guard=guard_of(authority)) as served:
            await asyncio.to_thread(leave, served)
            await served.until(lambda: served.server.connections == 0)
        lines = debug_lines(caplog)
        assert len(lines) == 1
        assert lines[0].endswith("left before the response was complete")

    caplog.set_level(logging.DEBUG, "exporter.web.connection")
    run(test)
