"""How fast and how exact is the ledger, and what does the fleet cost per read and per page? Prints its figures.

Run as `python -m tests.benchmarks.ledger [STEPS]`.
"""

import itertools
import math
import sys
import time
from random import Random

import msgspec

from exporter.config import SamplingConfig
from exporter.energy import EnergyReading, Ledger, advance
from exporter.fleet import Fleet
from exporter.model import Device, Group, Sample

PERIOD = 0.1
DEVICES = 64
ROUNDS = 50


def history(steps: int) -> list[EnergyReading]:
    """Return readings at 10 Hz with jitter of a load that changes all the time, with an honest accumulator."""
    random, at, joules, made = Random(1), 0.0, 0.0, []
    watts = 400.0
    for _ in range(steps):
        pause, after = PERIOD * random.uniform(0.9, 1.1), random.uniform(80, 650)
        at, joules, watts = at + pause, joules + (watts + after) / 2 * pause, after
        made.append(
            EnergyReading(
                at=at,
                period_seconds=PERIOD,
                power_watts=watts,
                power_window_seconds=0.0,
                limit_watts=700.0,
                counter_joules=joules,
                temperature_celsius=60.0,
                utilization_ratio=1.0,
            )
        )
    return made


def exact(readings: list[EnergyReading]) -> float:
    """Return the integral in exact addition of the same trapezoids."""
    pairs = itertools.pairwise(readings)
    return math.fsum((a.power_watts + b.power_watts) / 2 * (b.at - a.at) for a, b in pairs)


def ledger(steps: int) -> None:
    readings = history(steps)
    state = Ledger.start()
    start = time.perf_counter()
    for reading in readings:
        state = advance(state, reading)
    took = time.perf_counter() - start
    error = abs(state.integrated_joules / exact(readings) - 1)
    print(f"ledger      {steps / took:12,.0f} steps per second, {took / steps * 1e6:.2f} us each")
    print(f"integral    {error:12.1e} relative error over {steps:,} steps at 10 Hz")
    print(f"state       {len(msgspec.msgpack.encode(state)):12,} bytes as msgpack")


def sample(device: Device, at: float, groups: tuple[Group, ...]) -> Sample:
    return Sample(
        device=device,
        taken_at=dict.fromkeys(groups, at),
        power_watts=400.0 + at % 7,
        power_kind="average",
        power_window_seconds=1.0,
        power_limit_watts=700.0,
        energy_counter_joules=400.0 * at,
        utilization_ratio=0.5,
        temperature_celsius={"gpu": 60.0, "memory": 70.0},
        throttled={"sw_power_cap": True, "idle": False},
        processes=(),
    )


def fleet() -> None:
    devices = tuple(Device(vendor="nvidia", key=f"GPU-{n}", pci_address=f"0000:{n:02x}:00.0") for n in range(DEVICES))
    subject = Fleet([("nvidia", True)], SamplingConfig())
    subject.enumerated("nvidia", devices, 0.0)
    everything = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)
    for name, groups in (("energy only", (Group.ENERGY,)), ("all groups", everything)):
        observing = serving = idle = 0.0
        for second in range(1, ROUNDS + 1):
            at = float(second) + (0 if groups is not everything else ROUNDS)
            load = [sample(device, at, groups if second > 1 else everything) for device in devices]
            a = time.perf_counter()
            for each in load:
                subject.observed("nvidia", each, at + 0.01, 1e9 + at)
            b = time.perf_counter()
            subject.world(at + 0.02)
            c = time.perf_counter()
            subject.world(at + 0.03)
            d = time.perf_counter()
            observing, serving, idle = observing + b - a, serving + c - b, idle + d - c
        print(
            f"fleet of {DEVICES}, {name}: {observing / ROUNDS / DEVICES * 1e6:.1f} us per sample, "
            f"{serving / ROUNDS * 1e6:.0f} us per page after fresh readings, {idle / ROUNDS * 1e6:.0f} us unchanged"
        )


if __name__ == "__main__":
    ledger(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
    fleet()
