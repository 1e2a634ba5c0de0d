"""Which processes compute on AMD GPUs, and with how much memory? Read from KFD's files in sysfs.

KFD is the part of the driver for compute. It shows a process from the moment it opens /dev/kfd until its address space
is gone, on every GPU that it may use. The files can be read by anyone, need no library, and are right in every release.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from exporter.providers.procfs import names_in, read_small
from exporter.providers.sanitise import BYTES

_KFD = "sys/class/kfd/kfd"
_MOST_PROCESSES = 20_000
_MOST_SECONDS = 2.0
_ENTRY = re.compile(r"(?:pid:)?(\d+)(?:-id:(\d+))?")
"""`1234`, and `pid:1234-id:1` for a second context of the same process."""
_CONTEXT = re.compile(r"context_(\d+)")


class Entry(msgspec.Struct):
    """One process, all its contexts together. By KFD's number of the GPU or partition."""

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
    """Processes that there was no time for."""


class Node(NamedTuple):
    """A GPU, or one partition of it, in KFD's topology."""

    gpu_id: int
    place: str
    """PCI address without the function: dddd:bb:dd."""
    partition: int
    compute_units: int | None


def read_tree(root: Path, clock: Callable[[], float] = time.monotonic) -> Tree | None:
    """Read what every process holds; None where there is no KFD, or it cannot be listed."""
    folder = f"{root}/{_KFD}/proc"
    try:
        names = names_in(folder)
    except OSError:
        return None
    entries: dict[int, Entry] = {}
    contexts: set[tuple[int, int]] = set()
    until = clock() + _MOST_SECONDS
    for reached, name in enumerate(names):
        if reached >= _MOST_PROCESSES or clock() > until:
            return Tree(entries, len(names) - reached)
        match = _ENTRY.match(name)
        if match is None:
            continue
        pid, context = int(match[1]), match[2]
        if context is not None and not _first(contexts, pid, int(context)):
            continue
        entry = entries.get(pid) or Entry()
        try:
            _read(f"{folder}/{name}", entry, pid, contexts)
        except OSError:  # it ended
            continue
        entries[pid] = entry
    return Tree(entries, 0)


def read_topology(root: Path) -> list[Node]:
    """List GPUs and partitions; empty where there is no KFD."""
    nodes = []
    for folder in (root / _KFD / "topology/nodes").glob("*"):
        try:
            gpu_id = int(read_small(f"{folder}/gpu_id"))
            lines = read_small(f"{folder}/properties").decode("ascii", "replace").splitlines()
            properties = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
            if gpu_id:  # 0: a processor
                nodes.append(_node(gpu_id, properties))
        except (OSError, ValueError, KeyError):  # a node of which the GPU is not open to us shows nothing
            continue
    return nodes


def _node(gpu_id: int, properties: Mapping[str, int]) -> Node:
    # Bus, device and function, as PCI packs them; of a partitioned GPU the number of the partition is on top.
    location = properties["location_id"]
    place = f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    per_unit = properties.get("simd_per_cu", 0)
    units = properties.get("simd_count", 0) // per_unit if per_unit else 0
    return Node(gpu_id, place, location >> 28 & 0xF, units or None)


def _first(contexts: set[tuple[int, int]], pid: int, context: int) -> bool:
    """Tell whether a second context is met for the first time: kernels show it in one of two places."""
    known = (pid, context) in contexts
    contexts.add((pid, context))
    return not known


def _read(folder: str, entry: Entry, pid: int, contexts: set[tuple[int, int]], *, inner: bool = False) -> None:
    """Add what a folder shows to `entry`. Raises OSError when the folder is gone."""
    names = names_in(folder)
    queues = set(_queues(f"{folder}/queues")) if "queues" in names else set()
    entry.queues |= queues
    for name in names:
        if name.startswith("vram_"):
            gpu_id = _number(name[5:])
            if gpu_id is not None:
                _add_memory(f"{folder}/{name}", entry, gpu_id)
        elif not inner and (match := _CONTEXT.match(name)) and _first(contexts, pid, int(match[1])):
            _read(f"{folder}/{name}", entry, pid, contexts, inner=True)
    for gpu_id in queues:
        if f"stats_{gpu_id}" in names:
            units = _value(f"{folder}/stats_{gpu_id}/cu_occupancy")
            if units is not None:
                entry.compute_units[gpu_id] = entry.compute_units.get(gpu_id, 0.0) + units


def _add_memory(path: str, entry: Entry, gpu_id: int) -> None:
    try:
        value = _number(read_small(path).decode("ascii", "replace"))
    except PermissionError:
        value = None
    if value is None or not BYTES.low <= value <= BYTES.high:
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


def _value(path: str) -> int | None:
    try:
        return _number(read_small(path).decode("ascii", "replace"))
    except OSError:
        return None


def _number(text: str) -> int | None:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() else None
