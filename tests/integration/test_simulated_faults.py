"""Do faults of a simulated device befall its process as those of a vendor's library would?"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

READER = """
import faulthandler, signal, sys
from exporter.model import Group
from exporter.providers.protocol import OpenContext
from exporter.providers.simulated import open_simulated
faulthandler.enable()
signal.signal(signal.SIGTERM, lambda *_: print("handled", flush=True))
provider = open_simulated(OpenContext(between_calls=lambda: None, scenario=sys.argv[1])).provider
device = provider.devices()[0]
print("reading", flush=True)
sample = provider.read(device, frozenset({Group.LOAD}))
print("read", sample.read_seconds["load"], flush=True)
"""


def reader(folder: Path, fault: str, rest: str = "") -> "subprocess.Popen[str]":
    scenario = folder / "scenario.yaml"
    scenario.write_text(f"epoch: start\ndevices: [{{model: T4, faults: [{fault}]}}]\n{rest}", encoding="utf-8")
    command = [sys.executable, "-c", READER, str(scenario)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_a_crash_is_a_segmentation_fault(tmp_path: Path) -> None:
    process = reader(tmp_path, "{kind: crash, call: memory}")
    assert process.communicate(timeout=30)[0] == "reading\n"
    assert process.returncode == -signal.SIGSEGV


def test_an_abort_and_an_exit_end_the_process(tmp_path: Path) -> None:
    for fault, status in (
        ("{kind: abort, call: memory}", -signal.SIGABRT),
        ("{kind: exit, call: memory, status: 3}", 3),
    ):
        process = reader(tmp_path, fault)
        assert process.communicate(timeout=30)[0] == "reading\n"
        assert process.returncode == status


def test_a_flood_prints_past_every_stream(tmp_path: Path) -> None:
    process = reader(tmp_path, "{kind: flood, call: memory, bytes: 10000}")
    assert 10_000 < len(process.communicate(timeout=30)[0]) < 10_500


def test_a_hang_never_returns_and_runs_no_handler(tmp_path: Path) -> None:
    process = reader(tmp_path, "{kind: hang}")
    assert process.stdout is not None
    assert process.stdout.readline() == "reading\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)  # until it is in the call
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.kill()
    assert process.communicate(timeout=30)[0] == ""


def test_a_delay_delays(tmp_path: Path) -> None:
    process = reader(tmp_path, "{kind: delay, seconds: 0.1}")
    (_, _, seconds) = process.communicate(timeout=30)[0].split()
    assert float(seconds) >= 0.2  # two calls


def test_calls_may_be_slow(tmp_path: Path) -> None:
    process = reader(tmp_path, "", "call_seconds: 0.1")
    (_, _, seconds) = process.communicate(timeout=30)[0].split()
    assert float(seconds) >= 0.2
