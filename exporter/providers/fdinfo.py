"""How much of a GPU does each process use through the kernel's DRM interface? Read from /proc/PID/fdinfo.

This is the one source for graphics, and for drivers without a process list. To look at every descriptor of every
process is dear, so what is no render node is told by its link alone, a process without one is looked at again later,
and a scan has a limit of time: whom it does not reach comes first in the next one, and is counted.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from exporter.kernel import Stat, read_small
from exporter.providers.drm_client import Client, Spent, latest, parse_fdinfo, ratios
from exporter.providers.procfs import Proc, link_of, listed_pids, names_in, read_stat
from exporter.providers.sysfs import SUSPENDED

_NODES = "/dev/dri/"
_LOOK_AGAIN_SECONDS = 60.0
_PAUSE_EACH = 32
_CLOCK_TICK_SECONDS = 1.0
"""By how much the start of a process may be off, generously."""

ClientKey = tuple[str, str]
"""PCI address and client id."""


class Usage(msgspec.Struct):
    """One process on one GPU."""

    seen: Stat
    memory_bytes: dict[str, float] = msgspec.field(default_factory=dict)
    busy_ratio: float | None = None
    """Mean since the scan before of the engines that count as work, at most 1; None: not known yet."""


class DeviceUse(msgspec.Struct):
    """All that was found to use one GPU; what a driver tells of the whole GPU is better."""

    memory_bytes: dict[str, float] = msgspec.field(default_factory=dict)
    """As of `Client`, the sum over all clients."""
    engine_ratio: dict[str, float] = msgspec.field(default_factory=dict)
    """Mean since the scan before of each class of engines, at most 1; one that nobody used may be missing."""


class Scan(NamedTuple):
    usages: Mapping[str, Mapping[int, Usage]]
    """By PCI address and pid."""
    uninspectable: int
    """Processes that may not be looked at, or that /proc hides."""
    unreached: int
    """Processes that there was no time for."""
    devices: Mapping[str, DeviceUse]
    """By PCI address, of the GPUs that somebody has open."""
    seconds: float | None
    """Since the scan before; None: it is the first."""
    whole: bool
    """Whether everybody was looked at, but for a process that opened a GPU within the last minute, when old."""


class _Process(msgspec.Struct):
    """What is remembered of a process."""

    started: int
    due: float = -math.inf
    """When it is looked at again, on the scanner's clock."""
    denied: bool = False
    looked_at: float = -math.inf
    looked_before: float = -math.inf
    read_at: float = -math.inf
    spent: dict[ClientKey, Spent] = msgspec.field(default_factory=dict)
    """At `read_at`, by client; not empty: it has a GPU open."""


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
        self._scanned_at: float | None = None
        self._asleep: dict[str, bool] = {}
        """By file of /dev/dri, in this scan."""
        self._totals: Mapping[str, Mapping[str, float]] = {}
        """Cycles of each device at the scan before, by address and engine."""

    def scan(self, skip: Collection[int] = ()) -> Scan | None:
        """Look at all processes but `skip`; None where there is no /proc."""
        try:
            pids, hidden = listed_pids(self._root)
        except OSError:
            return None
        now, known, descriptors = self._clock(), self._known, 0
        self._asleep = {}
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
        seconds = None if self._scanned_at is None else now - self._scanned_at
        usages, devices = self._sum(found, now)
        self._scanned_at = now
        whole = not (hidden or denied or missed or skip)
        return Scan(usages, hidden + denied, missed, devices, seconds, whole)

    def _urgency(self, pid: int) -> tuple[bool, float]:
        """Order processes that have a GPU open before those to be looked at longest ago, or never."""
        process = self._known.get(pid)
        return (not process.spent, process.due) if process else (True, -math.inf)

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
            clients, dozing = self._clients(folder, names[: self._most_descriptors])
        except PermissionError:
            process.denied = seen is None or not seen.kernel
            process.due = now + _LOOK_AGAIN_SECONDS
            return 0
        except OSError:  # ended
            self._known.pop(pid, None)
            return 0
        process.denied = False
        process.looked_before, process.looked_at = process.looked_at, now
        if seen is not None and dozing and not clients:
            return len(names)
        if seen is None or not clients:
            # One that has just begun may open its GPU at any moment.
            age = self._proc.age(seen) if seen else 0.0
            process.due, process.spent = now + min(age, _LOOK_AGAIN_SECONDS), {}
            return len(names)
        after = read_stat(self._root, pid)
        if after is not None and after.started == seen.started:
            found.extend((pid, seen, client) for client in clients)
        return len(names)

    def _clients(self, folder: str, names: list[str]) -> tuple[list[Client], bool]:
        """Read what is open, and tell whether a GPU was left out because it sleeps: xe wakes it to count its cycles.

        Raises PermissionError: a process may let its user list descriptors, and not see where to.
        """
        clients, dozing = [], False
        for name in names:
            try:
                target = link_of(f"{folder}/fd/{name}")
                if not target.startswith(_NODES):
                    continue
                if self._sleeps(target.removeprefix(_NODES).partition(" ")[0]):
                    dozing = True
                    continue
                client = parse_fdinfo(read_small(f"{folder}/fdinfo/{name}"))
                if client is not None:
                    clients.append(client)
            except PermissionError:
                raise
            except OSError:  # closed meanwhile, or the process has ended
                continue
        return clients, dozing

    def _sleeps(self, node: str) -> bool:
        """Tell whether the GPU behind a file of /dev/dri is suspended; asked once in a scan."""
        if node not in self._asleep:
            try:
                status = read_small(f"{self._proc.root}/sys/class/drm/{node}/device/power/runtime_status")
            except OSError:
                status = b""
            self._asleep[node] = status.strip() in SUSPENDED
        return self._asleep[node]

    def _sum(
        self, found: list[tuple[int, Stat, Client]], now: float
    ) -> tuple[Mapping[str, Mapping[int, Usage]], Mapping[str, DeviceUse]]:
        """Add up each client once, for the first of the processes that have it open."""
        usages: dict[str, dict[int, Usage]] = {}
        spent: dict[int, dict[ClientKey, Spent]] = {}
        owners: dict[ClientKey, int] = {}
        for pid, seen, client in sorted(found, key=lambda one: one[0]):
            usage = usages.setdefault(client.address, {}).setdefault(pid, Usage(seen))
            key = (client.address, client.client_id or f"process {pid}")
            mine = spent.setdefault(pid, {})
            mine[key] = latest(mine.get(key, {}), client.engines)
            if key not in owners:
                _add(usage.memory_bytes, client.memory_bytes)
                owners[key] = pid
            elif not client.client_id:  # files of one process that cannot be told apart: the largest counts
                _raise(usage.memory_bytes, client.memory_bytes)
        devices = {address: DeviceUse() for address in usages}
        for pid, mine in spent.items():
            process = self._known[pid]
            for address in {address for address, _ in mine}:
                own = {key: engines for key, engines in mine.items() if key[0] == address and owners[key] == pid}
                usage = usages[address][pid]
                usage.busy_ratio = self._busy(process, usage.seen, own, devices[address], now)
                _add(devices[address].memory_bytes, usage.memory_bytes)
            process.spent, process.read_at = mine, now
        self._totals = _totals(spent.values())
        for device in devices.values():
            device.engine_ratio = {engine: min(1.0, ratio) for engine, ratio in device.engine_ratio.items()}
        return usages, devices

    def _busy(
        self, process: _Process, seen: Stat, own: Mapping[ClientKey, Spent], device: DeviceUse, now: float
    ) -> float | None:
        """Return the share of work of a process, and add what it had of each engine to that of its device."""
        began = self._began(process, seen, now)
        if began is None or now <= began:
            return None
        work: float | None = 0.0
        for key, engines in own.items():
            totals = self._totals.get(key[0], {})
            # A client that was not there at the scan before began after it, at 0.
            shares = ratios(process.spent.get(key, {}), engines, now - began, totals)
            if shares is None:
                work = None
                continue
            _add(device.engine_ratio, shares)
            if work is not None:
                work += sum(ratio for engine, ratio in shares.items() if engine in self._work)
        return min(1.0, work) if process.spent and work is not None else None

    def _began(self, process: _Process, seen: Stat, now: float) -> float | None:
        """Return since when what it has had more is counted; None: it cannot be told when it began."""
        if process.spent:
            return process.read_at
        before = self._scanned_at
        if before is None:
            return None
        is_young = self._proc.age(seen) <= now - before + _CLOCK_TICK_SECONDS
        return before if is_young or process.looked_before >= before else None


def _totals(spent: Iterable[Mapping[ClientKey, Spent]]) -> dict[str, dict[str, float]]:
    totals: dict[str, dict[str, float]] = {}
    for clients in spent:
        for (address, _), engines in clients.items():
            for name, engine in engines.items():
                if engine.total is not None:
                    totals.setdefault(address, {})[name] = engine.total
    return totals


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for region, amount in more.items():
        total[region] = total.get(region, 0.0) + amount


def _raise(total: dict[str, float], more: Mapping[str, float]) -> None:
    for region, amount in more.items():
        total[region] = max(total.get(region, 0.0), amount)
