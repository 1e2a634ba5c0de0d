"""What the rows of each table read in a World, and the labels that every series of the table carries."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from exporter.metrics import (
    DEVICE_LABELS,
    DEVICE_METRICS,
    EXPORTER_METRICS,
    LINK_COUNTERS,
    LINK_LABELS,
    LINK_METRICS,
    LINK_TOTAL_LABELS,
    OWNER_METRICS,
    PARTITION_LABELS,
    PARTITION_METRICS,
    PROCESS_LABELS,
    PROCESS_METRICS,
    PROVIDER_LABELS,
    PROVIDER_METRICS,
    WORKLOAD_LABELS,
    WORKLOAD_METRICS,
    MetricSpec,
)
from exporter.model import (
    DeviceSnapshot,
    LinkSample,
    LinkTotal,
    Owner,
    PartitionSample,
    ProcessSeries,
    Snapshot,
    WorkloadSnapshot,
    World,
)

T = TypeVar("T")

Base = tuple[str, ...]
"""Values of a table's labels, in their order."""


class Table(msgspec.Struct, Generic[T], frozen=True):
    specs: tuple[MetricSpec[T], ...]
    labels: tuple[str, ...]
    subjects: Callable[[World], Iterable[tuple[Base, T]]]


def _devices(world: World) -> Iterator[tuple[Base, DeviceSnapshot]]:
    for snapshot in world.snapshots:
        for device in snapshot.devices:
            yield (device.gpu, device.device.key), device


def _partitions(world: World) -> Iterator[tuple[Base, PartitionSample]]:
    for base, device in _devices(world):
        for partition in device.sample.partitions or ():
            yield (*base, partition.partition), partition


def _links(world: World) -> Iterator[tuple[Base, LinkSample]]:
    for base, device in _devices(world):
        for link in device.sample.links or ():
            yield (*base, link.kind, link.link), link


def _link_totals(world: World) -> Iterator[tuple[Base, LinkTotal]]:
    for base, device in _devices(world):
        for total in device.link_totals:
            yield (*base, total.kind), total


def _nothing(_: World) -> tuple[tuple[Base, Any], ...]:
    return ()


def _processes(labels: Sequence[str]) -> Callable[[World], Iterator[tuple[Base, ProcessSeries]]]:
    """Return the subjects of the table of processes, which have these labels besides those of the device."""
    values = [attrgetter(label) for label in labels]

    def subjects(world: World) -> Iterator[tuple[Base, ProcessSeries]]:
        for base, device in _devices(world):
            for series in device.process_series:
                yield (*base, *(value(series) for value in values)), series

    return subjects


def _owners(world: World) -> Iterator[tuple[Base, Owner]]:
    """Each pid once, on however many devices it is: as the process that has it, where it was recycled meanwhile."""
    owners: dict[int, Owner] = {}
    for _, device in _devices(world):
        for owner in device.process_owners:
            known = owners.setdefault(owner.pid, owner)
            if (owner.started or 0) > (known.started or 0):
                owners[owner.pid] = owner
    for pid, owner in owners.items():
        yield (str(pid),), owner


def _workloads(world: World) -> Iterator[tuple[Base, WorkloadSnapshot]]:
    for base, device in _devices(world):
        for workload in device.workloads:
            yield (*base, workload.workload.key), workload


def _providers(world: World) -> Iterator[tuple[Base, Snapshot]]:
    for snapshot in world.snapshots:
        yield (snapshot.provider,), snapshot


def _exporter(world: World) -> Iterator[tuple[Base, World]]:
    yield (), world


def tables(process_labels: Sequence[str], *, each_link: bool = False) -> tuple[Table[Any], ...]:
    """Return all tables.

    `process_labels`: of processes, besides those of their device. `each_link`: links one by one, and not their sums.
    """
    chosen = tuple(dict.fromkeys(process_labels))
    links: tuple[Table[Any], ...] = (
        Table(LINK_METRICS, LINK_LABELS, _nothing),
        Table(LINK_COUNTERS, LINK_TOTAL_LABELS, _link_totals),
    )
    if each_link:
        links = (Table(LINK_METRICS, LINK_LABELS, _links), Table(LINK_COUNTERS, LINK_LABELS, _links))
    return (
        Table(DEVICE_METRICS, DEVICE_LABELS, _devices),
        Table(PARTITION_METRICS, PARTITION_LABELS, _partitions),
        *links,
        Table(PROCESS_METRICS, (*DEVICE_LABELS, *chosen), _processes(chosen)),
        Table(OWNER_METRICS, ("pid",), _owners),
        Table(WORKLOAD_METRICS, WORKLOAD_LABELS, _workloads),
        Table(PROVIDER_METRICS, PROVIDER_LABELS, _providers),
        Table(EXPORTER_METRICS, (), _exporter),
    )


TABLES = tables(PROCESS_LABELS)
"""As they are by default."""
