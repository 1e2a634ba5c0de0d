"""Does each provider keep the contract of the protocol? Over its stand-in, in a process of its own as in a worker."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from exporter.providers import PROVIDERS
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import ROOT
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan

TENANT = "[{pid: 4000001, name: train, memory_used_bytes: 8589934592, queues: 2}]"
MACHINES = {
    "nvidia": f"""
devices:
  - {{model: H100-SXM, load: {{pattern: training}}, processes: {TENANT}}}
  - {{model: A100-SXM, partitions: [{{profile: 3g.40gb}}]}}
  - {{model: T4, load: {{pattern: constant}}}}
""",
    "amd": f"""
devices:
  - {{model: MI300X, load: {{pattern: training}}, processes: {TENANT}}}
  - {{model: MI300X, texts: {{compute_partition: CPX}}}}
  - {{model: RX-9070, load: {{pattern: constant}}}}
""",
}
MACHINES["simulated"] = MACHINES["nvidia"] + MACHINES["amd"].replace("\ndevices:\n", "")

STANDINS: Mapping[str, Callable[[Path, Path], Mapping[str, str]]] = {
    "nvidia": lambda plan, _: standin_environment(plan),
    "amd": lambda plan, folder: {**amdsmi_tree("7.0.2", folder), "GPU_EXPORTER_PLAN": str(plan)},
    "simulated": lambda _plan, _folder: {},
}
"""What makes a process load a provider's stand-in: each provider needs one, and a machine above."""


FAILING = {
    "nvidia": "- {kind: error, call: nvmlDeviceGetTotalEccErrors, status: 17}\n"
    "      - {kind: error, call: nvmlDeviceGetMemoryInfo*, status: 17}",
    "amd": "- {kind: error, call: amdsmi_get_gpu_total_ecc_count, status: 8}\n"
    "      - {kind: error, call: amdsmi_get_gpu_vram_usage, status: 8}",
    "simulated": "- {kind: error, call: errors, status: 8}\n      - {kind: error, call: memory, status: 8}",
}
BROKEN = """
devices:
  - model: %s
    load: {pattern: constant}
    faults:
      - kind: garbage
        values: {power_watts: 60000, utilization_ratio: 42, %s_utilization_ratio: 42, temperature_%s_celsius: 9999}
      %s
"""
KINDS = {"nvidia": ("H100-SXM", "encoder", "gpu"), "amd": ("RX-9070", "media", "hotspot")}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_keeps_the_contract(provider: str, tmp_path: Path) -> None:
    ask(provider, MACHINES[provider], "sound", tmp_path)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_breaks_has_the_same_name_with_every_provider(provider: str, tmp_path: Path) -> None:
    text = BROKEN % (*KINDS.get(provider, KINDS["nvidia"]), FAILING[provider])
    ask(provider, text, "broken", tmp_path)


def ask(provider: str, text: str, sound: str, tmp_path: Path) -> None:
    scenario, plan = tmp_path / "scenario.yaml", tmp_path / "plan"
    scenario.write_text(text)
    write_plan(plan, Machine(load_scenario(text), time.monotonic() - 1000))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **STANDINS[provider](plan, tmp_path)}
    command = [sys.executable, "-m", "tests.integration.contract", provider, str(scenario), sound]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
