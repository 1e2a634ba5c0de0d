"""What we are compared with: found or installed, started on loopback, and stopped."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.suite.environments import MissingError, made
from tests.benchmarks.suite.rig import Scraper, all_pids, exporter, plan_of
from tests.tools import end

OURS, NVITOP, NODE, STATIC = "gpu-exporter", "nvitop-exporter", "node_exporter, textfile", "nginx, static file"
NVITOP_RELEASE = "nvitop-exporter==1.7.2"
START_SECONDS = 20.0
TRIES = 5


class Peer(NamedTuple):
    name: str
    url: str
    """Of its page."""
    pids: list[int]
    settled: Callable[[], bool] = lambda: True
    """Whether it takes no more than it does for good."""


def nvitop() -> Path:
    """Return the command, from an environment of its own, which is made where it is missing. Raises MissingError."""
    return made("nvitop", [NVITOP_RELEASE]) / "nvitop-exporter"


def command(name: str, package: str) -> str:
    """Return the path of a command. Raises MissingError."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        raise MissingError(f"{name} is missing; install it with: apt-get install --no-install-recommends {package}")
    return found


@contextlib.contextmanager
def ours(text: str) -> Iterator[Peer]:
    """Our daemon over the stand-in, as it comes."""
    with exporter(text) as daemon:
        # The process that looks up who uses the GPUs leaves when nothing has changed for a while.
        yield Peer(OURS, f"{daemon.url}/metrics", all_pids(daemon), lambda: not daemon.agents())


@contextlib.contextmanager
def nvitop_exporter(text: str) -> Iterator[Peer]:
    program = nvitop()
    with tempfile.TemporaryDirectory() as name:
        environment = plan_of(text, Path(name))
        # A bystander's PYTHONPATH would give it our libraries.
        environment["PYTHONPATH"] = ""

        def arguments(port: int) -> list[str]:
            return [str(program), "--bind-address=127.0.0.1", f"--port={port}", "--interval=1.0"]

        with _started(NVITOP, arguments, "/metrics", Path(name), environment) as peer:
            yield peer


@contextlib.contextmanager
def node_exporter(page: bytes) -> Iterator[Peer]:
    """node_exporter with no collector but the one that serves this page."""
    program = command("prometheus-node-exporter", "prometheus-node-exporter")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "gpu.prom").write_bytes(page)

        def arguments(port: int) -> list[str]:
            only = ["--collector.disable-defaults", "--web.disable-exporter-metrics", "--collector.textfile"]
            where = [f"--collector.textfile.directory={name}", f"--web.listen-address=127.0.0.1:{port}"]
            return [program, *only, *where]

        with _started(NODE, arguments, "/metrics", Path(name)) as peer:
            yield peer


@contextlib.contextmanager
def nginx(page: bytes) -> Iterator[Peer]:
    """One worker of nginx that sends this page from a file, compressed once and for all."""
    program = command("nginx", "nginx-light")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "metrics").write_bytes(page)
        subprocess.run(["gzip", "--keep", "metrics"], cwd=folder, check=True, timeout=30)

        def arguments(port: int) -> list[str]:
            temporary = "".join(
                f"{kind}_temp_path {folder}/temporary;" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            (folder / "nginx.conf").write_text(
                f"daemon off; master_process off; pid {folder}/pid; error_log stderr;"
                "events {worker_connections 64;} http {access_log off; keepalive_requests 1000000; gzip_static on;"
                f"{temporary} server {{listen 127.0.0.1:{port}; root {folder}; default_type text/plain;}}}}"
            )
            return [program, "-p", name, "-e", "stderr", "-c", f"{folder}/nginx.conf"]

        with _started(STATIC, arguments, "/metrics", folder) as peer:
            yield peer


@contextlib.contextmanager
def _started(
    name: str,
    arguments: Callable[[int], list[str]],
    path: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Peer]:
    """Start a server that cannot be told to take a free port: one is looked for, and another if it was taken."""
    for _ in range(TRIES):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                arguments(port), stdout=log, stderr=log, env={**os.environ, **(environment or {})}, cwd=folder
            )
        url = f"http://127.0.0.1:{port}{path}"
        if _answers(process, url):
            break
        end(process)
    else:
        raise AssertionError(f"{name} did not start:\n{(folder / 'log').read_text()}")
    try:
        yield Peer(name, url, [process.pid])
    finally:
        end(process)


def _answers(process: "subprocess.Popen[bytes]", url: str) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), contextlib.closing(Scraper(url)) as scraper:
            if scraper.scrape().body:
                return True
        time.sleep(0.05)
    return False
