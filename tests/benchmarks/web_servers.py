"""What each HTTP server that we could use costs, and how it takes peers that are slow or silent.

    python -m tests.benchmarks.web_servers

Needs uvicorn and granian beside the project, and the openssl command. Takes about a minute; loopback only. Each server
runs in a process of its own and serves the same page of 100 kB, made by a coroutine of the process' event loop, as the
daemon's is. The servers take turns, so that the load of the machine is the same for all.
"""

import contextlib
import functools
import importlib.metadata
import itertools
import select
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.benchmarks.web_candidates import MAX_REQUESTS, PAGE

SCRAPES = 300


ROUND = 10


PEERS = 20


PATIENCE = 15.0
"""Seconds after which a server is taken to keep silent peers for good."""


REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n"


SERVERS = ("threads", "asyncio+h11", "uvicorn", "granian")


class Process:
    """One server in a process of its own."""

    def __init__(self, name: str, certificate: Path | None = None) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.web_candidates", name]
        if certificate is not None:
            command.append(str(certificate))
        self._child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if self._child.stdout is None:
            raise AssertionError("stdout is a pipe")
        self.port = int(self._child.stdout.readline() or -1)
        self.tls: ssl.SSLContext | None = None
        if certificate is not None:
            self.tls = ssl.create_default_context(cafile=str(certificate))
        deadline = time.monotonic() + 10
        while self.port > 0:
            try:
                self.connect().close()
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                break
        time.sleep(0.5)

    def connect(self, *, secure: bool = False, receive_buffer: int = 0) -> socket.socket:
        plain = socket.socket()
        plain.settimeout(PATIENCE)
        if receive_buffer:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        plain.connect(("127.0.0.1", self.port))
        if secure and self.tls is not None:
            return self.tls.wrap_socket(plain, server_hostname="localhost")
        return plain

    @property
    def pss_mib(self) -> float:
        text = Path(f"/proc/{self._child.pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024

    @property
    def sockets(self) -> int:
        links = list(Path(f"/proc/{self._child.pid}/fd").iterdir())
        return sum(str(link.readlink()).startswith("socket:") for link in links)

    @property
    def threads(self) -> int:
        return len(list(Path(f"/proc/{self._child.pid}/task").iterdir()))

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def scrape(connection: socket.socket) -> float:
    """Milliseconds from the request to the last byte of the page."""
    began = time.perf_counter()
    connection.sendall(REQUEST)
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0 or len(received) < end + 4 + len(PAGE):
        got = connection.recv(1 << 20)
        if not got:
            raise ConnectionError(f"hung up after {received[:80]!r}")
        received += got
    if not received.endswith(PAGE):
        raise AssertionError("another page")
    return (time.perf_counter() - began) * 1e3


def fresh_scrape(server: Process) -> float:
    began = time.perf_counter()
    with server.connect(secure=True) as connection:
        scrape(connection)
    return (time.perf_counter() - began) * 1e3


def told(times: list[float]) -> str:
    ordered = sorted(times)
    return f"{statistics.median(ordered):.2f} / {ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]:.2f}"


def attempts(measures: Sequence[Callable[[], float]], count: int = 60) -> list[str]:
    """For each, median and worst in milliseconds, or why there is none. They take turns."""
    times: list[list[float]] = [[] for _ in measures]
    failed: dict[int, str] = {}
    for _ in range(count // ROUND):
        for number, measure in enumerate(measures):
            try:
                times[number] += [measure() for _ in range(ROUND) if number not in failed]
            except OSError as error:
                failed[number] = f"none ({type(error).__name__})"
    return [failed.get(n) or f"{statistics.median(each):.2f} / {max(each):.2f}" for n, each in enumerate(times)]


def worst(servers: dict[str, Process], count: int = 60) -> list[str]:
    return attempts([functools.partial(fresh_scrape, server) for server in servers.values()], count)


def hung_up_after(groups: list[list[socket.socket]]) -> list[str]:
    """For each group, the seconds from here until the server has hung up on all of it."""
    began, poll = time.monotonic(), select.poll()
    left = {peer.fileno(): number for number, peers in enumerate(groups) for peer in peers}
    for number in left:
        poll.register(number, select.POLLRDHUP)
    after = ["kept"] * len(groups)
    while left and (wait := began + PATIENCE - time.monotonic()) > 0:
        for number, _ in poll.poll(wait * 1e3):
            poll.unregister(number)
            group = left.pop(number)
            if group not in left.values():
                after[group] = f"{time.monotonic() - began:.0f} s"
    return after


def let_go_after(servers: dict[str, Process], before: list[int]) -> list[str]:
    """Seconds from here until the server has as many sockets open as before: a peer that does not read is not told."""
    began, after = time.monotonic(), ["kept"] * len(before)
    while "kept" in after and time.monotonic() < began + PATIENCE:
        for number, server in enumerate(servers.values()):
            if after[number] == "kept" and server.sockets <= before[number]:
                after[number] = f"{time.monotonic() - began:.0f} s"
        time.sleep(0.2)
    return after


@contextlib.contextmanager
def processes(certificate: Path | None) -> Iterator[dict[str, Process]]:
    with contextlib.ExitStack() as stack:
        started: dict[str, Process] = {}
        for name in SERVERS:
            started[name] = Process(name, certificate)
            stack.callback(started[name].close)
        yield started


def added(before: list[float], servers: dict[str, Process]) -> list[str]:
    return [f"{server.pss_mib - was:.1f}" for server, was in zip(servers.values(), before, strict=True)]


def measure_plain(servers: dict[str, Process], rows: dict[str, list[str]]) -> None:
    for server in servers.values():
        fresh_scrape(server)
    # All at the same moment, so that each has the same share of the libraries that they have in common.
    bare_alone = Process("bare")
    base = bare_alone.pss_mib
    rows["a bare interpreter with asyncio, MiB PSS"] = [f"{base:.1f}"] * len(SERVERS)
    rows["the server adds, MiB PSS"] = added([base] * len(SERVERS), servers)
    bare_alone.close()
    kept = {name: server.connect() for name, server in servers.items()}
    times: dict[str, list[float]] = {name: [] for name in SERVERS}
    fresh: dict[str, list[float]] = {name: [] for name in SERVERS}
    for _ in range(SCRAPES // ROUND):
        for name, server in servers.items():
            times[name] += [scrape(kept[name]) for _ in range(ROUND)]
            fresh[name] += [fresh_scrape(server) for _ in range(ROUND)]
    rows["scrape, kept connection, ms p50 / p99"] = [told(each) for each in times.values()]
    rows["scrape, new connection, ms p50 / p99"] = [told(each) for each in fresh.values()]
    rows["the same after that, MiB PSS above the start"] = added(
        [base + float(each) for each in rows["the server adds, MiB PSS"]], servers
    )
    for connection in kept.values():
        connection.close()


def measure_peers(servers: dict[str, Process], rows: dict[str, list[str]]) -> None:
    before = [server.pss_mib for server in servers.values()]
    idle = [[server.connect() for _ in range(PEERS)] for server in servers.values()]
    rows["with 20 idle peers, ms p50 / worst"] = worst(servers)
    rows["20 idle peers add, MiB PSS"] = added(before, servers)
    rows["threads then"] = [str(server.threads) for server in servers.values()]
    more = [[server.connect() for _ in range(2 * PEERS)] for server in servers.values()]
    title = f"with {3 * PEERS} idle peers and {MAX_REQUESTS} requests allowed, ms p50 / worst"
    rows[title] = worst(servers, ROUND)
    hang_up([*idle, *more])

    silent = [[server.connect() for _ in range(PEERS)] for server in servers.values()]
    halves = [[server.connect() for _ in range(PEERS)] for server in servers.values()]
    for peer in itertools.chain(*halves):
        peer.sendall(REQUEST[:20])
    after = hung_up_after([*silent, *halves])
    rows["silent peers are hung up on after"] = after[: len(SERVERS)]
    rows["peers with half a head are hung up on after"] = after[len(SERVERS) :]
    hang_up([*silent, *halves])

    sockets = [server.sockets for server in servers.values()]
    slow, title = [], "with 20 peers that do not read, ms p50 / worst"
    rows[title] = []
    for server in servers.values():
        slow.append([server.connect(receive_buffer=4096) for _ in range(PEERS)])
        for peer in slow[-1]:
            peer.sendall(REQUEST * 50)
        rows[title] += attempts([functools.partial(fresh_scrape, server)])
    rows["they add, MiB PSS"] = added(before, servers)
    rows["they are let go of after"] = let_go_after(servers, sockets)
    hang_up(slow)


def measure_tls(servers: dict[str, Process], rows: dict[str, list[str]]) -> None:
    rows["TLS: scrape, new connection, ms p50 / worst"] = worst(servers)
    before = [server.pss_mib for server in servers.values()]
    kept = [server.connect(secure=True) for server in servers.values()]
    half_open = [[server.connect() for _ in range(PEERS)] for server in servers.values()]
    rows["TLS: with 20 half-open peers, kept connection, ms p50 / worst"] = attempts(
        [functools.partial(scrape, connection) for connection in kept]
    )
    rows["TLS: with 20 half-open peers, new connection, ms p50 / worst"] = worst(servers)
    rows["TLS: they add, MiB PSS"] = added(before, servers)
    rows["TLS: they are hung up on after"] = hung_up_after(half_open)
    hang_up([kept, *half_open])


def hang_up(groups: list[list[socket.socket]]) -> None:
    for peer in itertools.chain(*groups):
        peer.close()
    time.sleep(0.5)


def make_certificate(directory: Path) -> Path:
    certificate = directory / "server.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", "server.key"]
    command = ["openssl", "req", "-x509", *key, "-out", certificate.name, *subject]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return certificate


def versions() -> list[str]:
    names = {"threads": None, "asyncio+h11": "h11", "uvicorn": "uvicorn", "granian": "granian"}
    python = f"Python {sys.version.split()[0]}"
    return [python if name is None else f"{name} {importlib.metadata.version(name)}" for name in names.values()]


def main() -> None:
    rows: dict[str, list[str]] = {"version": versions()}
    with processes(None) as servers:
        measure_plain(servers, rows)
        measure_peers(servers, rows)
    with tempfile.TemporaryDirectory() as directory, processes(make_certificate(Path(directory))) as servers:
        measure_tls(servers, rows)
    print("| |", " | ".join(SERVERS), "|")
    print("| --- |", " | ".join("---" for _ in SERVERS), "|")
    for title, values in rows.items():
        print("|", title, "|", " | ".join(values), "|")


if __name__ == "__main__":
    main()
