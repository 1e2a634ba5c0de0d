"""How the cards of DRM are enumerated and read."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.drm.amdgpu_identity import with_packages
from exporter.providers.drm.cards import Card, find_cards, has_its_number
from exporter.providers.drm.files import Files
from exporter.providers.drm.processes import ProcessReader
from exporter.providers.drm.reader import CardReader
from exporter.providers.drm.reading import Reading
from exporter.providers.procfs import Proc

_ORDER = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)
_LOOK_AGAIN_SECONDS = 5.0
"""How long cards that are gone are not looked for again."""


class DrmProvider:
    """Reads cards through their files. `readers`: the last one serves the drivers that none of the others names.

    `clock`: CLOCK_MONOTONIC seconds.
    """

    def __init__(
        self,
        root: Path,
        files: Files,
        readers: Sequence[CardReader],
        proc: Proc,
        *,
        clock: Callable[[], float],
        pause: Callable[[], None],
    ) -> None:
        self._root = root
        self._files = files
        self._readers = readers
        self._clock = clock
        self._pause = pause
        work = {engine for reader in readers for engine in reader.work}
        self._processes = ProcessReader(proc, work, clock, pause)
        self._cards: dict[str, Card] = {}
        self._devices: dict[str, Device] = {}
        self._sketched: set[str] = set()
        """Keys of devices that slept whenever they were listed."""
        self._numbered: dict[str, Card] = {}
        """Cards by folder, of which the readers remember something."""
        self._looked_at = -math.inf

    def devices(self) -> tuple[Device, ...]:
        """Enumerate. Cards seen before and missing stay in the list, last: reading them says that they are lost."""
        known, slept = self._devices, set()
        cards: dict[str, Card] = {}
        devices: dict[str, Device] = {}
        for card, device, asleep in self._identified():
            cards[device.key] = card
            before = known.get(device.key)
            if asleep and (before is None or device.key in self._sketched):
                slept.add(device.key)
            # Of one that sleeps, what was known of it is more.
            devices[device.key] = before if asleep and before is not None else device
        devices = with_packages(devices, cards)
        # One that comes back is met by its next read, sooner than by the next enumeration.
        places = {card.pci_address for card in cards.values()} - {None}
        gone = {key: one for key, one in known.items() if key not in devices and one.pci_address not in places}
        self._cards, self._devices, self._sketched = cards, {**devices, **gone}, slept
        return tuple(self._devices.values())

    def read(self, device: Device, groups: Groups) -> Sample:
        card = self._cards.get(device.key)
        if card is None or not has_its_number(card, self._files):
            self._cards.pop(device.key, None)
            if self._clock() < self._looked_at + _LOOK_AGAIN_SECONDS:
                return Sample(device=device, lost=True)
            self.devices()
            card = self._cards.get(device.key)
        sample = None if card is None else self._read(card, self._devices[device.key], groups)
        if card is not None and sample is not None and (sample.lost or sample.asleep):
            self._reader(card).interrupt(card)
        if sample is None or sample.lost:
            self._cards.pop(device.key, None)
            return Sample(device=device if sample is None else sample.device, lost=True)
        return sample

    def close(self) -> None:
        self._cards = {}

    def _identified(self) -> list[tuple[Card, Device, bool]]:
        self._looked_at = self._clock()
        cards = find_cards(self._root, self._files)
        known, self._numbered = self._numbered, {card.folder: card for card in cards}
        for reader in self._readers:
            reader.forget([folder for folder, card in self._numbered.items() if card == known.get(folder)])
        found = []
        for card in cards:
            reading = Reading(card, self._files, self._pause)
            asleep = reading.suspended()
            device = self._reader(card).identify(card, reading, asleep=asleep)
            found.append((card, self._as_known(card, device), asleep))
        # A number that several cards have is that of none of them.
        seen = Counter(device.key for _, device, _ in found)
        return [
            (card, device if seen[device.key] == 1 else msgspec.structs.replace(device, key=card.name), asleep)
            for card, device, asleep in found
        ]

    def _as_known(self, card: Card, device: Device) -> Device:
        """Keep the key of a card whose number could not be read this time: it is no second card."""
        if card.pci_address is None or device.key != card.name:
            return device
        known = (self._devices[key] for key, one in self._cards.items() if one.pci_address == card.pci_address)
        before = next((one for one in known if (one.vendor, one.model) == (device.vendor, device.model)), device)
        return msgspec.structs.replace(device, key=before.key)

    def _reader(self, card: Card) -> CardReader:
        return next((reader for reader in self._readers if card.driver in reader.drivers), self._readers[-1])

    def _read(self, card: Card, device: Device, groups: Groups) -> Sample:
        reading = Reading(card, self._files, self._pause)
        if reading.suspended():
            return Sample(device=device, asleep=True)
        if device.key in self._sketched:
            self.devices()
            device = self._devices.get(device.key, device)
        fields: dict[str, Any] = {}
        taken_at, took = {}, {}
        for group in _ORDER:
            if group not in groups:
                continue
            self._pause()  # urgent requests are served before the time of the reading is taken
            begun = self._clock()
            fields |= self._group(group, card, device, reading)
            ended = self._clock()
            taken_at[group], took[group] = (begun + ended) / 2, ended - begun
        if reading.fell_asleep():  # told first: to ask whether it is gone would wake it
            return Sample(device=device, asleep=True)
        if reading.lost():
            return Sample(device=device, lost=True)
        return Sample(
            device=device,
            taken_at=taken_at,
            read_seconds=took,
            failed=reading.readings.failed,
            rejected=reading.readings.rejected,
            sources=_given(reading.sources, fields),
            **fields,
        )

    def _group(self, group: Group, card: Card, device: Device, reading: Reading) -> Mapping[str, Any]:
        reader = self._reader(card)
        if group is not Group.PROCESSES:
            if group is Group.LOAD:
                reading.use = self._processes.use(card)
            return reader.read(card, device, group, reading)
        found, source = self._processes.read(card, device, reader.regions(device))
        reading.sources["processes"] = source
        return {"processes": found.samples, "process_counts": found.counts}


def _given(sources: Mapping[str, str], fields: Mapping[str, Any]) -> dict[str, str]:
    """Leave out the sources of readings that were dropped after all."""
    return {name: source for name, source in sources.items() if fields.get(name) not in (None, {})}
