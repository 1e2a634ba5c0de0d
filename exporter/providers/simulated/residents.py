"""Who is on a device: its processes and partitions as rows, and the memory that they take together."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping

from exporter.providers.simulated.catalogue import MIB, Model
from exporter.providers.simulated.device import Row
from exporter.providers.simulated.identity import dashed
from exporter.providers.simulated.physics import Segment, Track, Window, merged
from exporter.providers.simulated.schema import DeviceSpec, Partition, Process

FIRST_PID = 20_000
TINY = 1e-9


def process_rows(spec: DeviceSpec, index: int) -> Iterator[Row]:
    """Yield one row for each process; those without a pid get one that no other device's has."""
    free = FIRST_PID + 1_000 * index
    for process in spec.processes:
        pid = process.pid
        if not pid:
            pid, free = free, free + process.count
        for copy, window in enumerate(_windows(process)):
            texts = {"name": process.name, "kind": process.kind}
            numbers = {
                "pid": float(pid + copy),
                "memory_used_bytes": process.memory_used_bytes,
                "gtt_used_bytes": process.gtt_used_bytes,
                "queues": process.queues,
                "share": process.share,
                "started": process.started,
            }
            if process.partition is not None:
                numbers |= _place(spec, process.partition)
            yield Row("process", window, texts, {k: float(v) for k, v in numbers.items() if v is not None})


def partition_rows(spec: DeviceSpec, model: Model, key: str, numbers: Mapping[str, float]) -> Iterator[Row]:
    """Yield MIG instances as given, AMD partitions as given or as the compute mode has them."""
    partitions = spec.partitions
    if not partitions and model.vendor == "amd":
        parts = model.compute_partitions.get(spec.texts.compute_partition or "SPX", 1)
        partitions = (Partition(),) * parts if parts > 1 else ()
    for index, partition in enumerate(partitions):
        residents = sum(
            p.count * (p.memory_used_bytes or 0.0) for p in spec.processes if p.partition == index and _always(p)
        )
        texts: dict[str, str] = {}
        if model.vendor == "nvidia":
            digest = hashlib.sha256(f"{key} {index}".encode()).hexdigest()
            texts["uuid"] = "MIG-" + dashed(digest)
            texts["profile"] = partition.profile
            profile = model.profiles[partition.profile]
            size = profile.memory_size_bytes
            own = {"slices": float(profile.slices)}
        else:
            size = numbers.get("memory_size_bytes", 0.0) / len(partitions)
            own = {"render_minor": numbers["render_minor"] + index, "kfd_gpu_id": numbers["kfd_gpu_id"] + index}
        if partition.uuid is not None:
            texts["uuid"] = partition.uuid
        used = 12.0 * MIB + residents if partition.memory_used_bytes is None else partition.memory_used_bytes
        values = {
            **own,
            **_place(spec, index),
            "index": float(index),
            "memory_size_bytes": float(size if partition.memory_size_bytes is None else partition.memory_size_bytes),
            "memory_used_bytes": float(used),
        }
        yield Row("partition", partition.window, texts, values)


def memory_used(processes: Iterable[Process], base: float, *, gtt: bool = False) -> Track:
    """Return `base` and the memory of the processes that are there, in bytes over time."""
    changes: list[tuple[float, float]] = []
    horizon, every = 0.0, 0.0
    returning: list[tuple[Window, float]] = []
    for process in processes:
        size = (process.gtt_used_bytes if gtt else process.memory_used_bytes) or 0.0
        if not size:
            continue
        for window in _windows(process):
            horizon = max(horizon, window.start)
            if window.every > 0:
                returning.append((window, size))
                every = window.every
            else:
                changes.append((window.start, size))
                if math.isfinite(window.end):
                    changes.append((window.end, -size))
                    horizon = max(horizon, window.end)
    # One period after everything else has happened: from there on it repeats.
    for window, size in returning:
        lap = 0
        while window.start + lap * every < horizon + every:
            begin = window.start + lap * every
            changes += [(begin, size), (begin + window.lasting, -size)]
            lap += 1
    prefix, period = _levels(sorted(changes), base, horizon, every or 1.0)
    return Track(merged(prefix), merged(period))


def _levels(
    changes: list[tuple[float, float]], level: float, horizon: float, every: float
) -> tuple[list[Segment], list[Segment]]:
    parts: tuple[list[Segment], list[Segment]] = ([], [])
    at = 0.0
    for t, change in [*changes, (horizon + every, 0.0)]:
        t = min(t, horizon + every)  # noqa: PLW2901 -- what happens later is the period's beginning
        for part, end in ((0, min(t, horizon)), (1, t)):
            if end - at > TINY:
                parts[part].append(Segment(end - at, level))
                at = end
        level += change
    return parts


def _windows(process: Process) -> Iterator[Window]:
    end = math.inf if process.to_seconds is None else process.to_seconds
    every = process.every_seconds or 0.0
    for copy in range(process.count):
        start = process.from_seconds + every * copy / process.count
        yield Window(start, end, every, process.lasting_seconds or 0.0)


def _always(process: Process) -> bool:
    return not process.from_seconds and process.to_seconds is None and process.every_seconds is None


def _place(spec: DeviceSpec, index: int) -> dict[str, float]:
    partition = spec.partitions[index] if index < len(spec.partitions) else Partition()
    return {
        "gi": float(index + 1 if partition.gi is None else partition.gi),
        "ci": float(0 if partition.ci is None else partition.ci),
        "partition_id": float(index),
    }
