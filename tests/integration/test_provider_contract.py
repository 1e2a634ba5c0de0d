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
from tests.drm import write_cards
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
MACHINES["drm"] = MACHINES["amd"]
MACHINES["simulated"] = MACHINES["nvidia"] + MACHINES["amd"].replace("\ndevices:\n", "")


def files_of_drm(machine: Machine, folder: Path) -> Mapping[str, str]:
    write_cards(folder, machine, 1000.0)
    return {}


STANDINS: Mapping[str, Callable[[Machine, Path, Path], Mapping[str, str]]] = {
    "nvidia": lambda _machine, plan, _folder: standin_environment(plan),
    "amd": lambda _machine, plan, folder: {**amdsmi_tree("7.0.2", folder), "GPU_EXPORTER_PLAN": str(plan)},
    "drm": lambda machine, _plan, folder: files_of_drm(machine, folder),
    "simulated": lambda _machine, _plan, _folder: {},
}
"""What makes a process load a provider's stand-in: each provider needs one, and a machine above."""


FAILING = {
    "nvidia": "- {kind: error, call: nvmlDeviceGetTotalEccErrors, status: 17}\n"
    "      - {kind: error, call: nvmlDeviceGetMemoryInfo*, status: 17}",
    "amd": "- {kind: error, call: amdsmi_get_gpu_total_ecc_count, status: 8}\n"
    "      - {kind: error, call: amdsmi_get_gpu_vram_usage, status: 8}",
    "simulated": "- {kind: error, call: errors, status: 8}\n      - {kind: error, call: memory, status: 8}",
}
FAILING["drm"] = FAILING["amd"]
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
KINDS["drm"] = KINDS["amd"]


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
    machine = Machine(load_scenario(text), time.monotonic() - 1000)
    write_plan(plan, machine)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **STANDINS[provider](machine, plan, tmp_path)}
    root = str(tmp_path) if provider == "drm" else "/"
    command = [sys.executable, "-m", "tests.integration.contract", provider, str(scenario), sound, root]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
