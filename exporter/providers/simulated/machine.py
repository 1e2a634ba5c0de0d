"""The simulated machine: its devices and the truth about them, a pure function of the clock. It outlives the daemon."""

import copy
import math
from collections.abc import Sequence
from dataclasses import replace

from exporter.providers.simulated.assembly import assemble
from exporter.providers.simulated.device import Accumulator, Integral, Mean, SimulatedDevice, Slot, Stretch
from exporter.providers.simulated.physics import last_update
from exporter.providers.simulated.schema import Scenario


class Machine:
    """Devices that live since `epoch` (CLOCK_MONOTONIC seconds). Times of methods are CLOCK_MONOTONIC seconds."""

    def __init__(self, scenario: Scenario, epoch: float) -> None:
        self.scenario = scenario
        self.epoch = epoch
        assembled = assemble(scenario)
        self.texts, self.numbers, self.faults = assembled.texts, assembled.numbers, assembled.faults
        self._settle(assembled.devices)

    def _settle(self, devices: Sequence[SimulatedDevice]) -> None:
        self.devices = tuple(devices)
        self._by_key = {d.key: d for d in self.devices}

    def device(self, key: str) -> SimulatedDevice:
        return self._by_key[key]

    def energy_joules(self, key: str, at: float) -> float:
        """Return the true joules that the device drew from the epoch to `at`."""
        return self._by_key[key].energy(at - self.epoch)

    def power_watts(self, key: str, at: float) -> float:
        """Return the true power at `at`, as no sensor sees it."""
        return self._by_key[key].tracks["power_watts"].value(at - self.epoch)

    def counter_joules(self, key: str, at: float, slot: Slot = "gpu") -> float | None:
        """Return what the accumulator shows at `at`; infinite: all ones; None: the device has none."""
        return self.accumulated(self._by_key[key], at - self.epoch, slot)

    def accumulated(
        self, device: SimulatedDevice, t: float, slot: Slot = "gpu", *, shown: bool = False
    ) -> float | None:
        """Do what `counter_joules` does, for seconds since the epoch. `shown`: in the place of another device."""
        accumulator = device.accumulators.get(slot)
        if accumulator is None:
            return None
        for r in accumulator.replacements:
            if (shown and r.device >= 0) or not r.window.open_at(t):
                continue
            if r.device >= 0:
                return self.accumulated(self.devices[r.device], t, slot, shown=True)
            return None if math.isnan(r.value) else r.value
        u = last_update(t, accumulator.period)
        first = accumulator.stretches[0]
        stretch = next((s for s in reversed(accumulator.stretches) if s.start <= u), first)
        energy = device.tracks[accumulator.track].integral(u)
        raw = stretch.base + stretch.factor * (energy - stretch.energy)
        return math.floor(raw / accumulator.resolution) * accumulator.resolution

    def continued_from(self, old: "Machine", at: float) -> "Machine":
        """Return this machine with energies, accumulators and counters that go on at `at` where those of `old` were.

        Devices are matched by key. What a device of this machine does before `at` is of no meaning then. Both machines
        have the same epoch.
        """
        if self.epoch != old.epoch:
            raise ValueError("a machine continues one of the same epoch")
        t = at - self.epoch
        known = old._by_key  # noqa: SLF001 -- of the same class
        result = copy.copy(self)
        devices = [
            _continued(device, known[device.key], t) if device.key in known else device for device in self.devices
        ]
        result._settle(devices)  # noqa: SLF001 -- as above
        return result


def _continued(new: SimulatedDevice, old: SimulatedDevice, t: float) -> SimulatedDevice:
    accumulators: dict[Slot, Accumulator] = dict(new.accumulators)
    for slot, accumulator in new.accumulators.items():
        went, goes = _raw(old, slot, t), _raw(new, slot, t)
        if went is not None and goes is not None:
            accumulators[slot] = _raised(accumulator, went - goes, t)
    readings: dict[str, Mean | Integral] = dict(new.readings)
    for name, reading in new.readings.items():
        was = old.readings.get(name)
        if isinstance(reading, Integral) and isinstance(was, Integral):
            went_on = was.start + old.tracks[was.track].integral(t)
            readings[name] = Integral(reading.track, went_on - new.tracks[reading.track].integral(t))
    offset = old.energy(t) - new.tracks["power_watts"].integral(t)
    return replace(new, accumulators=accumulators, readings=readings, energy_offset=offset)


def _raw(device: SimulatedDevice, slot: Slot, t: float) -> float | None:
    """Return the accumulator without steps and without what stands in for it."""
    a = device.accumulators.get(slot)
    if a is None:
        return None
    stretch = next((s for s in reversed(a.stretches) if s.start <= t), a.stretches[0])
    return stretch.base + stretch.factor * (device.tracks[a.track].integral(t) - stretch.energy)


def _raised(accumulator: Accumulator, joules: float, t: float) -> Accumulator:
    """Add joules to all that is counted before the first reset after `t`."""
    stretches: list[Stretch] = []
    for s in accumulator.stretches:
        if s.anew and s.start > t:
            joules = 0.0
        stretches.append(replace(s, base=s.base + joules))
    return replace(accumulator, stretches=tuple(stretches))
