"""A short look at the host's GPUs with the means of the daemon: its workers, its fleet, its attribution, no server."""

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from exporter.config import Config, WorkersConfig
from exporter.daemon.attributing import attributor_of
from exporter.daemon.look import count
from exporter.fleet import Fleet
from exporter.model import NOT_OPENED, DeviceSnapshot, GpuState, Group, Sample, World
from exporter.supervision.requests import providers, wanted, worker_requests
from exporter.supervision.supervisor import Supervisor

COMPARE_SECONDS = 3.0
"""For which power and accumulator are compared, after the first reading of every GPU."""
_LOOK_SECONDS = 0.05
_KEPT = WorkersConfig(max_age_seconds=None, max_memory_bytes=None, max_descriptors=None)
_COMPLETE = frozenset({Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES})


class Broken(NamedTuple):
    """Readings that a device owes, by how it failed to give them."""

    failed: frozenset[str] = frozenset()
    rejected: frozenset[str] = frozenset()


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    world: World
    broken: Mapping[str, Broken]
    """By key of the device."""
    seconds: float
    """How long the look took."""


class _Noting(Fleet):
    """A fleet that keeps which device's readings broke: the page counts them by provider."""

    def __init__(self, config: Config) -> None:
        super().__init__(wanted(config), config.sampling, config.processes, config.attribution)
        self.broken: dict[str, Broken] = {}

    def observed(self, provider: str, sample: Sample, now: float, wall: float) -> None:
        if sample.failed or sample.rejected:
            before = self.broken.get(sample.device.key, Broken())
            self.broken[sample.device.key] = Broken(
                before.failed.union(sample.failed), before.rejected.union(sample.rejected)
            )
        super().observed(provider, sample, now, wall)


async def look(config: Config) -> Examination:
    """Open the providers that the configuration names, read every GPU for a few seconds, and let go of them again."""
    begun = time.monotonic()
    names = providers(config)
    fleet = _Noting(config)
    count(fleet, names)
    supervisor = Supervisor(fleet, worker_requests(config), config.sampling, _KEPT)
    attributor = attributor_of(fleet, config)
    running = [asyncio.create_task(supervisor.run()), asyncio.create_task(attributor.run())]
    try:
        sampling = config.sampling
        until = begun + sampling.open_deadline_seconds + 3 * sampling.deadline_seconds
        while time.monotonic() < until and not _settled(fleet.world(time.monotonic())):  # noqa: ASYNC110 -- bounded
            await asyncio.sleep(_LOOK_SECONDS)
        if any(snapshot.devices for snapshot in fleet.world(time.monotonic()).snapshots):
            await asyncio.sleep(COMPARE_SECONDS)
        return Examination(world=fleet.world(time.monotonic()), broken=fleet.broken, seconds=time.monotonic() - begun)
    finally:
        await asyncio.gather(supervisor.close(), attributor.close(), return_exceptions=True)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _settled(world: World) -> bool:
    """Tell whether every provider has been tried, and every device read completely or found not to answer."""
    for snapshot in world.snapshots:
        if not snapshot.up and (snapshot.reason or NOT_OPENED) == NOT_OPENED:
            return False
        if snapshot.up and not all(map(_is_read, snapshot.devices)):
            return False
    return True


def _is_read(device: DeviceSnapshot) -> bool:
    return device.state is not GpuState.OK or device.sample.taken_at.keys() >= _COMPLETE
