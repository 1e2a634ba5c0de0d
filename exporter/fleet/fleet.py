"""Which GPUs the host has, under which names, and what is published of them."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from exporter.config import AttributionConfig, ProcessesConfig, SamplingConfig
from exporter.fleet.attributed import Attributed
from exporter.fleet.bounds import MOST_LISTED, bounded
from exporter.fleet.card import Card
from exporter.fleet.explain import Explanation
from exporter.fleet.identity import SIMULATED, differ, position, recognised, waits
from exporter.fleet.processes import Selection
from exporter.fleet.record import MOST_PREFIXES, CardRecord, FleetRecord, newest, without_workloads
from exporter.fleet.source import Source
from exporter.fleet.tallies import left_out, served_elsewhere
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
_SIMULATED_PREFIX = "sim"
_OTHER_PREFIX = "gpu"
_NO_KEYS: frozenset[str] = frozenset()


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
        self._ranks = {name: rank for rank, name in enumerate(self._providers)}
        self._cards: dict[str, Card] = {}
        self._waiting: set[str] = set()
        """Providers with devices that wait for a preferred one to say what it has."""
        self._is_shared = False
        """Whether any device was ever listed by several providers."""
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
        source.tried = True
        listed: dict[str, Device] = {}
        if len(devices) > MOST_LISTED:
            self._fail(source, "too_many_devices", len(devices) - MOST_LISTED)
        for device in devices[:MOST_LISTED]:
            known = self._recognised(source, device)
            if known.key in listed:
                self._fail(source, "duplicate_identity")
            else:
                listed[known.key] = known
        before, source.listed = source.listed, listed
        self._place_all(source, now)
        for key in before.keys() - listed.keys():
            card = self._cards.get(key)
            if card is not None:
                card.unlist(provider, now)
        self._place_waiting(now)

    def observed(self, provider: str, sample: Sample, now: float, wall: float) -> None:
        """Take one sample: `now` is CLOCK_MONOTONIC, `wall` Unix time, both seconds."""
        if self._waiting:
            self._place_waiting(now)
        source = self._providers[provider]
        sample = self._checked(source, sample)
        device = self._recognised(source, sample.device)
        if device is not sample.device:
            sample = msgspec.structs.replace(sample, device=device)
        key = device.key
        if key not in source.listed:
            source.listed[key] = device
            self._place(source, device, now)
            self._arrange()
        elif differ(source.listed[key], device):
            return  # the second of two devices with one identity: already counted, never mixed with the first
        card = self._cards.get(key)
        if card is None:
            if provider not in self._waiting:
                del source.listed[key]  # one too many: it may find room later
            return
        if card.sights.get(provider) is None:  # there was no room for it until another provider found some
            self._place(source, device, now)
        if card.observe(provider, sample, now, wall):
            # The first is said at once: a device that delivers readings and a provider that never had one contradict.
            source.changed = source.changed or source.last_timestamp is None
            source.last_timestamp = wall

    def provider_status(self, provider: str, *, up: bool, reason: str, library_version: str | None) -> None:
        """Take a provider's health; `reason` says in words why it is not up, and is empty when all is well."""
        source = self._providers[provider]
        source.up, source.reason, source.library_version = up, reason, library_version
        source.wanted = source.wanted or up
        source.changed = source.tried = True
        for card in self._cards.values():
            sight = card.sights.get(provider)
            if sight is not None:
                sight.cut_off(down=not up)

    def device_state(self, provider: str, key: str, state: GpuState) -> None:
        """Put a device of a provider in question (HUNG) or clear it (OK)."""
        card = self._cards.get(self._providers[provider].aliases.get(key, key))
        sight = None if card is None else card.sights.get(provider)
        if sight is not None:
            sight.suspect(hung=state is GpuState.HUNG)

    def relieved(self, provider: str, now: float) -> frozenset[str]:
        """Return the keys, as this provider has them, of devices whose energy a preferred one delivers."""
        if not self._is_shared:
            return _NO_KEYS
        source = self._providers[provider]
        names = {key: name for name, key in source.aliases.items()}
        cards = (self._cards[key] for key in source.listed if key in self._cards)
        return frozenset(names.get(card.key, card.key) for card in cards if card.relieve(provider, now))

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
        self._place_waiting(now)
        devices: dict[str, list[DeviceSnapshot]] = {name: [] for name in self._providers}
        different: set[Block] = set()
        for card in self._cards.values():
            snapshot, blocks = card.snapshot(now, released=self._released)
            devices[snapshot.provider].append(snapshot)
            different |= blocks
        for block in different:
            self._bump(block)
        if different and (counts := left_out(self._cards.values())) != self._left_out:
            self._left_out = counts
            self._bump(Block.EXPORTER)
        elsewhere = served_elsewhere(self._cards.values()) if self._is_shared else {}
        published = [
            source.publish(tuple(devices[name]), elsewhere.get(name, 0), now)
            for name, source in self._providers.items()
        ]
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

    def glance(self, now: float) -> World:
        """Return a world in which all but the readings is as it is now, which costs a tenth of `world`.

        Who is on the GPUs is as it is now, too.
        """
        if self._world is None or self._waiting or self._world.versions != self._versions:
            return self.world(now)
        changed = any(source.changed for source in self._providers.values())
        if changed or any(card.has_news(now, released=self._released) for card in self._cards.values()):
            return self.world(now)
        return self._world

    def explain(self, gpu: str, now: float) -> Explanation | None:
        """Say why the GPU with this label shows what it shows at monotonic time `now`; None: there is none."""
        self.world(now)
        return next((card.explain(now) for card in self._cards.values() if card.gpu == gpu), None)

    def _checked(self, source: Source, sample: Sample) -> Sample:
        """Count what went wrong with a sample, and return what is kept of it."""
        for name in sample.failed:
            source.failures.add(name)
        for name in sample.rejected:
            source.rejections.add(name)
        source.changed = source.changed or bool(sample.failed or sample.rejected)
        sample, left_out = bounded(sample)
        for name, count in left_out.items():
            self._fail(source, name, count)
        return sample

    def _recognised(self, source: Source, device: Device) -> Device:
        """Return the device under the key of the card it is."""
        if device.key in self._cards or device.pci_address is None:
            return device
        card = recognised(device, source, self._cards, self._providers.values())
        if card is None:
            return device
        if source.aliases.get(device.key) != card.key:
            if len(source.aliases) >= MOST_DEVICES:
                source.aliases.clear()
            source.aliases[device.key] = card.key
            self._awaited.pop(device.key, None)  # its joules count under the key of the card from here on
        sight = card.sights.get(source.name)
        if sight is not None and device.key == device.pci_address:
            return sight.device  # what is known of it is more than its address
        return msgspec.structs.replace(device, key=card.key)

    def _place_all(self, source: Source, now: float) -> None:
        """Give each device that a provider lists its card."""
        for device in sorted(source.listed.values(), key=position):
            self._place(source, device, now)
        self._arrange()

    def _place_waiting(self, now: float) -> None:
        """Place devices that have waited, under the keys that a preferred provider may have given them meanwhile."""
        for name in tuple(self._waiting):
            source = self._providers[name]
            listed = source.listed.values()
            if not any(waits(device, source, self._providers) for device in listed):
                self._waiting.discard(name)
                known = [self._recognised(source, device) for device in listed]
                source.listed = {device.key: device for device in known}
                self._place_all(source, now)

    def _place(self, source: Source, device: Device, now: float) -> None:
        """Give a device that a provider lists its card, unless it waits for a preferred provider."""
        if waits(device, source, self._providers):
            self._waiting.add(source.name)
            return
        card = self._cards.get(device.key)
        if card is None:
            if len(self._cards) >= MOST_DEVICES and not self._forget_one():
                self._fail(source, "too_many_devices")
                return
            card = self._new_card(source, device, now)
            source.listed[device.key] = device  # it was taken off if it had to make room for another of its list
        card.sights.see(source.name, self._ranks[source.name], device, now)
        self._is_shared = self._is_shared or card.sights.only is None

    def _new_card(self, source: Source, device: Device, now: float) -> Card:
        kept = self._awaited.pop(device.key, None)
        if device.pci_address is not None:
            self._awaited.pop(device.pci_address, None)  # the key while its identity could not be read
        prefix = _SIMULATED_PREFIX if source.name == SIMULATED else device.vendor
        if prefix not in self._numbers and len(self._numbers) >= MOST_PREFIXES:
            prefix = _OTHER_PREFIX
            self._fail(source, "too_many_vendors")
        number = self._numbers[prefix]
        if kept is not None and kept.order is not None and kept.order[0] == prefix and kept.order[1] < number:
            number = kept.order[1]
        else:
            self._numbers[prefix] = number + 1
        selection, charging = Selection(self._processes), self._attributed.charging()
        card = Card(f"{prefix}{number}", (prefix, number), device, self._sampling, selection, charging)
        if kept is not None:
            card.restore(kept, now)
        if self._attributed.divides:
            card.attribute(self._attributed.claims, now)
        self._cards[device.key] = card
        return card

    def _arrange(self) -> None:
        """Keep the order of the page: by label, so that it does not depend on who reported first."""
        self._cards = dict(sorted(self._cards.items(), key=lambda item: item[1].order))

    def _forget_one(self) -> bool:
        lost = [(since, key) for key, card in self._cards.items() if (since := card.sights.lost_since) is not None]
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
