"""Run on a machine with a GPU: is what the exporter says true of the hardware? See the package's docstring."""

import itertools
import json
import os
import subprocess
import sys
import time

import pytest

from exporter.captures.format import load_capture
from exporter.config import Config
from exporter.doctor.recording import recorded
from exporter.model import Group, Groups, Sample
from exporter.supervision.schedule import ENERGY, EVERYTHING
from tests.hardware.analysis import Point, costs, integral, rise_seconds, update_period
from tests.hardware.conftest import Report
from tests.hardware.machine import ROOT, Bench, Load

pytestmark = pytest.mark.gpu

SECONDS = float(os.environ.get("HARDWARE_SECONDS", "6"))
"""Of each series of readings."""
READS = 20
LOAD = Groups({Group.LOAD})
PROCESSES = Groups({Group.PROCESSES})
SCRAPE_WAITS = 0.05
"""What a scrape waits for a fresh reading of energy, in seconds."""
CONTEXT_BYTES = 2 * 2**30
"""What a runtime takes on top for itself, at most."""


def counter(sample: Sample) -> float | None:
    return sample.energy_counter_joules


def power(sample: Sample) -> float | None:
    return sample.power_watts


def test_the_provider_keeps_its_contract(bench: Bench) -> None:
    # In a process of its own: closed there, the library would be closed here too.
    command = [sys.executable, "-m", "tests.integration.contract", bench.name, "", "sound", "/"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_what_it_answers_can_be_replayed(bench: Bench, report: Report) -> None:
    capture = recorded(bench.name, Config())
    report[bench.name]["capture"] = capture
    loaded = load_capture(json.dumps(capture))
    assert len(loaded.moments) == 2
    assert any(moment.calls or moment.files for moment in loaded.moments)


def test_each_group_is_read_in_time_and_each_call_has_a_price(bench: Bench, report: Report) -> None:
    bench.seconds.clear()
    groups: dict[str, float] = {}
    for group in sorted(EVERYTHING):
        took = [bench.read(Groups({group})).read_seconds.get(group, 0.0) for _ in range(READS)]
        groups[group.value] = 1e3 * sorted(took)[READS // 2]
    prices = {name: cost._asdict() for name, cost in costs(bench.seconds).items()}
    report[bench.name] |= {"group_milliseconds": groups, "calls": prices}
    assert groups["energy"] < 1e3 * SCRAPE_WAITS


def test_the_accumulator_moves_by_power_times_time(bench: Bench, report: Report) -> None:
    both: list[tuple[Point, Point]] = []
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        sample = bench.read(ENERGY)
        if sample.energy_counter_joules is not None and sample.power_watts is not None:
            at = sample.taken_at[Group.ENERGY]
            both.append((Point(at, sample.energy_counter_joules), Point(at, sample.power_watts)))
        time.sleep(0.02)
    if not both:
        pytest.skip("it has no accumulator, or no power")
    step = both[-1][0].value - both[0][0].value
    area = integral([watts for _, watts in both])
    report[bench.name]["accumulator_against_power"] = step / area - 1 if area else None
    assert step == pytest.approx(area, rel=0.25), "another unit, or another scope"


def test_the_accumulator_has_a_period(bench: Bench, report: Report) -> None:
    points = bench.poll(ENERGY, SECONDS, counter)
    if not points:
        pytest.skip("it has no accumulator")
    period = update_period(points)
    report[bench.name]["accumulator_update_seconds"] = period
    steps = [after.value - before.value for before, after in itertools.pairwise(points)]
    report[bench.name]["accumulator_quantum_joules"] = min((step for step in steps if step > 0), default=None)
    assert period is not None, "it stood still"
    assert period < 1.0


def test_power_rises_with_a_load_within_its_window(bench: Bench, worked: Load, report: Report) -> None:
    points = bench.poll(ENERGY, SECONDS / 3, power)
    if not points:
        pytest.skip("it has no power")
    begun = time.monotonic()
    worked.toggle()
    points += bench.poll(ENERGY, SECONDS, power)
    worked.toggle()
    rise = rise_seconds(points, begun)
    sample = bench.read(ENERGY)
    report[bench.name] |= {
        "load": worked.kind,
        "power_rise_seconds": rise,
        "power_window_seconds_measured": None if rise is None else rise / 0.8,
        "power_window_seconds_said": sample.power_window_seconds,
        "power_kind_said": sample.power_kind,
        "power_update_seconds": update_period(points),
        "idle_watts": points[0].value,
        "load_watts": max(point.value for point in points),
    }
    assert rise is not None, "power did not rise under the load"
    assert rise < 3.0


def test_memory_moves_by_what_a_process_takes(bench: Bench, report: Report, request: pytest.FixtureRequest) -> None:
    before = bench.read(LOAD).memory_used_bytes
    if before is None:
        pytest.skip("it tells no memory")
    worked: Load = request.getfixturevalue("worked")
    taken = (bench.read(LOAD).memory_used_bytes or 0.0) - before
    report[bench.name]["memory_moved_bytes"] = taken
    assert worked.size <= taken + 2**20
    assert taken <= worked.size + CONTEXT_BYTES


def test_our_own_process_is_seen_with_its_memory(bench: Bench, worked: Load, report: Report) -> None:
    processes = bench.read(PROCESSES).processes
    assert processes is not None, "processes cannot be listed"
    holding = [one for one in processes if (one.memory_used_bytes or 0) >= worked.size]
    report[bench.name]["own_process"] = {
        "pid_is_ours": any(one.pid == worked.pid for one in holding),
        "memory_bytes": [one.memory_used_bytes for one in holding],
    }
    assert holding, "no process holds what ours took"
    mine = [one for one in processes if one.pid == worked.pid]
    # In a container the driver tells the host's pids, of which ours is another.
    assert not mine or (mine[0].memory_used_bytes or 0) >= worked.size
