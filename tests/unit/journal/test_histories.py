"""No history makes a served total fall: readings, pages, failing and late writes, crashes, stops and reboots."""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.journal import Places
from exporter.journal.gate import IDLE_SECONDS
from exporter.journal.store import LIVE
from tests.unit.fleet.hosts import WALL, card
from tests.unit.fleet.tenants import attribution, grant
from tests.unit.journal.daemons import Daemon
from tests.unit.journal.test_store import blocked, unblock

# A thread that dies in the middle of a write is what a killed process looks like.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
GPUS = (card(1), card(2))
WATTS = {GPUS[0].key: 400.0, GPUS[1].key: 150.0}
TOTALS = (
    "gpu_energy_joules_total",
    "gpu_energy_hardware_joules_total",
    "gpu_energy_integrated_joules_total",
    "gpu_unattributed_energy_joules_total",
    "gpu_workload_energy_joules_total",
    "gpu_workload_allocated_seconds_total",
)
PARTS = ("gpu_unattributed_energy_joules_total", "gpu_workload_energy_joules_total")
TENANT = attribution(grant("train", 1), grant("train", 2, share=0.5))
"""Somebody who has the first GPU, and who of half of the second is charged nothing: nobody sees who works there."""
START = "gpu_energy_start_timestamp_seconds"

Event = tuple[str, Any]
EVENTS = st.one_of(
    st.tuples(st.just("read"), st.integers(1, 5)),
    st.tuples(st.just("read without power"), st.integers(1, 5)),
    st.tuples(st.just("time"), st.sampled_from([0.5, 3.0, 60.0])),
    st.tuples(st.sampled_from(["scrape", "scrape twice", "late scrape", "tick", "tick"]), st.none()),
    st.tuples(st.sampled_from(["obstruct", "clear", "lose the directory", "corrupt"]), st.none()),
    st.tuples(st.sampled_from(["outage", "outage that ends slowly"]), st.none()),
)
ENDS = st.sampled_from(["crash", "crash in a write", "crash after a write", "stop", "reboot", "loss of power"])


@st.composite
def lives(draw: st.DrawFn) -> list[Event]:
    """Return what daemons live through one after the other; each begins with a page and is ended somehow."""
    events: list[Event] = []
    for _ in range(draw(st.integers(1, 5))):
        events += [("read", draw(st.sampled_from([1, 2, 70]))), ("scrape", None)]
        events += draw(st.lists(EVENTS, max_size=5))
        events.append((draw(ENDS), None))
    return [*events, ("read", 2), ("scrape", None)]


