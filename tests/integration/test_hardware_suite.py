"""Do the tests for real hardware work? They are run over the stand-ins, whose sensors are known."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import ROOT
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan

UPDATE_SECONDS = {"nvidia": 0.1, "amd": 0.01}
MODELS = {"nvidia": "H100-SXM", "amd": "MI300X"}


@pytest.fixture(params=["nvidia", "amd"])
def report(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str, Mapping[str, Any]]:
    """Run the suite over one stand-in; return the vendor, what pytest said, and the results."""
    vendor = request.param
    scenario = f"devices: [{{model: {MODELS[vendor]}, load: {{pattern: constant, watts: 500}}}}]\n"
    plan = tmp_path / "plan"
    write_plan(plan, Machine(load_scenario(scenario, name="one.yaml"), time.monotonic() - 1000))
    standin = (
        standin_environment(plan)
        if vendor == "nvidia"
        else {**amdsmi_tree("7.0.2", tmp_path), "GPU_EXPORTER_PLAN": str(plan)}
    )
    result = tmp_path / "hardware.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-m",
        "gpu",
        "tests/hardware",
        "-n",
        "0",
        "-k",
        vendor,
    ]
    environment = {**os.environ, **standin, "HARDWARE_RESULT": str(result), "HARDWARE_SECONDS": "1.5"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    return vendor, done.stdout, json.loads(result.read_text())


def test_the_suite_measures_what_is_known_of_the_stand_in(report: tuple[str, str, Mapping[str, Any]]) -> None:
    vendor, said, results = report
    found = results["providers"][vendor]
    assert found["accumulator_against_power"] == pytest.approx(0, abs=0.1)
    assert found["accumulator_update_seconds"] == pytest.approx(UPDATE_SECONDS[vendor], rel=0.5)
    assert found["group_milliseconds"]["energy"] > 0
    assert any("Power" in call or "power" in call for call in found["calls"])
    # No driver is behind the stand-in that could work it.
    assert "neither libcuda.so.1 nor libamdhip64.so is there" in said
