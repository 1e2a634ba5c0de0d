"""Daemons over the C stand-in for NVML, and the scraper that asks them and their peers."""

import contextlib
import gzip
import json
import re
import socket
import tempfile
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.benchmarks.figures import processor_seconds, pss_mebibytes
from tests.benchmarks.suite.environments import runtime
from tests.integration.daemon import Daemon, running
from tests.native.plan import standin_environment, write_plan

TEXT, OPENMETRICS = "text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"
TRAINING: Mapping[str, Any] = {"pattern": "training", "stagger_seconds": 0.05}
IDLE: Mapping[str, Any] = {"pattern": "idle"}
FULL_SECONDS = 30.0
_EVERYTHING = (b"\ngpu_energy_joules_total{", b"\ngpu_utilization_ratio{", b"\ngpu_pcie_link_width{")
"""One series a GPU of each group that is read often."""


class Page(NamedTuple):
    seconds: float
    """From the request to the last byte, with the connection where there is none yet."""
    body: bytes
    """As it came."""


class Scraper:
    """One client, on a connection that it keeps for as long as the server does, as Prometheus."""

    def __init__(self, url: str, accept: str = TEXT, *, compressed: bool = True) -> None:
        where = urllib.parse.urlsplit(url)
        assert where.hostname is not None
        assert where.port is not None
        self._address = (where.hostname, where.port)
        encoding = "gzip" if compressed else "identity"
        self._request = (
            f"GET {where.path or '/metrics'} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"Accept: {accept}\r\nAccept-Encoding: {encoding}\r\n\r\n"
        ).encode()
        self._socket: socket.socket | None = None
        self._stream: BinaryIO | None = None

    def scrape(self) -> Page:
        began = time.perf_counter()
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=10)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self._socket.makefile("rb")
        assert self._stream is not None
        kept = False
        try:
            self._socket.sendall(self._request)
            body, kept = _response(self._stream)
        finally:
            if not kept:
                self.close()
        return Page(time.perf_counter() - began, body)

    def close(self) -> None:
        if self._stream is not None and self._socket is not None:
            self._stream.close()
            self._socket.close()
        self._socket = self._stream = None


def _response(stream: BinaryIO) -> tuple[bytes, bool]:
    """Return the body, and whether the connection stays."""
    status = stream.readline().split()
    if len(status) < 2 or status[1] != b"200":
        raise ConnectionError(f"answered {status}")
    headers = {}
    while (line := stream.readline()) not in (b"\r\n", b""):
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip().lower()
    kept = status[0] != b"HTTP/1.0" and headers.get(b"connection") != b"close"
    if headers.get(b"transfer-encoding") == b"chunked":
        pieces = []
        while size := int(stream.readline(), 16):
            pieces.append(stream.read(size))
            stream.readline()
        stream.readline()
        return b"".join(pieces), kept
    if b"content-length" in headers:
        return stream.read(int(headers[b"content-length"])), kept
    return stream.read(), False


def plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


def series(page: bytes) -> int:
    return len(re.findall(rb"^[^#\n]", page, re.MULTILINE))


def scenario(
    count: int,
    model: str = "H100-SXM",
    load: Mapping[str, Any] = TRAINING,
    processes: Sequence[Sequence[Mapping[str, Any]]] = (),
) -> str:
    """Return a scenario of so many GPUs. `processes`: of each GPU; none: nobody uses them."""
    device = {"model": model, "load": dict(load)}
    if not processes:
        return json.dumps({"devices": [{**device, "count": count}]})  # JSON is YAML
    return json.dumps({"devices": [{**device, "processes": list(map(dict, each))} for each in processes]})


def devices(text: str) -> int:
    """Return how many a scenario has."""
    return len(Machine(load_scenario(text), 0.0).devices)


def plan_of(text: str, folder: Path) -> dict[str, str]:
    """Write the plan of a scenario, and return the environment in which a process loads the stand-in over it."""
    plan = folder / "plan"
    write_plan(plan, Machine(load_scenario(text), time.monotonic() - 1000))
    return standin_environment(plan)


@contextlib.contextmanager
def exporter(
    text: str, config: Mapping[str, Any] | None = None, *options: str, provider: str = "nvidia"
) -> Iterator[Daemon]:
    """Run the daemon over the stand-in for NVML, or over simulated GPUs, until its page is full."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(json.dumps(config or {}))
        if provider == "nvidia":
            environment, chosen = plan_of(text, folder), ["--provider=nvidia"]
        else:
            (folder / "scenario.yaml").write_text(text)
            environment, chosen = {}, [f"--simulate={folder / 'scenario.yaml'}"]
        arguments = [f"--config.file={folder / 'config.yaml'}", *chosen, *options]
        environment.update(RUNTIME_DIRECTORY="", STATE_DIRECTORY="")
        python, more = runtime()
        environment.update(more)
        with running(*arguments, log=folder / "log", env=environment, python=python, ready=False) as daemon:
            until_full(daemon, devices(text))
            daemon.until(daemon.agents)
            yield daemon


def until_full(daemon: Daemon, count: int) -> float:
    """Return the seconds from the start of the daemon to its first page with all readings of so many GPUs."""
    with contextlib.closing(Scraper(daemon.url, compressed=False)) as scraper:
        while time.monotonic() - daemon.started < FULL_SECONDS:
            page = scraper.scrape().body
            if all(page.count(name) >= count for name in _EVERYTHING):
                return time.monotonic() - daemon.started
            time.sleep(0.005)
    raise AssertionError(f"no full page within {FULL_SECONDS} s; the log says:\n{daemon.log}")


class Used(NamedTuple):
    """Of the processes of one exporter together."""

    processor: float
    """Share of one core."""
    mebibytes: float


class Meter:
    """What processes use from its making to `read`; what one that ends used since it was looked at is not known."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._used = dict.fromkeys(pids, 0.0)
        self._began, self._before = time.monotonic(), self.seconds()

    def seconds(self) -> float:
        for pid in self._used:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self._used[pid] = processor_seconds(pid)
        return sum(self._used.values())

    def read(self) -> Used:
        share = (self.seconds() - self._before) / (time.monotonic() - self._began)
        mebibytes = 0.0
        for pid in self._used:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                mebibytes += pss_mebibytes(pid)
        return Used(share, mebibytes)


def all_pids(daemon: Daemon) -> list[int]:
    return [daemon.process.pid, *daemon.children(), *daemon.agents()]
