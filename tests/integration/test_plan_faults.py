"""Do faults of a plan befall a process as a broken driver would?"""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.native.plan import PLAN_HEADERS, PLAN_SOURCES, build, compile_library, write_plan

pytestmark = pytest.mark.integration

CALLER = """
import ctypes, sys, time
c = ctypes.CDLL(sys.argv[1])
c.plan_device_at.restype = ctypes.c_void_p
c.plan_fault.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
assert c.plan_refresh() == 0
device = c.plan_device_at(b"nvidia", 0)
print("calling", flush=True)
started = time.monotonic()
status = c.plan_fault(device, b"nvmlDeviceGetName")
print(status, time.monotonic() - started, flush=True)
"""

LEAKER = """
import os, re
def held():
    memory = re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())
    return int(memory[1]) * 1024, len(os.listdir("/proc/self/fd"))
before = held()
for _ in range(10):
    c.plan_fault(device, b"nvmlLeak")
after = held()
print(after[0] - before[0], after[1] - before[1])
"""


def call_in_a_process(path: Path, machine: Machine, program: str = CALLER) -> "subprocess.Popen[str]":
    write_plan(path, machine)
    environment = {**os.environ, "GPU_EXPORTER_PLAN": str(path)}
    command = [sys.executable, "-c", program, str(build("plan"))]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def faulty(fault: dict[str, object]) -> Machine:
    text = json.dumps({"devices": [{"model": "T4", "faults": [fault]}]})
    return Machine(load_scenario(text), epoch=time.monotonic())


def test_a_crash_is_a_segmentation_fault(tmp_path: Path) -> None:
    process = call_in_a_process(tmp_path / "plan", faulty({"kind": "crash"}))
    assert process.communicate(timeout=20)[0] == "calling\n"
    assert process.returncode == -11


def test_an_abort_and_an_exit_end_the_process(tmp_path: Path) -> None:
    aborted = call_in_a_process(tmp_path / "plan", faulty({"kind": "abort"}))
    assert aborted.communicate(timeout=20)[0] == "calling\n"
    assert aborted.returncode == -6
    ended = call_in_a_process(tmp_path / "plan", faulty({"kind": "exit", "status": 3}))
    assert ended.communicate(timeout=20)[0] == "calling\n"
    assert ended.returncode == 3


def test_a_flood_prints_past_every_stream(tmp_path: Path) -> None:
    process = call_in_a_process(tmp_path / "plan", faulty({"kind": "flood", "bytes": 10_000}))
    printed = process.communicate(timeout=20)[0]
    assert 10_000 < len(printed) < 11_000


def test_leaks_are_what_they_are_called(tmp_path: Path) -> None:
    faults = [
        {"kind": "leak_memory", "call": "nvmlLeak", "bytes": 5e6},
        {"kind": "leak_descriptors", "call": "nvmlLeak"},
    ]
    text = json.dumps({"devices": [{"model": "T4", "faults": faults}]})
    machine = Machine(load_scenario(text), epoch=time.monotonic())
    process = call_in_a_process(tmp_path / "plan", machine, CALLER + LEAKER)
    *_, memory, descriptors = process.communicate(timeout=20)[0].split()
    assert int(memory) > 45_000_000
    assert int(descriptors) == 10


def test_a_hang_does_not_return_and_sigterm_ends_it(tmp_path: Path) -> None:
    process = call_in_a_process(tmp_path / "plan", faulty({"kind": "hang"}))
    assert process.stdout is not None
    assert process.stdout.readline() == "calling\n"
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.3)
    process.terminate()
    assert process.communicate(timeout=20)[0] == ""


def test_a_hang_ends_with_its_window(tmp_path: Path) -> None:
    process = call_in_a_process(tmp_path / "plan", faulty({"kind": "hang", "to_seconds": 1.5}))
    status, seconds = process.communicate(timeout=20)[0].split()[1:]
    assert status == "0"
    assert float(seconds) <= 1.6


def test_a_delay_delays_and_then_answers(tmp_path: Path) -> None:
    process = call_in_a_process(tmp_path / "plan", faulty({"kind": "delay", "seconds": 0.2}))
    status, seconds = process.communicate(timeout=20)[0].split()[1:]
    assert status == "0"
    assert float(seconds) >= 0.2


def test_the_evaluator_is_clean_under_sanitizers(tmp_path: Path) -> None:
    """Undefined behaviour in the stand-in would be taken for a fault of the daemon."""
    flags = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
    checked = compile_library("libplan.so", list(PLAN_SOURCES), list(PLAN_HEADERS), flags=flags)
    program = (
        "import ctypes, sys\n"
        "c = ctypes.CDLL(sys.argv[1]); assert c.plan_refresh() == 0\n"
        "c.plan_device_at.restype = ctypes.c_void_p; c.plan_energy.restype = ctypes.c_double\n"
        "c.plan_energy.argtypes = (ctypes.c_void_p, ctypes.c_double)\n"
        "print([c.plan_energy(c.plan_device_at(b'nvidia', 0), t) for t in (-1.0, 0.0, 5.0, 1e8)])"
    )
    text = "devices: [{model: H100-SXM, load: {pattern: training}}]"
    write_plan(tmp_path / "plan", Machine(load_scenario(text), epoch=0.0))
    environment = {**os.environ, "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    done = subprocess.run(
        [sys.executable, "-c", program, str(checked)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    energies = json.loads(done.stdout)
    assert energies[0] == energies[1] == 0
    assert all(math.isfinite(joules) for joules in energies)
