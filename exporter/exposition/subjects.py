"""What the rows of each table read in a World, and the labels that every series of the table carries."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from exporter.metrics import (
    DEVICE_LABELS,
    DEVICE_METRICS,
    EXPORTER_METRICS,
    PARTITION_LABELS,
    PARTITION_METRICS,
    PROCESS_LABELS,
    PROCESS_METRICS,
    PROVIDER_LABELS,
    PROVIDER_METRICS,
    MetricSpec,
)
from exporter.model import DeviceSnapshot, PartitionSample, ProcessSample, Snapshot, World

T = TypeVar("T")

Base = tuple[str, ...]
"""Values of a table's labels, in their order."""


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
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


def _processes(world: World) -> Iterator[tuple[Base, ProcessSample]]:
    for base, device in _devices(world):
        for process in device.sample.processes or ():
            yield (*base, str(process.pid), process.name or ""), process


def _providers(world: World) -> Iterator[tuple[Base, Snapshot]]:
    for snapshot in world.snapshots:
        yield (snapshot.provider,), snapshot


def _exporter(world: World) -> Iterator[tuple[Base, World]]:
    yield (), world


TABLES: tuple[Table[Any], ...] = (
    Table(DEVICE_METRICS, DEVICE_LABELS, _devices),
    Table(PARTITION_METRICS, PARTITION_LABELS, _partitions),
    Table(PROCESS_METRICS, PROCESS_LABELS, _processes),
    Table(PROVIDER_METRICS, PROVIDER_LABELS, _providers),
    Table(EXPORTER_METRICS, (), _exporter),
)
