"""The real Prometheus and its promtool: found, started on a free port, asked, and stopped."""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools import end, unavailable

START_SECONDS = 30.0
TRIES = 5


class Tools(NamedTuple):
    prometheus: str
    promtool: str


def find(major: int) -> Tools:
    """Return the tools of that major version, in $PROMETHEUS_2 or $PROMETHEUS_3, else on the PATH, or end the test."""
    variable, suite = f"PROMETHEUS_{major}", {2: "bookworm", 3: "sid"}[major]
    directory = os.environ.get(variable)
    place = str(Path(directory) / "bin") if directory else None
    prometheus, promtool = (shutil.which(name, path=place) for name in ("prometheus", "promtool"))
    if prometheus and promtool and _major(prometheus) == major:
        return Tools(prometheus, promtool)
    fetch = f"export {variable}=~/.cache/gpu-exporter/prometheus-{major} && .ci/fetch-prometheus {suite} ${variable}"
    return unavailable(f"Prometheus {major}", fetch)


def _major(prometheus: str) -> int:
    said = subprocess.run([prometheus, "--version"], capture_output=True, text=True, timeout=30, check=True)
    return int((said.stdout + said.stderr).split("version ")[1].split(".")[0])


class Server:
    """Made by `running`."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def api(self, path: str, **parameters: str) -> Any:
        """Return `data` of an answer of the HTTP API."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 -- http, on loopback
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series of an instant vector."""
        moment = {} if at is None else {"time": f"{at:.3f}"}
        data = self.api("query", query=expression, **moment)
        return [(row["metric"], float(row["value"][1])) for row in data["result"]]

    def samples(self, selector: str, at: float) -> dict[str, list[tuple[float, float]]]:
        """Return time and value of the stored samples that a range selector such as `up[1m]` finds, by job."""
        data = self.api("query", query=selector, time=f"{at:.3f}")
        return {row["metric"]["job"]: [(t, float(v)) for t, v in row["values"]] for row in data["result"]}

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api("targets")["activeTargets"]
        return found


@contextmanager
def running(tools: Tools, directory: Path, configuration: Mapping[str, Any], *flags: str) -> Iterator[Server]:
    """Start Prometheus with its data in `directory`, wait until it is ready, and stop it at the end."""
    directory.mkdir(parents=True, exist_ok=True)
    config = directory / "prometheus.yml"
    config.write_text(json.dumps(configuration))  # JSON is YAML
    server = _start(tools, directory, config, flags)
    try:
        yield server
    finally:
        end(server.process, 15)


def _start(tools: Tools, directory: Path, config: Path, flags: tuple[str, ...]) -> Server:
    # It cannot be told to take a port of the kernel's choice, so a free one is looked for, and another if it was taken.
    for _ in range(TRIES):
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        log = directory / "prometheus.log"
        command = [tools.prometheus, f"--config.file={config}", f"--storage.tsdb.path={directory / 'data'}"]
        command += [f"--web.listen-address={address}", "--storage.tsdb.retention.time=1d", *flags]
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        server = Server(process, f"http://{address}", log)
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if _ready(server):
                return server
            time.sleep(0.1)
        process.kill()
        process.wait(10)
        if "address already in use" not in server.log:
            break
    raise AssertionError(f"Prometheus did not start:\n{server.log}")


def _ready(server: Server) -> bool:
    try:
        with urllib.request.urlopen(server.url + "/-/ready", timeout=5) as response:  # noqa: S310 -- http, on loopback
            return bool(response.status == 200)
    except OSError:  # includes what urllib makes of 503 and of a refused connection
        return False


def check_metrics(tools: Tools, page: bytes) -> str:
    """Return what `promtool check metrics` complains about in a page of text 0.0.4; empty: nothing."""
    said = subprocess.run(
        [tools.promtool, "check", "metrics"], input=page, capture_output=True, timeout=30, check=False
    )
    text = (said.stdout + said.stderr).decode()
    return text or ("" if said.returncode == 0 else f"exit code {said.returncode}")
