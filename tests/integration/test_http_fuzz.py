"""The daemon under requests that nobody should send: it stays up, holds no more than before, and answers others.

HTTP_FUZZ_SECONDS says for how long, HTTP_FUZZ_SEED with which requests; both are shown at the end.
"""

import base64
import contextlib
import http.client
import math
import os
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.integration.daemon import Daemon
from tests.integration.requests import Nonsense
from tests.integration.web_files import HASH, PASSWORD, Authority, write

SECONDS = float(os.environ.get("HTTP_FUZZ_SECONDS", "8"))
"""Of each of the two daemons."""
SEED = int(os.environ.get("HTTP_FUZZ_SEED", "0")) or time.time_ns() % 1_000_000
SENDERS = 3
OTHERS_SECONDS = 0.1
LATE_SHARE = 0.02
"""Of the answers to others: what else runs on the machine delays them as well."""
WARM_REQUESTS = 80
PSS_GROWTH = 6 << 20
LOGIN = {"Authorization": "Basic " + base64.b64encode(b"alice:" + PASSWORD).decode()}
PEER = re.compile(r"127\.0\.0\.1:\d+")
LEVEL = re.compile(r"level=(\w+)")

Start = Callable[..., Daemon]


class Usage(NamedTuple):
    descriptors: int
    threads: int
    children: int
    pss: int


