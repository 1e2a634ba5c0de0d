"""When a device's joules are divided, and by which of its readings: what was used first, and then who is there."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.fleet.tenancy import Tenancy
from exporter.fleet.tenants import NO_CLAIMS, Claims, tenants
from exporter.model import Group, PartitionSample, ProcessSample, Sample


class Seen(NamedTuple):
    """What is known of a device at one moment; None: that is not known, or for too long."""

    key: str
    now: float
    wall: float | None
    """Unix time at `now`."""
    progress: tuple[float, float] | None
    """Its total of joules, and the seconds whose energy is in it."""
    load: float | None
    busy_seconds: float | None
    memory_size: float | None
    partitions: tuple[PartitionSample, ...]
    processes: Sequence[ProcessSample] | None
    processes_until: float
    """Until when they are to be gone by."""


def load_of(
    load: Sample | None, partitions: Sequence[PartitionSample], processes: Sequence[ProcessSample] | None
) -> float | None:
    """Return that of the device, or of the busiest of its partitions where it tells none of its own.

    MIG tells neither: there it is known to be 0 where nobody runs anything.
    """
    if load is None or load.utilization_ratio is not None:
        return None if load is None else load.utilization_ratio
    loads = [part.utilization_ratio for part in partitions]
    known = [ratio for ratio in loads if ratio is not None]
    if known and len(known) == len(loads):
        return max(known)
    return 0.0 if processes is not None and not processes else None


class Charging:
    """Tells the accounts of one device what has happened, in the right order."""

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy
        self.claims = NO_CLAIMS
        self._until = math.inf
        """How long the processes by which joules are divided are those that are there."""
        self._by: tuple[tuple[PartitionSample, ...], float | None] = ((), None)
        """Partitions and memory of the device, of which those who hold them have their shares."""
        self._anew = False

    def attribute(self, claims: Claims, seen: Seen) -> None:
        """Take who owns processes and who was given devices; the first time, what is used is divided from here on."""
        if not self.tenancy.begun:
            total, covered = seen.progress or (0.0, 0.0)
            self.tenancy.begin(total, covered, seen.busy_seconds, seen.now)
        self.claims = claims
        self._take_energy(seen)
        self._divide(seen, seen.processes)

    def forget(self) -> None:
        """Nothing that was read of the device holds any longer."""
        self._anew = True

    def sampled(self, fresh: Iterable[Group], at: Mapping[Group, float], seen: Seen) -> None:
        """Take the groups of a sample, read at these times."""
        if not self.tenancy.begun:
            return
        if Group.ENERGY in fresh:
            if self._anew or at[Group.ENERGY] > self._until:
                self._divide(seen, None)
            self._take_energy(seen)
        if Group.LOAD in fresh:
            self.tenancy.load(seen.load, seen.busy_seconds)
        if Group.PROCESSES in fresh or (seen.partitions, seen.memory_size) != self._by:
            self._divide(seen, seen.processes)

    def awaits(self, now: float) -> bool:
        """Tell whether time alone has given `catch_up` something to do, which readings and claims always do."""
        return self.tenancy.begun and (self._anew or now > self._until or self.tenancy.awaits(now))

    def catch_up(self, seen: Seen) -> bool:
        """Divide all that the device's total shows, and tell whether something has changed by the passing of time."""
        if not self.tenancy.begun:
            return False
        self._take_energy(seen)
        self.tenancy.load(seen.load, seen.busy_seconds)
        late = self._anew or seen.now > self._until
        if late:
            self._divide(seen, None)
        return self.tenancy.expire(seen.now) or self.tenancy.due(seen.now) or late

    def _take_energy(self, seen: Seen) -> None:
        if seen.progress is not None:
            self.tenancy.energy(*seen.progress)

    def _divide(self, seen: Seen, processes: Sequence[ProcessSample] | None) -> None:
        """Divide by these processes from here on; None: it is not known which there are."""
        self.tenancy.load(seen.load, seen.busy_seconds)
        self._by = (seen.partitions, seen.memory_size)
        self._until = math.inf if processes is None else seen.processes_until
        self._anew = False
        allocations = self.claims.allocations.get(seen.key, ())
        there = tenants(processes, seen.partitions, seen.memory_size, self.claims.owners, allocations)
        self.tenancy.divide(there, seen.now, seen.wall)