class Life:
    """A machine and the daemons that live on it one after the other; what they serve is held to never fall."""

    def __init__(self, folder: Path, *, one_directory: bool) -> None:
        self.at = Places(folder / "run", folder / ("run" if one_directory else "state"))
        self.boots = 0
        self.now = 100.0
        self.wall_of_boot = WALL
        self.drawn = 0
        self.obstacle: Path | None = None
        self.older: bytes | None = None
        """A live file that was written earlier in this boot."""
        self.served: dict[tuple[str, str], tuple[float, float]] = {}
        self.daemon = self.started()

    def started(self) -> Daemon:
        daemon = Daemon(self.at, f"boot {self.boots}", self.now, *GPUS)
        daemon.host.fleet.attributed(TENANT, self.now)
        # Unix time goes on while the machine is off.
        daemon.host.wall = self.wall_of_boot
        return daemon

    async def live(self, event: str, value: Any) -> None:
        """Let one thing happen: the method of its name."""
        await getattr(self, event.replace(" ", "_"))(value)

    async def read(self, count: int, *, power: bool = True) -> None:
        for _ in range(count):
            self.daemon.host.wait(1.0)
            self.drawn += 1
            for gpu in GPUS:
                watts = WATTS[gpu.key]
                # Accumulators begin anew with each boot; that of the second GPU is absent now and then.
                counter = watts * self.daemon.host.now if gpu is GPUS[0] or self.drawn % 7 else None
                self.daemon.read(gpu, watts if power else None, counter)

    async def read_without_power(self, count: int) -> None:
        await self.read(count, power=False)

    async def time(self, seconds: float) -> None:
        self.daemon.host.wait(seconds)

    async def scrape(self, _: None = None) -> None:
        self.see(await self.daemon.page())
        await self.daemon.settle()
        if self.older is None and (self.at.live / LIVE).exists():
            self.older = (self.at.live / LIVE).read_bytes()

    async def scrape_twice(self, _: None) -> None:
        for page in await asyncio.gather(self.daemon.page(), self.daemon.page()):
            self.see(page)
        await self.daemon.settle()

    async def late_scrape(self, _: None) -> None:
        self.daemon.disk.stall()
        self.see(await self.daemon.page(0.005))
        await self.read(2)
        self.see(await self.daemon.page(0.005))
        self.daemon.disk.go_on()
        await self.daemon.settle()

    async def tick(self, _: None) -> None:
        self.daemon.host.wait(IDLE_SECONDS)
        self.daemon.journal.tick()
        await self.daemon.settle()

    async def obstruct(self, _: None = None) -> None:
        if self.obstacle is None and self.at.live.exists():
            self.obstacle = blocked(self.at.live)

    async def clear(self, _: None = None) -> None:
        if self.obstacle is not None and self.obstacle.exists():
            unblock(self.obstacle)
        self.obstacle = None

    async def outage(self, _: None = None) -> None:
        await self.obstruct()
        await self.read(1)
        await self.scrape()
        await self.clear()

    async def outage_that_ends_slowly(self, _: None) -> None:
        await self.outage()
        self.daemon.host.wait(IDLE_SECONDS)
        self.daemon.disk.stall()
        self.daemon.journal.tick()
        await self.read(2)
        self.see(await self.daemon.page(0.005))
        self.daemon.disk.go_on()
        await self.daemon.settle()

    async def lose_the_directory(self, _: None) -> None:
        await self.clear()
        if self.at.live.exists():
            for path in self.at.live.glob("*"):
                path.unlink()
            self.at.live.rmdir()

    async def corrupt(self, _: None) -> None:
        if (self.at.live / LIVE).exists():
            self.daemon.crash()
            (self.at.live / LIVE).write_bytes(b"gpu-exporter journal 1 00000000 3\nabc")
            self.again()

    async def crash(self, _: None = None) -> None:
        self.daemon.crash()
        self.again()

    async def crash_in_a_write(self, _: None) -> None:
        self.daemon.disk.stall()
        await self.daemon.page(0.005)  # nobody gets it
        await self.crash()

    async def crash_after_a_write(self, _: None) -> None:
        await self.daemon.page()  # nobody gets it
        await self.daemon.settle()
        await self.crash()

    async def stop(self, _: None) -> None:
        await self.daemon.journal.close()
        await self.crash()

    async def reboot(self, _: None) -> None:
        await self.daemon.journal.close()
        self.boot()

    async def loss_of_power(self, _: None) -> None:
        self.daemon.crash()
        if self.older is not None and self.at.live.exists():
            # The live file is not synced: on a disk, an older one may be what is found.
            (self.at.live / LIVE).write_bytes(self.older)
        self.boot()

    def again(self) -> None:
        self.now = self.daemon.host.now + 0.5
        self.daemon = self.started()

    def boot(self) -> None:
        self.daemon.crash()
        self.older = None
        self.wall_of_boot += self.daemon.host.now
        self.boots += 1
        self.now = 10.0
        self.daemon = self.started()

    def see(self, page: dict[str, dict[str, float]]) -> None:
        for gpu in GPUS:
            if (start := page.get(START, {}).get(gpu.key)) is None:
                continue
            parts = [page.get(name, {}).get(gpu.key) for name in PARTS]
            if None not in parts:
                assert sum(parts) == pytest.approx(page[TOTALS[0]][gpu.key], rel=1e-9), "a page does not add up"
            for name in TOTALS:
                value = page.get(name, {}).get(gpu.key)
                before_start, before = self.served.get((name, gpu.key), (start, 0.0))
                if value is None:
                    continue
                assert start >= before_start, "an older total came back"
                assert value >= before or start > before_start, "a total fell and did not begin anew"
                if start > before_start:
                    # It began at 0: what it shows was drawn since.
                    since = self.wall_of_boot + self.daemon.host.now - start
                    assert value <= WATTS[gpu.key] * (since + 1.0)
                self.served[name, gpu.key] = (start, value)


@settings(deadline=None, max_examples=100)
@given(lives(), st.booleans())
def test_no_served_total_ever_falls_but_to_a_fresh_start(events: list[Event], one_directory: bool) -> None:
    async def body(folder: Path) -> Life:
        life = Life(folder, one_directory=one_directory)
        for event, value in events:
            await life.live(event, value)
        life.daemon.crash()
        return life

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(body(Path(folder)))
