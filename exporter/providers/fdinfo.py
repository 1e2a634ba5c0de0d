"""How much of a GPU does each process use through the kernel's DRM interface? Read from /proc/PID/fdinfo.

This is the one source for graphics, and for drivers without a process list. To look at every descriptor of every
process is dear, so what is no render node is told by its link alone, a process without one is looked at again later,
and a scan has a limit of time: whom it does not reach comes first in the next one, and is counted.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from exporter.kernel import Stat, read_small
from exporter.providers.procfs import Proc, link_of, listed_pids, names_in, read_stat

_NODES = "/dev/dri/"
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "ns": 1}
_LOOK_AGAIN_SECONDS = 60.0
_PAUSE_EACH = 32

ClientKey = tuple[str, str]
"""PCI address and client id."""


class Client(NamedTuple):
    """One open DRM file, as one of its descriptors shows it."""

    driver: str
    address: str
    """PCI address in lower case; empty for a device that is on no PCI bus."""
    client_id: str
    """Duplicated and inherited descriptors have the same; empty where the kernel is too old to tell."""
    memory_bytes: Mapping[str, float]
    """What is resident, by region: vram, gtt, cpu; local0, system0; ..."""
    engine_nanoseconds: Mapping[str, float]
    """Since the file was opened; may go backwards."""


class Usage(msgspec.Struct):
    """One process on one GPU."""

    seen: Stat
    memory_bytes: dict[str, float] = msgspec.field(default_factory=dict)
    busy_ratio: float | None = None
    """Mean since the scan before of the engines that count as work, at most 1; None: not known yet."""


class Scan(NamedTuple):
    usages: Mapping[str, Mapping[int, Usage]]
    """By PCI address and pid."""
    uninspectable: int
    """Processes that may not be looked at, or that /proc hides."""
    unreached: int
    """Processes that there was no time for."""


class _Process(msgspec.Struct):
    """What is remembered of a process."""

    started: int
    due: float = -math.inf
    """When it is looked at again, on the scanner's clock."""
    denied: bool = False
    read_at: float = -math.inf
    work: dict[ClientKey, float] = msgspec.field(default_factory=dict)
    """Nanoseconds of work at `read_at`, by client; not empty: it has a GPU open."""


class Scanner:
    """Scans the processes of `proc`. Not for a /proc of another pid namespace.

    `work`: names of the engines whose time counts as busy. `clock`: seconds, monotonic. `pause` is called now and then
    during a scan.
    """

    def __init__(
        self,
        proc: Proc,
        work: Collection[str],
        clock: Callable[[], float] = time.monotonic,
        *,
        pause: Callable[[], None] = lambda: None,
        most_processes: int = 5_000,
        most_descriptors: int = 100_000,
        seconds: float = 0.4,
    ) -> None:
        self._proc = proc
        self._root = proc.above
        self._work = frozenset(work)
        self._clock = clock
        self._pause = pause
        self._most_processes = most_processes
        self._most_descriptors = most_descriptors
        self._seconds = seconds
        self._known: dict[int, _Process] = {}

    def scan(self, skip: Collection[int] = ()) -> Scan | None:
        """Look at all processes but `skip`; None where there is no /proc."""
        try:
            pids, hidden = listed_pids(self._root)
        except OSError:
            return None
        now, known, descriptors = self._clock(), self._known, 0
        found: list[tuple[int, Stat, Client]] = []
        ordered = sorted((pid for pid in pids if pid not in skip), key=self._urgency)
        reached = 0
        for pid in ordered[: self._most_processes]:
            if descriptors >= self._most_descriptors or self._clock() - now > self._seconds:
                break
            if reached % _PAUSE_EACH == 0:
                self._pause()
            reached += 1
            descriptors += self._look(pid, now, found)
        # Of those that were not due nothing new would have been learnt.
        missed = sum(pid not in known or known[pid].due <= now for pid in ordered[reached:])
        remaining = set(pids)
        self._known = {pid: process for pid, process in known.items() if pid in remaining}
        denied = sum(process.denied for pid, process in self._known.items() if pid not in skip)
        return Scan(self._sum(found, now), hidden + denied, missed)

    def _urgency(self, pid: int) -> tuple[bool, float]:
        """Order processes that have a GPU open before those to be looked at longest ago, or never."""
        process = self._known.get(pid)
        return (not process.work, process.due) if process else (True, -math.inf)

    def _look(self, pid: int, now: float, found: list[tuple[int, Stat, Client]]) -> int:
        """Look at one process and return how many descriptors that took."""
        seen = read_stat(self._root, pid)
        process = self._known.get(pid)
        # Without its start time (hidepid=1) a process is looked at anew each time.
        if process is None or seen is None or process.started != seen.started:
            process = self._known[pid] = _Process(started=seen.started if seen else -1)
        elif now < process.due:
            return 0
        folder = f"{self._root}/proc/{pid}"
        try:
            names = names_in(f"{folder}/fd")
            clients = _clients(folder, names[: self._most_descriptors])
        except PermissionError:
            process.denied = seen is None or not seen.kernel
            process.due = now + _LOOK_AGAIN_SECONDS
            return 0
        except OSError:  # ended
            self._known.pop(pid, None)
            return 0
        process.denied = False
        if seen is None or not clients:
            # One that has just begun may open its GPU at any moment.
            age = self._proc.age(seen) if seen else 0.0
            process.due, process.work = now + min(age, _LOOK_AGAIN_SECONDS), {}
            return len(names)
        after = read_stat(self._root, pid)
        if after is not None and after.started == seen.started:
            found.extend((pid, seen, client) for client in clients)
        return len(names)

    def _sum(self, found: list[tuple[int, Stat, Client]], now: float) -> Mapping[str, Mapping[int, Usage]]:
        """Add up each client once, for the first of the processes that have it open."""
        usages: dict[str, dict[int, Usage]] = {}
        work: dict[int, dict[ClientKey, float]] = {}
        owners: dict[ClientKey, int] = {}
        for pid, seen, client in sorted(found, key=lambda one: one[0]):
            usage = usages.setdefault(client.address, {}).setdefault(pid, Usage(seen))
            key = (client.address, client.client_id or f"process {pid}")
            spent = sum(ns for engine, ns in client.engine_nanoseconds.items() if engine in self._work)
            mine = work.setdefault(pid, {})
            mine[key] = max(spent, mine.get(key, 0.0))
            if key not in owners:
                _add(usage.memory_bytes, client.memory_bytes)
                owners[key] = pid
            elif not client.client_id:  # files of one process that cannot be told apart: the largest counts
                _raise(usage.memory_bytes, client.memory_bytes)
        for pid, mine in work.items():
            process = self._known[pid]
            for address in {address for address, _ in mine}:
                own = {key: ns for key, ns in mine.items() if key[0] == address and owners[key] == pid}
                usages[address][pid].busy_ratio = _busy(process, own, now)
            process.work, process.read_at = mine, now
        return usages


