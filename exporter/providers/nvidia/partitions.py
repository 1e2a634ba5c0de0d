"""MIG: which instances a GPU is divided into now, and their memory."""

import re
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from exporter.model import PartitionSample
from exporter.providers.nvidia.identity import Gpu
from exporter.providers.nvidia.library import AbsentError, BrokenError, Nvml
from exporter.providers.nvidia.load import memory
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import text

_MOST_INSTANCES = 64  # a part has 7 at most so far; bounds the loop should the library answer garbage

_PROFILE = re.compile(r"\bMIG (\S+)")


class Instance(msgspec.Struct, frozen=True):
    """One MIG device: a compute instance in a GPU instance. Its handle dies with it, so it is never kept."""

    handle: Any
    uuid: str | None
    gpu_instance: int
    compute_instance: int | None
    partition: str
    first: bool
    """The first compute instance of its GPU instance, which owns the memory."""


def partitions(reading: Reading, gpu: Gpu) -> tuple[PartitionSample, ...] | None:
    """Read the MIG instances: () when MIG is off, None where there is no MIG. They own no power sensor."""
    found = instances(reading, gpu)
    if found is None:
        return None
    return tuple(_partition(reading, instance) for instance in found)


def instances(reading: Reading, gpu: Gpu) -> tuple[Instance, ...] | None:
    """List the instances that exist now: () when MIG is off, None where there is no MIG.

    MIG is switched while we run: the identity of the GPU follows.
    """
    mode = reading.unless_refused(gpu.fixed, "partitions", "nvmlDeviceGetMigMode")
    if mode is None:
        return None
    partition_mode = "mig" if mode[0] == 1 else None
    if partition_mode != gpu.device.partition_mode:
        gpu.device = replace(gpu.device, partition_mode=partition_mode)
    if partition_mode is None:
        return ()
    count = reading.get("partitions", "nvmlDeviceGetMaxMigDeviceCount") or 0
    found: list[tuple[Any, str | None, int, int | None]] = []
    for index in range(min(count, _MOST_INSTANCES)):
        handle = _ask(reading.nvml, "nvmlDeviceGetMigDeviceHandleByIndex", reading.handle, index)
        if not handle:  # a hole in the numbering
            continue
        gpu_instance = _ask(reading.nvml, "nvmlDeviceGetGpuInstanceId", handle)
        if gpu_instance is not None:
            uuid = text(_ask(reading.nvml, "nvmlDeviceGetUUID", handle))
            found.append((handle, uuid, gpu_instance, _ask(reading.nvml, "nvmlDeviceGetComputeInstanceId", handle)))
    return _named(found)


def _named(found: list[tuple[Any, str | None, int, int | None]]) -> tuple[Instance, ...]:
    in_all = Counter(gpu_instance for _, _, gpu_instance, _ in found)
    named: dict[str, Instance] = {}
    owners: set[int] = set()
    for handle, uuid, gpu_instance, compute_instance in found:
        alone = in_all[gpu_instance] == 1
        partition = f"gi{gpu_instance}" if alone else f"gi{gpu_instance}ci{compute_instance}"
        named.setdefault(
            partition, Instance(handle, uuid, gpu_instance, compute_instance, partition, gpu_instance not in owners)
        )
        owners.add(gpu_instance)
    return tuple(named.values())


def _partition(reading: Reading, instance: Instance) -> PartitionSample:
    # Compute instances of one GPU instance answer the same memory: it is given once, so that sums are right.
    figures = memory(reading, instance.handle) if instance.first else {}
    name = text(_ask(reading.nvml, "nvmlDeviceGetName", instance.handle)) or ""
    profile = _PROFILE.search(name)
    return PartitionSample(
        partition=instance.partition,
        uuid=instance.uuid,
        profile=profile.group(1) if profile else None,
        memory_used_bytes=figures.get("memory_used_bytes"),
        memory_size_bytes=figures.get("memory_size_bytes"),
    )


def _ask(nvml: Nvml, function: str, *arguments: Any) -> Any:
    """Ask about an instance. One that is destroyed meanwhile answers with any error: it is left out, not failed."""
    try:
        return nvml.call(function, *arguments)
    except (AbsentError, BrokenError):
        return None
