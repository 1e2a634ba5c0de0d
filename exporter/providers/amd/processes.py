"""Which processes hold memory or a queue on a package? KFD's word first, AMD SMI's where there is no KFD."""

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from exporter.kfd import Node
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, mapping
from exporter.providers.amd.packages import Package, Part
from exporter.providers.procfs import Proc
from exporter.providers.sanitise import BYTES, COUNT, Range, Readings, is_sentinel, text
from exporter.providers.tenants import Look, Onlooker, Processes, Row, add_graphics, rows_of_kfd, sort

_PIDS = Range(1.0, 2.0**22)  # the kernel's PID_MAX_LIMIT
_NAME = "processes"
_WORK = ("gfx", "compute")


class ProcessReader:
    """Reads the processes of packages. `clock`: seconds, monotonic. `pause` is called now and then during a look."""

    def __init__(self, proc: Proc, clock: Callable[[], float], pause: Callable[[], None]) -> None:
        self._proc = proc
        self._onlooker = Onlooker(proc, _WORK, clock, pause)

    def read(self, calls: Calls, package: Package, readings: Readings, *, unified: bool) -> Processes:
        """List the processes of a package. `unified`: host memory is the GPU's too."""
        look = self._onlooker.look(package.key, everyone=unified)
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
            regions = ("vram", "gtt") if unified else ("vram",)
            add_graphics(rows, used, look.computing, regions, everyone=unified)
        return sort(self._proc, rows, uninspectable)

    def _of_kfd(self, calls: Calls, package: Package, look: Look) -> dict[int, Row] | None:
        """Return what KFD shows; None where it is not there, or does not tell which GPU is which."""
        if look.tree is None:
            return None
        places = {part.number: _node(calls, part, package, look.nodes) for part in package.parts}
        nodes = {number: node for number, node in places.items() if node is not None}
        if len(nodes) < len(places):
            return None
        return rows_of_kfd(look, nodes)

    def _of_library(
        self, calls: Calls, package: Package, began: float, readings: Readings, *, unified: bool
    ) -> tuple[dict[int, Row], int]:
        """Return what AMD SMI lists, and how many it could not look at. Raises Absent and Broken."""
        rows: dict[int, Row] = {}
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
                row = rows.setdefault(int(pid), Row(self._proc.look(int(pid), began)))
                _add(row, entry, str(part.number) if package.partitioned else None, readings, unified=unified)
        if not listed:
            raise Absent(_NAME)
        return rows, uninspectable


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


def _add(row: Row, entry: Mapping[str, Any], partition: str | None, readings: Readings, *, unified: bool) -> None:
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
