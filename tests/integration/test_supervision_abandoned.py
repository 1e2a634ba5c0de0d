"""Children that not even SIGKILL ends for a time, as while a driver does not return from a call."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.model import GpuState
from exporter.supervision.watch import MAX_CHILDREN, RELEASED
from tests.integration.freezer import Freezer, freezer
from tests.integration.supervised import PATIENT, Host, descendants, holders, host, in_loop, is_alive

pytestmark = pytest.mark.usefixtures("no_child_is_left")


@pytest.fixture
def cold() -> Iterator[Freezer]:
    with freezer() as made:
        yield made


def reaped(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


def abandoned(here: Host) -> int:
    return here.fleet.world(0.0).workers_abandoned


@in_loop
async def test_a_child_that_cannot_be_killed_is_given_up_and_reaped_when_it_ends(tmp_path: Path, cold: Freezer) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        first = here.pid
        cold.freeze(first)
        os.kill(first, signal.SIGKILL)
        await here.until(lambda: not here.snapshot.up)
        assert await here.fresh_takes() < 0.06
        await here.until(lambda: abandoned(here) == 1)
        assert is_alive(first)
        await here.until(here.is_full)
        assert here.pid != first
        assert here.snapshot.worker_restarts == {"hang": 1}
        cold.thaw()
        await here.until(lambda: abandoned(here) == 0)
        assert descendants() == [here.pid], "it is reaped"
        assert here.states() == {"a": GpuState.OK, "b": GpuState.OK}


@in_loop
async def test_at_the_bound_none_is_started_and_all_goes_on_when_the_driver_lets_go(
    tmp_path: Path, cold: Freezer
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    async with host(tmp_path, PATIENT, hold=str(device)) as here:
        for count in range(1, MAX_CHILDREN + 1):
            await here.until(here.is_full)
            cold.freeze(here.pid)
            here.supervisor.release()
            await here.until(lambda count=count: abandoned(here) == count)
            # It can be seen that the devices are in use all the same.
            assert here.snapshot.reason == f"{RELEASED}, but {count} of the workers cannot be killed and may hold them"
            assert len(holders(device)) == count
            here.supervisor.take_up()
        await here.until(lambda: "cannot be killed" in here.snapshot.reason and RELEASED not in here.snapshot.reason)
        await asyncio.sleep(1.0)
        assert here.supervisor.worker_pids == (None,)
        assert len(descendants()) == MAX_CHILDREN
        assert not here.snapshot.up
        cold.thaw()
        await here.until(lambda: abandoned(here) == 0)
        await here.until(here.is_full)
        assert descendants() == [here.pid]
        assert holders(device) == {here.pid}


@in_loop
async def test_close_leaves_behind_what_cannot_be_ended(tmp_path: Path, cold: Freezer) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        pid = here.pid
        cold.freeze(pid)
    assert is_alive(pid)
    cold.thaw()
    await here.until(lambda: not is_alive(pid))
    assert reaped(pid) == signal.SIGKILL
