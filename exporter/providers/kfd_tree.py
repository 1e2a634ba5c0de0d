"""Which processes compute on AMD GPUs, and with how much memory? Read from KFD's files in sysfs.

KFD is the part of the driver for compute. It shows a process from the moment it opens /dev/kfd until its address space
is gone, on every GPU that it may use. The files can be read by anyone, need no library, and are right in every release.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from exporter.kernel import read_small
from exporter.kfd import KFD
from exporter.providers.procfs import names_in
from exporter.providers.sanitise import BYTES

_MOST_PROCESSES = 20_000
_PAUSE_EACH = 32
_ENTRY = re.compile(r"(?:pid:)?(\d+)(?:-id:(\d+))?")
"""`1234`, and `pid:1234-id:1` for a second context of the same process."""
_CONTEXT = re.compile(r"context_(\d+)")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Entry(msgspec.Struct):
    """One process, all its contexts together. By KFD's number of the GPU or partition."""

    began: float = 0.0
    """Seconds since boot when it was read: a process that started later has taken over the pid."""
    memory_bytes: dict[int, float] = msgspec.field(default_factory=dict)
    unreadable: set[int] = msgspec.field(default_factory=set)
    """Where it has memory of unknown size."""
    queues: set[int] = msgspec.field(default_factory=set)
    compute_units: dict[int, float] = msgspec.field(default_factory=dict)
    """How many it occupies at this moment, where it has a queue and the GPU can tell."""

    def is_on(self, gpu_id: int) -> bool:
        """Tell whether it has a context there; a process that may use some GPUs only has no files of the others."""
        return gpu_id in self.memory_bytes or gpu_id in self.queues or gpu_id in self.unreadable


class Tree(NamedTuple):
    entries: Mapping[int, Entry]
    """By pid, of the initial namespace."""
    unreached: int
    """Processes that were never read yet: there was no time for them."""


class TreeReader:
    """Reads what every process holds, for a limited time; whom it did not reach comes first in the next read.

    `boottime`: seconds since boot. `clock`: seconds, monotonic. `pause` is called now and then during a read.
    """

    def __init__(
        self,
        root: Path,
        boottime: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[], None] = lambda: None,
        seconds: float = 0.6,
    ) -> None:
        self._folder = f"{root}/{KFD}/proc"
        self._boottime = boottime
        self._clock = clock
        self._pause = pause
        self._seconds = seconds
        self._entries: dict[int, Entry] = {}

    def read(self) -> Tree | None:
        """Return what every process holds, as old as a few reads at most; None where there is no KFD to be listed."""
        began, until = self._boottime(), self._clock() + self._seconds
        try:
            listed = names_in(self._folder)
        except OSError:
            return None
        names: dict[int, list[str]] = {}
        for name in listed:
            if match := _ENTRY.match(name):
                names.setdefault(int(match[1]), []).append(name)
        known = {pid: entry for pid, entry in self._entries.items() if pid in names}
        oldest_first = sorted(names, key=lambda pid: known[pid].began if pid in known else -1.0)
        for reached, pid in enumerate(oldest_first[:_MOST_PROCESSES]):
            if self._clock() > until:
                break
            if reached % _PAUSE_EACH == 0:
                self._pause()
            entry = Entry(began)
            if _read_process(self._folder, names[pid], entry):
                known[pid] = entry
            else:  # it ended
                known.pop(pid, None)
                del names[pid]
        self._entries = known
        return Tree(known, len(names) - len(known))


def _read_process(folder: str, names: list[str], entry: Entry) -> bool:
    """Add up all contexts of a process; tell whether it is still there."""
    there = False
    contexts: set[int] = set()
    for name in sorted(names):  # the process itself before its other contexts
        match = _ENTRY.match(name)
        if match is None or (match[2] is not None and not _first(contexts, int(match[2]))):
            continue
        with contextlib.suppress(OSError):
            _read(f"{folder}/{name}", entry, contexts)
            there = True
    return there


def _first(contexts: set[int], context: int) -> bool:
    """Tell whether a second context is met for the first time: kernels show it in one of two places."""
    known = context in contexts
    contexts.add(context)
    return not known


def _read(path: str, entry: Entry, contexts: set[int], *, inner: bool = False) -> None:
    """Add what a folder shows to `entry`. Raises OSError when the folder is gone."""
    folder = os.open(path, _FOLDER)
    try:
        names = names_in(folder)
        for name in names:
            if name.startswith("vram_") and name[5:].isdecimal():
                _add_memory(name, folder, entry)
        queues = set(_queues(f"{path}/queues")) if "queues" in names else set()
        for gpu_id in queues.intersection(
            int(name[6:]) for name in names if name[:6] == "stats_" and name[6:].isdecimal()
        ):
            units = _value(f"stats_{gpu_id}/cu_occupancy", folder)
            if units is not None:
                entry.compute_units[gpu_id] = entry.compute_units.get(gpu_id, 0.0) + units
    finally:
        os.close(folder)
    entry.queues |= queues
    for name in names:
        if not inner and (match := _CONTEXT.match(name)) and _first(contexts, int(match[1])):
            with contextlib.suppress(OSError):
                _read(f"{path}/{name}", entry, contexts, inner=True)


def _add_memory(name: str, folder: int, entry: Entry) -> None:
    gpu_id = int(name[5:])
    try:
        raw = read_small(name, folder)
    except FileNotFoundError:
        return
    except OSError:
        raw = b""
    if raw == b"0\n":  # of most processes on most GPUs
        entry.memory_bytes.setdefault(gpu_id, 0.0)
        return
    digits = raw.rstrip()
    if not digits.isdigit() or (value := float(digits)) > BYTES.high:
        entry.unreadable.add(gpu_id)
    else:
        entry.memory_bytes[gpu_id] = entry.memory_bytes.get(gpu_id, 0.0) + value


def _queues(folder: str) -> Iterator[int]:
    """Yield the GPU of each queue. Queues end while we look."""
    try:
        names = names_in(folder)
    except OSError:
        return
    for name in names:
        gpu_id = _value(f"{folder}/{name}/gpuid")
        if gpu_id is not None:
            yield gpu_id


def _value(path: str, folder: int | None = None) -> int | None:
    try:
        digits = read_small(path, folder).strip()
    except OSError:
        return None
    return int(digits) if digits.isdigit() else None
