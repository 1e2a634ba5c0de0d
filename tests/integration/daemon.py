"""The daemon as an operator has it: a process that is started, scraped, read in its log, and stopped."""

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from tests.tools import end

ROOT = Path(__file__).parents[2]
START_SECONDS = 20.0
"""Generous: on a busy machine a start is slow without being wrong."""
_AGENT = b"exporter.attribution.agent"

T = TypeVar("T")


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes
    seconds: float


class Samples:
    """The series of one page."""

    def __init__(self, page: str) -> None:
        self.page = page
        self.series: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                self.series.setdefault(sample.name, []).append((sample.labels, sample.value))

    def __contains__(self, name: str) -> bool:
        return name in self.series

    def all(self, name: str, /, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Series of the name that have these labels."""
        return [(found, v) for found, v in self.series.get(name, []) if labels.items() <= found.items()]

    def value(self, name: str, /, **labels: str) -> float:
        """The value of the one series with these labels."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{len(found)} series of {name} {labels}: {found}"
        return found[0][1]

    def get(self, name: str, /, **labels: str) -> float | None:
        """The value of the one series with these labels, or None."""
        return self.value(name, **labels) if self.all(name, **labels) else None

    def labels(self, name: str, /, **labels: str) -> dict[str, str]:
        """All labels of the one series with these labels."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{len(found)} series of {name} {labels}: {found}"
        return found[0][0]


class Daemon:
    """Made by `running`."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, tls: ssl.SSLContext | None = None) -> None:
        self.process = process
        self.tls = tls
        self.started = time.monotonic()
        self._log = log
        self.url = ""
        """Without a path: http://127.0.0.1:PORT, or https://localhost:PORT with TLS."""

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def children(self) -> list[int]:
        """Process ids of the workers."""
        return [pid for pid, command in self._all_children() if _AGENT not in command]

    def agents(self) -> list[int]:
        """Process ids of those that look up who uses the GPUs: one, or none."""
        return [pid for pid, command in self._all_children() if _AGENT in command]

    def _all_children(self) -> list[tuple[int, bytes]]:
        """Pids and command lines of those that live: one that was killed waits for up to a second to be reaped."""
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found = [(int(pid), _command(pid)) for pid in listed.read_text().split()]
        return [(pid, command) for pid, command in found if command]

    def get(self, path: str = "/metrics", headers: Mapping[str, str] | None = None, timeout: float = 10.0) -> Reply:
        request = urllib.request.Request(self.url + path, headers=dict(headers or {}))  # noqa: S310 -- http, to ourselves
        start = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=timeout, context=self.tls) as response:  # noqa: S310 -- as above
                status, got, body = response.status, response.headers, response.read()
        except urllib.error.HTTPError as e:
            with e:
                status, got, body = e.code, e.headers, e.read()
        seconds = time.monotonic() - start
        return Reply(status, {name.lower(): value for name, value in got.items()}, body, seconds)

    def scrape(self, path: str = "/metrics", timeout: float = 10.0) -> Samples:
        reply = self.get(path, timeout=timeout)
        assert reply.status == 200, reply
        return Samples(reply.body.decode())

    def scrape_until(self, wanted: Callable[[Samples], bool], seconds: float = START_SECONDS) -> Samples:
        """Scrape until the page is as wanted; fails after so many seconds, with the log."""

        def scraped() -> Samples | None:
            samples = self.scrape()
            return samples if wanted(samples) else None

        return self.until(scraped, seconds)

    def until(self, look: Callable[[], T | None], seconds: float = START_SECONDS) -> T:
        """Return what `look` gives once it is no longer None or False; fails after so many seconds, with the log."""
        deadline = time.monotonic() + seconds
        while True:
            found = look()
            if found:
                return found
            assert time.monotonic() < deadline, f"not within {seconds} s; the log says:\n{self.log}"
            time.sleep(0.05)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 10.0) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def running(
    *arguments: str,
    log: Path,
    env: Mapping[str, str] | None = None,
    python: str = sys.executable,
    module: str = "exporter",
    ready: bool = True,
    tls: ssl.SSLContext | None = None,
) -> Iterator[Daemon]:
    """Start `gpu-exporter serve` with these arguments on a port that the kernel chooses, and stop it at the end.

    `log`: file for its standard output and error. `env`: added to the environment. `python`: the interpreter, for
    environments with other packages. `module`: what is run in place of the command. `ready`: wait until /-/ready says
    so, else only until it listens. `tls`: what it is asked with, where it serves HTTPS.
    """
    command = [python, "-m", module, "serve", "--web.listen-address=127.0.0.1:0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=log.parent, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    daemon = Daemon(process, log, tls)
    try:
        daemon.url = daemon.until(lambda: address(daemon))
        if ready:
            daemon.until(lambda: daemon.get("/-/ready").status == 200)
        yield daemon
    finally:
        _end(daemon)


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return b""


def address(daemon: Daemon) -> str | None:
    """Return where it serves, as its log says, or None as long as it does not. Fails when it has ended."""
    assert daemon.process.poll() is None, f"it ended with {daemon.process.returncode}; the log says:\n{daemon.log}"
    found = re.search(r"(https?://)127\.0\.0\.1(:[0-9]+)/", daemon.log)
    # Certificates are made for names.
    return None if found is None else f"{found[1]}{'127.0.0.1' if daemon.tls is None else 'localhost'}{found[2]}"


def _end(daemon: Daemon) -> None:
    if daemon.process.poll() is None:
        daemon.process.send_signal(signal.SIGCONT)
    end(daemon.process)  # its workers die with it
