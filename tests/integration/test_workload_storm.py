"""Tenants that come and go under a daemon whose agent and itself are killed: no joule is lost, and no counter falls."""

import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon, Samples
from tests.unit.attribution.hosts import write_host, write_process

ENOUGH = 5
"""Workloads that are charged: with more, they have come and gone."""
MOST_TURNS = 600
SECONDS = float(os.environ.get("STORM_SECONDS", "12"))
EXACT = 1e-9
"""Of the device's total."""
PIDS = range(4000, 4060)
JOBS = range(40, 60)
SCENARIO = """
epoch_seconds: {epoch}
devices:
  - model: H100-SXM
    load: {{pattern: bursts, level: 0.9, gap_seconds: 1}}
    processes:
      - {{pid: 4000, started: 5000, count: 20, memory_used_bytes: 1.0e+9, share: 0.04}}
      - {{pid: 4020, started: 5000, count: 20, memory_used_bytes: 1.0e+8, share: 0.02, every_seconds: 2,
         lasting_seconds: 0.9}}
  - model: H100-SXM
    load: {{pattern: square, level: 0.8, period_seconds: 3}}
    partitions:
      - {{profile: 3g.40gb}}
      - {{profile: 3g.40gb, every_seconds: 3, lasting_seconds: 1.5}}
    processes:
      - {{pid: 4040, started: 5000, count: 4, memory_used_bytes: 1.0e+9, partition: 0}}
      - {{pid: 4044, started: 5000, memory_used_bytes: 1.0e+9, partition: 1}}
  - model: MI300X
    load: {{pattern: square, level: 0.7, period_seconds: 2}}
    processes: [{{pid: 4050, started: 5000, count: 3, memory_used_bytes: 1.0e+9, queues: 1, share: 0.3}}]
  - model: H100-SXM
    faults: [{{kind: lost, every_seconds: 5, lasting_seconds: 1}}]
"""
CONFIG = """
simulate: scenario.yaml
sampling: {{load_seconds: 0.2, state_seconds: 0.3, processes_seconds: 0.3}}
attribution: {{proc: {root}/proc, job_files: {root}/jobs, kubelet_socket: null, pod_logs: null}}
"""
CEASES_AT_A_START = frozenset(
    {
        "gpu_busy_seconds_total",
        "gpu_throttle_seconds_total",
        "gpu_interconnect_receive_bytes_total",
        "gpu_interconnect_transmit_bytes_total",
        "gpu_interconnect_errors_total",
    }
)
"""Counters of a device that no journal keeps."""


class Storm:
    """What befalls the host, a little at each turn."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.random = random.Random(7)
        self.proc = write_host(root)
        (root / "jobs").mkdir()
        for pid in PIDS:
            self.begin(pid)

    def begin(self, pid: int) -> None:
        """Start a process under a pid: of a job, of a service, or of a shape that nobody knows."""
        job = self.random.choice(JOBS)
        groups = (f"/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0", "/system.slice/llm.service", "/odd")
        started = self.random.choice([5000, 5000, 6000])
        write_process(self.proc, pid, f"0::{self.random.choice(groups)}\n", uid=1000, started=started)

    def turn(self, daemon: Daemon) -> None:
        for pid in self.random.sample(PIDS, 6):
            shutil.rmtree(self.proc / str(pid), ignore_errors=True)
            self.begin(pid)
        jobs = self.random.sample(JOBS, self.random.randrange(3))
        (self.root / f"jobs/{self.random.randrange(4)}").write_text("".join(f"{job}\n" for job in jobs))
        for agent in daemon.agents() if self.random.random() < 0.3 else ():
            os.kill(agent, self.random.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT]))


@pytest.fixture
def storm(tmp_path: Path) -> Storm:
    (tmp_path / "journal").mkdir()
    (tmp_path / "scenario.yaml").write_text(SCENARIO.format(epoch=time.monotonic()))
    (tmp_path / "config.yaml").write_text(CONFIG.format(root=tmp_path))
    return Storm(tmp_path)


def parts(page: Samples, uuid: str) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield what each workload was charged, by its key and part, and nobody."""
    yield ("", ""), page.value("gpu_unattributed_energy_joules_total", uuid=uuid)
    for labels, joules in page.all("gpu_workload_energy_joules_total", uuid=uuid):
        yield (labels["workload"], labels["part"]), joules


def counters(page: Samples) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, series in page.series.items():
        if name.startswith("gpu_") and name.endswith("_total") and not name.startswith("gpu_exporter"):
            for labels, value in series:
                yield (name, *sorted(labels.values())), value


def follow(before: Samples, after: Samples, *, restarted: bool) -> None:
    """Check that one page may follow the other."""
    known = dict(counters(before))
    for series, value in counters(after):
        assert value >= known.get(series, 0.0) or (restarted and series[0] in CEASES_AT_A_START), series
    for labels, total in after.all("gpu_energy_joules_total"):
        uuid = labels["uuid"]
        earlier = dict(parts(before, uuid))
        grown = sum(joules - earlier.get(part, 0.0) for part, joules in parts(after, uuid))
        assert abs(grown - (total - before.value("gpu_energy_joules_total", uuid=uuid))) <= EXACT * total
    names = Counter((labels["uuid"], labels["workload"]) for labels, _ in after.all("gpu_workload_info"))
    assert not [name for name, times in names.items() if times > 1]


def is_whole(page: Samples) -> bool:
    return len(page.all("gpu_unattributed_energy_joules_total")) == 4


def test_no_joule_is_lost_and_no_counter_falls(start_daemon: Callable[..., Daemon], storm: Storm) -> None:
    arguments = (f"--config.file={storm.root}/config.yaml", f"--journal.directory={storm.root}/journal")
    daemon = start_daemon(*arguments)
    before = daemon.scrape_until(is_whole)
    charged: set[str] = set()
    until = time.monotonic() + SECONDS
    for turn in count(1):
        storm.turn(daemon)
        time.sleep(storm.random.uniform(0.02, 0.3))
        restarted = turn % 15 == 0
        if restarted:
            daemon.stop(signal.SIGKILL if turn % 2 else signal.SIGTERM)
            daemon = start_daemon(*arguments)
        after = daemon.scrape_until(is_whole) if restarted else daemon.scrape()
        follow(before, after, restarted=restarted)
        charged |= {labels["workload"] for labels, joules in after.all("gpu_workload_energy_joules_total") if joules}
        before = after
        # On a slow machine fewer workloads have come in that time.
        if time.monotonic() > until and turn > 30 and (len(charged) > ENOUGH or turn > MOST_TURNS):
            break
    assert len(charged) > ENOUGH
    assert "Traceback" not in daemon.log
