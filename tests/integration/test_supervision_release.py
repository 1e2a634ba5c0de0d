"""After a release no child has a device file open, whatever it was at; then the devices are taken up again."""

import asyncio
import logging
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.config import SamplingConfig, WorkersConfig
from exporter.model import GpuState
from tests.integration.supervised import PATIENT, descendants, holders, host, in_loop

pytestmark = pytest.mark.usefixtures("no_child_is_left")


@pytest.mark.parametrize(
    "orders",
    [
        {},
        {"close": "hang"},
        {"close": "abort"},
        {"open": "hang"},
        {"enumerate": "hang"},
        {"at": {"a": "hang"}},
        {"at": {"a": "breed and hang"}},
    ],
    ids=lambda orders: "-".join(str(value) for value in orders.values()) or "well",
)
@in_loop
async def test_a_release_leaves_no_descriptor_on_a_device(tmp_path: Path, orders: dict[str, Any]) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    sampling = SamplingConfig(energy_seconds=0.2, deadline_seconds=20.0, open_deadline_seconds=20.0)
    async with host(tmp_path, sampling, hold=str(device), **orders) as here:
        await here.until(lambda: bool(holders(device)))
        await asyncio.sleep(0.5)
        for _ in range(2):
            here.supervisor.release()
        assert here.supervisor.released_until is not None
        await here.until(lambda: not holders(device), 2.5)
        await asyncio.sleep(0.6)
        assert not holders(device)
        assert not descendants()
        assert here.fleet.world(time.monotonic()).released
        assert {state for _, state in here.states().items()} <= {GpuState.RELEASED}
        here.order(open=None, enumerate=None, at={}, close=None)
        for _ in range(2):
            here.supervisor.take_up()
        assert here.supervisor.released_until is None
        await here.until(here.is_full)
        assert holders(device) == {here.pid}


@in_loop
async def test_released_devices_are_taken_up_after_the_time_and_a_repeated_release_begins_it_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="exporter.supervision")
    async with host(tmp_path, PATIENT, WorkersConfig(release_seconds=1.0)) as here:
        await here.until(here.is_full)
        here.supervisor.release()
        await asyncio.sleep(0.7)
        here.supervisor.release()
        began = time.monotonic()
        await here.until(lambda: here.supervisor.released_until is None)
        assert 0.9 < time.monotonic() - began < 1.5
        await here.until(here.is_full)
        assert here.snapshot.worker_restarts == {"reload": 1}
    assert caplog.text.count("the devices are taken up again") == 1


@in_loop
async def test_release_and_take_up_in_any_order_leave_one_worker(tmp_path: Path) -> None:
    chance = random.Random(5)
    async with host(tmp_path, PATIENT) as here:
        for _ in range(40):
            chance.choice([here.supervisor.release, here.supervisor.take_up])()
            await asyncio.sleep(chance.choice([0.0, 0.0, 0.05, 0.3]))
            assert len(descendants()) <= 4
        here.supervisor.release()
        await here.until(lambda: not descendants(), 4)
        here.supervisor.take_up()
        await here.until(here.is_full)
        assert descendants() == [here.pid]


@in_loop
async def test_a_release_after_the_end_starts_nothing(tmp_path: Path) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        here.supervisor.release()
    here.supervisor.take_up()
    here.supervisor.release()
    here.supervisor.take_up()
    await asyncio.sleep(0.5)
    assert not descendants()


@in_loop
async def test_a_failure_is_lasting_when_it_has_lasted_and_not_while_released(tmp_path: Path) -> None:
    async with host(tmp_path, PATIENT) as here:
        limits = WorkersConfig(exit_after_seconds=10.0)
        await here.until(here.is_full)
        here.order(open="gone", at={"a": "gone"})
        await here.until(lambda: not here.snapshot.up)
        fell_at = time.monotonic()

        def failure(later: float) -> str | None:
            return here.supervisor.lasting_failure([here.snapshot], fell_at + later)

        # Time in which the loop does not turn is no failure: not more than a second of it counts.
        assert failure(3600.0) is None, "nobody wants to know"
        here.supervisor.limit(limits)
        assert failure(3600.0) is None
        here.supervisor.limit(msgspec.structs.replace(limits, exit_after_seconds=1.0))
        await asyncio.sleep(1.5)
        reason = failure(1.5)
        assert reason is not None
        assert reason.startswith("provider unruly has been down for ")
        assert reason.endswith("the driver is not loaded")
        here.supervisor.release()
        assert failure(1.5) is None
        here.supervisor.take_up()
        assert here.supervisor.lasting_failure([here.snapshot], time.monotonic()) is None, "it begins anew"
        here.order(open=None, at={})
        await here.until(here.is_full)
        assert here.supervisor.lasting_failure([here.snapshot], time.monotonic()) is None


@in_loop
async def test_the_loop_says_when_it_turned(tmp_path: Path) -> None:
    async with host(tmp_path, PATIENT) as here:
        await here.until(here.is_full)
        before = here.supervisor.turned_at
        await asyncio.sleep(0.6)
        assert 0.25 <= here.supervisor.turned_at - before < 1.0
        time.sleep(0.5)  # noqa: ASYNC251 -- the loop is to stand still
        assert time.monotonic() - here.supervisor.turned_at >= 0.5
