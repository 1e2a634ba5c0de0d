"""`gpu-exporter measure` as a person or a job runs it, over simulated GPUs whose true energy is known."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from exporter.measure.results import Report, WindowResult, decode_report
from exporter.measure.samples import Samples, read_samples
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import ROOT

SECONDS = 60.0
"""How long a run may take on a busy machine."""
SQUARE = "{pattern: square, watts: 600, low_watts: 100, period_seconds: 1.7}"
PYTHON = sys.executable


class Bench:
    """A scenario, a place for results, and the command line over both."""

    def __init__(self, folder: Path, devices: str = f"- {{model: H100-SXM, count: 2, load: {SQUARE}}}") -> None:
        self.folder = folder
        self.out = folder / "out"
        self.scenario = folder / "scenario.yaml"
        self.epoch = time.monotonic() - 100
        self.write(devices)

    def write(self, devices: str) -> None:
        """`devices`: the list of them in YAML."""
        self.scenario.write_text(f"epoch_seconds: {self.epoch}\ndevices:\n{devices}\n")

    @property
    def now(self) -> float:
        """The seconds of the scenario."""
        return time.monotonic() - self.epoch

    def command(self, *options: str) -> list[str]:
        sources = () if "--provider" in options or "--from-log" in options else ("--simulate", str(self.scenario))
        output = () if "--output" in options or "--from-log" in options else ("--output", str(self.out))
        return [PYTHON, "-m", "exporter", "measure", *sources, *output, *options]

    def start(self, *options: str, env: Mapping[str, str] | None = None, **more: Any) -> "subprocess.Popen[bytes]":
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        # Without the terminal of whoever runs the tests, as in a job.
        return subprocess.Popen(
            self.command(*options), cwd=self.folder, env=environment, start_new_session=True, **more
        )

    def run(self, *options: str, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        """Run it to its end."""
        given = more.pop("input", None)
        if given is not None:
            more["stdin"] = subprocess.PIPE
        process = self.start(*options, **more)
        try:
            out, err = process.communicate(given, timeout=SECONDS)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(10)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def report(self) -> Report:
        return decode_report((self.out / "energy.json").read_bytes())

    def samples(self) -> Samples:
        return read_samples((self.out / "samples.csv").read_bytes())

    def window(self, name: str = "command", run: int = 1) -> WindowResult:
        (found,) = [window for window in self.report().runs[run - 1].windows if window.name == name]
        return found

    def truth(self, window: WindowResult) -> dict[str, float]:
        """Return the true joules of each GPU in the window."""
        machine = Machine(load_scenario(self.scenario.read_text()), self.epoch)
        points = self.samples().points
        assert window.start_timestamp is not None
        assert window.end_timestamp is not None
        start, end = (
            min(points, key=lambda point, at=at: abs(point.at - at))
            for at in (window.start_timestamp, window.end_timestamp)
        )
        begin = start.monotonic + window.start_timestamp - start.at
        until = end.monotonic + window.end_timestamp - end.at
        return {
            device.key: machine.energy_joules(device.key, until) - machine.energy_joules(device.key, begin)
            for device in machine.devices
        }

    def until_running(self, process: "subprocess.Popen[bytes]", sign: Path) -> float:
        """Wait until the command has made the file `sign`; return the moment."""
        deadline = time.monotonic() + SECONDS
        while not sign.exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return time.monotonic()


def within_its_bounds(bench: Bench, window: WindowResult) -> bool:
    """Tell whether each GPU's joules are as near to the truth as the result says."""
    truth = bench.truth(window)
    assert len(window.gpus) == len(truth)
    return all(
        gpu.joules is not None
        and gpu.uncertainty_joules is not None
        and abs(gpu.joules - truth[gpu.gpu]) <= gpu.uncertainty_joules
        for gpu in window.gpus
    )


def reasons(window: WindowResult) -> set[str]:
    return {reason.reason for reason in window.reasons}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def worker_of(pid: int) -> int:
    """Return the process that reads the GPUs for this one."""
    (worker,) = [
        child for child in children(pid) if b"supervision.worker" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    return worker


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
