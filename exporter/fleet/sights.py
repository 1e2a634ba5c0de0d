"""What all providers see of one GPU, as one: its identity, its state, and its readings.

Most GPUs are seen by one provider, and then nothing is merged.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.fleet.choice import leading
from exporter.fleet.merge import Chosen, Part, has, identity, merge, one_of_all, sources
from exporter.fleet.sight import NO_GROUPS, READABLE, Sight
from exporter.model import Device, GpuState, Group, Sample

_NOTHING: Mapping[str, str] = {}


class Sights:
    """In order of preference; at least one from the first `see` on."""

    def __init__(self, device: Device, sampling: SamplingConfig) -> None:
        """Take the device under the key of its card."""
        self._sampling = sampling
        self._key = device.key
        self._ranks: dict[str, int] = {}
        self._all: tuple[Sight, ...] = ()
        self.only: Sight | None = None
        """The one sight where there is one."""
        self.lead: Sight | None = None
        """The one that counted when it was last looked; None: nobody has seen the device yet."""
        self._by_provider: dict[str, Sight] = {}
        self.device = device
        """The identity, each field of the first provider that tells it; the same object while nothing changes."""
        self._visible: dict[str, frozenset[Group]] = {}
        """Groups that are published, by provider, where there are several."""
        self._said: dict[Group, tuple[tuple[Chosen, list[Any]], Mapping[str, str]]] = {}
        """Where readings are from, with what that was made of."""
        self.lost_since: float | None = None
        """When the last provider lost it; None: one sees it. Every card is asked for it when there are too many."""
        self.state = GpuState.OK

    def __iter__(self) -> Iterator[Sight]:
        return iter(self._all)

    def __getitem__(self, provider: str) -> Sight:
        return self._by_provider[provider]

    def get(self, provider: str) -> Sight | None:
        return self._by_provider.get(provider)

    @property
    def after_lead(self) -> tuple[Sight, ...]:
        """Those that are less preferred than the one that counts."""
        return () if self.lead is None else self._all[self._all.index(self.lead) + 1 :]

    def see(self, provider: str, rank: int, device: Device, now: float) -> None:
        """Take that a provider lists the device; a lower rank is preferred."""
        sight = self.get(provider)
        if sight is not None:
            sight.see(device, now)
            self.identify()
            self.tally()
            return
        sight = self._by_provider[provider] = Sight(provider, device, self._sampling, now)
        self._ranks[provider] = rank
        self._all = tuple(sorted(self._by_provider.values(), key=lambda one: self._ranks[one.provider]))
        self.only = sight if len(self._all) == 1 else None
        self.lead = self.lead or sight
        self.identify()
        self.tally()

    def tally(self) -> None:
        """Take over that a provider has lost the device, or found it."""
        lost = all(sight.lost for sight in self._all)
        self.lost_since = max(sight.silent_since for sight in self._all) if lost else None

    def identify(self) -> None:
        """Take over what a sight has learnt of the identity."""
        devices = tuple(sight.device for sight in self._all)
        made = devices[0] if self.only is not None else identity(self._key, devices)
        if made != self.device:
            self.device = made

    def look(self, now: float, *, released: bool) -> frozenset[Group]:
        """Bring the state up to date; return the groups that are published and were not, or the reverse."""
        only = self.only
        if only is not None:
            changed = only.look(now, released=released)
            self.state = only.state
            return changed
        for sight in self._all:
            sight.look(now, released=released)
        before, self.lead = self.lead, leading(self._all, now)
        self.state = self.lead.state
        readable = self.state in READABLE
        shown = {sight.provider: sight.shown if readable else NO_GROUPS for sight in self._all}
        was, self._visible = self._visible, shown
        if before is not self.lead:  # whose readings need no source to be named
            return NO_GROUPS.union(*was.values(), *shown.values())
        return NO_GROUPS.union(*(groups_ ^ was.get(name, NO_GROUPS) for name, groups_ in shown.items()))

    def published(self, group: Group) -> tuple[Mapping[str, Any], Mapping[str, str]]:
        """Return the fields of a group as they are published, and where they are from if that has to be said.

        Nothing is said of a provider that leads and has one source alone.
        """
        only = self.only
        if only is not None:
            sample = only.readings.last(group) if group in only.shown else None
            if sample is None or not sample.sources:
                return groups.readings(group, sample), _NOTHING
        parts = [
            Part(sight.provider, sight.readings.last(group))
            for sight in self._all
            if group in self._published_of(sight)
        ]
        if len(parts) > 1:
            merged, chosen = merge(group, parts)
            return merged, self._named(group, parts, chosen)
        if not parts:
            return groups.readings(group, None), _NOTHING
        part = parts[0]
        fields = groups.readings(group, part.sample)
        if not part.sample.sources and self.lead is not None and part.provider == self.lead.provider:
            return fields, _NOTHING
        return fields, self._named(group, parts, one_of_all(group))

    def taken_at(self) -> Mapping[Group, float]:
        """Return when each group that is published was read, by the first of its providers."""
        only = self.only
        if only is not None:
            return only.readings.taken_at(only.shown)
        taken: dict[Group, float] = {}
        for sight in reversed(self._all):
            taken |= sight.readings.taken_at(self._published_of(sight))
        return taken

    def valid(self, group: Group, now: float) -> Sample | None:
        """Return a sample with the readings of a group that hold; None: there are none."""
        only = self.only
        if only is not None:
            return only.readings.valid(group, now)
        parts = list(self._parts(group, now))
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0].sample
        return msgspec.structs.replace(parts[0].sample, **merge(group, parts)[0])

    def tells(self, sight: Sight, group: Group, names: tuple[str, ...], now: float) -> bool:
        """Tell whether a sight is the first whose newest read of a group gave one of these readings.

        If none gave one, it is the first that was read.
        """
        if self.only is sight:
            return True
        first: str | None = None
        for part in self._parts(group, now):
            if any(has(getattr(part.sample, name)) for name in names):
                return part.provider == sight.provider
            first = first or part.provider
        return first == sight.provider

    def until(self, group: Group, name: str, now: float) -> float:
        """Until when the newest read of a group holds that gave this reading."""
        for sight in self._all:
            if self.only is sight or self.tells(sight, group, (name,), now):
                return sight.readings.until(group)
        return -math.inf

    def temperature(self, source: Sight, now: float) -> float | None:
        """Return that of one sensor always: of the provider whose energy it stands beside, unless it has none."""
        celsius = source.readings.temperature(now)
        if self.only is source or source.readings.has_temperature:
            return celsius
        for sight in self._all:
            if sight.readings.temperature(now) is not None or sight.readings.has_temperature:
                return sight.readings.temperature(now)
        return None

    def heard_before(self, sight: Sight, now: float) -> frozenset[str]:
        """Return the kinds of error events that a preferred provider listens to."""
        heard: frozenset[str] = frozenset()
        for preferred in self._all[: self._all.index(sight)]:
            if preferred.answers(now):
                heard |= preferred.events
        return heard

    def reading(self, group: Group, name: str, now: float) -> Any:
        """Return a reading that holds, of the first provider that gives it; None: there is none."""
        only = self.only
        if only is not None:
            sample = only.readings.valid(group, now)
            return None if sample is None else getattr(sample, name)
        values = (getattr(part.sample, name) for part in self._parts(group, now))
        return next((value for value in values if has(value)), None)

    def _named(self, group: Group, parts: list[Part], chosen: Chosen) -> Mapping[str, str]:
        """Return where readings are from, which hardly ever changes."""
        said = (chosen, [(part.provider, part.sample.sources) for part in parts])
        before = self._said.get(group)
        if before is None or before[0] != said:
            before = self._said[group] = (said, sources(group, parts, chosen))
        return before[1]

    def _published_of(self, sight: Sight) -> frozenset[Group]:
        return sight.shown if self.only is sight else self._visible.get(sight.provider, NO_GROUPS)

    def _parts(self, group: Group, now: float) -> Iterator[Part]:
        for sight in self._all:
            sample = sight.readings.valid(group, now)
            if sample is not None and sight.answers(now):
                yield Part(sight.provider, sample)
