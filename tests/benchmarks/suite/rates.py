"""How many frames a second go through the pipe from a worker, and how many steps a second the ledger takes."""

import os
import statistics
import subprocess
import sys
import time

from exporter.energy import Ledger, advance
from exporter.supervision import frames
from tests.benchmarks.ledger import history
from tests.benchmarks.page import device
from tests.benchmarks.suite.section import Section
from tests.integration.daemon import ROOT

FRAMES, STEPS, ROUNDS = 30_000, 50_000, 5


def sampled(*, full: bool) -> frames.Sampled:
    """Return what a worker sends of an H100: all groups, or energy alone."""
    shown = device(0, 1.0, 4 if full else 0, 0)
    sample = shown.sample
    assert sample is not None
    if not full:
        sample = type(sample)(
            device=sample.device,
            power_watts=sample.power_watts,
            power_kind=sample.power_kind,
            power_window_seconds=1.0,
            power_limit_watts=700.0,
            energy_counter_joules=12_345_678.9,
        )
    return frames.Sampled(sample)


def through_the_pipe(*, full: bool) -> tuple[float, int]:
    """Return frames per second, made by one process and taken by another, and bytes of one."""
    command = [sys.executable, "-m", "tests.benchmarks.suite.rates", "full" if full else "energy"]
    inbox = frames.reports()
    seen = began = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}) as child:
        assert child.stdout is not None
        while data := os.read(child.stdout.fileno(), 1 << 16):
            began = began or time.perf_counter()
            seen += sum(1 for _ in inbox.feed(data))
        took = time.perf_counter() - began
    assert seen == FRAMES, seen
    return seen / took, len(frames.encode(sampled(full=full)))


def steps() -> float:
    readings, state = history(STEPS), Ledger.start()
    began = time.perf_counter()
    for reading in readings:
        state = advance(state, reading)
    return STEPS / (time.perf_counter() - began)


def rates(_: float) -> Section:
    section = Section("Rates")
    rows = []
    for full in (False, True):
        told = [through_the_pipe(full=full) for _ in range(ROUNDS)]
        name = f"frames through the pipe, {'all groups' if full else 'energy'}, {told[0][1]:,} bytes"
        rows.append([name, f"{statistics.median(rate for rate, _ in told):,.0f}"])
    rows.append(["steps of the ledger", f"{statistics.median(steps() for _ in range(ROUNDS)):,.0f}"])
    section.say(
        f"Median of {ROUNDS} runs. 64 GPUs at 10 Hz make 640 frames and steps a second. A frame is packed by one "
        "process and unpacked by another."
    )
    section.table(("", "a second"), rows)
    return section


def send() -> None:
    sent = sampled(full=sys.argv[1] == "full")
    for _ in range(FRAMES):
        data = frames.encode(sent)
        while data:
            data = data[os.write(1, data) :]


if __name__ == "__main__":
    send()
