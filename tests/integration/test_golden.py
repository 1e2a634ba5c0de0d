"""Whole pages of known machines, compared line by line; GPU_EXPORTER_WRITE_GOLDEN=1 writes them anew for a review."""

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import write_plan

GOLDEN = Path(__file__).parents[1] / "golden"

# Four lanes of a training run as they were seen on hardware: 90 % load, 187,695 MiB of VRAM, 356 W, no warning.
TRAINING = """
driver_version: 6.14.14
devices:
- model: MI350X
  count: 4
  load: {pattern: constant, watts: 356}
  values: {utilization_ratio: 0.9, memory_used_bytes: 196812472320}
"""

MOVING = re.compile(
    r"^(gpu_energy_\w*(joules|seconds)_total|gpu_energy_(divergence|uncertainty)_ratio|gpu_busy_seconds_total|gpu_throttle_seconds_total"
    r"|gpu_interconnect_\w+_total"
    r"|gpu_processes|\w+_timestamp_seconds|gpu_exporter_sample_duration_seconds|gpu_exporter_devices_expected"
    r"|gpu_exporter_build_info)(?P<labels>\{.*\})? .*$"
)
"""Series whose value, or label, is not the same in each run: the series is compared, its value is not."""


def still(page: str) -> str:
    lines = (
        MOVING.sub(lambda m: f"{m[1]}{'' if m[1].endswith('build_info') else m['labels'] or ''} *", line)
        for line in page.splitlines()
    )
    return "\n".join(lines) + "\n"


def test_a_training_node_of_four_mi350x(start_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    machine = Machine(load_scenario(TRAINING, name="training.yaml"), time.monotonic() - 3600)
    write_plan(tmp_path / "plan", machine)
    environment = {**amdsmi_tree("7.0.2", tmp_path), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    # Who uses the GPUs is told by the machine that the test runs on.
    (tmp_path / "config.yaml").write_text("attribution: {enabled: false}\n")
    daemon = start_daemon("--provider", "amd", "--config.file", str(tmp_path / "config.yaml"), env=environment)
    daemon.scrape_until(
        # Whether clocks are held down is told by the second read of the state.
        lambda page: len(page.all("gpu_throttled")) > 0 and len(page.all("gpu_busy_seconds_total")) == 4
    )
    daemon.scrape_until(lambda page: len(page.all("gpu_energy_uncertainty_ratio")) == 4)
    daemon.scrape_until(lambda page: page.value("gpu_exporter_last_sample_timestamp_seconds") > 0)
    page = still(daemon.get().body.decode())
    golden = GOLDEN / "mi350x-training.prom"
    if os.environ.get("GPU_EXPORTER_WRITE_GOLDEN"):
        golden.write_text(page)
    assert page.splitlines() == golden.read_text().splitlines()
    loud = [line for line in daemon.log.splitlines() if re.search("level=(warn|error)", line)]
    as_root = [line for line in loud if "running as root" in line]
    assert len(as_root) == (os.geteuid() == 0)
    assert loud == as_root
