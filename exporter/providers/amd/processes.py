"""Which processes hold memory or a queue on a package, and which only have it open.

The driver lists on every GPU each process that ever opened /dev/kfd, launchers and monitors among them. One with no
memory and no queue on this GPU is a bystander: counted, and left out.
"""

from collections.abc import Callable, Collection, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec

from exporter.kernel import Stat
from exporter.kfd import Node, read_topology
from exporter.model import ProcessSample
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, mapping
from exporter.providers.amd.kfd import Tree, TreeReader
from exporter.providers.amd.packages import Package, Part
from exporter.providers.fdinfo import Scan, Scanner, Usage
from exporter.providers.procfs import Proc, name_of
from exporter.providers.sanitise import BYTES, COUNT, Range, Readings, is_sentinel, text

_PIDS = Range(1.0, 2.0**22)  # the kernel's PID_MAX_LIMIT
_NAME = "processes"
_WORK = ("gfx", "compute")
_SAME_PASS_SECONDS = 2.0


class Processes(NamedTuple):
    samples: tuple[ProcessSample, ...] | None
    counts: dict[str, int]


class _Row(msgspec.Struct):
    """What is known of one process over all partitions of a package."""

    seen: Stat | None
    name: str | None = None
    """As the library has it, where /proc does not show the process."""
    memory_bytes: float | None = None
    active: bool = False
    partitions: set[str] = msgspec.field(default_factory=set)
    busy_ratio: float | None = None


class _Look(msgspec.Struct, frozen=True):
    """What one look at the host gave, for the packages that are read in the same pass."""

    at: float
    began: float
    """Seconds since boot."""
    tree: Tree | None
    nodes: list[Node]
    graphics: Scan | None
    everyone: bool
    """Whether `graphics` is of the processes in `tree` too."""
    seen: dict[int, Stat | None]
    served: set[str]
    """Keys of packages."""


class ProcessReader:
    """Reads the processes of packages. `clock`: seconds, monotonic. `pause` is called now and then during a look."""

    def __init__(self, proc: Proc, clock: Callable[[], float], pause: Callable[[], None]) -> None:
        self._proc = proc
        self._clock = clock
        self._tree = TreeReader(proc.root, proc.boottime, pause=pause)
        self._scanner = Scanner(proc, _WORK, pause=pause)
        self._last: _Look | None = None

    def read(self, calls: Calls, package: Package, readings: Readings, *, unified: bool) -> Processes:
        """List the processes of a package. `unified`: host memory is the GPU's too."""
        look = self._look(package.key, unified=unified)
        rows = self._of_kfd(calls, package, look)
        uninspectable = look.tree.unreached if look.tree and rows is not None else 0
        if rows is None:
            try:
                rows, uninspectable = self._of_library(calls, package, look.began, readings, unified=unified)
            except Absent:
                if look.graphics is None:
                    return Processes(None, {})
                rows = {}
            except Broken:  # a name that is not UTF-8 or more processes than AMD SMI has room for
                readings.fail(_NAME)
                return Processes(None, {})
        if look.graphics is not None:
            uninspectable += look.graphics.uninspectable + look.graphics.unreached
            used = look.graphics.usages.get(package.pci_address or "none", {})
            _add_graphics(rows, used, look.tree.entries if look.tree else (), unified=unified)
        return self._sort(rows, uninspectable)

    def _look(self, key: str, *, unified: bool) -> _Look:
        """Look at the host, unless that was done for another package of this pass."""
        now, last = self._clock(), self._last
        if (
            last is not None
            and key not in last.served
            and now - last.at < _SAME_PASS_SECONDS
            and (last.everyone or not unified)
        ):
            last.served.add(key)
            return last
        began = self._proc.boottime()
        tree = self._tree.read()
        graphics = None
        if not self._proc.foreign:  # its pids would be others than those of KFD
            graphics = self._scanner.scan(tree.entries.keys() if tree and not unified else ())
        seen = {pid: self._proc.look(pid, entry.began) for pid, entry in tree.entries.items()} if tree else {}
        nodes = read_topology(self._proc.root) if tree else []
        self._last = _Look(now, began, tree, nodes, graphics, unified, seen, {key})
        return self._last

    def _of_kfd(self, calls: Calls, package: Package, look: _Look) -> dict[int, _Row] | None:
        """Return what KFD shows; None where it is not there, or does not tell which GPU is which."""
        if look.tree is None:
            return None
        places = {part.number: _node(calls, part, package, look.nodes) for part in package.parts}
        nodes = {number: node for number, node in places.items() if node is not None}
        if len(nodes) < len(places):
            return None
        units = [node.compute_units for node in nodes.values()]
        total = sum(unit for unit in units if unit) if all(units) else 0
        rows: dict[int, _Row] = {}
        for pid, entry in look.tree.entries.items():
            on = {number: node.gpu_id for number, node in nodes.items() if entry.is_on(node.gpu_id)}
            if not on:
                continue
            memory = [entry.memory_bytes[gpu_id] for gpu_id in on.values() if gpu_id in entry.memory_bytes]
            row = rows[pid] = _Row(look.seen[pid], memory_bytes=sum(memory) if memory else None)
            row.active = any(gpu_id in entry.queues for gpu_id in on.values())
            if package.partitioned:
                row.partitions = {
                    str(number)
                    for number, gpu_id in on.items()
                    if gpu_id in entry.queues or entry.memory_bytes.get(gpu_id)
                }
            working = [gpu_id for gpu_id in on.values() if gpu_id in entry.queues]
            if total and all(gpu_id in entry.compute_units for gpu_id in working):
                row.busy_ratio = min(1.0, sum(entry.compute_units[gpu_id] for gpu_id in working) / total)
        return rows

    def _of_library(
        self, calls: Calls, package: Package, began: float, readings: Readings, *, unified: bool
    ) -> tuple[dict[int, _Row], int]:
        """Return what AMD SMI lists, and how many it could not look at. Raises Absent and Broken."""
        rows: dict[int, _Row] = {}
        uninspectable = 0
        listed = False
        for part in package.parts:
            try:
                entries = _entries(calls, part.handle)
            except Absent:
                continue
            listed = True
            for entry in entries:
                pid = readings.number(_NAME, entry.get("pid"), _PIDS) if entry else None
                if pid is None:
                    uninspectable += 1
                    continue
                row = rows.setdefault(int(pid), _Row(self._proc.look(int(pid), began)))
                _add(row, entry, str(part.number) if package.partitioned else None, readings, unified=unified)
        if not listed:
            raise Absent(_NAME)
        return rows, uninspectable

    def _sort(self, rows: Mapping[int, _Row], uninspectable: int) -> Processes:
        samples = []
        counts = dict.fromkeys(("holding", "unnamed", "bystander"), 0)
        counts |= {"uninspectable": uninspectable, "self": 0}
        for pid, row in sorted(rows.items()):
            if self._proc.is_own(pid, row.seen):
                counts["self"] += 1
                continue
            if not row.active and not row.memory_bytes:
                counts["uninspectable" if row.memory_bytes is None else "bystander"] += 1
                continue
            name = (row.seen.name if row.seen else "") or row.name
            if row.memory_bytes is None:
                counts["uninspectable"] += 1
            else:
                counts["holding" if name else "unnamed"] += 1
            samples.append(
                ProcessSample(
                    pid=pid,
                    started=row.seen.started if row.seen else None,
                    name=name or name_of(pid, None),
                    memory_used_bytes=row.memory_bytes,
                    partition=next(iter(row.partitions)) if len(row.partitions) == 1 else None,
                    busy_ratio=row.busy_ratio,
                )
            )
        return Processes(tuple(samples), counts)