def usage(daemon: Daemon) -> Usage:
    process = Path(f"/proc/{daemon.process.pid}")
    found = re.findall(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
    return Usage(
        len(list((process / "fd").iterdir())),
        len(list((process / "task").iterdir())),
        len(daemon.children()),
        int(found[0]) * 1024,
    )


class Sender(threading.Thread):
    """Sends one nonsense after the other, each over a connection of its own."""

    def __init__(self, port: int, seed: int, until: float, context: ssl.SSLContext | None, most: float) -> None:
        super().__init__()
        self.sent = 0
        self.answered: Counter[bytes] = Counter()
        self.names: Counter[str] = Counter()
        """Of the connections, as the log has them; the kernel gives ports again."""
        self._nonsense = Nonsense(Random(seed))
        self._port = port
        self._until = until
        self._context = context
        self._most = most

    def run(self) -> None:
        while time.monotonic() < self._until and self.sent < self._most:
            self.sent += 1
            # What breaks off is what was asked for; what the daemon makes of it is looked at from outside.
            try:
                self._one()
            except (OSError, ValueError):
                self.answered[b"broke off"] += 1

    def _one(self) -> None:
        random = self._nonsense.random
        with socket.create_connection(("127.0.0.1", self._port), timeout=2) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.names[f"127.0.0.1:{plain.getsockname()[1]}"] += 1
            secured = self._context is not None and random.random() < 0.6
            if not secured:
                self._talk(plain, raw=self._context is not None)
                return
            assert self._context is not None
            with self._context.wrap_socket(plain, server_hostname="localhost") as peer:
                self._talk(peer, raw=False)
                if random.random() < 0.2:  # bytes that are no TLS, in the middle of it
                    socket.socket.send(peer, self._nonsense.record())

    def _talk(self, peer: socket.socket, *, raw: bool) -> None:
        random = self._nonsense.random
        pieces = self._nonsense.records() if raw else self._nonsense.pieces()
        for piece in pieces:
            peer.sendall(piece)
            if random.random() < 0.02:
                time.sleep(0.02)
        if random.random() < 0.3:  # gone without a word
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            return
        if random.random() < 0.5 and not isinstance(peer, ssl.SSLSocket):
            peer.shutdown(socket.SHUT_WR)
        peer.settimeout(0.15)
        answer = peer.recv(64)
        self.answered[answer[:12] if answer.startswith(b"HTTP/") else b"nothing" if not answer else b"no HTTP"] += 1


class Other(threading.Thread):
    """Asks what it may, all the time, and notes how long that takes."""

    def __init__(self, port: int, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self.took: list[float] = []
        self.statuses: set[int] = set()
        self._port = port
        self._context = context
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.is_set():
            # Some over one connection, then over a new one.
            with contextlib.closing(self._connection()) as connection:
                for _ in range(20):
                    began = time.monotonic()
                    connection.request("GET", "/-/healthy", headers=LOGIN)
                    reply = connection.getresponse()
                    reply.read()
                    self.took.append(time.monotonic() - began)
                    self.statuses.add(reply.status)
                    if self._over.wait(0.05):
                        return

    def _connection(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        return http.client.HTTPSConnection("localhost", self._port, timeout=10, context=self._context)

    def end(self) -> None:
        self._over.set()
        self.join()


def bombard(daemon: Daemon, seconds: float, most: float = math.inf) -> list[Sender]:
    port = int(daemon.url.rpartition(":")[2])
    until = time.monotonic() + seconds
    senders = [Sender(port, SEED + number, until, daemon.tls, most) for number in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return senders


@pytest.fixture(params=["HTTP", "HTTPS with login"])
def daemon(request: pytest.FixtureRequest, start_daemon: Start, tmp_path: Path) -> Iterator[Daemon]:
    if request.param == "HTTP":
        yield start_daemon("--provider=simulated", "--log.level=debug")
        return
    authority = Authority(tmp_path)
    text = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
    config = write(tmp_path / "web.yml", f"{text}basic_auth_users: {{alice: '{HASH}'}}\n")
    yield start_daemon(
        *("--provider=simulated", "--log.level=debug", f"--web.config.file={config}"),
        tls=authority.client(),
        ready=False,
    )


def settled(daemon: Daemon, before: Usage) -> Usage:
    """Return what the daemon holds once it has seen off everybody, or after some seconds."""
    end = time.monotonic() + 15
    while (now := usage(daemon)).descriptors > before.descriptors and time.monotonic() < end:
        time.sleep(0.1)
    return now


def test_nonsense_takes_nothing_down_and_leaves_nothing_behind(
    daemon: Daemon, request: pytest.FixtureRequest, record_property: Callable[[str, str], None]
) -> None:
    idle = usage(daemon)
    bombard(daemon, 30, WARM_REQUESTS)
    before = settled(daemon, idle)
    log_began = len(daemon.log)
    other = Other(int(daemon.url.rpartition(":")[2]), daemon.tls)
    other.start()
    senders = bombard(daemon, SECONDS)
    other.end()
    after = settled(daemon, before)
    sent = sum(sender.sent for sender in senders)
    took = sorted(other.took)
    late = sum(seconds > OTHERS_SECONDS for seconds in took)
    lines = daemon.log[log_began:].splitlines()
    answers: Counter[bytes] = sum((sender.answered for sender in senders), Counter())
    names: Counter[str] = sum((sender.names for sender in senders), Counter())
    record_property(
        "table",
        f"{request.node.callspec.id}: {sent} in {SECONDS:g} s, seed {SEED}; {len(lines)} lines of the log\n"
        f"answers: {', '.join(f'{count} {what.decode()}' for what, count in answers.most_common())}\n"
        f"others: {len(took)}, median {took[len(took) // 2] * 1e3:.1f} ms, worst {took[-1] * 1e3:.0f} ms, {late} late\n"
        f"before {before}\nafter  {after}",
    )
    assert daemon.process.poll() is None
    assert other.statuses == {200}
    assert late <= 1 + LATE_SHARE * len(took)
    broken = [line for line in daemon.log.splitlines() if "Traceback" in line or "level=error" in line]
    assert broken == []
    assert {level for line in lines for level in LEVEL.findall(line[:80])} <= {"debug", "info"}
    assert [line for line in lines if "level=info" in line and "logger=exporter.web" in line] == []
    told_of: dict[str, list[str]] = {}
    for line in lines:
        if "logger=exporter.web" in line and (peer := PEER.search(line)):
            told_of.setdefault(peer[0], []).append(line[line.index("msg=") :][:200])
    assert [told for name, told in told_of.items() if len(told) > names[name]] == []
    assert after.descriptors <= before.descriptors
    assert after.threads <= before.threads
    assert after.children == before.children
    assert after.pss - before.pss < PSS_GROWTH
    assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"HEAD / HTTP/2.0\r\nHost: a\r\n\r\n", b"505"),
        (b"HEAD / HTTP/1.1\nHost: a\n" + b"a:b\n" * 3_500 + b"\n", b"431"),
    ],
    ids=["of a version that is not served", "with a large head"],
)
def test_a_head_request_that_is_refused_gets_its_status_and_no_body(
    head: bytes, status: bytes, start_daemon: Start
) -> None:
    daemon = start_daemon("--provider=simulated", "--log.level=debug", ready=False)
    with socket.create_connection(("127.0.0.1", int(daemon.url.rpartition(":")[2])), timeout=5) as peer:
        peer.sendall(head)
        answer = b""
        while piece := peer.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 " + status)
    assert answer.endswith(b"\r\n\r\n")
    assert "level=error" not in daemon.log
