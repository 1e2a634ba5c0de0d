"""Which processes hold memory on a GPU, and which share of its work is theirs."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from exporter.model import ProcessSample
from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.library import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, AbsentError, BrokenError
from exporter.providers.nvidia.partitions import Instance, instances
from exporter.providers.nvidia.reading import Reading
from exporter.providers.nvidia.shares import ShareReader
from exporter.providers.procfs import Proc, name_of
from exporter.providers.sanitise import BYTES

_LISTS = (
    "nvmlDeviceGetComputeRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetMPSComputeRunningProcesses",
)
_OLDER = "_v2"
_TRIES = 3
_NO_INSTANCE = 0xFFFFFFFF
_NO_PIDS = frozenset({0, 0xFFFFFFFF})

Place = tuple[int, int]
"""GPU instance, compute instance."""
Key = tuple[int, int, int]
"""Place and pid."""


class ProcessReader:
    """Reads process lists and shares of work. `wall_clock`: Unix seconds, the time of the driver's samples."""

    def __init__(self, proc: Proc, wall_clock: Callable[[], float]) -> None:
        self._proc = proc
        self._shares = ShareReader(wall_clock)

    def read(self, reading: Reading, gpu: Gpu) -> dict[str, Any]:
        """Read Sample's fields of the processes group, by name."""
        if not lists_trusted(gpu.device.driver_version):
            return {}
        began = self._proc.boottime()
        found = instances(reading, gpu) or ()
        rows = _lists(reading, reading.handle)
        if rows is None and found and not reading.broke("processes"):
            # Inside a container the parent of MIG instances refuses, and each instance answers for itself.
            rows = _lists_of_instances(reading, found)
        if rows is None:
            return {}
        partitions = {(i.gpu_instance, i.compute_instance): i.partition for i in found}
        by_pid: dict[int, dict[Place, float | None]] = {}
        for (*place, pid), memory in merge(reading, rows).items():
            by_pid.setdefault(pid, {})[place[0], place[1]] = memory
        seen = {pid: self._proc.look(pid, began) for pid in sorted(by_pid)}
        started = {pid: process.started if process else None for pid, process in seen.items()}
        shares = None if found else self._shares.read(reading, gpu.device.key, started)
        counts = {"holding": 0, "unnamed": 0, "uninspectable": 0, "self": 0}
        samples = []
        for pid, process in seen.items():
            if self._proc.is_own(pid, process):
                counts["self"] += 1
                continue
            places = by_pid[pid]
            # However many MIG instances it works in, it is one process: its memory is the sum of what is known.
            known = [memory for memory in places.values() if memory is not None]
            counts["uninspectable" if not known else "holding" if process else "unnamed"] += 1
            samples.append(
                ProcessSample(
                    pid=pid,
                    started=started[pid],
                    name=name_of(pid, process),
                    memory_used_bytes=sum(known) if known else None,
                    partition=_partition(partitions, *next(iter(places))) if len(places) == 1 else None,
                    busy_ratio=shares.get(pid) if shares is not None else None,
                )
            )
        return {"processes": tuple(samples), "process_counts": counts}


def lists_trusted(driver_version: str | None) -> bool:
    """Tell whether the driver's process lists have the layout that pynvml expects.

    Drivers 535.43 to 535.97 answered larger rows under the same name; read with the usual layout their pids are
    0, 4294967295 and shifted rows in between.
    """
    match = re.match(r"535\.(\d+)", driver_version or "")
    return match is None or not 43 <= int(match.group(1)) <= 97  # noqa: PLR2004 -- driver releases, named above


def _lists(reading: Reading, handle: Any) -> list[Any] | None:
    """Join the lists; None when none answers, or one breaks: what is not whole would hide processes."""
    answers = [_list(reading, function, handle) for function in _LISTS]
    answered = [answer for answer in answers if answer is not None]
    return [row for answer in answered for row in answer] if answered and not reading.broke("processes") else None


def _lists_of_instances(reading: Reading, found: Iterable[Instance]) -> list[Any] | None:
    answers = [_lists(reading, instance.handle) for instance in found]
    answered = [answer for answer in answers if answer is not None]
    return [row for answer in answered for row in answer] if answered else None


def _list(reading: Reading, function: str, handle: Any) -> list[Any] | None:
    """Ask again when the list outgrew, between its two calls, the room that pynvml made for it."""
    for _ in range(_TRIES - 1):
        try:
            rows: list[Any] = reading.nvml.call(function, handle)
        except BrokenError as error:
            if error.code != INSUFFICIENT_SIZE:
                break
        except AbsentError as refusal:
            # Drivers before 510, and 535.98 alone of its branch, have the rows under the name from before.
            older = refusal.code == FUNCTION_NOT_FOUND and not function.endswith(_OLDER)
            return _list(reading, function + _OLDER, handle) if older else None
        else:
            reading.answered = True
            return rows
    last: list[Any] | None = reading.get("processes", function, handle=handle)
    return last


def merge(reading: Reading, rows: Iterable[Any]) -> Mapping[Key, float | None]:
    """Merge rows of one process in one place: each list gives all its memory, so the largest counts, not the sum.

    None: no list knows. Rows that stand for no process are dropped.
    """
    merged: dict[Key, float | None] = {}
    for row in rows:
        if row.pid in _NO_PIDS:
            continue
        key = (row.gpuInstanceId, row.computeInstanceId, row.pid)
        memory = reading.number("processes", row.usedGpuMemory, BYTES, bits=64)
        known = [value for value in (merged.get(key), memory) if value is not None]
        merged[key] = max(known, default=None)
    return merged


def _partition(
    partitions: Mapping[tuple[int, int | None], str], gpu_instance: int, compute_instance: int
) -> str | None:
    if gpu_instance == _NO_INSTANCE:
        return None
    return partitions.get((gpu_instance, compute_instance), f"gi{gpu_instance}")