def parse_fdinfo(raw: bytes) -> Client | None:
    """Parse one file of /proc/PID/fdinfo; None when it is not of a DRM driver that tells its use."""
    fields: dict[str, str] = {}
    for line in raw.decode("ascii", "replace").splitlines():
        key, _, value = line.partition(":")
        fields[key] = value.strip()
    driver = fields.get("drm-driver")
    if not driver:
        return None
    resident: dict[str, float] = {}
    legacy: dict[str, float] = {}
    engines: dict[str, float] = {}
    for key, value in fields.items():
        family, _, rest = key.removeprefix("drm-").partition("-")
        amount = _amount(value)
        if not key.startswith("drm-") or not rest or amount is None:
            continue
        if family == "resident":
            resident[rest] = amount
        elif family == "memory":
            legacy[rest] = amount
        elif family == "engine" and not rest.startswith("capacity-"):
            engines[rest] = amount
    address = fields.get("drm-pdev", "").lower()
    return Client(driver, address, fields.get("drm-client-id", ""), {**legacy, **resident}, engines)


def _amount(value: str) -> float | None:
    number, _, unit = value.partition(" ")
    try:
        return float(int(number)) * _UNITS[unit.strip()]
    except (KeyError, ValueError):
        return None


def _clients(folder: str, names: list[str]) -> list[Client]:
    """Read what is open. Raises PermissionError: a process may let its user list descriptors, and not see where to."""
    clients = []
    for name in names:
        try:
            if link_of(f"{folder}/fd/{name}").startswith(_NODES):
                client = parse_fdinfo(read_small(f"{folder}/fdinfo/{name}"))
                if client is not None:
                    clients.append(client)
        except PermissionError:
            raise
        except OSError:  # closed meanwhile, or the process has ended
            continue
    return clients


def _busy(process: _Process, work: Mapping[ClientKey, float], now: float) -> float | None:
    if not process.work or now <= process.read_at:
        return None
    # A client that was not there at the scan before began after it, at 0.
    steps = [spent - process.work.get(key, 0.0) for key, spent in work.items()]
    if min(steps, default=0.0) < 0:
        return None
    return min(1.0, sum(steps) / 1e9 / (now - process.read_at))


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for region, amount in more.items():
        total[region] = total.get(region, 0.0) + amount


def _raise(total: dict[str, float], more: Mapping[str, float]) -> None:
    for region, amount in more.items():
        total[region] = max(total.get(region, 0.0), amount)
