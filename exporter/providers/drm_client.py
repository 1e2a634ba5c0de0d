"""What one open DRM file tells of its use of a GPU: one file of /proc/PID/fdinfo, in the kernel's own format."""

from collections.abc import Mapping
from typing import NamedTuple

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "ns": 1}
_CAPACITY = "capacity-"
_CYCLES = "cycles-"


class Engine(NamedTuple):
    """What a client has had of one class of engines since it was opened; may go backwards."""

    spent: float
    """Nanoseconds, or cycles where `total` is told."""
    total: float | None = None
    """Cycles of the device's own clock, the same for all clients (xe)."""
    capacity: float = 1.0
    """How many engines of the class there are."""


class Client(NamedTuple):
    """One open DRM file, as one of its descriptors shows it."""

    driver: str
    address: str
    """PCI address in lower case; empty for a device that is on no PCI bus."""
    client_id: str
    """Duplicated and inherited descriptors have the same; empty where the kernel is too old to tell."""
    memory_bytes: Mapping[str, float]
    """What is resident, by region: vram, gtt, cpu; local0, system0; vram0; ..."""
    engines: Mapping[str, Engine]
    """By name: gfx, compute, ...; render, video, ...; rcs, vcs, ..."""


def parse_fdinfo(raw: bytes) -> Client | None:
    """Parse one file of /proc/PID/fdinfo; None when it is not of a DRM driver that tells its use."""
    fields: dict[str, str] = {}
    for line in raw.decode("ascii", "replace").splitlines():
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    driver = fields.get("drm-driver")
    if not driver:
        return None
    amounts: dict[str, dict[str, float]] = {}
    for key, value in fields.items():
        family, _, rest = key.removeprefix("drm-").partition("-")
        amount = _amount(value)
        if key.startswith("drm-") and rest and amount is not None:
            amounts.setdefault(family, {})[rest] = amount
    address = fields.get("drm-pdev", "").lower()
    return Client(driver, address, fields.get("drm-client-id", ""), _memory(amounts), _engines(amounts))


def _memory(amounts: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    """Return what is resident; of drivers that do not tell that, what is allocated."""
    total = {region: amount for region, amount in amounts.get("total", {}).items() if not region.startswith(_CYCLES)}
    return {**total, **amounts.get("memory", {}), **amounts.get("resident", {})}


def _engines(amounts: Mapping[str, Mapping[str, float]]) -> Mapping[str, Engine]:
    told = amounts.get("engine", {})
    capacities = {name.removeprefix(_CAPACITY): n for name, n in told.items() if name.startswith(_CAPACITY) and n > 0}
    totals = amounts.get("total", {})
    # Some drivers tell cycles beside the time, and then no total of them.
    engines = {
        name: Engine(spent, totals[_CYCLES + name], capacities.get(name, 1.0))
        for name, spent in amounts.get("cycles", {}).items()
        if _CYCLES + name in totals
    }
    for name, spent in told.items():
        if not name.startswith(_CAPACITY):
            engines[name] = Engine(spent, None, capacities.get(name, 1.0))
    return engines


def _amount(value: str) -> float | None:
    number, _, unit = value.partition(" ")
    try:
        return float(int(number)) * _UNITS[unit.strip()]
    except (KeyError, ValueError, OverflowError):
        return None
