"""A real worker over the files of two cards: no vendor's library is there, and the page is full all the same."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from exporter.fleet import Fleet
from exporter.model import DeviceSnapshot, GpuState
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor
from tests.drm import write_cards
from tests.integration.supervised import PATIENT, in_loop

SCENARIO = """
devices:
  - {model: MI300X, texts: {compute_partition: CPX}, load: {pattern: training}}
  - {model: RX-9070, load: {pattern: constant}}
"""
SECONDS = 20.0


class Served:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def devices(self) -> dict[str, DeviceSnapshot]:
        (snapshot,) = self._fleet.world(time.monotonic()).snapshots
        return {device.device.model or "": device for device in snapshot.devices}

    async def until(self, condition: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < SECONDS, self.devices()
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def served(root: Path) -> AsyncIterator[Served]:
    fleet = Fleet([("drm", True)], PATIENT)
    supervisor = Supervisor(fleet, [WorkerRequest(provider="drm", root=str(root))], PATIENT)
    run = asyncio.create_task(supervisor.run())
    try:
        yield Served(fleet)
    finally:
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        await supervisor.close()


@in_loop
async def test_cards_are_served_without_a_library_and_one_that_goes_costs_the_other_nothing(tmp_path: Path) -> None:
    machine = Machine(load_scenario(SCENARIO), 0.0)
    write_cards(tmp_path, machine, 1000.0)
    instinct, radeon = (device.texts["name"] for device in machine.devices)
    async with served(tmp_path) as host:
        await host.until(
            lambda: (
                len(host.devices()) == 2
                and all(shown.energy and shown.sample.temperature_celsius for shown in host.devices().values())
            )
        )
        shown = host.devices()
        assert {device.state for device in shown.values()} == {GpuState.OK}
        assert shown[instinct].sample.energy_counter_joules is not None
        assert len(shown[instinct].sample.partitions or ()) == 8
        assert shown[radeon].sample.power_watts is not None
        for entry in (tmp_path / "sys/class/drm").iterdir():
            if entry.name.startswith("card0"):
                entry.rename(tmp_path / entry.name)
        await host.until(lambda: host.devices()[instinct].state is GpuState.LOST)
        assert host.devices()[radeon].state is GpuState.OK