def _entries(calls: Calls, handle: Any) -> list[Mapping[str, Any]]:
    """Return the process list as records; empty ones stand for processes that could not be looked at."""
    listed = calls("amdsmi_get_gpu_process_list", handle)
    if not isinstance(listed, list):
        raise Broken(_NAME)
    entries: list[Mapping[str, Any]] = []
    for item in listed:
        if isinstance(item, dict):
            entries.append(item)
            continue
        try:  # up to ROCm 6.1.1 the list is of handles
            answer = calls("amdsmi_get_gpu_process_info", handle, item)
        except (Absent, HandleGone):  # ended meanwhile
            continue
        except Broken:
            answer = {}
        entries.append(mapping(answer))
    return entries


def _add(row: _Row, entry: Mapping[str, Any], partition: str | None, readings: Readings, *, unified: bool) -> None:
    memory = mapping(entry.get("memory_usage"))
    kinds = ("vram_mem", "gtt_mem") if unified else ("vram_mem",)
    known = [readings.number(_NAME, memory.get(kind), BYTES, bits=64) for kind in kinds]
    held = [value for value in known if value is not None]
    if held:
        row.memory_bytes = (row.memory_bytes or 0.0) + sum(held)
    # A percentage in some releases and a number of units in others: good for no share.
    active = bool(readings.number(_NAME, entry.get("cu_occupancy"), COUNT))
    row.active = row.active or active
    if partition is not None and (active or any(held)):
        row.partitions.add(partition)
    said = text(entry.get("name"))
    row.name = row.name or (PurePosixPath(said).name or said if said else None)


def _add_graphics(
    rows: dict[int, _Row], used: Mapping[int, Usage], computing: Collection[int], *, unified: bool
) -> None:
    """Add what is used through DRM. What a process has through KFD may be part of that: the larger counts, not the sum.

    `computing`: pids that KFD knows, on whatever GPU.
    """
    kinds = ("vram", "gtt") if unified else ("vram",)
    for pid, usage in used.items():
        held = sum(usage.memory_bytes.get(kind, 0.0) for kind in kinds)
        row = rows.get(pid)
        if row is not None:
            if unified:
                row.memory_bytes = max(held, row.memory_bytes or 0.0)
        elif pid not in computing or unified:
            rows[pid] = _Row(usage.seen, memory_bytes=held, active=bool(usage.busy_ratio), busy_ratio=usage.busy_ratio)


def _node(calls: Calls, part: Part, package: Package, nodes: list[Node]) -> Node | None:
    """Find a partition in KFD's topology: by KFD's own number, which AMD SMI tells from ROCm 6.3, else by its place."""
    told = mapping(calls.whatever("amdsmi_get_gpu_kfd_info", part.handle)).get("kfd_id")
    gpu_id = told if isinstance(told, int) and told > 0 and not is_sentinel(told) else None
    here = [node for node in nodes if package.pci_address and node.place == package.pci_address.rpartition(".")[0]]
    if package.partitioned:
        here = [node for node in here if node.partition == part.number]
    found = [node for node in nodes if node.gpu_id == gpu_id] or here
    if found:
        return found[0]
    return None if gpu_id is None else Node(gpu_id, "", part.number)
