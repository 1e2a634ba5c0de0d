"""What one open DRM file tells of its use of a GPU: one file of /proc/PID/fdinfo, in the kernel's own format."""

from collections.abc import Mapping
from typing import NamedTuple

_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "ns": 1}
_PREFIX = "drm-"
_FAMILIES = ("resident", "memory", "total", "engine", "cycles")
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


Spent = Mapping[str, Engine]
"""By name of the engine: gfx, compute, ...; render, video, ...; rcs, vcs, ..."""


class Client(NamedTuple):
    """One open DRM file, as one of its descriptors shows it."""

    driver: str
    address: str
    """PCI address in lower case; empty for a device that is on no PCI bus."""
    client_id: str
    """Duplicated and inherited descriptors have the same; empty where the kernel is too old to tell."""
    memory_bytes: Mapping[str, float]
    """What is resident, by region: vram, gtt, cpu; local0, system0; vram0; ..."""
    engines: Spent


def parse_fdinfo(raw: bytes) -> Client | None:
    """Parse one file of /proc/PID/fdinfo; None when it is not of a DRM driver that tells its use."""
    words: dict[str, str] = {}
    amounts: dict[str, dict[str, float]] = {family: {} for family in _FAMILIES}
    for line in raw.decode("ascii", "replace").splitlines():
        key, _, value = line.partition(":")
        if not key.startswith(_PREFIX):
            continue
        family, _, rest = key[len(_PREFIX) :].partition("-")
        if family not in amounts:
            words[key] = value.strip()
        elif rest and (amount := _amount(value.strip())) is not None:
            amounts[family][rest] = amount
    driver = words.get("drm-driver")
    if not driver:
        return None
    address, client_id = words.get("drm-pdev", "").lower(), words.get("drm-client-id", "")
    return Client(driver, address, client_id, _memory(amounts), _engines(amounts))


def latest(one: Spent, other: Spent) -> Spent:
    """Return the larger of what two descriptors of one client tell: they are read one after the other."""
    return {**one, **{name: max(engine, one[name]) if name in one else engine for name, engine in other.items()}}


def ratios(before: Spent, after: Spent, seconds: float, totals: Mapping[str, float]) -> dict[str, float] | None:
    """Return the share of the time that a client had of each engine; None: a counter went back, or cannot be read.

    `totals`: cycles of the device at the scan before, for a client that was not there.
    """
    shares = {}
    for name, engine in after.items():
        old = before.get(name, Engine(0.0, totals.get(name)))
        step = engine.spent - old.spent
        if step == 0:
            shares[name] = 0.0
            continue
        span = seconds * 1e9
        if engine.total is not None:
            span = 0.0 if old.total is None else engine.total - old.total
        if step < 0 or span <= 0:
            return None
        shares[name] = step / span / engine.capacity
    return shares


def _memory(amounts: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
    """Return what is resident; of drivers that do not tell that, what is allocated."""
    total = {region: amount for region, amount in amounts["total"].items() if not region.startswith(_CYCLES)}
    return {**total, **amounts["memory"], **amounts["resident"]}


def _engines(amounts: Mapping[str, Mapping[str, float]]) -> Mapping[str, Engine]:
    told = amounts["engine"]
    capacities = {name.removeprefix(_CAPACITY): n for name, n in told.items() if name.startswith(_CAPACITY) and n > 0}
    totals = amounts["total"]
    # Some drivers tell cycles beside the time, and then no total of them.
    engines = {
        name: Engine(spent, totals[_CYCLES + name], capacities.get(name, 1.0))
        for name, spent in amounts["cycles"].items()
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
