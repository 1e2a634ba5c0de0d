"""Who is on a device: its processes with their owners, and whoever was given it or a part of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from exporter.energy.shares import Hold, Use
from exporter.model import Allocation, Attribution, Owner, PartitionSample, ProcessSample, Workload

Owners = Mapping[tuple[int, int], Owner]
"""By pid and start time: a pid alone is given to another process sooner or later."""


class Claims(NamedTuple):
    """What is known of owners and allocations, ready to be looked up."""

    owners: Owners
    allocations: Mapping[str, Sequence[Allocation]]
    """By key of the device."""


class Tenants(NamedTuple):
    workloads: Mapping[str, Workload]
    """By key: all that run something here, or were given something."""
    uses: Sequence[Use] | None
    holds: Sequence[Hold]
    loads: Mapping[str, float] | None


NO_CLAIMS = Claims({}, {})


def claims(attribution: Attribution) -> Claims:
    allocations: dict[str, list[Allocation]] = {}
    for allocation in attribution.allocations:
        allocations.setdefault(allocation.device, []).append(allocation)
    owners = {(owner.pid, owner.started): owner for owner in attribution.owners if owner.started is not None}
    return Claims(owners, allocations)


def owner_of(process: ProcessSample, owners: Owners) -> Owner | None:
    """Return whose it is; None: not known, or the pid has been given to another process since."""
    return None if process.started is None else owners.get((process.pid, process.started))


def tenants(
    processes: Sequence[ProcessSample] | None,
    partitions: Sequence[PartitionSample],
    memory_size: float | None,
    owners: Owners,
    allocations: Iterable[Allocation],
) -> Tenants:
    """Put together what is known of a device; `processes`: None: it is not known which there are."""
    workloads: dict[str, Workload] = {}
    uses: list[Use] | None = None
    if processes is not None:
        uses = []
        for process in processes:
            owner = owner_of(process, owners)
            workload = None if owner is None else owner.workload
            if workload is not None:
                workloads[workload.key] = workload
            uses.append(Use(None if workload is None else workload.key, process.busy_ratio, process.partition))
    ratios = _ratios(partitions, memory_size)
    holds = []
    for allocation in allocations:
        workloads[allocation.workload.key] = allocation.workload
        part = 1.0 if allocation.partition is None else ratios.get(allocation.partition, 0.0)
        holds.append(Hold(allocation.workload.key, part * allocation.share, allocation.partition))
    return Tenants(workloads, uses, holds, _loads(partitions, ratios))


def _ratios(partitions: Sequence[PartitionSample], memory_size: float | None) -> Mapping[str, float]:
    """Return what part of the device each partition is: by memory, else all alike.

    MIG instances leave memory that is nobody's. Where partitions share memory, each shows all of it.
    """
    sizes = {p.partition: p.memory_size_bytes for p in partitions}
    known = [size for size in sizes.values() if size is not None and size > 0]
    if len(known) < len(sizes):
        return dict.fromkeys(sizes, 1 / len(sizes))
    whole = max(memory_size or 0.0, math.fsum(known))
    return {name: (size or 0.0) / whole for name, size in sizes.items()}


def _loads(partitions: Sequence[PartitionSample], ratios: Mapping[str, float]) -> Mapping[str, float] | None:
    """Return the work in each partition, in proportion to the others; None: it was not measured in all of them."""
    loads = {p.partition: p.utilization_ratio for p in partitions}
    if not loads or None in loads.values():
        return None
    return {name: (load or 0.0) * ratios[name] for name, load in loads.items()}
