"""Workers over a library that does as it is told, kept by a supervisor in the loop of the test."""

import asyncio
import contextlib
import functools
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

from exporter.config import SamplingConfig, WorkersConfig
from exporter.fleet import Fleet
from exporter.model import GpuState, Group, Snapshot
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor

SAMPLING = SamplingConfig(energy_seconds=0.2, deadline_seconds=0.5, open_deadline_seconds=1.5)
PATIENT = SamplingConfig(energy_seconds=0.2, deadline_seconds=1.0, open_deadline_seconds=20.0)
"""For what is not about being late: on a busy machine the start of a worker may take seconds."""
WORKERS = WorkersConfig()
REPOSITORY = Path(__file__).parents[2]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


class Host:
    """A supervisor over one provider and a fleet, and the file that gives the provider its orders."""

    workers = WORKERS
    measure_seconds = 10.0

    def __init__(
        self,
        directory: Path,
        sampling: SamplingConfig,
        workers: WorkersConfig = WORKERS,
        measure_seconds: float = 10.0,
    ) -> None:
        self.workers = workers
        self.measure_seconds = measure_seconds
        self.control = directory / "control.json"
        self.orders: dict[str, Any] = {"devices": ["a", "b"]}
        self.order()
        self._supervise("unruly", "tests.integration.unruly:open_unruly", sampling)

    def _supervise(self, provider: str, opener: str | None, sampling: SamplingConfig) -> None:
        self.fleet = Fleet([(provider, True)], sampling)
        request = WorkerRequest(provider=provider, scenario=str(self.control), opener=opener)
        self.supervisor = Supervisor(
            self.fleet, [request], sampling, self.workers, random=Random(1), measure_seconds=self.measure_seconds
        )

    def order(self, **orders: Any) -> None:
        self.orders.update(orders)
        draft = self.control.with_suffix(".draft")
        draft.write_text(json.dumps(self.orders))
        draft.rename(self.control)

    @property
    def snapshot(self) -> Snapshot:
        return self.fleet.world(time.monotonic()).snapshots[0]

    @property
    def energy_at(self) -> float:
        """When the energy was read that a page would show."""
        return min(device.sample.taken_at[Group.ENERGY] for device in self.snapshot.devices)

    @property
    def pid(self) -> int:
        (pid,) = self.supervisor.worker_pids
        assert pid is not None
        return pid

    def states(self) -> dict[str, GpuState]:
        return {device.device.key: device.state for device in self.snapshot.devices}

    def is_full(self) -> bool:
        snapshot = self.snapshot
        return (
            snapshot.up
            and self.states() == dict.fromkeys(self.orders["devices"], GpuState.OK)
            and all(device.sample.power_watts is not None for device in snapshot.devices)
            and snapshot.last_sample_timestamp is not None
        )

    async def until(self, condition: Callable[[], bool], seconds: float = 8.0) -> float:
        """Wait until it holds; return how long that took."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, f"{self.snapshot}"
            await asyncio.sleep(0.01)
        return time.monotonic() - began

    async def fresh_takes(self) -> float:
        began = time.monotonic()
        await self.supervisor.fresh()
        return time.monotonic() - began


class SimulatedHost(Host):
    """Two simulated GPUs, the second with a fault from the first second to the third."""

    def __init__(self, directory: Path, fault: str, sampling: SamplingConfig) -> None:
        self.control = directory / f"{fault}.yaml"
        self.control.write_text(
            f"epoch_seconds: {time.monotonic() + 2}\n"
            "devices:\n"
            "  - {model: H100-SXM}\n"
            f"  - {{model: H100-SXM, faults: [{{kind: {fault}, from_seconds: 1, to_seconds: 3}}]}}\n"
        )
        self._supervise("simulated", None, sampling)

    def is_full(self) -> bool:
        snapshot = self.snapshot
        return snapshot.up and [device.state for device in snapshot.devices] == [GpuState.OK] * 2


@contextlib.asynccontextmanager
async def host(
    directory: Path,
    sampling: SamplingConfig = SAMPLING,
    workers: WorkersConfig = WORKERS,
    measure_seconds: float = 10.0,
    **orders: Any,
) -> AsyncIterator[Host]:
    made = Host(directory, sampling, workers, measure_seconds)
    made.order(**orders)
    async with running(made):
        yield made


@contextlib.asynccontextmanager
async def running(made: Host) -> AsyncIterator[Host]:
    """Supervise until the end of the block, which takes less than 3 s."""
    run = asyncio.create_task(made.supervisor.run())
    try:
        yield made
        assert not run.done() or run.exception() is None
    finally:
        began = time.monotonic()
        await made.supervisor.close()
        took = time.monotonic() - began
        await run
    assert took < 3.0


def descendants() -> list[int]:
    """Return the pids of children of this process that are not reaped."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
            if int(fields[1]) == os.getpid() and b"exporter.supervision.worker" in command:
                found.append(int(stat.parent.name))
    return found


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return False


def holders(path: Path) -> set[int]:
    """Return the pids that have the file open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if link.readlink() == path:
                found.add(int(link.parts[2]))
    return found
