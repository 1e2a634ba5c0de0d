"""What one provider read of a GPU last, group by group, and for how long it holds."""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.metrics import SENSORS
from exporter.model import Group, Sample

_VITAL = frozenset({Group.ENERGY, Group.LOAD})
"""What a device that answers is always asked for."""


class Taken(NamedTuple):
    """What one sample brought."""

    fresh: list[Group]
    """The groups that were read since the sample before."""
    given_at: float | None
    """When the newest reading was taken that only the device can tell; None: none was given."""


class Readings:
    """Times are monotonic seconds."""

    def __init__(self, sampling: SamplingConfig) -> None:
        self._lifetimes = groups.lifetimes(sampling)
        self._newest: dict[Group, Sample] = {}
        self._taken: dict[Group, float] = {}
        """When each was read, whatever that gave."""
        self._until: dict[Group, float] = {}
        """Until when that holds."""
        self._given: dict[Group, float] = {}
        """When each of those that only the device can tell was read and gave a value."""
        self._gives_nothing = False
        """Whether it was read, and the newest read of no group gave a value."""
        self._sensor: str | None = None
        self.relieved = False
        """Whether energy is read at the pace of state, because another provider delivers it."""

    def take(self, sample: Sample) -> Taken:
        """Add a sample. The groups that it has read replace theirs as a whole."""
        fresh: list[Group] = []
        given_at = -math.inf
        for group, at in sample.taken_at.items():
            if at <= self._taken.get(group, -1.0):
                continue
            fresh.append(group)
            self._newest[group] = sample
            self._taken[group] = at
            self._until[group] = at + self.lifetime(group)
            if group in groups.ITS_OWN and groups.gave(sample, group):
                self._given[group] = at
                given_at = max(given_at, at)
        if given_at > -math.inf:
            self._gives_nothing = False
            return Taken(fresh, given_at)
        own = self._newest.keys() & groups.ITS_OWN
        self._gives_nothing = bool(own) and all(self._given.get(each, -math.inf) < self._taken[each] for each in own)
        return Taken(fresh, None)

    def forget(self) -> Iterable[Group]:
        """Let nothing that was read hold any longer, and return of which groups that was."""
        forgotten, self._newest = self._newest, {}
        self._gives_nothing = False
        return forgotten

    def last(self, group: Group) -> Sample:
        """Return the sample with the newest read of a group, however old. Raises KeyError."""
        return self._newest[group]

    def valid(self, group: Group, now: float) -> Sample | None:
        """Return the sample with the newest read of a group; None: there is none, or it is too old."""
        return self._newest[group] if group in self._newest and now <= self._until[group] else None

    def all_valid(self, now: float) -> frozenset[Group]:
        return frozenset(group for group in self._newest if now <= self._until[group])

    def until(self, group: Group) -> float:
        """Until when the newest read of a group holds; what was never read does not."""
        return self._until.get(group, -math.inf)

    def taken_at(self, chosen: Iterable[Group]) -> Mapping[Group, float]:
        return {group: self._taken[group] for group in chosen}

    def lifetime(self, group: Group) -> float:
        """Return for how many seconds a reading of a group holds."""
        if self.relieved and group is Group.ENERGY:
            return max(self._lifetimes[group], self._lifetimes[Group.STATE])
        return self._lifetimes[group]

    def read_at(self, group: Group) -> float:
        """Return when a group was read last, whatever that gave."""
        return self._taken.get(group, -math.inf)

    def last_taken(self, otherwise: float) -> float:
        """Return when a group was read last."""
        return max((self._taken[group] for group in self._newest), default=otherwise)

    def is_stale(self, now: float, since: float) -> bool:
        """Tell whether what any device gives is too old, or has been missing for too long, counted from `since`."""
        vital = self._newest.keys() & _VITAL
        silent = (not vital or self._gives_nothing) and now > self._silent_at(since)
        return silent or any(now > self._until[group] for group in vital)

    def same_until(self, shown: frozenset[Group], since: float) -> float:
        """Return until when these groups hold, and the device is as stale as it is."""
        # What is too old already comes back with a new reading only; a device without readings falls silent with time.
        ends = [self._until[group] for group in shown]
        if self._gives_nothing:
            ends.append(self._silent_at(since))
        return min(ends) if shown & _VITAL else min([*ends, since + groups.STALE_SECONDS])

    def _silent_at(self, since: float) -> float:
        given = (at for group, at in self._given.items() if group in self._newest)
        return max([since, *given]) + groups.STALE_SECONDS

    @property
    def has_temperature(self) -> bool:
        """Whether `temperature` has found its sensor."""
        return self._sensor is not None

    def temperature(self, now: float) -> float | None:
        """Return that of one sensor always: another one, when it is missing once, would look like a change."""
        state = self.valid(Group.STATE, now)
        if state is None:
            return None
        if self._sensor is None:
            self._sensor = next((name for name in SENSORS if name in state.temperature_celsius), None)
        return state.temperature_celsius.get(self._sensor or "")
