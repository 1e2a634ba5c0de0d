"""What is known of one GPU: what its providers see, as one, and what was counted."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.fleet.charging import Charging, Seen, load_of
from exporter.fleet.choice import metering
from exporter.fleet.counters import Integral, ThrottleSeconds
from exporter.fleet.events import EventCounts
from exporter.fleet.explain import Explanation, explain
from exporter.fleet.links import LinkCounts
from exporter.fleet.meter import Meter
from exporter.fleet.processes import Selection, Shown
from exporter.fleet.record import CardRecord
from exporter.fleet.sight import Sight
from exporter.fleet.sights import Sights
from exporter.fleet.tenants import Claims
from exporter.metrics import Block
from exporter.model import Device, DeviceSnapshot, GpuState, Group, PartitionSample, Sample


class Card:
    """One GPU, from its first sight until it is forgotten."""

    def __init__(
        self,
        gpu: str,
        order: tuple[str, int],
        device: Device,
        sampling: SamplingConfig,
        selection: Selection,
        charging: Charging,
    ) -> None:
        self.gpu = gpu
        self.order = order
        self.key = device.key
        self.sights = Sights(device, sampling)
        self._metered = ""
        """The provider whose readings the ledgers hold; empty: they hold none."""
        self._throttled_by = ""
        """The provider that told last whether clocks are held down."""
        self._last_sample_timestamp: float | None = None
        self._meter = Meter(sampling)
        self._busy = Integral(sampling.load_seconds)
        self._throttle = ThrottleSeconds(sampling.state_seconds)
        self._links = LinkCounts()
        self._events = EventCounts()
        self._events_left_out = 0
        self._dirty: set[Group] = set()
        self._sources: dict[Group, Mapping[str, str]] = {}
        self._published: DeviceSnapshot | None = None
        self._selection = selection
        self._chosen = Shown()
        self._charging = charging
        self._ahead: float | None = None
        """By how much Unix time is ahead of monotonic time."""

    def restore(self, record: CardRecord, now: float) -> None:
        """Go on from what a journal kept, before anything is known of the device."""
        self._metered = record.provider
        if record.meter is not None:
            self._meter.restore(record.meter, now)
        if record.tenancy is not None:
            self._charging.tenancy.restore(record.tenancy, now)
            self._dirty.add(Group.ENERGY)

    def attribute(self, claims: Claims, now: float) -> None:
        """Take who owns processes and who was given devices."""
        self._charging.attribute(claims, self._seen(now))
        self._dirty |= {Group.ENERGY, Group.PROCESSES}

    @property
    def device(self) -> Device:
        return self.sights.device

    @property
    def left_out(self) -> Mapping[str, int]:
        """Series that the page has no room for, by family."""
        counts = {
            "gpu_process_memory_used_bytes": self._chosen.summed,
            "gpu_process_info": self._chosen.unnamed,
            "gpu_workload_info": self._charging.tenancy.refused,
            "gpu_error_events_total": self._events_left_out,
        }
        return {family: count for family, count in counts.items() if count}

    def record(self, now: float) -> CardRecord:
        """Return what is kept over a restart."""
        self._charge(now)
        lead = self.sights.lead
        return CardRecord(
            key=self.key,
            provider=self._metered or ("" if lead is None else lead.provider),
            meter=self._meter.record(),
            order=self.order,
            unseen_seconds=0.0 if self.sights.lost_since is None else now - self.sights.lost_since,
            tenancy=self._charging.tenancy.record(),
        )

    def explain(self, now: float) -> Explanation | None:
        """Say why it shows what it shows; None: nothing of it was published yet."""
        shown = self._published
        return None if shown is None else explain(shown, self.sights, self._meter.decisions(), now)

    def let_go(self) -> None:
        """Be released."""
        for sight in self.sights:
            self._forget(sight, sight.let_go())

    def take_up(self, now: float) -> None:
        """Be free to be read again."""
        for sight in self.sights:
            sight.take_up(now)

    def unlist(self, provider: str, now: float) -> None:
        """Take that a provider does not see it any more."""
        sight = self.sights.get(provider)
        if sight is not None and sight.listed:
            self._forget(sight, sight.unlist(now))
            self.sights.tally()

    def relieve(self, provider: str, now: float) -> bool:
        """Tell whether this provider need not read energy often, since a preferred one delivers it."""
        relieved = False
        for sight in self.sights:
            if sight.provider == provider:
                sight.readings.relieved = relieved
                return relieved
            relieved = relieved or (sight.provider == self._metered and sight.relieves(now))
        return False

    def observe(self, provider: str, sample: Sample, now: float, wall: float) -> bool:
        """Add a sample. The groups that it has read replace theirs as a whole. Return whether it gave a reading."""
        sight = self.sights[provider]
        if sample.error_event_kinds or sample.error_events:
            self._listen(sight, sample, now, wall)
        if sample.lost:
            self._forget(sight, sight.lose(now))
            self.sights.tally()
            return False
        self._ahead = wall - now
        if sample.device != sight.device:
            sight.device = sample.device
            self.sights.identify()
        if sample.asleep:
            self._forget(sight, sight.sleep(now))
            self.sights.tally()
            return False
        taken = sight.take(sample, now)
        if self.sights.lost_since is not None:
            self.sights.tally()
        self._dirty.update(taken.fresh)
        self._count(sight, sample, taken.fresh, now, wall)
        if taken.given_at is None:
            return False
        self._last_sample_timestamp = wall - max(0.0, now - taken.given_at)
        self._dirty.add(Group.ENERGY)  # the block of the time stamp
        return True

    def has_news(self, now: float, *, released: bool) -> bool:
        """Tell whether what is published would have another state, identity, processes or partitions.

        What else was read is none.
        """
        self._dirty |= self.sights.look(now, released=released)
        before = self._published
        return (
            before is None
            or Group.PROCESSES in self._dirty
            or before.state is not self.sights.state
            or before.device is not self.device
            or before.provider != self._provider
            or (
                Group.STATE in self._dirty
                and _division(self.sights.reading(Group.STATE, "partitions", now))
                != _division(before.sample.partitions)
            )
        )

    def snapshot(self, now: float, *, released: bool) -> tuple[DeviceSnapshot, set[Block]]:
        """Return what is published, and the blocks that look different from the snapshot before."""
        before = self._published
        if self._dirty or self._charging.awaits(now):
            self._charge(now)
        dirty = self.sights.look(now, released=released) | self._dirty
        state, device, provider = self.sights.state, self.device, self._provider
        if before is None:
            before = self._blank(state)
        elif not dirty and state is before.state and device is before.device and provider == before.provider:
            return before, set()
        self._dirty = set()
        fields = self._readings(dirty)
        if Group.PROCESSES in dirty:
            self._chosen = self._selection.choose(fields["processes"] or (), self._charging.claims.owners)
        if Group.ENERGY in dirty:
            self._charging.tenancy.advance(now)
        # Moved to another provider's part of the page, it is gone from where it was.
        moved = set() if provider == before.provider else self.gone()
        self._published = DeviceSnapshot(
            gpu=self.gpu,
            provider=provider,
            device=device,
            state=state,
            sample=msgspec.structs.replace(
                before.sample,
                device=device,
                lost=state is GpuState.LOST,
                asleep=state is GpuState.ASLEEP,
                taken_at=self.sights.taken_at(),
                **fields,
            ),
            sources={name: source for named in self._sources.values() for name, source in named.items()},
            last_sample_timestamp=self._last_sample_timestamp,
            energy=self._meter.account(),
            module_energy_joules=self._meter.module_joules,
            busy_seconds=self._busy.seconds,
            throttle_seconds=self._throttle.seconds,
            link_totals=self._links.totals,
            error_events=self._events.counts,
            error_event_timestamps=self._events.timestamps,
            workloads=self._charging.tenancy.snapshots(),
            unattributed_joules=self._charging.tenancy.unattributed_joules,
            process_series=self._chosen.series,
            process_owners=self._chosen.owners,
        )
        return self._published, moved | groups.changed(before, self._published, groups.blocks_of(dirty))

    def gone(self) -> set[Block]:
        """Return the blocks that look different without this card."""
        if self._published is None:
            return set()
        return groups.changed(self._published, self._blank(self._published.state), groups.DEVICE_BLOCKS)

    def close(self) -> None:
        """Be forgotten, with what its workloads used."""
        self._charging.tenancy.close()

    @property
    def _provider(self) -> str:
        lead = self.sights.lead
        return "" if lead is None else lead.provider

    def _blank(self, state: GpuState) -> DeviceSnapshot:
        return DeviceSnapshot(gpu="", provider="", device=self.device, state=state, sample=Sample(device=self.device))

    def _readings(self, dirty: Iterable[Group]) -> dict[str, Any]:
        """Return the fields of these groups as they are published, and note where they are from."""
        fields: dict[str, Any] = {}
        for group in dirty:
            readings, sources = self.sights.published(group)
            fields |= readings
            if sources or group in self._sources:
                self._sources[group] = sources
        return fields

    def _listen(self, sight: Sight, sample: Sample, now: float, wall: float) -> None:
        """Count events; each kind is one provider's to tell."""
        heard = self.sights.heard_before(sight, now)
        sight.events |= set(sample.error_event_kinds)
        if self._events.listen(kind for kind in sample.error_event_kinds if kind not in heard):
            self._dirty.add(Group.STATE)
        events = [event for event in sample.error_events if event.kind not in heard]
        if events:
            self._events_left_out += self._events.add(events, wall)
            self._dirty.add(Group.STATE)

    def _count(self, sight: Sight, sample: Sample, fresh: list[Group], now: float, wall: float) -> None:
        """Add what is counted: each figure from one provider at a time."""
        at: Mapping[Group, float] = sample.taken_at
        counted = []
        if Group.LOAD in fresh and self.sights.tells(sight, Group.LOAD, ("utilization_ratio",), now):
            counted.append(Group.LOAD)
            self._busy.observe(at[Group.LOAD], sample.utilization_ratio)
        if Group.STATE in fresh and self.sights.tells(sight, Group.STATE, ("throttled", "throttle_seconds"), now):
            if self._throttled_by != sight.provider:
                self._throttled_by = sight.provider
                self._throttle.detach()
            self._throttle.observe(at[Group.STATE], sample.throttled, sample.throttle_seconds)
        if sample.links and Group.STATE in fresh and self.sights.tells(sight, Group.STATE, ("links",), now):
            self._links.observe(sight.provider, sample.links)
        if Group.ENERGY in fresh and self._is_metered(sight, now):
            counted.append(Group.ENERGY)
            taken = at[Group.ENERGY]
            self._meter.observe(
                sample,
                taken,
                wall - max(0.0, now - taken),
                self.sights.temperature(sight, now),
                self.sights.reading(Group.LOAD, "utilization_ratio", now),
            )
        if self._charging.tenancy.begun:
            if Group.PROCESSES in fresh and self.sights.tells(sight, Group.PROCESSES, ("processes",), now):
                counted.append(Group.PROCESSES)
            self._charging.sampled(counted, at, self._seen(now))

    def _is_metered(self, sight: Sight, now: float) -> bool:
        """Tell whether its power and accumulator go into the ledgers, and make them ready for that."""
        if self.sights.only is not sight and metering(tuple(self.sights), self._metered, now) is not sight:
            return False
        if self._metered != sight.provider:
            if self._metered:
                self._meter.detach()
                self._charging.tenancy.forget_idle_power()
            self._metered = sight.provider
        return True

    def _charge(self, now: float) -> None:
        if self._charging.tenancy.begun and self._charging.catch_up(self._seen(now)):
            self._dirty.add(Group.ENERGY)

    def _seen(self, now: float) -> Seen:
        load, state = self.sights.valid(Group.LOAD, now), self.sights.valid(Group.STATE, now)
        users = self.sights.valid(Group.PROCESSES, now)
        partitions = () if state is None else state.partitions or ()
        processes = None if users is None else users.processes
        return Seen(
            key=self.key,
            now=now,
            wall=None if self._ahead is None else now + self._ahead,
            progress=self._meter.progress,
            load=load_of(load, partitions, processes),
            busy_seconds=self._busy.seconds,
            memory_size=None if load is None else load.memory_size_bytes,
            partitions=partitions,
            processes=processes,
            processes_until=self.sights.until(Group.PROCESSES, "processes", now),
        )

    def _forget(self, sight: Sight, forgotten: frozenset[Group]) -> None:
        self._dirty |= forgotten
        if sight is self.sights.lead:
            self._charging.forget()


def _division(partitions: Iterable[PartitionSample] | None) -> list[tuple[object, ...]]:
    """Return what is known of partitions, but not what they use: that changes with every read."""
    return [(part.partition, part.uuid, part.profile, part.memory_size_bytes) for part in partitions or ()]
