"""A daemon without its workers and its web server: readings come in, pages go out, and it may die at any moment."""

import asyncio
import threading
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition import Format, Renderer
from exporter.journal import Journal, Places
from exporter.journal.pages import show
from exporter.journal.store import Store
from exporter.model import Device, Group
from tests.unit.fleet.hosts import Host

PATIENCE_SECONDS = 10.0
"""What is waited for at most where it must happen: a busy machine is no failure."""


class Disk:
    """Where a write waits, if it is told to: the clock that the store asks in the middle of it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open = threading.Event()
        self._open.set()
        self._dead = False

    def stall(self) -> None:
        self._open.clear()

    def go_on(self) -> None:
        self._open.set()

    def die(self) -> None:
        """Let a write that waits never happen: its thread ends, as all of a killed process do."""
        self._dead = True
        self._open.set()

    def end(self) -> None:
        self.clock()

    def clock(self) -> float:
        if not self._open.wait(PATIENCE_SECONDS) or self._dead:
            raise SystemExit
        return self._clock()


class Daemon:
    """To be made in a running event loop."""

    def __init__(self, at: Places, boot: str, now: float, *devices: Device) -> None:
        self.host = Host(now=now)
        self.disk = Disk(lambda: self.host.now)
        self.store = Store(at, boot, self.disk.clock)
        self.journal = Journal(self.host.fleet, self.store, lambda: self.host.now)
        self.renderer = Renderer()
        self._dead = False
        self.journal.begin()
        self.host.fleet.enumerated("nvidia", devices, now)

    def read(self, device: Device, watts: float | None, counter: float | None) -> None:
        self.host.read(
            device,
            Group.ENERGY,
            power_watts=watts,
            power_kind="average",
            power_window_seconds=1.0,
            energy_counter_joules=counter,
        )

    async def page(self, left: float = 0.02) -> dict[str, dict[str, float]]:
        """Return the values of a scrape, by name and by uuid (empty: no device), summed over other labels."""
        world = self.host.world
        energy = await self.journal.shown(world, left)
        text = show(self.renderer, world, energy, Format.TEXT_0_0_4, None, gzip=False).decode()
        found: dict[str, dict[str, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                of_device = found.setdefault(sample.name, {})
                uuid = sample.labels.get("uuid", "")
                of_device[uuid] = of_device.get(uuid, 0.0) + sample.value
        return found

    async def settle(self) -> None:
        """Let the write that is under way come to its end."""
        if self.journal._writing is not None:
            await asyncio.wait({self.journal._writing})

    def crash(self) -> None:
        """Die as by SIGKILL: what is not on the disk never gets there, and the locks are free."""
        if self._dead:
            return
        self._dead = True
        self.disk.die()
        writer = self.journal._writer
        assert writer is not None
        writer.submit(self.disk.end)  # the thread, should it wait for work
        writer._thread.join(PATIENCE_SECONDS)
        self.store.close()
