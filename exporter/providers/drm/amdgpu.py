"""AMD GPUs through the files of their kernel driver, amdgpu: no ROCm is needed."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from exporter.model import Device, Group, Scope
from exporter.providers.drm import amdgpu_identity, amdgpu_sensors, ras
from exporter.providers.drm.amdgpu_partitions import PartitionReader
from exporter.providers.drm.cards import Card
from exporter.providers.drm.gpu_metrics import Metrics, RefusedError, TableReader, Throttling
from exporter.providers.drm.hwmon import Hwmon, Hwmons, fan, watts
from exporter.providers.drm.pcie import read_link
from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import BYTES, RATIO

_HWMON = "amdgpu"
_TABLE = "gpu_metrics"
_PERCENT = 100


class _Remembered(msgspec.Struct):
    """Of one card."""

    table: TableReader = msgspec.field(default_factory=TableReader)
    throttling: Throttling = msgspec.field(default_factory=Throttling)
    counts: bool = True
    """Whether the newest table had an accumulator; not known before there was one."""
    weighs: bool = True
    """Whether it had power."""
    power_kind: Literal["average", "instant"] | None = None
    """Of the power in it."""
    default_limit: float | None = None


class AmdgpuReader:
    """A CardReader."""

    drivers = frozenset({"amdgpu"})
    work = frozenset({"gfx", "compute"})

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hwmons = Hwmons()
        self._partitions = PartitionReader(root)
        self._cards: dict[str, _Remembered] = {}

    def identify(self, card: Card, reading: Reading, *, asleep: bool) -> Device:
        self._hwmons.renew(card)
        self._of(card).default_limit = None
        hwmon = self._hwmon(reading)
        mode = None if asleep else self._partitions.mode(card, reading)
        head = None if asleep else reading.raw("memory_kind", _TABLE)
        return amdgpu_identity.describe(card, reading, self._root, hwmon, mode, head)

    def read(self, card: Card, device: Device, group: Group, reading: Reading) -> dict[str, Any]:
        hwmon = self._hwmon(reading)
        if group is Group.ENERGY:
            return self._energy(card, device, hwmon, reading)
        if group is Group.LOAD:
            return self._load(card, reading)
        if group is Group.STATE:
            return self._state(card, hwmon, reading)
        return {}

    def regions(self, device: Device) -> Collection[str]:
        return ("vram", "gtt") if device.memory_kind == "unified" else ("vram",)

    def interrupt(self, card: Card) -> None:
        self._of(card).throttling.interrupt()

    def forget(self, folders: Collection[str]) -> None:
        self._cards = {folder: known for folder, known in self._cards.items() if folder in folders}
        self._partitions.forget(folders)

    def _of(self, card: Card) -> _Remembered:
        return self._cards.setdefault(card.folder, _Remembered())

    def _hwmon(self, reading: Reading) -> Hwmon | None:
        return self._hwmons.of(reading).get(_HWMON)

    def _table(self, card: Card, reading: Reading, fields: Collection[str], *, whole: bool = True) -> Metrics | None:
        """Return the table of this read; what of `fields` is wrong in it is rejected, the first if it is refused.

        `whole`: as of `decode`.
        """
        name = _TABLE if whole else f"{_TABLE} in brief"
        if name not in reading.memo:
            known = self._of(card)
            try:
                metrics = known.table.read(lambda: reading.raw(next(iter(fields)), _TABLE, whole=True), whole=whole)
            except RefusedError:
                reading.reject(next(iter(fields)))
                metrics = None
            if metrics is not None or not reading.hindered:
                known.counts = metrics is not None and metrics.energy_counter_joules is not None
                known.weighs = metrics is not None and metrics.power_watts is not None
            if metrics is not None and metrics.power_kind is not None:
                known.power_kind = metrics.power_kind
            reading.memo[name] = metrics
        found: Metrics | None = reading.memo[name]
        for field in found.rejected if found is not None else ():
            if field in fields:
                reading.reject(field)
        return found

    def _energy(self, card: Card, device: Device, hwmon: Hwmon | None, reading: Reading) -> dict[str, Any]:
        known = self._of(card)
        wanted = ("energy_counter_joules", "energy_counter_at", "power_watts")
        table = self._table(card, reading, wanted, whole=False) if known.counts else None
        power = amdgpu_sensors.power(reading, hwmon, known.power_kind)
        if table is None and power.watts is None and known.weighs:
            table = self._table(card, reading, wanted, whole=False)
        if table is not None and power.watts is None:
            power = amdgpu_sensors.Power(
                reading.note("power_watts", table.power_watts or None, _TABLE), table.power_kind
            )
        counter = None if table is None else table.energy_counter_joules
        if device.package is not None and not power.watts:
            # The second die of an MI250 has no sensor: it says 0, or nothing, and its accumulator stands still.
            power, counter = amdgpu_sensors.Power(), None
            reading.sources.pop("power_watts", None)
        if known.default_limit is None:
            known.default_limit = _limit(reading, hwmon, "power_limit_default_watts", "power1_cap_default")
        scope = _scope(device)
        fields: dict[str, Any] = {
            "power_watts": power.watts,
            "power_kind": None if power.watts is None else power.kind,
            "power_scope": scope,
            "power_limit_watts": _limit(reading, hwmon, "power_limit_watts", "power1_cap"),
            "power_limit_default_watts": reading.note("power_limit_default_watts", known.default_limit, "hwmon"),
        }
        if table is not None and counter is not None:
            fields |= {
                "energy_counter_joules": reading.note("energy_counter_joules", counter, _TABLE),
                "energy_counter_scope": scope,
                "energy_counter_range_joules": table.energy_counter_range_joules,
                "energy_counter_at": table.energy_counter_at,
            }
        return fields

    def _load(self, card: Card, reading: Reading) -> dict[str, Any]:
        names = ("utilization_ratio", "memory_controller_utilization_ratio")
        table = self._table(card, reading, ("engine_utilization_ratio", *names))
        fields: dict[str, Any] = {}
        for name, path in zip(names, ("gpu_busy_percent", "mem_busy_percent"), strict=True):
            value = reading.number(name, path, RATIO, per=_PERCENT)
            # Missing on some Instinct cards, and on APUs.
            instead = getattr(table, name, None) if value is None else None
            fields[name] = value if value is not None else reading.note(name, instead, _TABLE)
        fields["engine_utilization_ratio"] = _noted(reading, "engine_utilization_ratio", table)
        return {**fields, **_memory(reading)}

    def _state(self, card: Card, hwmon: Hwmon | None, reading: Reading) -> dict[str, Any]:
        table = self._table(
            card,
            reading,
            (
                *("throttled", "temperature_celsius", "clock_hertz", "fan_speed_ratio", "links", "partitions"),
                *("pcie_link_generation", "pcie_link_width", "pcie_replays"),
            ),
        )
        throttled: Mapping[str, bool] = {}
        seconds: Mapping[str, float] = {}
        if table is not None:
            throttled, seconds = self._of(card).throttling.step(table)
        link = read_link(reading)
        for name in ("pcie_link_generation", "pcie_link_width", "pcie_replays"):
            if link[name] is None:
                link[name] = reading.note(name, getattr(table, name, None), _TABLE)
        links = None if table is None else table.links
        given = {"throttled": throttled, "throttle_seconds": seconds, "links": links}
        reading.sources.update({name: _TABLE for name, told in given.items() if told})
        temperatures = amdgpu_sensors.temperatures(reading, hwmon)
        clocks = amdgpu_sensors.clocks(reading, hwmon, {} if table is None else table.clock_hertz)
        return {
            "temperature_celsius": {**_noted(reading, "temperature_celsius", table), **temperatures},
            "temperature_limit_celsius": amdgpu_sensors.limits(reading, hwmon),
            "clock_hertz": clocks,
            "fan_speed_ratio": None if hwmon is None else fan(reading, hwmon),
            "throttled": throttled,
            "throttle_seconds": seconds,
            "ecc_errors": ras.errors(reading),
            "links": links,
            "partitions": self._partitions.samples(card, reading, table),
            **link,
        }


def _scope(device: Device) -> Scope:
    # MI250: the first die's sensor covers both. APUs and MI300A: the socket's covers the CPU cores.
    return "package" if device.package is not None or device.memory_kind == "unified" else "gpu"


def _limit(reading: Reading, hwmon: Hwmon | None, name: str, file: str) -> float | None:
    if hwmon is None or file not in hwmon.files:
        return None
    return watts(reading, name, f"{hwmon.path}/{file}") or None  # 0: not set


def _noted(reading: Reading, name: str, table: Metrics | None) -> Mapping[str, float]:
    """Return a reading of the table that is a mapping, with its source noted."""
    found: Mapping[str, float] = getattr(table, name, {})
    if found:
        reading.sources.setdefault(name, _TABLE)
    return found


def _memory(reading: Reading) -> dict[str, Any]:
    """Read what is used, and the sizes: that of GTT may be changed while the host runs."""
    fields: dict[str, Any] = {}
    for prefix, kind in (("memory", "vram"), ("memory_visible", "vis_vram"), ("system_memory", "gtt")):
        size = reading.number(f"{prefix}_size_bytes", f"mem_info_{kind}_total", BYTES, live=False)
        used = reading.number(f"{prefix}_used_bytes", f"mem_info_{kind}_used", BYTES, live=False)
        fields[f"{prefix}_size_bytes"] = size or None
        fields[f"{prefix}_used_bytes"] = None if size == 0 else used  # a kind of memory that it does not have
    return fields
