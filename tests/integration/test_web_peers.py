"""The daemon with many peers attached: what they cost, and how long others wait meanwhile."""

import socket
import ssl
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon
from tests.integration.web import GET
from tests.integration.web_files import Authority, write

pytestmark = pytest.mark.integration

IDLE = 50
SLOW = 200
WAVE = 20
"""Fewer than are served at the same time."""
SCRAPES = 100
MAX_MIB = 10.0
MAX_SECONDS = 0.1

HEALTHY = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"

Start = Callable[..., Daemon]


def pss_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def connected(daemon: Daemon, context: ssl.SSLContext, receive_buffer: int = 0) -> ssl.SSLSocket:
    plain = socket.socket()
    if receive_buffer:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.settimeout(10)
    plain.connect(("127.0.0.1", int(daemon.url.rpartition(":")[2])))
    return context.wrap_socket(plain, server_hostname="localhost")


def peeked(peer: ssl.SSLSocket) -> bytes | None:
    """What lies in the kernel, unread; None: nothing yet. Raises ConnectionError when the peer has hung up."""
    peer.setblocking(False)
    try:
        return socket.socket.recv(peer, 1, socket.MSG_PEEK)
    except BlockingIOError:
        return None


def is_attached(peer: ssl.SSLSocket) -> bool:
    try:
        return peeked(peer) != b""
    except ConnectionError:
        return False


def has_unread(peer: ssl.SSLSocket) -> bool:
    return peeked(peer) is not None


def seconds_of_scrapes(daemon: Daemon, count: int) -> list[float]:
    took = []
    for _ in range(count):
        reply = daemon.get()
        assert reply.status == 200
        took.append(reply.seconds)
    return sorted(took)


def test_50_idle_tls_peers_and_200_slow_readers_cost_less_than_10_mib_and_slow_no_scrape(
    start_daemon: Start, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    config = write(tmp_path / "web.yml", "tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    context = authority.client()
    daemon = start_daemon("--provider=simulated", f"--web.config.file={config}", tls=context)
    alone = seconds_of_scrapes(daemon, SCRAPES)
    with ThreadPoolExecutor(8) as pool:  # what scrapes at the same time cost, they cost once
        assert {reply.status for reply in pool.map(lambda _: daemon.get(), range(200))} == {200}
    before = pss_mib(daemon.process.pid)
    peers: list[ssl.SSLSocket] = []
    try:
        for number in range(IDLE + SLOW):
            peers.append(connected(daemon, context, 4096 if number < SLOW else 0))
            peers[-1].sendall(HEALTHY)
            assert peers[-1].recv(1000).startswith(b"HTTP/1.1 200 OK")
        for number in range(0, SLOW, WAVE):
            for peer in peers[number : number + WAVE]:
                peer.sendall(GET * 12)  # the kernel's buffers hold half of these pages
            daemon.until(lambda: daemon.get().status == 200)
        beside = seconds_of_scrapes(daemon, SCRAPES)
        attached = pss_mib(daemon.process.pid)
        assert [is_attached(peer) for peer in peers] == [True] * (IDLE + SLOW)
        assert sum(map(has_unread, peers)) == SLOW
    finally:
        for peer in peers:
            peer.close()
    p99, p99_alone = (took[int(len(took) * 0.99) - 1] for took in (beside, alone))
    print(
        f"{IDLE} idle TLS peers and {SLOW} slow readers: {attached - before:.1f} MiB; scrapes p50 "
        f"{statistics.median(beside) * 1e3:.1f} ms (alone {statistics.median(alone) * 1e3:.1f}), p99 {p99 * 1e3:.1f} ms"
    )
    assert p99 < max(MAX_SECONDS, 3 * p99_alone)  # a machine that is busy with others makes every scrape slow
    assert attached - before < MAX_MIB
