"""What a page may show while a write is late, fails or hangs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from exporter.journal import Places
from exporter.journal.format import decode
from exporter.journal.gate import HUNG_SECONDS, IDLE_SECONDS
from exporter.journal.store import LIVE, STOPPED
from exporter.model import GpuState
from tests.unit.fleet.hosts import card
from tests.unit.journal.daemons import PATIENCE_SECONDS, Daemon
from tests.unit.journal.records import BOOT, joules
from tests.unit.journal.test_store import blocked, unblock

# A thread that dies in the middle of a write is what a killed process looks like.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
TOTAL = "gpu_energy_joules_total"
IDLE = int(IDLE_SECONDS)
UP = "gpu_exporter_journal_up"
GPU = card(1)
LONG = PATIENCE_SECONDS
"""What a page may wait, where the write must be waited for whatever the machine does."""


@pytest.fixture
def at(tmp_path: Path) -> Places:
    return Places(tmp_path / "run", tmp_path / "state")


def run(test: Callable[[Daemon], Awaitable[None]], at: Places) -> None:
    """Run a test with a daemon whose GPU draws 100 W."""

    async def body() -> None:
        daemon = Daemon(at, BOOT, 1_000.0, GPU)
        try:
            await asyncio.wait_for(test(daemon), PATIENCE_SECONDS)
        finally:
            daemon.crash()

    asyncio.run(body())


def pass_time(daemon: Daemon, seconds: int) -> None:
    for _ in range(seconds):
        daemon.host.wait(1.0)
        daemon.read(GPU, 100.0, None)


async def total(daemon: Daemon, left: float = 0.005) -> float | None:
    return (await patient(daemon) if left == LONG else await daemon.page(left)).get(TOTAL, {}).get(GPU.key)


async def patient(daemon: Daemon) -> dict[str, dict[str, float]]:
    """Return a page that was not served before all is written: on a busy machine one attempt may be late."""
    page = await daemon.page()
    while daemon.journal._shown is None or daemon.journal._shown.versions != daemon.host.world.versions:
        page = await daemon.page()
    return page


def on_disk(at: Places) -> float:
    return joules(decode((at.live / LIVE).read_bytes()).fleet)[GPU.key]


def test_a_total_is_on_the_disk_before_it_is_shown(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        for _ in range(20):
            pass_time(daemon, 2)
            shown = await total(daemon, LONG)
            assert shown == on_disk(at) > 0
        assert shown == 39 * 100

    run(test, at)


def test_energy_stands_still_as_a_whole_while_a_write_is_late_and_the_rest_goes_on(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 11)
        before = await patient(daemon)
        daemon.disk.stall()
        pass_time(daemon, 5)
        daemon.host.fleet.device_state("nvidia", GPU.key, GpuState.HUNG)
        late = await daemon.page()
        energy = {name for name in before if name.startswith(("gpu_energy", "gpu_power", "gpu_last"))}
        assert {name: late[name] for name in energy} == {name: before[name] for name in energy}
        assert (before["gpu_up"], late["gpu_up"]) == ({GPU.key: 1}, {GPU.key: 0})
        assert before[TOTAL][GPU.key] == on_disk(at) == 1_000
        daemon.disk.go_on()
        assert await total(daemon, LONG) == 1_500

    run(test, at)


def test_writes_that_are_always_late_are_shown_one_page_later(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 1)
        shown = []
        for _ in range(4):
            pass_time(daemon, 10)
            daemon.disk.stall()
            shown.append(await total(daemon))
            daemon.disk.go_on()
            await daemon.settle()
        assert shown == [None, 1_000, 2_000, 3_000]

    run(test, at)


def test_without_an_older_page_there_is_no_energy_rather_than_a_total_that_may_fall(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 5)
        daemon.disk.stall()
        page = await daemon.page()
        assert TOTAL not in page
        assert page["gpu_up"][GPU.key] == 1

    run(test, at)


def test_a_page_is_served_without_a_file_system_that_answers(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 5)
        assert (await patient(daemon))[UP][""] == 1
        daemon.disk.stall()
        loop = asyncio.get_running_loop()
        for _ in range(5):
            pass_time(daemon, int(HUNG_SECONDS))
            daemon.journal.tick()
            began = loop.time()
            page = await daemon.page()
            assert loop.time() - began < 1
        assert page[UP][""] == 0
        assert page[TOTAL][GPU.key] == 400
        daemon.disk.go_on()
        page = await patient(daemon)
        assert (page[UP][""], page[TOTAL][GPU.key]) == (1, 2_900)

    run(test, at)


def test_scrapes_at_the_same_time_share_a_write_and_none_shows_less_than_another(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        for _ in range(30):
            pass_time(daemon, 1)
            pages = await asyncio.gather(*(daemon.page() for _ in range(5)))
            totals = [page.get(TOTAL, {}).get(GPU.key, 0.0) for page in pages]
            assert max(totals) <= on_disk(at)

    run(test, at)


def test_a_write_that_fails_is_told_once_and_totals_are_served_without_a_journal(
    at: Places, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 11)
        await patient(daemon)
        obstacle = blocked(at.live)
        for _ in range(3):
            pass_time(daemon, 1)
            page = await patient(daemon)
        assert (page[UP][""], page[TOTAL][GPU.key]) == (0, 1_300)
        assert not (at.live / LIVE).exists()
        pass_time(daemon, IDLE)
        daemon.journal.tick()
        assert (await patient(daemon))[UP][""] == 0
        unblock(obstacle)
        pass_time(daemon, IDLE)
        daemon.journal.tick()
        page = await patient(daemon)
        assert (page[UP][""], page[TOTAL][GPU.key]) == (1, 1_300 + 200 * IDLE)
        assert on_disk(at) == 1_300 + 200 * IDLE

    run(test, at)
    assert caplog.text.count("there is no journal") == 1
    assert caplog.text.count("there is a journal again") == 1


def test_while_it_is_taken_up_again_no_page_overtakes_it(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 11)
        obstacle = blocked(at.live)
        assert (await patient(daemon))[TOTAL][GPU.key] == 1_000
        unblock(obstacle)
        pass_time(daemon, IDLE)
        daemon.disk.stall()
        daemon.journal.tick()
        pass_time(daemon, 1)
        assert await total(daemon) == 1_000
        daemon.disk.go_on()
        assert await total(daemon, LONG) == 1_100 + 100 * IDLE

    run(test, at)


def test_it_is_written_now_and_then_while_nobody_scrapes(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, IDLE + 1)
        daemon.journal.tick()
        await daemon.settle()
        assert on_disk(at) == 100 * IDLE

    run(test, at)


def test_a_clean_stop_leaves_the_last_totals(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 11)
        await daemon.journal.close()
        assert joules(decode((at.stopped / STOPPED).read_bytes()).fleet)[GPU.key] == on_disk(at) == 1_000

    run(test, at)


def test_a_stop_does_not_wait_for_a_file_system_that_hangs(at: Places) -> None:
    async def test(daemon: Daemon) -> None:
        pass_time(daemon, 11)
        daemon.disk.stall()
        began = asyncio.get_running_loop().time()
        await daemon.journal.close()
        assert asyncio.get_running_loop().time() - began < 2
        assert not (at.stopped / STOPPED).exists()

    run(test, at)
