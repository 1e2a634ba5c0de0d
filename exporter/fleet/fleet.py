"""Which GPUs the host has, under which names, and what is published of them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from exporter.config import AttributionConfig, ProcessesConfig, SamplingConfig
from exporter.fleet.attributed import Attributed
from exporter.fleet.bounds import MOST_LISTED, bounded
from exporter.fleet.card import Card
from exporter.fleet.identity import differ, position
from exporter.fleet.processes import Selection
from exporter.fleet.record import MOST_PREFIXES, CardRecord, FleetRecord, newest, without_workloads
from exporter.fleet.source import Source
from exporter.fleet.tenancy import RESTART_SECONDS
from exporter.metrics import Block
from exporter.model import (
    Attribution,
    Device,
    DeviceSnapshot,
    GpuState,
    Group,
    Sample,
    WebCounts,
    World,
)

MOST_DEVICES = 256
_SIMULATED = "simulated"
_SIMULATED_PREFIX = "sim"
_OTHER_PREFIX = "gpu"


class Fleet:
    """Takes what providers report and gives the world that a page shows. Owned by one event loop; nothing waits."""

    def __init__(
        self,
        providers: Sequence[tuple[str, bool]],
        sampling: SamplingConfig,
        processes: ProcessesConfig | None = None,
        attribution: AttributionConfig | None = None,
    ) -> None:
        """Take the providers' names in order of preference, each with whether somebody asked for it."""
        self._sampling = sampling
        self._processes = processes or ProcessesConfig()
        self._attributed = Attributed(attribution or AttributionConfig())
        self._left_out: Mapping[str, int] = {}
        self._providers = {name: Source(name, wanted=wanted) for name, wanted in providers}
        self._cards: dict[str, Card] = {}
        self._aliases: dict[str, str] = {}
        """Keys of cards by another key that a provider gave them for a time."""
        self._numbers: dict[str, int] = defaultdict(int)
        self._versions = {block.value: 0 for block in Block}
        self._abandoned: dict[str, int] = {}
        self._released = False
        self._dropped: Mapping[str, int] = {}
        self._journal_up: bool | None = None
        self._web = WebCounts()
        self._config_reloaded = True
        self._config_reloaded_timestamp: float | None = None
        self._awaited: dict[str, CardRecord] = {}
        """What was kept of devices that were not seen since the start."""
        self._restored_at = 0.0
        self._world: World | None = None

    def enumerated(self, provider: str, devices: tuple[Device, ...], now: float) -> None:
        """Take what a provider enumerates; what it listed before and does not list any more is lost to it."""
        source = self._providers[provider]
        listed: dict[str, Device] = {}
        if len(devices) > MOST_LISTED:
            self._fail(source, "too_many_devices", len(devices) - MOST_LISTED)
        for device in map(self._recognised, devices[:MOST_LISTED]):
            if device.key in listed:
                self._fail(source, "duplicate_identity")
            else:
                listed[device.key] = device
        before, source.listed = source.listed, listed
        for device in sorted(listed.values(), key=position):
            self._place(source, device, now)
        for key in before.keys() - listed.keys():
            self._unlisted(key, now)
        self._arrange()

    def observed(self, provider: str, sample: Sample, now: float, wall: float) -> None:
        """Take one sample: `now` is CLOCK_MONOTONIC, `wall` Unix time, both seconds."""
        source = self._providers[provider]
        for name in sample.failed:
            source.failures.add(name)
        for name in sample.rejected:
            source.rejections.add(name)
        source.changed = source.changed or bool(sample.failed or sample.rejected)
        sample, left_out = bounded(sample)
        for name, count in left_out.items():
            self._fail(source, name, count)
        device = self._recognised(sample.device)
        if device is not sample.device:
            sample = msgspec.structs.replace(sample, device=device)
        key = device.key
        if key not in source.listed:
            source.listed[key] = sample.device
            self._place(source, sample.device, now)
            self._arrange()
        elif differ(source.listed[key], sample.device):
            return  # the second of two devices with one identity: already counted, never mixed with the first
        card = self._cards.get(key)
        if card is None:
            del source.listed[key]  # one too many: it may find room later
            return
        if card.provider != provider:
            return
        if card.observe(sample, now, wall):
            # The first is said at once: a device that delivers readings and a provider that never had one contradict.
            source.changed = source.changed or source.last_timestamp is None
            source.last_timestamp = wall

    def provider_status(self, provider: str, *, up: bool, reason: str, library_version: str | None) -> None:
        """Take a provider's health; `reason` says in words why it is not up, and is empty when all is well."""
        source = self._providers[provider]
        source.up, source.reason, source.library_version = up, reason, library_version
        source.wanted = source.wanted or up
        source.changed = True
        for card in self._cards.values():
            if card.provider == provider:
                card.cut_off(down=not up)

    def device_state(self, key: str, state: GpuState) -> None:
        """Put a device in question (HUNG) or clear it (OK)."""
        card = self._cards.get(self._aliases.get(key, key))
        if card is not None:
            card.hung = state is GpuState.HUNG

    def restarted(self, provider: str, cause: str) -> None:
        """Count an end of the provider's worker, by cause of metrics.RESTART_CAUSES."""
        source = self._providers[provider]
        source.restarts = {**source.restarts, cause: source.restarts.get(cause, 0) + 1}
        source.changed = True

    def expected(self, provider: str, count: int | None) -> None:
        """Take how many devices PCI shows; None: the provider does not read PCI devices."""
        source = self._providers[provider]
        source.changed = source.changed or source.expected != count
        source.expected = count
        source.wanted = source.wanted or bool(count)

    def is_wanted(self, provider: str) -> bool:
        """Tell whether something is wrong when it is down: it was asked for, PCI shows devices of it, or it was up."""
        return self._providers[provider].wanted

    def pass_took(self, provider: str, group: Group, seconds: float) -> None:
        """Take how long the last pass over all devices took."""
        self._providers[provider].durations[group.value] = seconds

    def abandoned(self, count: int, kind: str = "workers") -> None:
        """Take how many children of a kind could not be killed, of all providers."""
        if count != self._abandoned.get(kind, 0):
            self._abandoned[kind] = count
            self._bump(Block.EXPORTER)

    def released(self, flag: bool, now: float) -> None:
        """Take whether the devices are released on request. Each is taken up with the first reading afterwards."""
        if flag != self._released:
            self._released = flag
            self._bump(Block.EXPORTER)
            for card in self._cards.values():
                if flag:
                    card.let_go()
                else:
                    card.take_up(now)

    def configured(self, *, well: bool, wall: float | None = None) -> None:
        """Take whether what is in force is what the files say; `wall`: Unix time at which all of them were read."""
        wall = self._config_reloaded_timestamp if wall is None else wall
        if (well, wall) != (self._config_reloaded, self._config_reloaded_timestamp):
            self._config_reloaded, self._config_reloaded_timestamp = well, wall
            self._bump(Block.EXPORTER)

    def dropped(self, series_dropped: Mapping[str, int]) -> None:
        """Take the series that were left off the last page, by family."""
        if series_dropped != self._dropped:
            self._dropped = dict(series_dropped)
            self._bump(Block.EXPORTER)

    def journaled(self, up: bool | None) -> None:
        """Take whether totals are kept over a restart; None: nobody wants them to be."""
        if up is not self._journal_up:
            self._journal_up = up
            self._bump(Block.EXPORTER)

    def served(self, counts: WebCounts) -> None:
        """Take what the server for HTTP could not do so far."""
        if counts != self._web:
            self._web = counts
            self._bump(Block.EXPORTER)

    def attributed(self, attribution: Attribution, now: float) -> None:
        """Take who uses the GPUs, as far as it is known at monotonic time `now`."""
        if attribution == self._attributed.newest:
            return
        if self._attributed.take(attribution):
            self._bump(Block.EXPORTER)
        if self._attributed.divides:
            for card in self._cards.values():
                card.attribute(self._attributed.claims, now)

    def restore(self, record: FleetRecord, now: float) -> None:
        """Go on from what was kept, before the first report."""
        cards = record.cards
        if not self._attributed.enabled:
            cards = tuple(msgspec.structs.replace(card, tenancy=None) for card in cards)
        self._awaited = {card.key: card for card in cards}
        self._restored_at = now
        self._numbers.update(record.numbers)

    def record(self, now: float) -> FleetRecord:
        """Return what is to be kept over a restart: all that `world` shows of energy at this moment."""
        unseen = now - self._restored_at
        awaited = [
            msgspec.structs.replace(card, unseen_seconds=card.unseen_seconds + unseen)
            for card in self._awaited.values()
        ]
        if unseen > max(self._attributed.linger_seconds, RESTART_SECONDS):
            awaited = list(map(without_workloads, awaited))
        return FleetRecord(
            cards=newest([*(card.record(now) for card in self._cards.values()), *awaited]), numbers=dict(self._numbers)
        )

    def world(self, now: float) -> World:
        """Return everything that a page shows at monotonic time `now`; the same object while nothing changes."""
        devices: dict[str, list[DeviceSnapshot]] = {name: [] for name in self._providers}
        different: set[Block] = set()
        for card in self._cards.values():
            snapshot, blocks = card.snapshot(now, released=self._released)
            devices[card.provider].append(snapshot)
            different |= blocks
        for block in different:
            self._bump(block)
        if different:
            self._leave_out()
        published = [source.publish(tuple(devices[name]), now) for name, source in self._providers.items()]
        if any(different for _, different in published):
            self._bump(Block.EXPORTER)
        if self._world is None or self._world.versions != self._versions:
            self._world = World(
                snapshots=tuple(snapshot for snapshot, _ in published),
                versions=dict(self._versions),
                workers_abandoned=sum(self._abandoned.values()),
                released=self._released,
                config_reloaded=self._config_reloaded,
                config_reloaded_timestamp=self._config_reloaded_timestamp,
                journal_up=self._journal_up,
                series_dropped=dict(Counter(self._dropped) + Counter(self._left_out)),
                web=self._web,
                attribution=self._attributed.newest,
            )
        return self._world

    def _leave_out(self) -> None:
        """Take over how many series the devices have no room for."""
        left_out: Counter[str] = Counter()
        for counts in filter(None, (card.left_out for card in self._cards.values())):
            left_out.update(counts)
        if left_out != self._left_out:
            self._left_out = left_out
            self._bump(Block.EXPORTER)

    def _recognised(self, device: Device) -> Device:
        """Return the device under the key of the card it is.

        A card whose identity cannot be read for a time has its address for a key. It is not a second card.
        """
        if device.key in self._cards or device.pci_address is None:
            return device
        for card in self._cards.values():
            known = card.device
            if (known.vendor, known.pci_address) != (device.vendor, device.pci_address):
                continue
            if device.pci_address not in (device.key, known.key):
                continue  # another card in the same slot
            if len(self._aliases) >= MOST_DEVICES:
                self._aliases.clear()
            self._aliases[device.key] = known.key
            self._awaited.pop(device.key, None)  # its joules count under the key of the card from here on
            return known if device.key == device.pci_address else msgspec.structs.replace(device, key=known.key)
        return device

    def _place(self, source: Source, device: Device, now: float) -> None:
        """Give a device that a provider lists its card, under the first provider that lists it."""
        card = self._cards.get(device.key)
        if card is None:
            if len(self._cards) >= MOST_DEVICES and not self._forget_one():
                self._fail(source, "too_many_devices")
                return
            card = self._new_card(source, device, now)
            source.listed[device.key] = device  # it was taken off if it had to make room for another of its list
        owner = self._owner(device.key)
        if owner is not None:
            card.moved(owner.name)
            card.identify(owner.listed[device.key], now)

    def _new_card(self, source: Source, device: Device, now: float) -> Card:
        kept = self._awaited.pop(device.key, None)
        if device.pci_address is not None:
            self._awaited.pop(device.pci_address, None)  # the key while its identity could not be read
        prefix = _SIMULATED_PREFIX if source.name == _SIMULATED else device.vendor
        if prefix not in self._numbers and len(self._numbers) >= MOST_PREFIXES:
            prefix = _OTHER_PREFIX
            self._fail(source, "too_many_vendors")
        number = self._numbers[prefix]
        if kept is not None and kept.order is not None and kept.order[0] == prefix and kept.order[1] < number:
            number = kept.order[1]
        else:
            self._numbers[prefix] = number + 1
        selection, charging = Selection(self._processes), self._attributed.charging()
        card = Card(f"{prefix}{number}", (prefix, number), device, self._sampling, selection, charging, now)
        if kept is not None:
            card.restore(kept, now)
        if self._attributed.divides:
            card.attribute(self._attributed.claims, now)
        self._cards[device.key] = card
        return card

    def _unlisted(self, key: str, now: float) -> None:
        card, owner = self._cards.get(key), self._owner(key)
        if card is None:
            return
        if owner is None:
            card.unlist(now)
        else:
            card.moved(owner.name)
            card.identify(owner.listed[key], now)

    def _owner(self, key: str) -> Source | None:
        return next((source for source in self._providers.values() if key in source.listed), None)

    def _arrange(self) -> None:
        """Keep the order of the page: by label, so that it does not depend on who reported first."""
        self._cards = dict(sorted(self._cards.items(), key=lambda item: item[1].order))

    def _forget_one(self) -> bool:
        lost = [(card.silent_since, key) for key, card in self._cards.items() if card.lost]
        if not lost:
            return False
        _, key = min(lost)
        forgotten = self._cards.pop(key)
        forgotten.close()
        for block in forgotten.gone():
            self._bump(block)
        for source in self._providers.values():
            source.listed.pop(key, None)
        return True

    def _fail(self, source: Source, reading: str, count: int = 1) -> None:
        source.failures.add(reading, count, ours=True)
        source.changed = True

    def _bump(self, block: Block) -> None:
        self._versions[block.value] += 1
