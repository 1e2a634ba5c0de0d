"""Simulated machines read as the sampler reads them, in compressed time: readings, identities and the truth."""

import json
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from exporter.measure.records import Counters, Identity, Point, Policy, Run, Window
from exporter.model import Device, GpuState, Group, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import SimulatedProvider
from exporter.providers.simulated.scenario import load_scenario

EPOCH = 1_000.0
UNIX = 1_800_000_000.0
"""What the wall clock is ahead of the monotonic one."""

# The loads of docs/energy.md that are hard to sample, between 80 W and 650 W; period and duty, or burst and gap.
LOADS: dict[str, dict[str, object]] = {
    "263 ms square": {"pattern": "square", "period_seconds": 0.263, "duty": 0.3},
    "1.04 s square": {"pattern": "square", "period_seconds": 1.04, "duty": 0.5},
    "2.1 s square": {"pattern": "square", "period_seconds": 2.117, "duty": 0.3},
    "9.7 s square": {"pattern": "square", "period_seconds": 9.7, "duty": 0.5},
    "31 s square": {"pattern": "square", "period_seconds": 31.0, "duty": 0.2},
    "rare bursts of 1 s": {"pattern": "bursts", "burst_seconds": 1.0, "gap_seconds": 7.0},
    "frequent bursts of 0.1 s": {"pattern": "bursts", "burst_seconds": 0.1, "gap_seconds": 0.4},
}
SWING = {"low_watts": 80.0, "watts": 650.0}


def machine(*devices: dict[str, object], **rest: object) -> Machine:
    return Machine(load_scenario(json.dumps({"devices": devices, **rest})), EPOCH)


class Sampler:
    """Reads each device of a machine at a nominal interval, with the jitter of a timer."""

    def __init__(self, simulated: Machine, interval: float = 0.1, *, seed: object = 0, jitter: float = 0.1) -> None:
        self.machine = simulated
        self._now = EPOCH
        self._provider = SimulatedProvider(simulated, lambda: None, lambda: self._now)
        self._interval, self._jitter, self._random = interval, jitter, Random(str(seed))
        self.devices = self._provider.devices()

    def read(self, start: float, end: float) -> tuple[Point, ...]:
        """Read from so many seconds after the epoch to so many, one GPU after the other."""
        points: list[Point] = []
        newest: dict[str, Evidence] = {}
        due = dict.fromkeys(_SLOW, 0.0)
        t = EPOCH + start
        while t <= EPOCH + end:
            late = {group for group, at in due.items() if t >= at}
            due |= {group: t + _SLOW[group] for group in late}
            for place, device in enumerate(self.devices):
                self._now = t + 0.001 * place
                sample = self._provider.read(device, frozenset({Group.ENERGY, *late}))
                evidence = newest.get(device.key, Evidence(None, None)).renewed(sample)
                newest[device.key] = evidence
                points.append(point(sample, evidence, self._now))
            t += self._interval * self._random.uniform(1 - self._jitter, 1 + self._jitter)
        return tuple(points)

    def identities(self) -> tuple[Identity, ...]:
        self._now = EPOCH + 1.0
        return tuple(
            identity(device, self._provider.read(device, frozenset({Group.ENERGY}))) for device in self.devices
        )

    def counters(self, at: float) -> Counters:
        joules = {device.key: self.machine.counter_joules(device.key, EPOCH + at) for device in self.devices}
        return Counters(at=UNIX + EPOCH + at, monotonic=EPOCH + at, joules=joules)

    def true_joules(self, window: Window, key: str | None = None) -> float:
        assert window.end is not None
        keys = [device.key for device in self.devices] if key is None else [key]
        energy = self.machine.energy_joules
        return sum(energy(one, window.end) - energy(one, window.start) for one in keys)


_SLOW = {Group.LOAD: 1.0, Group.STATE: 5.0}
"""Seconds between reads, as the worker has them."""


class Evidence(NamedTuple):
    utilization_ratio: float | None
    temperature_celsius: float | None

    def renewed(self, sample: Sample) -> "Evidence":
        celsius = sample.temperature_celsius
        warmth = celsius.get("gpu", celsius.get("hotspot"))
        return Evidence(
            self.utilization_ratio if Group.LOAD not in sample.taken_at else sample.utilization_ratio,
            self.temperature_celsius if Group.STATE not in sample.taken_at else warmth,
        )


def point(sample: Sample, evidence: Evidence, at: float) -> Point:
    return Point(
        at=UNIX + at,
        monotonic=at,
        gpu=sample.device.key,
        state=GpuState.LOST if sample.lost else GpuState.OK,
        power_watts=sample.power_watts,
        counter_joules=sample.energy_counter_joules,
        utilization_ratio=evidence.utilization_ratio,
        temperature_celsius=evidence.temperature_celsius,
    )


def identity(device: Device, sample: Sample) -> Identity:
    limits = [w for w in (sample.power_limit_watts, sample.power_limit_default_watts) if w is not None]
    return Identity(
        gpu=device.key,
        label=f"sim{device.index}",
        vendor=device.vendor,
        model=device.model,
        limit_watts=max(limits, default=None),
        power_kind=sample.power_kind,
        power_window_seconds=sample.power_window_seconds,
    )


def window(start: float, end: float, name: str = "window", **counts: float) -> Window:
    return Window(name=name, start=EPOCH + start, end=EPOCH + end, **counts)


def run(sampler: Sampler, points: Sequence[Point], *windows: Window, interval: float = 0.1, **rest: object) -> Run:
    known = sampler.identities()
    values: dict[str, object] = {"gpus": known, "gpus_at_end": known, **rest}
    return Run(
        points=tuple(points),
        windows=windows,
        policy=Policy(interval_seconds=interval),
        **values,  # type: ignore[arg-type]  # fields of a Run by name
    )
