"""Which processes hold memory or a queue on a package, and which only have it open.

The driver (KFD) lists on every GPU each process that ever opened /dev/kfd, launchers and monitors among them. One with
no memory and no queue on this GPU is a bystander: counted, and left out.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from exporter.model import ProcessSample
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, mapping
from exporter.providers.amd.packages import Package, Part
from exporter.providers.procfs import process_name
from exporter.providers.sanitise import BYTES, COUNT, Range, Readings, text

_PIDS = Range(1.0, 2.0**22)  # the kernel's PID_MAX_LIMIT
_NAME = "processes"
_KFD = Path("sys/class/kfd/kfd")


class Processes(NamedTuple):
    samples: tuple[ProcessSample, ...] | None
    counts: dict[str, int]


class _Row(msgspec.Struct):
    """What is known of one process over all partitions of a package."""

    name: str | None = None
    memory_bytes: float | None = None
    active: bool = False
    partitions: set[str] = msgspec.field(default_factory=set)


def read_processes(
    calls: Calls, package: Package, root: Path, own: frozenset[int], readings: Readings, *, unified: bool
) -> Processes:
    """List the processes of a package.

    `own`: pids left out and not counted. `unified`: host memory is the GPU's too.
    """
    rows: dict[int, _Row] = {}
    listed = False
    uninspectable = 0
    for part in package.parts:
        try:
            entries = _entries(calls, part.handle)
        except Absent:
            continue
        except Broken:  # a name that is not UTF-8 or more processes than AMD SMI has room for cost the whole list
            readings.fail(_NAME)
            return Processes(None, {})
        listed = True
        queues = _Queues(root, _gpu_id(calls, part, package, root))
        for entry in entries:
            pid = readings.number(_NAME, entry.get("pid"), _PIDS) if entry else None
            if pid is None:
                uninspectable += 1
            elif int(pid) not in own:
                label = str(part.number) if package.partitioned else None
                _add(rows.setdefault(int(pid), _Row()), entry, label, queues.has(int(pid)), readings, unified=unified)
    if not listed:
        return Processes(None, {})
    return _sort(rows, root, uninspectable)


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


def _add(
    row: _Row, entry: Mapping[str, Any], partition: str | None, queue: bool, readings: Readings, *, unified: bool
) -> None:
    memory = mapping(entry.get("memory_usage"))
    kinds = ("vram_mem", "gtt_mem") if unified else ("vram_mem",)
    known = [readings.number(_NAME, memory.get(kind), BYTES, bits=64) for kind in kinds]
    held = [value for value in known if value is not None]
    if held:
        row.memory_bytes = (row.memory_bytes or 0.0) + sum(held)
    busy = readings.number(_NAME, entry.get("cu_occupancy"), COUNT)
    active = queue or bool(busy)
    row.active = row.active or active
    if partition is not None and (active or any(held)):
        row.partitions.add(partition)
    said = text(entry.get("name"))
    row.name = row.name or (PurePosixPath(said).name or said if said else None)


def _sort(rows: dict[int, _Row], root: Path, uninspectable: int) -> Processes:
    samples = []
    bystanders = 0
    for pid, row in sorted(rows.items()):
        if not row.active and row.memory_bytes is None:
            uninspectable += 1
        elif not row.active and not row.memory_bytes:
            bystanders += 1
        else:
            samples.append(
                ProcessSample(
                    pid=pid,
                    name=row.name or process_name(root, pid),
                    memory_used_bytes=row.memory_bytes,
                    partition=next(iter(row.partitions)) if len(row.partitions) == 1 else None,
                )
            )
    counts = {"holding": len(samples), "bystander": bystanders, "uninspectable": uninspectable}
    return Processes(tuple(samples), counts)


class _Queues:
    """Tells from KFD's files whether a process has a queue on one GPU."""

    def __init__(self, root: Path, gpu_id: int | None) -> None:
        self._processes = root / _KFD / "proc"
        self._gpu_id = gpu_id

    def has(self, pid: int) -> bool:
        """Tell whether it has; False where that cannot be read: memory decides then."""
        if self._gpu_id is None:
            return False
        return any(self._gpu_id == gpu_id for gpu_id in self._of(pid))

    def _of(self, pid: int) -> Iterator[int]:
        with contextlib.suppress(OSError):
            for queue in (self._processes / str(pid) / "queues").iterdir():
                with contextlib.suppress(OSError, ValueError):  # queues end while we look
                    yield int((queue / "gpuid").read_text())


def _gpu_id(calls: Calls, part: Part, package: Package, root: Path) -> int | None:
    """Return KFD's own number of a partition; before ROCm 6.3 AMD SMI does not tell it, the topology does."""
    answer = mapping(calls.whatever("amdsmi_get_gpu_kfd_info", part.handle))
    if isinstance(answer.get("kfd_id"), int):
        return int(answer["kfd_id"])
    if package.pci_address is None or package.partitioned:
        return None
    domain, bus, slot = package.pci_address.split(":")
    device, function = slot.split(".")
    location = (int(bus, 16) << 8) | (int(device, 16) << 3) | int(function, 16)
    for node in (root / _KFD / "topology/nodes").glob("*"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            properties = dict(line.split(maxsplit=1) for line in (node / "properties").read_text().splitlines())
            if int(properties["location_id"]) == location and int(properties.get("domain", 0)) == int(domain, 16):
                return int((node / "gpu_id").read_text())
    return None
