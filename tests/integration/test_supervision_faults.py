"""What goes wrong in each call of a library, in each way: what is told, and that all goes on when it is over."""

import asyncio
import logging
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.config import SamplingConfig
from exporter.model import GpuState
from tests.integration.supervised import PATIENT, REPOSITORY, Host, host, in_loop, is_alive

pytestmark = pytest.mark.usefixtures("no_child_is_left")

ENDS = {
    "abort": "the worker was ended by SIGSEGV",
    "sigabrt": "the worker was ended by SIGABRT",
    "exit": "the worker ended by itself with status 3",
    "raise": "KeyError: 'libunruly.so'",
    "gone": "the driver is not loaded",
    "shut": "the worker is not understood: it closed its pipe",
    "garble": "the worker is not understood: a frame of 4294967295 bytes is announced",
}


async def survived(here: Host, reason: str, causes: set[str], **orders: Any) -> None:
    """Give orders, see what is told, and have it full again after they are withdrawn."""
    await here.until(here.is_full)
    here.order(**orders)
    await here.until(lambda: here.snapshot.reason == reason, 15)
    assert not here.snapshot.up
    here.order(**{order: {} for order in orders})
    await here.until(here.is_full, 15)
    assert set(here.snapshot.worker_restarts) == causes


@in_loop
async def test_an_enumeration_that_breaks_is_tried_again(tmp_path: Path) -> None:
    async def case(what: str) -> None:
        directory = tmp_path / what
        directory.mkdir()
        async with host(directory, PATIENT, enumerate=what) as here:
            await here.until(lambda: here.snapshot.reason == ENDS[what])
            here.order(enumerate=None)
            await here.until(here.is_full)
            assert set(here.snapshot.worker_restarts) == {"lost" if what == "gone" else "crash"}

    await asyncio.gather(*map(case, ENDS))


@in_loop
async def test_a_process_list_that_breaks_is_survived(tmp_path: Path) -> None:
    sampling = msgspec.structs.replace(PATIENT, processes_seconds=0.3)

    async def case(what: str) -> None:
        directory = tmp_path / what
        directory.mkdir()
        async with host(directory, sampling) as here:
            cause = "lost" if what == "gone" else "crash"
            await survived(here, ENDS[what], {cause}, processes={"b": what})

    async def hang() -> None:
        async with host(tmp_path, sampling) as here:
            await here.until(here.is_full)
            here.order(processes={"b": "hang"})
            await here.until(lambda: here.snapshot.up and here.states() == {"a": GpuState.OK, "b": GpuState.HUNG}, 15)
            here.order(processes={})
            await here.until(here.is_full, 15)
            assert set(here.snapshot.worker_restarts) == {"hang"}

    await asyncio.gather(hang(), *map(case, ENDS))


@in_loop
async def test_a_library_that_cannot_be_closed_is_left_to_the_kernel(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver that is unloaded under the worker: it wants to close the library, and that goes wrong as well."""

    async def case(what: str) -> None:
        directory = tmp_path / what
        directory.mkdir()
        async with host(directory, PATIENT, close=what) as here:
            await survived(here, ENDS["gone"], {"lost"}, at={"a": "gone"})
            assert set(here.states().values()) == {GpuState.OK}, "no device is to blame"

    await asyncio.gather(*map(case, ["hang", "abort", "sigabrt", "exit", "raise", "flood"]))
    assert "Traceback" not in caplog.text
    assert "the library cannot be closed: KeyError" in caplog.text


@in_loop
async def test_a_flood_in_every_call_holds_up_nobody_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="exporter.supervision")
    sampling = SamplingConfig(open_deadline_seconds=20.0, deadline_seconds=20.0)
    async with host(tmp_path, sampling, open="flood", enumerate="flood", processes={"a": "flood"}) as here:
        laps = []
        until = time.monotonic() + 20
        while not here.is_full():
            assert time.monotonic() < until
            began = time.monotonic()
            await asyncio.sleep(0.001)
            laps.append(time.monotonic() - began)
        assert sorted(laps)[-2] < 0.1
        assert here.snapshot.worker_restarts == {}
        here.order(open=None, enumerate=None, processes={})
    assert 1 <= len([record for record in caplog.records if "the library printed" in record.message]) <= 20


@in_loop
async def test_a_driver_of_another_version_is_taken_up(tmp_path: Path) -> None:
    async with host(tmp_path, PATIENT, version="535.0") as here:
        await here.until(here.is_full)
        assert here.snapshot.library_version == "535.0"
        here.order(at={"a": "gone"}, open="gone", version="580.0", devices=["b", "a", "c"])
        await here.until(lambda: not here.snapshot.up)
        assert set(here.states()) == {"a", "b"}, "they are remembered"
        here.order(at={}, open=None)
        await here.until(here.is_full, 15)
        assert here.snapshot.library_version == "580.0"
        assert set(here.states()) == {"a", "b", "c"}


@in_loop
async def test_a_host_without_room_for_a_child_is_told_and_survived(tmp_path: Path) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            os.kill(here.pid, signal.SIGKILL)
            await here.until(lambda: here.snapshot.reason.startswith("no child process can be started"))
            assert "Too many open files" in here.snapshot.reason
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        await here.until(here.is_full, 15)
        assert here.snapshot.worker_restarts == {"crash": 1}


@pytest.mark.parametrize("what", ["breed and hang", "breed and exit"])
@in_loop
async def test_what_a_library_starts_ends_with_its_worker(tmp_path: Path, what: str) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        here.order(at={"a": what})
        await here.until(lambda: not here.snapshot.up)
        here.order(at={})
        started = [int(pid) for pid in here.control.with_suffix(".started").read_text().split()]
        assert started
        await here.until(lambda: not any(map(is_alive, started)))
        await here.until(here.is_full)


def test_orphans_of_a_worker_are_reaped_where_they_become_ours(tmp_path: Path) -> None:
    """In a container we may be the first process, to which every orphan falls."""
    script = f"""
        import asyncio, ctypes, os, sys
        from pathlib import Path
        from tests.integration.supervised import PATIENT, host

        PR_SET_CHILD_SUBREAPER = 36
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def children():
            return Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split()

        async def main():
            async with host(Path({str(tmp_path)!r}), PATIENT) as here:
                await here.until(here.is_full)
                here.order(at={{"a": "breed and exit"}})
                await here.until(lambda: not here.snapshot.up)
                here.order(at={{}})
                await here.until(here.is_full)
                await here.until(lambda: children() == [str(here.pid)])

        asyncio.run(main())
        assert not children()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], cwd=REPOSITORY, check=True)
    assert (tmp_path / "control.started").read_text()


@in_loop
async def test_children_that_come_and_go_leave_nothing_in_the_parent(tmp_path: Path) -> None:
    def held() -> tuple[int, int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), len(asyncio.all_tasks())

    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        before = held()
        for turn in range(12):
            if turn % 3 == 0:
                os.kill(here.pid, signal.SIGKILL)
            elif turn % 3 == 1:
                os.kill(here.pid, signal.SIGSTOP)
            asking = [asyncio.create_task(here.supervisor.fresh()) for _ in range(20)]
            here.supervisor.release()
            await asyncio.gather(*asking)
            await here.until(lambda: here.supervisor.worker_pids == (None,))
            here.supervisor.take_up()
            await here.until(here.is_full)
        await here.until(lambda: held() == before)
