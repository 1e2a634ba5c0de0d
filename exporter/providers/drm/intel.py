"""Intel GPUs through the files of their kernel drivers, i915 and xe.

Neither driver tells how busy the GPU is, nor most versions how much of its memory is used: DRM's clients tell of
themselves.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from exporter.model import Device, Group
from exporter.providers.drm.cards import Card
from exporter.providers.drm.hwmon import Hwmons
from exporter.providers.drm.intel_gts import Gts, clocks, find_gts, throttled
from exporter.providers.drm.intel_sensors import EnergySource, choose_energy, read_energy, read_limits, read_sensors
from exporter.providers.drm.names import device_of
from exporter.providers.drm.pcie import read_link
from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import BYTES

_FIRST_BUS = "0000:00:"
"""Where on PCI the GPUs of processors are."""
_WORK = frozenset({"render", "compute", "rcs", "ccs"})
_MEDIA = frozenset({"video", "video-enhance", "vcs", "vecs"})
_OWN_REGIONS = frozenset({f"{kind}{tile}" for kind in ("local", "vram") for tile in range(8)})
_HOST_REGIONS = frozenset({"system0", "system", "gtt"})


class _Remembered(msgspec.Struct):
    """Of one card."""

    gts: Gts
    energy: EnergySource | None = None
    default_limit: float | None = None
    size_bytes: float | None = None


class IntelReader:
    """A CardReader."""

    drivers = frozenset({"i915", "xe"})
    work = _WORK

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hwmons = Hwmons()
        self._cards: dict[str, _Remembered] = {}

    def identify(self, card: Card, reading: Reading, *, asleep: bool) -> Device:  # noqa: ARG002 -- nothing here wakes it
        self._hwmons.renew(card)
        self._cards.pop(card.folder, None)
        # Only drivers of discrete ones make a hwmon; in a virtual machine these may be on the first bus, too.
        integrated = card.name.startswith(_FIRST_BUS) and not self._hwmons.of(reading)
        kind = "unified" if integrated else "dedicated"
        return msgspec.structs.replace(device_of(self._root, card, reading.files), memory_kind=kind)

    def read(self, card: Card, device: Device, group: Group, reading: Reading) -> dict[str, Any]:
        known = self._of(card, reading)
        if group is Group.ENERGY:
            return self._energy(known, reading)
        if group is Group.LOAD:
            return self._load(card, device, known, reading)
        if group is Group.STATE:
            return {
                **read_sensors(reading, self._hwmons.of(reading)),
                **read_link(reading),
                "clock_hertz": clocks(reading, known.gts),
                "throttled": throttled(reading, known.gts),
            }
        return {}

    def regions(self, device: Device) -> Collection[str]:
        return _HOST_REGIONS if device.memory_kind == "unified" else _OWN_REGIONS

    def interrupt(self, card: Card) -> None:
        """Nothing is counted here."""

    def forget(self, folders: Collection[str]) -> None:
        self._cards = {folder: known for folder, known in self._cards.items() if folder in folders}

    def _of(self, card: Card, reading: Reading) -> _Remembered:
        known = self._cards.get(card.folder)
        if known is None:
            known = self._cards[card.folder] = _Remembered(find_gts(card, reading))
        return known

    def _energy(self, known: _Remembered, reading: Reading) -> dict[str, Any]:
        hwmons = self._hwmons.of(reading)
        if known.energy is None:
            known.energy = choose_energy(reading, hwmons)
        limits = read_limits(reading, hwmons, known.default_limit)
        known.default_limit = limits["power_limit_default_watts"]
        return {**read_energy(reading, hwmons, known.energy), **limits}

    def _load(self, card: Card, device: Device, known: _Remembered, reading: Reading) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        use = reading.use
        if use is not None:
            work = max((use.engine_ratio.get(engine, 0.0) for engine in _WORK), default=0.0)
            media = [use.engine_ratio[engine] for engine in _MEDIA & use.engine_ratio.keys()]
            host = _sum(use.memory_bytes, _HOST_REGIONS)
            fields = {
                "utilization_ratio": reading.note("utilization_ratio", work, "fdinfo"),
                "engine_utilization_ratio": {"media": max(media)} if media else {},
                "system_memory_used_bytes": reading.note("system_memory_used_bytes", host, "fdinfo"),
            }
        if device.memory_kind == "unified":
            return fields
        own = None if use is None else _sum(use.memory_bytes, _OWN_REGIONS)
        return {**fields, **_memory(card, known, own, reading)}


def _memory(card: Card, known: _Remembered, by_clients: float | None, reading: Reading) -> dict[str, float | None]:
    """Read the card's own memory. i915 of Intel's own releases tells what is free, xe the size alone."""
    size_name, used_name = "memory_size_bytes", "memory_used_bytes"
    place = f"drm/card{card.number}"
    if known.size_bytes is None:
        size = reading.number(size_name, f"{place}/lmem_total_bytes", BYTES, live=False)
        known.size_bytes = size or _size_of_tiles(known.gts, reading)
    free = None
    if known.size_bytes is not None:
        free = reading.number(used_name, f"{place}/lmem_avail_bytes", BYTES, live=False)
    used = by_clients
    if free is not None and known.size_bytes is not None:
        used = max(0.0, known.size_bytes - free)
        reading.sources[used_name] = "sysfs"
    return {
        size_name: reading.note(size_name, known.size_bytes, "sysfs"),
        used_name: reading.note(used_name, used, "fdinfo"),
    }


def _size_of_tiles(gts: Gts, reading: Reading) -> float | None:
    sizes = []
    for tile in gts.tiles:
        for folder in (tile, f"{tile}/memory"):
            size = reading.number("memory_size_bytes", f"{folder}/physical_vram_size_bytes", BYTES, live=False)
            if size:
                sizes.append(size)
                break
    return sum(sizes) if sizes and len(sizes) == len(gts.tiles) else None


def _sum(memory: Any, regions: Collection[str]) -> float:
    return float(sum(amount for region, amount in memory.items() if region in regions))
