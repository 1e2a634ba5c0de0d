"""Workers that leak, or whose every reading breaks, are replaced: what is published does not suffer."""

import asyncio
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from exporter.config import SamplingConfig, WorkersConfig
from exporter.model import GpuState
from exporter.supervision import frames
from exporter.supervision.output import Output
from exporter.supervision.process import Process
from exporter.supervision.recycling import Usage
from tests.integration.supervised import PATIENT, Host, host, in_loop, is_alive

pytestmark = pytest.mark.usefixtures("no_child_is_left")

LIMITS = WorkersConfig(max_memory_bytes=2**26, max_descriptors=64)
MEASURE_SECONDS = 0.3


class Witness:
    """Looks all the time at what a page would show."""

    def __init__(self, here: Host) -> None:
        self.here = here
        self.seen: set[tuple[bool, frozenset[GpuState]]] = set()
        self.read_at: list[float] = []

    def look(self) -> bool:
        self.seen.add((self.here.snapshot.up, frozenset(self.here.states().values())))
        if not self.read_at or self.here.energy_at != self.read_at[-1]:
            self.read_at.append(self.here.energy_at)
        return True

    @property
    def longest_gap(self) -> float:
        return max(later - earlier for earlier, later in zip(self.read_at, self.read_at[1:], strict=False))


@pytest.mark.parametrize("leak", [{"leak": 2}, {"grow": 2**21}], ids=["descriptors", "memory"])
@in_loop
async def test_a_worker_that_leaks_is_replaced_and_nobody_sees_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, leak: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO, logger="exporter.supervision")
    async with host(tmp_path, PATIENT, LIMITS, MEASURE_SECONDS) as here:
        await here.until(here.is_full)
        first, witness = here.pid, Witness(here)
        here.order(**leak)
        await here.until(lambda: witness.look() and here.supervisor.worker_pids[0] not in {None, first}, 20)
        here.order(leak=0, grow=0)
        until = time.monotonic() + 1.5
        await here.until(lambda: witness.look() and time.monotonic() > until)
        assert here.snapshot.worker_restarts == {"recycle": 1}
        assert witness.seen == {(True, frozenset({GpuState.OK}))}
        assert witness.longest_gap < 1.5
        accounts = [device.energy for device in here.snapshot.devices]
        assert all(account is not None and account.gap_seconds == 0 for account in accounts)
        assert not is_alive(first)
    told = [record for record in caplog.records if record.message == "worker is replaced"]
    assert len(told) == 1
    assert told[0].levelno == logging.INFO


@in_loop
async def test_a_worker_that_swells_while_it_hangs_is_killed(tmp_path: Path) -> None:
    sampling = SamplingConfig(energy_seconds=0.2, deadline_seconds=60.0)
    async with host(tmp_path, sampling, LIMITS, MEASURE_SECONDS) as here:
        await here.until(here.is_full)
        first = here.pid
        here.order(at={"a": "balloon"})
        await here.until(lambda: not here.snapshot.up)
        here.order(at={})
        assert "MiB of memory" in here.snapshot.reason
        await here.until(here.is_full)
        assert not is_alive(first)
        # Where it was seen half swollen, its successor swelled as well.
        assert set(here.snapshot.worker_restarts) == {"recycle"}


@in_loop
async def test_a_worker_whose_successor_cannot_open_the_library_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a host whose libraries were upgraded, while the driver was not: the old worker has the old ones."""
    limits = WorkersConfig(max_memory_bytes=2**30, max_descriptors=16)
    async with host(tmp_path, PATIENT, limits, MEASURE_SECONDS) as here:
        await here.until(here.is_full)
        first, witness = here.pid, Witness(here)
        here.order(open="gone", leak=1)
        await here.until(lambda: witness.look() and "worker is kept" in caplog.text)
        here.order(leak=0)
        until = time.monotonic() + 1.5
        await here.until(lambda: witness.look() and time.monotonic() > until)
        assert here.pid == first
        assert witness.seen == {(True, frozenset({GpuState.OK}))}
        assert here.snapshot.worker_restarts == {}
    assert caplog.text.count("worker is kept") == 1
    assert [getattr(record, "reason", None) for record in caplog.records] == ["the driver is not loaded"]


@in_loop
async def test_a_library_of_which_every_reading_breaks_is_opened_anew(tmp_path: Path) -> None:
    sampling = SamplingConfig(energy_seconds=0.2, load_seconds=0.1)
    async with host(tmp_path, sampling, WorkersConfig(), MEASURE_SECONDS) as here:
        await here.until(here.is_full)
        first = here.pid
        here.order(at={"a": "broken"})
        await asyncio.sleep(2)
        assert here.pid == first, "b answers"
        here.order(at={"a": "broken", "b": "broken"})
        await here.until(lambda: here.supervisor.worker_pids[0] not in {None, first})
        assert here.snapshot.worker_restarts == {"recycle": 1}
        second = here.pid
        await asyncio.sleep(3)
        assert here.pid == second, "once in a minute is enough"
        assert here.snapshot.read_failures["power_watts"] > 20


@in_loop
async def test_what_a_worker_takes_of_the_host_is_measured(tmp_path: Path) -> None:
    control = tmp_path / "control.json"
    control.write_text(json.dumps({"devices": ["a"], "grow": 2**20, "leak": 1}))
    request = frames.WorkerRequest(
        provider="unruly", scenario=str(control), opener="tests.integration.unruly:open_unruly"
    )
    start = frames.Start(request=request, sampling=PATIENT)
    process = Process(1, start, Output(time.monotonic()), lambda _: None)
    try:
        seen = []
        for _ in range(2):
            await asyncio.sleep(1.5)
            seen.append(process.usage())
        before, after = seen
        assert before.memory_bytes is not None
        assert before.descriptors is not None
        assert 2**22 < before.memory_bytes < 2**26
        assert 4 < before.descriptors < 32
        assert after.memory_bytes is not None
        assert after.descriptors is not None
        assert after.memory_bytes > before.memory_bytes + 2**21
        assert after.descriptors > before.descriptors + 2
    finally:
        process.kill()
        for _ in range(500):
            if process.status() is not None:
                break
            await asyncio.sleep(0.01)
        process.close()
    assert process.usage() == Usage(None, None)
