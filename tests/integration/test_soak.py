"""Two daemons in real time, with everything that happens to daemons happening to them: what they hold stays flat.

SOAK_SECONDS says for how long. The figures are shown at the end.
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from exporter.supervision.watch import MAX_CHILDREN
from tests.integration.daemon import Daemon
from tests.integration.web_files import HASH, Authority, write
from tests.native.plan import standin_environment, write_plan

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))
SEED = 7
SAMPLE_SECONDS = 0.5
WARM_SHARE = 0.15
"""Of the time: memory is touched for the first time, and processes appear that stay."""
PSS_GROWTH = 4 << 20
"""Of the daemon or of its worker, in the median of the second half against the first."""
CHILD_DESCRIPTORS = 5
"""What the daemon holds for each of them; a successor or a probe may live beside the worker for a moment."""
FORMATS = (
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    "application/openmetrics-text;version=1.0.0",
    "*/*",
)
SAMPLING = (
    "sampling: {energy_seconds: 0.1, load_seconds: 0.1, state_seconds: 0.2, processes_seconds: 0.2,"
    " deadline_seconds: 1, open_deadline_seconds: 5}\n"
)

Start = Callable[..., Daemon]


class Held(NamedTuple):
    """What one daemon holds at a moment."""

    pss: int
    worker_pss: int
    descriptors: int
    threads: int
    children: int
    series: int


def scenario(changes: int) -> str:
    """Return a machine whose devices, processes and faults come and go while it runs; `changes`: which devices."""
    random = Random(changes)
    lines = ["devices:"]
    for number in random.sample(range(12), 4):
        fault = random.choice(("lost", "removed", "asleep", "error", "garbage", "crash", "hang"))
        detail = {"error": ", status: 999", "garbage": ", values: {power_watts: 1.0e+9}"}.get(fault, "")
        every = random.choice((23, 37, 61)) if fault in ("crash", "hang") else random.choice((5, 7, 11))
        lasting = 0.3 if fault in ("crash", "hang") else 1.5
        lines.append(
            f"  - {{model: H100-SXM, texts: {{uuid: GPU-{number:08}}},"
            " load: {pattern: square, watts: 600, low_watts: 90, period_seconds: 2.3},"
            " processes: [{pid: 1000, count: 40, every_seconds: 4, lasting_seconds: 2, memory_used_bytes: 1.0e+9},"
            f" {{pid: {5_000 + 100 * changes}, count: 10, memory_used_bytes: 5}}],"
            " partitions: [{profile: 1g.10gb, gi: 1, every_seconds: 6, lasting_seconds: 3}],"
            f" faults: [{{kind: {fault}{detail}, from_seconds: 3, every_seconds: {every},"
            f" lasting_seconds: {lasting}}}]}}"
        )
    return "\n".join(lines)


class Soaked:
    """One daemon, what happens to it, and what it held meanwhile."""

    def __init__(self, name: str, daemon: Daemon, config: Path, disturb: Callable[[int], None]) -> None:
        self.name = name
        self.daemon = daemon
        self.held: list[Held] = []
        self.statuses: dict[int, int] = {}
        self.falls: list[str] = []
        self.restarts = 0.0
        """Of its workers."""
        self._config = config
        self._disturb = disturb
        self._random = Random(SEED)
        self._totals: dict[str, float] = {}

    def run(self, until: float) -> None:
        beat = 0
        while time.monotonic() < until:
            beat += 1
            series = self._scrape()
            if beat % 10 == 0:
                self._disturb(beat // 10)
            if beat % 14 == 0:
                self._reload(broken=beat % 28 == 0)
            if beat % 40 == 0:
                self.daemon.process.send_signal(signal.SIGUSR1)
            if beat % 40 == 6:
                self.daemon.process.send_signal(signal.SIGUSR2)
            if series is not None:
                self._measure(series)
            time.sleep(SAMPLE_SECONDS)

    def _scrape(self) -> int | None:
        """Scrape in one of the formats; return the number of series of a plain page."""
        random = self._random
        gzip = random.random() < 0.4
        headers = {"Accept": random.choice(FORMATS), **({"Accept-Encoding": "gzip"} if gzip else {})}
        path = random.choice(("/metrics", "/metrics", "/metrics", "/", "/-/ready", "/metrics?collect[]=energy"))
        reply = self.daemon.get(path, headers)
        self.statuses[reply.status] = self.statuses.get(reply.status, 0) + 1
        page = self.daemon.get().body.decode()
        self.restarts = sum(map(float, re.findall(r"^gpu_exporter_worker_restarts_total.* (\S+)$", page, re.MULTILINE)))
        for uuid, total in re.findall(r'^gpu_energy_joules_total\{.*uuid="([^"]*)"\} (\S+)$', page, re.MULTILINE):
            if float(total) < self._totals.get(uuid, 0.0):
                self.falls.append(f"{uuid} from {self._totals[uuid]} to {total}")
            self._totals[uuid] = float(total)
        return sum(not line.startswith("#") for line in page.splitlines())

    def _reload(self, *, broken: bool) -> None:
        level = self._random.choice(("info", "warn"))
        text = "log: {level: loud}\n" if broken else f"{SAMPLING}log: {{level: {level}}}\nmetrics: {{created: true}}\n"
        write(self._config, text)
        self.daemon.process.send_signal(signal.SIGHUP)

    def _measure(self, series: int) -> None:
        process = Path(f"/proc/{self.daemon.process.pid}")
        children = self.daemon.children()
        self.held.append(
            Held(
                pss(process) or 0,
                max((found for pid in children if (found := pss(Path(f"/proc/{pid}"))) is not None), default=0),
                len(list((process / "fd").iterdir())),
                len(list((process / "task").iterdir())),
                len(children),
                series,
            )
        )

    def halves(self) -> tuple[list[Held], list[Held]]:
        warm = self.held[round(WARM_SHARE * len(self.held)) :]
        return warm[: len(warm) // 2], warm[len(warm) // 2 :]


def pss(process: Path) -> int | None:
    """Return the proportional set size in bytes; None: the process is gone."""
    with contextlib.suppress(OSError):
        found = re.findall(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(found[0]) * 1024
    return None


def median(half: list[Held], name: str) -> int:
    values = sorted(getattr(held, name) for held in half)
    return int(values[len(values) // 2])


def most(half: list[Held], name: str) -> int:
    return max(getattr(held, name) for held in half)


def nearly_most(half: list[Held], name: str) -> int:
    """Return what no more than one in ten exceed: a child that is being made looks as large as its parent."""
    values = sorted(getattr(held, name) for held in half)
    return int(values[len(values) * 9 // 10])


def report(soaked: Soaked) -> str:
    first, second = soaked.halves()
    rows = [
        f"{soaked.name}: {len(soaked.held)} samples, statuses {soaked.statuses}, {soaked.restarts:.0f} workers ended",
        f"{'':12}{'median, first half':>20}{'second':>12}{'most, first half':>20}{'second':>12}",
    ]
    rows += [
        f"{name:12}{median(first, name):20,}{median(second, name):12,}{most(first, name):20,}{most(second, name):12,}"
        for name in Held._fields
    ]
    return "\n".join(rows)


@pytest.fixture
def simulated(start_daemon: Start, tmp_path: Path) -> Soaked:
    folder = tmp_path / "simulated"
    folder.mkdir()
    authority = Authority(folder)
    write(folder / "c.yaml", SAMPLING)
    write(folder / "s.yaml", scenario(0))
    web = f"tls_server_config: {{cert_file: server.pem, key_file: server.key}}\n#{HASH}\n"
    write(folder / "web.yml", web)
    daemon = start_daemon(
        *("--provider=simulated", f"--config.file={folder / 'c.yaml'}", f"--simulate={folder / 's.yaml'}"),
        *(f"--web.config.file={folder / 'web.yml'}", f"--journal.directory={folder / 'run'}"),
        tls=authority.client(),
    )

    def disturb(number: int) -> None:
        write(folder / "s.yaml", scenario(number))
        write(folder / "web.yml", web if number % 2 else "tls_server_config: [")  # read again, broken every other time

    return Soaked("simulated, TLS", daemon, folder / "c.yaml", disturb)


@pytest.fixture
def nvidia(start_daemon: Start, tmp_path: Path) -> Soaked:
    folder = tmp_path / "nvidia"
    folder.mkdir()
    epoch = time.monotonic()
    plan = folder / "plan"
    write_plan(plan, Machine(load_scenario(scenario(0)), epoch))
    write(folder / "c.yaml", SAMPLING)
    daemon = start_daemon(
        *("--provider=nvidia", f"--config.file={folder / 'c.yaml'}", f"--journal.directory={folder / 'run'}"),
        env={**standin_environment(plan), "GPU_EXPORTER_PLAN": str(plan)},
        ready=False,
    )
    return Soaked(
        "nvidia",
        daemon,
        folder / "c.yaml",
        lambda number: write_plan(plan, Machine(load_scenario(scenario(number)), epoch)),
    )


def test_two_daemons_hold_no_more_in_the_end_than_in_the_middle(
    simulated: Soaked, nvidia: Soaked, record_property: Callable[[str, str], None]
) -> None:
    both = (simulated, nvidia)
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor() as pool:
        for run in [pool.submit(soaked.run, until) for soaked in both]:
            run.result()
    record_property("table", "\n\n".join(map(report, both)))
    for soaked in both:
        assert time.monotonic() - until < 30
        first, second = soaked.halves()
        assert len(second) > 0.2 * SECONDS, "it was not looked at to the end"
        assert soaked.falls == []
        assert soaked.restarts > 0, "no fault befell it"
        assert set(soaked.statuses) <= {200, 503}  # not ready while the devices are released
        for name in ("pss", "worker_pss"):
            assert median(second, name) - median(first, name) < PSS_GROWTH, name
            assert nearly_most(second, name) - nearly_most(first, name) < PSS_GROWTH, name
        for name in ("descriptors", "threads", "children"):
            assert median(second, name) <= median(first, name) + 1, name
        assert most(second, "descriptors") <= most(first, "descriptors") + 2 * CHILD_DESCRIPTORS
        assert most(second, "threads") <= most(first, "threads")
        assert most(second, "children") <= MAX_CHILDREN
        assert most(second, "series") <= 1.3 * most(first, "series") + 50
        assert "Traceback" not in soaked.daemon.log
        assert soaked.daemon.stop() == 0
