"""Jobs on simulated GPUs, through the daemon: whose processes they are, who holds a GPU, and joules that add up."""

import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.daemon import Daemon, Samples
from tests.unit.attribution.hosts import write_host, write_process

LINGER_SECONDS = 2.0
EXACT = 1e-9
"""Of the device's total."""
JOBS = {4101: "41", 4102: "42"}
STARTED = 5_000
SCENARIO = """
epoch_seconds: {epoch}
devices:
  - model: H100-SXM
    load: {{pattern: constant, level: 0.8}}
    processes:
      - {{pid: 4101, started: 5000, name: train, memory_used_bytes: 40.0e+9, share: 0.75}}
      - {{pid: 4102, started: 5000, name: infer, memory_used_bytes: 20.0e+9, share: 0.25}}
  - model: H100-SXM
  - model: H100-SXM
    load: {{pattern: constant, level: 0.5}}
    processes:
      - {{pid: 4102, started: 4999, name: other, memory_used_bytes: 1.0e+9, share: 1}}
"""
"""The third GPU is used by a process whose pid has been given to that of job 42 since."""
CONFIG = """
simulate: scenario.yaml
sampling: {{load_seconds: 0.2, processes_seconds: 0.5}}
processes: {{labels: [pid, name, workload]}}
attribution:
  proc: {root}/proc
  job_files: {root}/jobs
  kubelet_socket: null
  pod_logs: null
  linger_seconds: {linger}
"""


class Site(NamedTuple):
    config: Path
    jobs: Path
    journal: Path

    def arguments(self) -> tuple[str, ...]:
        return (f"--config.file={self.config}", f"--journal.directory={self.journal}")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Two jobs that share the first GPU, and one that holds the second and does nothing."""
    proc = write_host(tmp_path)
    for pid, job in JOBS.items():
        group = f"0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n"
        write_process(proc, pid, group, uid=1000, started=STARTED)
    jobs, journal = tmp_path / "jobs", tmp_path / "journal"
    jobs.mkdir()
    journal.mkdir()
    (jobs / "0").write_text("41\n42\n")
    (jobs / "1").write_text("43\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO.format(epoch=time.monotonic() - 60))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(root=tmp_path, linger=LINGER_SECONDS))
    return Site(config, jobs, journal)


def gpus(page: Samples) -> Iterator[str]:
    for labels, _ in page.all("gpu_energy_joules_total"):
        yield labels["gpu"]


def charged(page: Samples, gpu: str) -> dict[tuple[str, str], float]:
    """Return what each workload was charged, by its key and part, and nobody."""
    series = page.all("gpu_workload_energy_joules_total", gpu=gpu)
    nobody = page.value("gpu_unattributed_energy_joules_total", gpu=gpu)
    return {("nobody", ""): nobody, **{(labels["workload"], labels["part"]): joules for labels, joules in series}}


def grown(before: Samples, after: Samples, gpu: str) -> dict[tuple[str, str], float]:
    """Return by how much each part has grown, after a check that together they did by as much as the device's total."""
    old, new = charged(before, gpu), charged(after, gpu)
    parts = {part: joules - old.get(part, 0.0) for part, joules in new.items()}
    assert all(joules >= 0 for joules in parts.values()), parts
    total = after.value("gpu_energy_joules_total", gpu=gpu)
    increase = total - before.value("gpu_energy_joules_total", gpu=gpu)
    assert abs(sum(parts.values()) - increase) <= EXACT * total
    return parts


def all_known(page: Samples) -> bool:
    keys = {labels["workload"] for labels, _ in page.all("gpu_workload_busy_seconds_total")}
    return keys == {"slurm/41", "slurm/42", "slurm/43"} and len(page.all("gpu_process_info", slurm_job="42")) == 1


