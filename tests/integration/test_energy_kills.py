"""The daemon is killed at random moments under a real Prometheus: what does that cost of the joules that it answers?

$ENERGY_KILLS times, 10 by default; .ci/long kills 200 times.
"""

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration import daemon as daemons
from tests.integration.daemon import ROOT, Daemon
from tests.integration.prometheus import Server, find, running
from tests.unit.test_energy_docs import ENERGY, queries

KILLS = int(os.environ.get("ENERGY_KILLS", "10"))
SCRAPE_SECONDS = 0.3
LIFE_SECONDS = (0.05, 4.0)
"""A daemon is killed within these from its start: before it listens, before it has read, while it serves."""
LEAST_SERVED = 1 / 3
"""So many of the lives must have been scraped, or the kills have shown nothing."""
QUALIFIES_WITHIN = 150.0
SETTLE_SECONDS = 2.0
EDGE_SECONDS = 0.1
"""Of the window of increase() beyond its samples: Prometheus extrapolates to it."""

SCENARIO = """
epoch_seconds: {epoch}
devices:
  - model: H100-SXM
    load: {{pattern: constant, watts: 500}}
  - model: MI300X
    load: {{pattern: square, watts: 600, low_watts: 200, period_seconds: 1.3}}
"""
NEWER = [query for query in queries(ENERGY) if "anchored" in query or "smoothed" in query]
"""What needs Prometheus 3.7 and a feature flag."""
TOTAL, START = "gpu_energy_joules_total", "gpu_energy_start_timestamp_seconds"

Stored = Mapping[str, list[tuple[float, float]]]
"""Unix time and value of the samples of a series, by the uuid of its device."""


class Run(NamedTuple):
    """What the kills left in Prometheus."""

    server: Server
    machine: Machine
    monotonic: float
    """What to add to Unix time to get CLOCK_MONOTONIC."""
    begin: float
    """Unix time of the first kill."""
    end: float
    lives: list[tuple[float, float]]
    """Unix times of start and kill."""
    log: Path

    def stored(self, name: str) -> Stored:
        data = self.server.api("query", query=f"{name}[{round(self.end - self.begin)}s]", time=f"{self.end:.3f}")
        return {row["metric"]["uuid"]: [(t, float(v)) for t, v in row["values"]] for row in data["result"]}

    def truth(self, uuid: str, start: float, end: float) -> float:
        return self.machine.energy_joules(uuid, end + self.monotonic) - self.machine.energy_joules(
            uuid, start + self.monotonic
        )


def configuration(port: int) -> dict[str, Any]:
    interval = f"{round(1000 * SCRAPE_SECONDS)}ms"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval},
        "scrape_configs": [{"job_name": "gpu", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}],
    }


def spawn(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    # Not tests.integration.daemon.running: it waits until the daemon listens, and some are to be killed before.
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "exporter", "serve", *arguments],
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    tools = find(3)
    place = tmp_path_factory.mktemp("kills")
    epoch = round(time.monotonic(), 3)
    text = SCENARIO.format(epoch=f"{epoch:.3f}")
    (place / "loads.yaml").write_text(text)
    (place / "journal").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # Prometheus must find every life of the daemon at the same address.
    log = place / "daemon.log"
    arguments = [f"--web.listen-address=127.0.0.1:{port}", "--simulate", str(place / "loads.yaml")]
    arguments += ["--journal.directory", str(place / "journal")]
    random = Random("kills")
    lives: list[tuple[float, float]] = []
    with running(tools, place / "prometheus", configuration(port)) as server:
        process = spawn(arguments, log)
        try:
            _qualify(process, port, log)
            time.sleep(SETTLE_SECONDS)
            begin = time.time()
            for _ in range(KILLS):
                kill(process)
                started = time.time()
                process = spawn(arguments, log)
                time.sleep(random.uniform(*LIFE_SECONDS))
                lives.append((started, time.time()))
            kill(process)
            process = spawn(arguments, log)
            _serves(process, port, log)
            time.sleep(SETTLE_SECONDS)
            end = time.time()
            monotonic = time.monotonic() - end
        finally:
            process.terminate()
            process.wait(10)
        yield Run(server, Machine(load_scenario(text), epoch=epoch), monotonic, begin, end, lives, log)


def _daemon(process: subprocess.Popen[bytes], port: int, log: Path) -> Daemon:
    daemon = Daemon(process, log)
    daemon.url = f"http://127.0.0.1:{port}"
    daemon.until(lambda: _answers(daemon))
    return daemon


def _answers(daemon: Daemon) -> bool:
    assert daemon.process.poll() is None, f"it ended with {daemon.process.returncode}; the log says:\n{daemon.log}"
    try:
        return daemon.get("/-/ready").status == 200
    except OSError:  # it does not listen yet
        return False


def _qualify(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    daemon = _daemon(process, port, log)
    daemon.scrape_until(lambda page: _qualified(page) == 2, QUALIFIES_WITHIN)


def _qualified(page: daemons.Samples) -> float:
    return sum(value for _, value in page.all("gpu_energy_qualified"))


def _serves(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    _daemon(process, port, log).scrape_until(lambda page: len(page.all(TOTAL)) == 2)


def test_enough_of_the_killed_daemons_had_served_totals(run: Run) -> None:
    times = [t for t, _ in next(iter(run.stored(TOTAL).values()))]
    served = sum(any(start < t < end for t in times) for start, end in run.lives)
    assert served >= LEAST_SERVED * KILLS, f"{served} of {KILLS} lives were scraped\n{run.log.read_text()[-4000:]}"


def test_no_stored_total_ever_fell(run: Run) -> None:
    stored = run.stored(TOTAL)
    assert len(stored) == 2
    for uuid, samples in stored.items():
        falls = [(a, b) for a, b in itertools.pairwise(samples) if b[1] < a[1]]
        assert not falls, f"{uuid}: {falls}\n{run.log.read_text()[-4000:]}"


def test_totals_go_on_from_the_start_that_they_had(run: Run) -> None:
    for uuid, samples in run.stored(START).items():
        assert len({value for _, value in samples}) == 1, (uuid, samples)


def test_increase_over_the_run_is_within_1_percent_of_truth(run: Run) -> None:
    for uuid, samples in run.stored(TOTAL).items():
        last = samples[-1][0]
        window = last - samples[0][0] + EDGE_SECONDS
        answer = run.server.query(f'increase({TOTAL}{{uuid="{uuid}"}}[{round(1000 * window)}ms])', last)
        assert len(answer) == 1
        joules, truth = answer[0][1], run.truth(uuid, last - window, last)
        off = 100 * (joules / truth - 1)
        print(f"{KILLS} kills, {uuid}: increase() {joules:.1f} J, truth {truth:.1f} J, {off:+.2f} %")
        assert joules == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize("query", [query for query in dict.fromkeys(queries(ENERGY)) if query not in NEWER])
def test_prometheus_answers_every_query_that_people_are_told(run: Run, query: str) -> None:
    answer = run.server.query(query.replace("$__range", "1h"), run.end)
    # A filter may leave nothing; anything else that does is a join or a label that is wrong.
    assert answer or ">" in query or "==" in query or "offset" in query
