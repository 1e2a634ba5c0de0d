"""Which groups of which device are due when. Pure: time is an argument, and so is the source of jitter."""

import math
from collections.abc import Sequence
from random import Random

from exporter.model import Group, Groups, Sample
from exporter.settings import SamplingConfig, is_averaged

ENUMERATE_SECONDS = 60.0
ENUMERATE_LOST_SECONDS = 10.0
"""While there is no device, or one is lost: its handle is void until the library has been asked for it again."""
ALL_LOST_SECONDS = 10.0
"""With every device lost for so long it may be the library that has lost them, as after a driver reload. The parent
bears with it for longer when that did not help."""
_JITTER = 0.03
_SLACK = 0.05
EVERYTHING = Groups({Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES})
ENERGY = Groups({Group.ENERGY})


class _Cadence:
    """Times of one group: on a grid from the start, or with jitter; what was missed is skipped, never caught up."""

    def __init__(self, period: float, start: float, random: Random | None = None) -> None:
        self.due = start
        self._period = period
        self._start = start
        self._random = random
        # A grid may come a little early so as to share a pass with its neighbours: fewer times to wake up.
        self.slack = 0.0 if random is not None else period * _SLACK

    def advance(self, now: float) -> None:
        if self._random is None:
            passed = math.floor((now + self.slack - self._start) / self._period + 1e-9)
            self.due = self._start + (passed + 1) * self._period
            return
        step = self._period * self._random.uniform(1 - _JITTER, 1 + _JITTER)
        self.due = self.due + step if self.due + step > now else now + step


class _Device:
    def __init__(self) -> None:
        self.new = True
        self.averaged = False
        self.lost = False
        self.relieved = False


class Schedule:
    """The times of one worker's reads.

    Energy of a device is read once a second where its power is an average over about a second, else ten times with
    jitter, so that no periodic load hides between the reads.
    """

    def __init__(
        self, sampling: SamplingConfig, random: Random, now: float, *, patience: float = ALL_LOST_SECONDS
    ) -> None:
        self._patience = patience
        self._averaged = _Cadence(sampling.energy_period(averaged=True), now)
        self._instant = _Cadence(sampling.energy_period(averaged=False), now, random)
        self._grids = {
            Group.LOAD: _Cadence(sampling.load_seconds, now),
            Group.STATE: _Cadence(sampling.state_seconds, now),
            Group.PROCESSES: _Cadence(sampling.processes_seconds, now),
        }
        if sampling.profiling_seconds is not None:
            self._grids[Group.PROFILING] = _Cadence(sampling.profiling_seconds, now)
        self._everything = Groups(self._grids) | ENERGY
        self._all = (*self._grids.values(), self._averaged, self._instant)
        self._taken: list[_Cadence] = []
        self._devices: dict[str, _Device] = {}
        self._relieved: frozenset[str] = frozenset()
        self._enumerate_at = now
        self._all_lost_since: float | None = None

    def enumeration_due(self, now: float) -> bool:
        return now >= self._enumerate_at

    def enumerated(self, keys: Sequence[str], now: float, *, missing: bool = False) -> None:
        """Take the devices that are to be read, in the order of reading; new ones are read completely at once.

        `missing`: there was one more under another worker. Lost when the library was opened, it is not listed at all.
        """
        self._devices = {key: self._devices.get(key) or _Device() for key in keys}
        self._mark()
        lost = missing or not keys or any(device.lost for device in self._devices.values())
        self._enumerate_at = now + (ENUMERATE_LOST_SECONDS if lost else ENUMERATE_SECONDS)

    def observed(self, sample: Sample, now: float) -> None:
        """Learn from a sample how often its device is to be read, and whether to enumerate anew."""
        device = self._devices.get(sample.device.key)
        if device is None:
            return
        device.new = False
        if sample.lost and not device.lost:
            self._enumerate_at = now
        device.lost = sample.lost
        if sample.power_kind is not None:
            device.averaged = is_averaged(sample.power_kind, sample.power_window_seconds)

    def relieve(self, keys: frozenset[str]) -> None:
        """Read the energy of these devices, and of no others, at the pace of state: another provider delivers it."""
        if keys != self._relieved:
            self._relieved = keys
            self._mark()

    def hopeless(self, now: float) -> bool:
        """Tell whether every device is lost, and has been for so long that the library should be opened anew."""
        if not self._devices or not all(device.lost for device in self._devices.values()):
            self._all_lost_since = None
            return False
        if self._all_lost_since is None:
            self._all_lost_since = now
        return now - self._all_lost_since >= self._patience

    def take(self, now: float) -> list[tuple[str, Groups]]:
        """Return what is to be read in this pass, and count it as done at `now`."""
        # Also those that nobody follows: a device whose kind is learnt in this pass has had its reading.
        reached = [cadence for cadence in self._all if cadence.due - cadence.slack <= now]
        active = self._active()
        self._taken = [cadence for cadence in reached if cadence in active]
        grids = Groups(group for group, cadence in self._grids.items() if cadence in self._taken)
        with_energy = grids | ENERGY
        averaged = with_energy if self._averaged in self._taken else grids
        instant = with_energy if self._instant in self._taken else grids
        relieved = with_energy if Group.STATE in grids else grids
        for cadence in reached:
            cadence.advance(now)
        due = [
            (key, self._groups(device, relieved if device.relieved else averaged if device.averaged else instant))
            for key, device in self._devices.items()
        ]
        return [(key, groups) for key, groups in due if groups]

    def finished(self, now: float) -> None:
        """Note the end of the pass: what became due again while it ran is skipped, so that a slow library can rest."""
        for cadence in self._taken:
            if cadence.due <= now:
                cadence.advance(now)

    def wait(self, now: float) -> float:
        """Return the seconds until something is due; at least 0."""
        if any(device.new for device in self._devices.values()):
            return 0.0
        due = [cadence.due for cadence in self._active()] if self._devices else []
        return max(0.0, min([*due, self._enumerate_at]) - now)

    def _mark(self) -> None:
        for key, device in self._devices.items():
            device.relieved = key in self._relieved

    def _groups(self, device: _Device, due: Groups) -> Groups:
        if device.new:
            return self._everything
        if device.lost:
            # Asked now and then whether it is back, not ten times a second.
            return self._everything if Group.STATE in due else Groups()
        return due

    def _active(self) -> list[_Cadence]:
        active = list(self._grids.values())
        present = [device for device in self._devices.values() if not device.lost and not device.relieved]
        if any(device.averaged for device in present):
            active.append(self._averaged)
        if any(not device.averaged for device in present):
            active.append(self._instant)
        return active