def test_jobs_are_charged_by_their_work_and_whoever_holds_a_gpu_for_its_idle_power(
    start_daemon: Callable[..., Daemon], site: Site
) -> None:
    daemon = start_daemon(*site.arguments())
    daemon.scrape_until(all_known)
    pages = []
    for _ in range(5):
        time.sleep(0.6)
        pages.append(daemon.scrape())
    for before, after in pairwise(pages):
        for gpu in gpus(after):
            grown(before, after, gpu)
    before, after = pages[0], pages[-1]
    shared = grown(before, after, "sim0")
    assert shared["slurm/41", "active"] == pytest.approx(3 * shared["slurm/42", "active"])
    assert shared["slurm/41", "active"] > 100
    assert shared["nobody", ""] == pytest.approx(0, abs=EXACT)
    # At work since before it was first read, the first GPU has never shown what it draws without load.
    assert shared["slurm/41", "idle"] == shared["slurm/42", "idle"] == 0

    held = grown(before, after, "sim1")
    assert held["slurm/43", "idle"] > 50
    assert held["slurm/43", "active"] == held["nobody", ""] == 0
    assert after.value("gpu_workload_allocation_ratio", gpu="sim1", workload="slurm/43") == 1
    assert after.value("gpu_workload_busy_seconds_total", gpu="sim1", workload="slurm/43") == 0
    assert after.value("gpu_workload_allocated_seconds_total", gpu="sim1", workload="slurm/43") > 2
    ratios = [ratio for _, ratio in after.all("gpu_workload_allocation_ratio", gpu="sim0")]
    assert ratios == [0.5, 0.5]

    stranger = grown(before, after, "sim2")
    assert set(stranger) == {("nobody", "")}
    assert after.value("gpu_process_memory_used_bytes", gpu="sim2", pid="4102", workload="") == 1e9
    assert after.value("gpu_process_memory_used_bytes", gpu="sim0", pid="4102", workload="slurm/42") == 20e9
    assert after.labels("gpu_process_info", pid="4101")["user"] == "ada"
    assert after.labels("gpu_workload_info", workload="slurm/41")["kind"] == "slurm"
    assert after.value("gpu_exporter_attribution_up", source="job_files") == 1
    assert after.value("gpu_exporter_attribution_up", source="proc") == 1
    assert not after.all("gpu_exporter_series_dropped")


def test_a_job_that_ends_is_shown_for_a_time_and_the_parts_add_up_all_along(
    start_daemon: Callable[..., Daemon], site: Site
) -> None:
    daemon = start_daemon(*site.arguments())
    pages = [daemon.scrape_until(all_known)]
    (site.jobs / "1").write_text("")

    def scraped(wanted: Callable[[Samples], bool]) -> Samples:
        """Scrape until the page is as wanted, and keep each of them."""

        def look() -> Samples | None:
            pages.append(daemon.scrape())
            return pages[-1] if wanted(pages[-1]) else None

        return daemon.until(look)

    over = scraped(lambda page: not page.all("gpu_workload_allocation_ratio", gpu="sim1"))
    assert over.all("gpu_workload_energy_joules_total", gpu="sim1")
    at = time.monotonic()
    gone = scraped(lambda page: not page.all("gpu_workload_energy_joules_total", gpu="sim1"))
    assert time.monotonic() - at > LINGER_SECONDS / 2
    assert not gone.all("gpu_workload_info", gpu="sim1")
    for before, after in pairwise(pages):
        for gpu in gpus(after):
            grown(before, after, gpu)


def test_no_part_falls_when_the_daemon_is_killed(start_daemon: Callable[..., Daemon], site: Site) -> None:
    daemon = start_daemon(*site.arguments())
    daemon.scrape_until(all_known)
    time.sleep(1.0)
    before = daemon.scrape()
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(10)
    again = start_daemon(*site.arguments())
    first = again.scrape_until(lambda page: len(list(gpus(page))) == 3)
    for gpu in gpus(first):
        grown(before, first, gpu)
    assert charged(first, "sim0").keys() == charged(before, "sim0").keys()
    known = again.scrape_until(lambda page: bool(page.all("gpu_process_info", slurm_job="42")))
    time.sleep(1.0)
    after = again.scrape()
    parts = grown(known, after, "sim0")
    assert parts["slurm/41", "active"] == pytest.approx(3 * parts["slurm/42", "active"])
    assert charged(after, "sim0")["slurm/41", "active"] > charged(before, "sim0")["slurm/41", "active"]
