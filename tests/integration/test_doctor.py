"""The command `doctor` as an operator runs it: over simulated GPUs, over a library that is missing or broken."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.captures.format import load_capture
from exporter.providers.nvidia import open_library
from exporter.providers.protocol import OpenContext
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.scenario import load_scenario
from exporter.supervision.schedule import EVERYTHING
from tests.captures.replay import Replay
from tests.native.plan import standin_environment, write_plan

ONE = "devices: [{model: H100-SXM, load: {pattern: constant, watts: 400}}]\n"
PATIENT = "sampling: {deadline_seconds: 5, open_deadline_seconds: 20}\nattribution: {enabled: false}\n"
QUICK = "sampling: {deadline_seconds: 0.5, open_deadline_seconds: 2}\nattribution: {enabled: false}\n"
"""Where what is looked for is found by waiting in vain."""


def doctor(
    folder: Path, *arguments: str, env: dict[str, str] | None = None, config: str = PATIENT
) -> subprocess.CompletedProcess[str]:
    (folder / "config.yaml").write_text(config)
    command = [sys.executable, "-m", "exporter", "doctor", "--config.file", str(folder / "config.yaml"), *arguments]
    return subprocess.run(
        command, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=60, check=False
    )


def over_nvml(folder: Path, scenario: str, config: str = PATIENT) -> subprocess.CompletedProcess[str]:
    write_plan(folder / "plan", Machine(load_scenario(scenario, name="one.yaml"), time.monotonic() - 1000))
    return doctor(folder, "--provider", "nvidia", env=standin_environment(folder / "plan"), config=config)


def test_a_healthy_gpu_is_fine(tmp_path: Path) -> None:
    done = over_nvml(tmp_path, ONE)
    assert (done.returncode, done.stderr) == (0, "")
    assert "nvidia: usable" in done.stdout
    assert "power_watts" in done.stdout
    assert "has an accumulator, " in done.stdout
    assert done.stdout.endswith("All is well.\n")


@pytest.mark.parametrize(
    ("faults", "config", "code", "said"),
    [
        ("[{kind: hang, call: nvmlInitWithFlags}]", QUICK, 2, "no GPU was found"),
        ("[{kind: crash, call: nvmlInitWithFlags}]", PATIENT, 2, "no GPU was found"),
        ("[{kind: error, call: nvmlDeviceGetTotalEccErrors, status: 999}]", PATIENT, 1, "errors for"),
    ],
)
def test_each_kind_of_trouble_has_words_and_an_exit_code(
    tmp_path: Path, faults: str, config: str, code: int, said: str
) -> None:
    done = over_nvml(tmp_path, f"{ONE}faults: {faults}\n", config)
    assert said in done.stdout
    assert (done.returncode, done.stderr) == (code, "")


def test_a_library_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--provider", "amd", env={"ROCM_PATH": str(tmp_path), "ROCM_HOME": str(tmp_path)})
    assert done.returncode == 2
    assert "no GPU was found" in done.stdout


def test_a_wrong_option_is_told_in_a_line(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--provider", "nvidiaa")
    assert done.returncode == 2
    assert done.stderr.startswith("gpu-exporter: ")
    assert "Traceback" not in done.stderr


def test_the_recording_replays_and_keeps_the_secrets_of_the_host(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan", Machine(load_scenario(ONE, name="one.yaml"), time.monotonic() - 1000))
    done = doctor(tmp_path, "--provider", "nvidia", "--json", env=standin_environment(tmp_path / "plan"))
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["verdict"] == "fine"
    assert told["not_captured"] == {}
    (device,) = told["providers"]["nvidia"]["devices"]
    assert device["readings"]["power_watts"]["source"] == "nvidia"
    capture = load_capture(json.dumps(told["captures"]["nvidia"]))
    assert capture.seen == "hardware"
    assert len(capture.moments) == 2
    library = Replay(capture)
    context = OpenContext(between_calls=lambda: None, root=tmp_path / "nowhere")
    provider = open_library(library, context).provider
    (replayed,) = provider.devices()
    assert replayed.model == device["model"]
    sample = provider.read(replayed, EVERYTHING)
    assert sample.power_watts == pytest.approx(400, rel=0.05)
    machine = Machine(load_scenario(ONE, name="one.yaml"), time.monotonic() - 1000)
    (original,) = open_machine(machine, context).provider.devices()
    assert original.serial
    assert original.serial not in done.stdout
    assert original.key.removeprefix("GPU-") not in done.stdout
    assert replayed.key.startswith("GPU-")
