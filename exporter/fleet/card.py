"""What is known of one GPU: the newest readings of each group, its state, and what was counted."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.fleet.charging import Charging, Seen, load_of
from exporter.fleet.counters import Integral, ThrottleSeconds
from exporter.fleet.events import EventCounts
from exporter.fleet.meter import Meter
from exporter.fleet.processes import Selection, Shown
from exporter.fleet.readings import Readings
from exporter.fleet.record import CardRecord
from exporter.fleet.tenants import Claims
from exporter.metrics import Block
from exporter.model import Device, DeviceSnapshot, GpuState, Group, Sample

_NONE: frozenset[Group] = frozenset()
_READABLE = frozenset({GpuState.OK, GpuState.STALE})


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
        now: float,
    ) -> None:
        self.gpu = gpu
        self.order = order
        self.device = device
        self.provider = ""
        self.listed = True
        """Whether a provider enumerates it."""
        self.lost_at: float | None = None
        self.hung = False
        """Whether the supervisor has it in question."""
        self._cut_off = False
        """Whether its provider is down, so that nothing is read."""
        self._asleep = False
        self._asleep_at = now
        """When it was last seen to be."""
        self.silent_since = now
        """Since when no reading is expected to be there already: first sight, loss, return, sleep, end of a release."""
        self._is_back = True
        """Whether it was read since it was released."""
        self._readings = Readings(sampling)
        self._last_sample_timestamp: float | None = None
        self._meter = Meter(sampling)
        self._busy = Integral(sampling.load_seconds)
        self._throttle = ThrottleSeconds(sampling.state_seconds)
        self._events = EventCounts()
        self._events_left_out = 0
        self._dirty: set[Group] = set()
        self._shown = _NONE
        self._same_until = -math.inf
        """Until when neither state nor what is shown changes by the passing of time."""
        self._published: DeviceSnapshot | None = None
        self._selection = selection
        self._chosen = Shown()
        self._charging = charging
        self._ahead: float | None = None
        """By how much Unix time is ahead of monotonic time."""

    def restore(self, record: CardRecord, now: float) -> None:
        """Go on from what a journal kept, before anything is known of the device."""
        self.provider = record.provider
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
        return CardRecord(
            key=self.device.key,
            provider=self.provider,
            meter=self._meter.record(),
            order=self.order,
            unseen_seconds=now - self.silent_since if self.lost else 0.0,
            tenancy=self._charging.tenancy.record(),
        )

    def identify(self, device: Device, now: float) -> None:
        """Take the identity that a provider gives, which thereby sees the device."""
        if device != self.device:
            self.device = device
        if not self.listed:
            self.listed = True
            self.silent_since = now

    def moved(self, provider: str) -> None:
        """Be read by another provider from here on."""
        if self.provider and self.provider != provider:
            self._meter.detach()
            self._charging.tenancy.forget_idle_power()
            self._dirty.add(Group.ENERGY)  # the account, even where there are no readings to forget
            self._forget_readings()
        self.provider = provider

    @property
    def lost(self) -> bool:
        return self.lost_at is not None or not self.listed

    def cut_off(self, *, down: bool) -> None:
        """Take whether the provider that reads it is down."""
        if down != self._cut_off:
            self._cut_off = down
            self._same_until = -math.inf

    def let_go(self) -> None:
        """Be released: what was read is of a GPU that may be another one, reset or repartitioned, when it is back."""
        self._forget_readings()
        self._asleep = False
        self._is_back = False

    def take_up(self, now: float) -> None:
        """Be free to be read again."""
        if not self.lost:
            self.silent_since = now

    def unlist(self, now: float) -> None:
        """No provider sees it any more."""
        self.listed = False
        self._forget_readings()
        self.silent_since = now

    def observe(self, sample: Sample, now: float, wall: float) -> bool:
        """Add a sample. The groups that it has read replace theirs as a whole. Return whether it gave a reading."""
        if sample.error_event_kinds and self._events.listen(sample.error_event_kinds):
            self._dirty.add(Group.STATE)
        if sample.error_events:
            self._events_left_out += self._events.add(sample.error_events, wall)
            self._dirty.add(Group.STATE)
        if sample.lost:
            if self.lost_at is None:
                self.lost_at = self.silent_since = now
            self._forget_readings()
            return False
        if self.lost_at is not None or self._asleep != sample.asleep:
            self.silent_since = now
        self._is_back = True
        self.lost_at = None
        self._asleep = sample.asleep
        self._ahead = wall - now
        if sample.device != self.device:
            self.device = sample.device
        if sample.asleep:
            self._asleep_at = now
            self._forget_readings()
            return False
        fresh, given_at = self._readings.take(sample)
        self._dirty.update(fresh)
        self._count(sample, fresh, now, wall)
        if given_at is None:
            self._same_until = -math.inf
            return False
        self._last_sample_timestamp = wall - max(0.0, now - given_at)
        self._dirty.add(Group.ENERGY)  # the block of the time stamp
        return True

    def snapshot(self, now: float, *, released: bool) -> tuple[DeviceSnapshot, set[Block]]:
        """Return what is published, and the blocks that look different from the snapshot before."""
        before = self._published
        if self._dirty or self._charging.awaits(now):
            self._charge(now)
        state = self._state(now, released=released)
        if state not in _READABLE or self._given_up(now):
            shown = _NONE
        elif now <= self._same_until and self._dirty <= self._shown:
            shown = self._shown
        else:
            shown = self._readings.all_valid(now)
        dirty = self._dirty | (shown ^ self._shown)
        if before is None:
            before = self._blank(state)
        elif not dirty and state is before.state and self.device is before.device and self.provider == before.provider:
            return before, set()
        fields: dict[str, Any] = {}
        for group in dirty:
            fields |= groups.readings(group, self._readings.last(group) if group in shown else None)
        if Group.PROCESSES in dirty:
            listed = self._readings.last(Group.PROCESSES).processes if Group.PROCESSES in shown else None
            self._chosen = self._selection.choose(listed or (), self._charging.claims.owners)
        if Group.ENERGY in dirty:
            self._charging.tenancy.advance(now)
        self._shown, self._dirty = shown, set()
        self._same_until = self._until_change(shown) if state in _READABLE else -math.inf
        # Moved to another provider's part of the page, it is gone from where it was.
        moved = set() if self.provider == before.provider else self.gone()
        self._published = DeviceSnapshot(
            gpu=self.gpu,
            provider=self.provider,
            device=self.device,
            state=state,
            sample=msgspec.structs.replace(
                before.sample,
                device=self.device,
                lost=state is GpuState.LOST,
                asleep=state is GpuState.ASLEEP,
                taken_at=self._readings.taken_at(shown),
                **fields,
            ),
            last_sample_timestamp=self._last_sample_timestamp,
            energy=self._meter.account(),
            module_energy_joules=self._meter.module_joules,
            busy_seconds=self._busy.seconds,
            throttle_seconds=self._throttle.seconds,
            error_events=self._events.counts,
            error_event_timestamps=self._events.timestamps,
            workloads=self._charging.tenancy.snapshots(),
            unattributed_joules=self._charging.tenancy.unattributed_joules,
            process_series=self._chosen.series,
            process_owners=self._chosen.owners,
        )
        blocks = {Block.DEVICE}.union(*(groups.BLOCKS[group] for group in dirty))
        return self._published, moved | groups.changed(before, self._published, blocks)

    def _until_change(self, shown: frozenset[Group]) -> float:
        until = self._readings.same_until(shown, self.silent_since)
        return min(until, self._last_taken + groups.CUT_OFF_SECONDS) if self._cut_off else until

    def gone(self) -> set[Block]:
        """Return the blocks that look different without this card."""
        if self._published is None:
            return set()
        return groups.changed(self._published, self._blank(self._published.state), groups.DEVICE_BLOCKS)

    def close(self) -> None:
        """Be forgotten, with what its workloads used."""
        self._charging.tenancy.close()

    def _blank(self, state: GpuState) -> DeviceSnapshot:
        return DeviceSnapshot(gpu="", provider="", device=self.device, state=state, sample=Sample(device=self.device))

    def _count(self, sample: Sample, fresh: list[Group], now: float, wall: float) -> None:
        at: Mapping[Group, float] = sample.taken_at
        if Group.LOAD in fresh:
            self._busy.observe(at[Group.LOAD], sample.utilization_ratio)
        if Group.STATE in fresh:
            self._throttle.observe(at[Group.STATE], sample.throttled, sample.throttle_seconds)
        if Group.ENERGY in fresh:
            taken = at[Group.ENERGY]
            load = self._readings.valid(Group.LOAD, now)
            self._meter.observe(
                sample,
                taken,
                wall - max(0.0, now - taken),
                self._readings.temperature(now),
                None if load is None else load.utilization_ratio,
            )
        if self._charging.tenancy.begun:
            self._charging.sampled(fresh, at, self._seen(now))

    def _charge(self, now: float) -> None:
        if self._charging.tenancy.begun and self._charging.catch_up(self._seen(now)):
            self._dirty.add(Group.ENERGY)

    def _seen(self, now: float) -> Seen:
        load, state = self._readings.valid(Group.LOAD, now), self._readings.valid(Group.STATE, now)
        users = self._readings.valid(Group.PROCESSES, now)
        partitions = () if state is None else state.partitions or ()
        processes = None if users is None else users.processes
        return Seen(
            key=self.device.key,
            now=now,
            wall=None if self._ahead is None else now + self._ahead,
            progress=self._meter.progress,
            load=load_of(load, partitions, processes),
            busy_seconds=self._busy.seconds,
            memory_size=None if load is None else load.memory_size_bytes,
            partitions=partitions,
            processes=processes,
            processes_until=self._readings.until(Group.PROCESSES),
        )

    @property
    def _last_taken(self) -> float:
        return self._asleep_at if self._asleep else self._readings.last_taken(self.silent_since)

    def _given_up(self, now: float) -> bool:
        return self._cut_off and now - self._last_taken > groups.CUT_OFF_SECONDS

    def _state(self, now: float, *, released: bool) -> GpuState:
        if self.lost:
            return GpuState.LOST
        if released:
            return GpuState.RELEASED
        if self.hung:
            return GpuState.HUNG
        if not self._is_back:
            return GpuState.RELEASED if now - self.silent_since <= groups.CUT_OFF_SECONDS else GpuState.STALE
        if self._asleep and not self._given_up(now):
            return GpuState.ASLEEP
        return GpuState.STALE if self._is_stale(now) else GpuState.OK

    def _is_stale(self, now: float) -> bool:
        if self._given_up(now):
            return True
        if now <= self._same_until and self._published is not None and self._published.state is GpuState.OK:
            return False
        return self._readings.is_stale(now, self.silent_since)

    def _forget_readings(self) -> None:
        self._dirty.update(self._readings.forget())
        self._charging.forget()
        self._same_until = -math.inf
