"""What the agent of attribution is asked: all devices of a world, and the processes on them. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from exporter.attribution.source import Held, Process, Question
from exporter.model import DeviceSnapshot, World


class _Look(NamedTuple):
    snapshot: DeviceSnapshot
    held: Held


class Questions:
    """Remembers what was made of each device, as most of them are the same from one second to the next."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    def of(self, world: World) -> Question:
        """Return the question of a world; equal to the one before where the answer would be."""
        looks: dict[str, _Look] = {}
        for device in _devices(world):
            look = self._looks.get(device.device.key)
            same = look is not None and _same(look.snapshot, device)
            looks[device.device.key] = look if look is not None and same else _Look(device, _held(device))
        self._looks = looks
        return Question(held=tuple(look.held for look in looks.values()))


def has_devices(world: World) -> bool:
    return any(snapshot.devices for snapshot in world.snapshots)


def _devices(world: World) -> Iterator[DeviceSnapshot]:
    for snapshot in world.snapshots:
        yield from snapshot.devices


def _held(device: DeviceSnapshot) -> Held:
    sample = device.sample
    partitions = tuple(
        # What is in use changes with every read, and is nobody's question.
        msgspec.structs.replace(partition, memory_used_bytes=None, utilization_ratio=None)
        for partition in sample.partitions or ()
    )
    processes = tuple(dict.fromkeys(Process(p.pid, p.started) for p in sample.processes or ()))
    return Held(device=device.device, partitions=partitions, processes=processes)


def _same(before: DeviceSnapshot, after: DeviceSnapshot) -> bool:
    return (
        before.device is after.device
        and before.sample.processes is after.sample.processes
        and before.sample.partitions is after.sample.partitions
    )
