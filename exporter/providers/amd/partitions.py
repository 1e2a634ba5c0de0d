"""What the partitions of a package (XCP) have of its memory, and how busy each is.

They own no power sensor: power, energy, limits and temperatures are the package's, and are read through the first.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from exporter.model import PartitionSample
from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.amd.identity import partition_uuids
from exporter.providers.amd.packages import Package
from exporter.providers.sanitise import BYTES, RATIO, Readings

_MIB = 2.0**20
_PERCENT = 100


class Memory(msgspec.Struct, frozen=True):
    used_bytes: float | None = None
    size_bytes: float | None = None


def read_memory(calls: Calls, handle: Any, readings: Readings) -> Memory:
    """Read the VRAM that one handle shows: of the package, or of a partition."""
    usage = mapping(calls.reading(readings, "memory_used_bytes", "amdsmi_get_gpu_vram_usage", handle))
    size = readings.number("memory_size_bytes", usage.get("vram_total"), BYTES, _MIB)
    used = readings.number("memory_used_bytes", usage.get("vram_used"), BYTES, _MIB)
    return Memory(used, size or None)


def read_partitions(
    calls: Calls, package: Package, profile: str | None, metrics: Mapping[str, Any], readings: Readings
) -> tuple[PartitionSample, ...]:
    if not package.partitioned:
        return ()
    memories = own_memories([read_memory(calls, part.handle, readings) for part in package.parts])
    uuids = partition_uuids(calls, package)
    busy = metrics.get("xcp_stats.gfx_busy_inst")
    return tuple(
        PartitionSample(
            partition=str(part.number),
            uuid=uuid,
            profile=profile,
            memory_used_bytes=memory.used_bytes,
            memory_size_bytes=memory.size_bytes,
            utilization_ratio=_busy(busy, part.number, readings),
        )
        for part, memory, uuid in zip(package.parts, memories, uuids, strict=True)
    )


def own_memories(shown: list[Memory]) -> list[Memory]:
    """Leave of the memory that each partition shows what is its own.

    Up to ROCm 6.4.0 each shows the whole card. From 6.4.1 the first shows the whole card, the others their shares,
    which are equal.
    """
    first, *others = shown
    shares = {memory.size_bytes for memory in others}
    if first.size_bytes in shares or None in shares:
        return [memory if memory.size_bytes != first.size_bytes else Memory() for memory in shown]
    return [Memory(None, shares.pop() if len(shares) == 1 else None), *others]


def _busy(told: object, number: int, readings: Readings) -> float | None:
    """Return the mean over the compute dies of a partition; the rest of its list is "N/A".

    `told`: a list for each partition; in what the vendor's tool makes of it, by name of the partition.
    """
    if isinstance(told, dict):
        raws = told.get(f"xcp_{number}")
    else:
        raws = told[number] if isinstance(told, list) and number < len(told) else None
    dies = [readings.number("partitions", raw, RATIO, per=_PERCENT) for raw in raws] if isinstance(raws, list) else []
    known = [die for die in dies if die is not None]
    return sum(known) / len(known) if known else None
