"""Which processes hold memory or a queue on a GPU, and which only have it open? Asked of KFD and of DRM's clients.

AMD's driver lists on every GPU each process that ever opened /dev/kfd, launchers and monitors among them. One with no
memory and no queue on this GPU is a bystander: counted, and left out.
"""

import time
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import msgspec

from exporter.kernel import Stat
from exporter.kfd import Node, read_topology
from exporter.model import ProcessSample
from exporter.providers.fdinfo import Scan, Scanner, Usage
from exporter.providers.kfd_tree import Tree, TreeReader
from exporter.providers.procfs import Proc, name_of

_SAME_PASS_SECONDS = 2.0


class Processes(NamedTuple):
    samples: tuple[ProcessSample, ...] | None
    counts: dict[str, int]


class Row(msgspec.Struct):
    """What is known of one process over all partitions of a GPU."""

    seen: Stat | None
    name: str | None = None
    """As a library has it, where /proc does not show the process."""
    memory_bytes: float | None = None
    active: bool = False
    partitions: set[str] = msgspec.field(default_factory=set)
    busy_ratio: float | None = None


class Look(msgspec.Struct, frozen=True):
    """What one look at the host gave, for the GPUs that are read in the same pass."""

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
    """Keys of GPUs."""

    @property
    def computing(self) -> Collection[int]:
        """Pids that KFD knows, on whatever GPU."""
        return self.tree.entries if self.tree else ()


class Onlooker:
    """Looks at the processes of the host, once for all GPUs of a pass.

    `work` and `scan_clock`: as of `Scanner`. `clock`: seconds, monotonic. `pause` is called now and then during a look.
    """

    def __init__(
        self,
        proc: Proc,
        work: Collection[str],
        clock: Callable[[], float],
        pause: Callable[[], None],
        scan_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._tree = TreeReader(proc.root, proc.boottime, pause=pause)
        self._scanner = Scanner(proc, work, scan_clock, pause=pause)
        self._everyone = False
        self._last: Look | None = None

    @property
    def newest(self) -> Look | None:
        return self._last

    def look(self, key: str, *, everyone: bool) -> Look:
        """Look for the GPU with this key, unless that was done for another one of this pass.

        `everyone`: what processes hold through DRM is wanted of those that KFD knows too.
        """
        now, last = self._clock(), self._last
        if (
            last is not None
            and key not in last.served
            and now - last.at < _SAME_PASS_SECONDS
            and (last.everyone or not everyone)
        ):
            last.served.add(key)
            return last
        # Of GPUs that differ in this one look serves all, so that each is of the time since the pass before.
        self._everyone = self._everyone or everyone
        began = self._proc.boottime()
        tree = self._tree.read()
        graphics = None
        if not self._proc.foreign:  # its pids would be others than those of KFD
            graphics = self._scanner.scan(tree.entries.keys() if tree and not self._everyone else ())
        seen = {pid: self._proc.look(pid, entry.began) for pid, entry in tree.entries.items()} if tree else {}
        nodes = read_topology(self._proc.root) if tree else []
        self._last = Look(now, began, tree, nodes, graphics, self._everyone, seen, {key})
        return self._last


def rows_of_kfd(look: Look, nodes: Mapping[int, Node]) -> dict[int, Row]:
    """Return what KFD shows of a GPU. `nodes`: it alone, or its partitions by number."""
    units = [node.compute_units for node in nodes.values()]
    total = sum(unit for unit in units if unit) if all(units) else 0
    rows: dict[int, Row] = {}
    for pid, entry in look.tree.entries.items() if look.tree else ():
        on = {number: node.gpu_id for number, node in nodes.items() if entry.is_on(node.gpu_id)}
        if not on:
            continue
        memory = [entry.memory_bytes[gpu_id] for gpu_id in on.values() if gpu_id in entry.memory_bytes]
        row = rows[pid] = Row(look.seen[pid], memory_bytes=sum(memory) if memory else None)
        row.active = any(gpu_id in entry.queues for gpu_id in on.values())
        if len(nodes) > 1:
            row.partitions = {
                str(number) for number, gpu_id in on.items() if gpu_id in entry.queues or entry.memory_bytes.get(gpu_id)
            }
        working = [gpu_id for gpu_id in on.values() if gpu_id in entry.queues]
        if total and all(gpu_id in entry.compute_units for gpu_id in working):
            row.busy_ratio = min(1.0, sum(entry.compute_units[gpu_id] for gpu_id in working) / total)
    return rows


def add_graphics(
    rows: dict[int, Row],
    used: Mapping[int, Usage],
    computing: Collection[int],
    regions: Collection[str],
    *,
    everyone: bool,
) -> None:
    """Add what is used through DRM. What a process has through KFD may be part of that: the larger counts, not the sum.

    `computing`: pids that KFD knows, on whatever GPU. `regions`: those that count as held. `everyone`: as of `look`.
    """
    for pid, usage in used.items():
        held = sum(usage.memory_bytes.get(region, 0.0) for region in regions)
        row = rows.get(pid)
        if row is not None:
            if everyone:
                row.memory_bytes = max(held, row.memory_bytes or 0.0)
        elif pid not in computing or everyone:
            rows[pid] = Row(usage.seen, memory_bytes=held, active=bool(usage.busy_ratio), busy_ratio=usage.busy_ratio)


def sort(proc: Proc, rows: Mapping[int, Row], uninspectable: int) -> Processes:
    """Return those that hold something, and how many there are of each kind."""
    samples = []
    counts = dict.fromkeys(("holding", "unnamed", "bystander"), 0)
    counts |= {"uninspectable": uninspectable, "self": 0}
    for pid, row in sorted(rows.items()):
        if proc.is_own(pid, row.seen):
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
