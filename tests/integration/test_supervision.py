"""Real children, real signals: whatever a vendor's library does, the parent goes on and recovers by itself."""

import asyncio
import contextlib
import functools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import GpuState, Group, Snapshot
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.supervisor import Supervisor

pytestmark = pytest.mark.integration

SAMPLING = SamplingConfig(energy_seconds=0.2, deadline_seconds=0.5, open_deadline_seconds=1.5)
REPOSITORY = Path(__file__).parents[2]


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test."""

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(test(*arguments, **options))

    return run


class Host:
    """A supervisor over one provider and a fleet, and the file that gives the provider its orders."""

    def __init__(self, directory: Path, sampling: SamplingConfig) -> None:
        self.control = directory / "control.json"
        self.orders: dict[str, Any] = {"devices": ["a", "b"]}
        self.order()
        self._supervise("unruly", "tests.integration.unruly:open_unruly", sampling)

    def _supervise(self, provider: str, opener: str | None, sampling: SamplingConfig) -> None:
        self.fleet = Fleet([(provider, True)], sampling)
        request = WorkerRequest(provider=provider, scenario=str(self.control), opener=opener)
        self.supervisor = Supervisor(self.fleet, [request], sampling, Random(1))

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
async def host(directory: Path, sampling: SamplingConfig = SAMPLING, **orders: Any) -> AsyncIterator[Host]:
    made = Host(directory, sampling)
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


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    yield
    began = time.monotonic()
    while left := descendants():  # on a busy machine one that was killed may take a moment to be gone
        assert time.monotonic() - began < 1.0, left
        time.sleep(0.01)


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


@in_loop
async def test_the_first_pass_gives_everything(tmp_path: Path) -> None:
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        snapshot = here.snapshot
        assert snapshot.library_version == "unruly 1.0"
        assert [device.sample.power_watts for device in snapshot.devices] == [100.0, 100.0]
        assert [device.sample.utilization_ratio for device in snapshot.devices] == [0.5, 0.5]
        await here.until(lambda: set(here.snapshot.sample_duration_seconds) == {"energy", "load", "state", "processes"})


@in_loop
async def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        first = here.pid
        os.kill(first, signal.SIGKILL)
        await here.until(lambda: not here.snapshot.up)
        assert here.snapshot.reason == "the worker was ended by SIGKILL"
        await here.until(here.is_full)
        assert here.pid != first
        assert here.snapshot.worker_restarts == {"crash": 1}


@in_loop
async def test_a_stopped_worker_is_replaced_and_blames_no_device(tmp_path: Path) -> None:
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        first = here.pid
        os.kill(first, signal.SIGSTOP)
        seen = set()

        def replaced() -> bool:
            seen.update(here.states().values())
            return here.supervisor.worker_pids[0] not in {None, first} and here.is_full()

        assert await here.fresh_takes() < 0.06
        await here.until(replaced)
        assert seen == {GpuState.OK}
        assert here.snapshot.worker_restarts == {"hang": 1}
        assert not is_alive(first)


@in_loop
async def test_a_call_that_never_returns_costs_its_device_only(tmp_path: Path) -> None:
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        here.order(at={"b": "hang"})
        await here.until(lambda: here.states()["b"] is GpuState.HUNG)
        assert here.states()["a"] is not GpuState.HUNG
        # A second miss, then the device is left out, and the other goes on without it.
        await here.until(lambda: here.snapshot.worker_restarts == {"hang": 2})
        await here.until(lambda: here.snapshot.up and here.states() == {"a": GpuState.OK, "b": GpuState.HUNG})
        here.order(at={})
        # The first probe comes after about 5 s.
        await here.until(here.is_full, 12)
        assert here.snapshot.worker_restarts == {"hang": 2}


@in_loop
async def test_devices_that_come_after_a_hung_one_are_read_before_it_is_left_out(tmp_path: Path) -> None:
    async with host(tmp_path) as here:

        def read_at() -> float:
            (device,) = (device for device in here.snapshot.devices if device.device.key == "b")
            return device.sample.taken_at[Group.ENERGY]

        await here.until(here.is_full)
        here.order(at={"a": "hang"})
        await here.until(lambda: here.snapshot.worker_restarts == {"hang": 1})
        missed_at = time.monotonic()
        await here.until(lambda: here.snapshot.worker_restarts == {"hang": 2})
        assert read_at() > missed_at
        await here.until(lambda: here.snapshot.up and here.states() == {"a": GpuState.HUNG, "b": GpuState.OK})


@in_loop
async def test_a_hung_worker_costs_a_scrape_no_more_than_its_share(tmp_path: Path) -> None:
    async with host(tmp_path, SamplingConfig(deadline_seconds=3.0)) as here:
        await here.until(here.is_full)
        here.order(at={"a": "hang", "b": "hang"})
        await asyncio.sleep(1.2)
        times = [await here.fresh_takes() for _ in range(20)]
        assert max(times) < 0.06
        # It is not asked again while it owes an answer, and not waited for.
        assert sorted(times)[-2] < 0.01


@in_loop
async def test_a_library_that_cannot_be_opened_is_told_with_the_reason(tmp_path: Path) -> None:
    async def case(what: str, reason: str) -> None:
        (tmp_path / what).mkdir()
        async with host(tmp_path / what, open=what) as here:
            await here.until(lambda: here.snapshot.reason == reason)
            assert not here.snapshot.up
            assert here.snapshot.devices == ()
            here.order(open=None)
            await here.until(here.is_full)

    await asyncio.gather(
        case("hang", "the worker hangs while opening the library"),
        case("abort", "the worker was ended by SIGSEGV"),
        case("exit", "the worker ended by itself with status 3"),
        case("raise", "KeyError: 'libunruly.so'"),
        case("gone", "the driver is not loaded"),
    )


@in_loop
async def test_a_library_that_breaks_in_a_read_is_opened_anew(tmp_path: Path) -> None:
    async def case(what: str, cause: str, reason: str) -> None:
        (tmp_path / what).mkdir()
        async with host(tmp_path / what) as here:
            await here.until(here.is_full)
            here.order(at={"b": what})
            await here.until(lambda: here.snapshot.reason == reason)
            here.order(at={})
            await here.until(here.is_full)
            assert set(here.snapshot.worker_restarts) == {cause}

    await asyncio.gather(
        case("abort", "crash", "the worker was ended by SIGSEGV"),
        case("exit", "crash", "the worker ended by itself with status 3"),
        case("raise", "crash", "KeyError: 'libunruly.so'"),
        case("gone", "lost", "the driver is not loaded"),
        case("garble", "crash", "the worker is not understood: a frame of 4294967295 bytes is announced"),
    )


@in_loop
async def test_an_enumeration_that_hangs_is_ended(tmp_path: Path) -> None:
    async with host(tmp_path, enumerate="hang") as here:
        await here.until(lambda: here.snapshot.reason == "the worker hangs while enumerating the devices")
        here.order(enumerate=None)
        await here.until(here.is_full)


@in_loop
async def test_what_a_library_prints_is_logged_within_bounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="exporter.supervision")
    async with host(tmp_path, SamplingConfig(deadline_seconds=10.0)) as here:
        await here.until(here.is_full)
        here.order(at={"a": "flood"})
        await here.until(lambda: any("talkative" in record.message for record in caplog.records))
        laps = []
        while len(laps) < 100:
            began = time.monotonic()
            await asyncio.sleep(0)
            laps.append(time.monotonic() - began)
        assert max(laps) < 0.05
        here.order(at={})
        pid = here.pid
        before = here.snapshot.last_sample_timestamp
        assert before is not None
        await here.until(lambda: (here.snapshot.last_sample_timestamp or 0) > before + 1.5)
        assert here.pid == pid
    lines = [record for record in caplog.records if "the library printed" in record.message]
    assert 1 <= len(lines) <= 20
    assert "talkative" not in "".join(capfd.readouterr())


@in_loop
async def test_a_child_that_reports_without_end_does_not_keep_others_waiting(tmp_path: Path) -> None:
    async with host(tmp_path, SamplingConfig(deadline_seconds=10.0)) as here:
        await here.until(here.is_full)
        here.order(at={"a": "babble"})
        await asyncio.sleep(1.1)
        laps = []
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            began = time.monotonic()
            await here.supervisor.fresh()
            await asyncio.sleep(0)
            laps.append(time.monotonic() - began)
        # One may be held up by what else runs on the machine.
        assert sorted(laps)[-2] < 0.1
        here.order(at={})


@in_loop
async def test_a_library_that_has_lost_all_its_devices_is_opened_anew(tmp_path: Path) -> None:
    """After a driver reload all handles may be void, and stay so."""
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        here.order(at={"a": "stale", "b": "stale"})
        await here.until(lambda: set(here.states().values()) == {GpuState.LOST})
        here.order(at={})
        await here.until(lambda: not here.snapshot.up, 20)
        assert here.snapshot.reason == "every device is lost: the library is opened anew"
        assert set(here.states().values()) == {GpuState.LOST}
        await here.until(here.is_full)
        assert here.snapshot.worker_restarts == {"lost": 1}


@in_loop
async def test_a_lost_device_comes_back(tmp_path: Path) -> None:
    async with host(tmp_path, SamplingConfig(state_seconds=0.5)) as here:
        await here.until(here.is_full)
        pid = here.pid
        here.order(at={"b": "lost"})
        await here.until(lambda: here.states() == {"a": GpuState.OK, "b": GpuState.LOST})
        here.order(at={})
        await here.until(here.is_full)
        assert here.pid == pid


@in_loop
async def test_faults_of_simulated_devices_are_survived(tmp_path: Path) -> None:
    sampling = msgspec.structs.replace(SAMPLING, state_seconds=0.5, open_deadline_seconds=10.0)

    async def case(fault: str, state: GpuState, causes: set[str]) -> None:
        async with running(SimulatedHost(tmp_path, fault, sampling)) as here:
            await here.until(here.is_full)
            seen: list[set[GpuState]] = [set(), set()]

            def is_over() -> bool:
                for device, states in zip(here.snapshot.devices, seen, strict=True):
                    states.add(device.state)
                return state in seen[1] and here.is_full()

            if causes == {"crash"}:
                await here.until(lambda: not here.snapshot.up)
                await here.until(here.is_full)
            else:
                await here.until(is_over, 20)
                assert seen == [{GpuState.OK}, {GpuState.OK, state}]
            assert set(here.snapshot.worker_restarts) == causes

    await asyncio.gather(
        case("hang", GpuState.HUNG, {"hang"}), case("crash", GpuState.OK, {"crash"}), case("lost", GpuState.LOST, set())
    )


@in_loop
async def test_callers_at_the_same_time_share_one_request(tmp_path: Path) -> None:
    slow = SamplingConfig(energy_seconds=60.0, load_seconds=60.0, state_seconds=60.0, processes_seconds=60.0)
    async with host(tmp_path, slow) as here:
        await here.until(here.is_full)
        await asyncio.sleep(0.1)
        times = [here.energy_at]
        for _ in range(3):
            await asyncio.gather(*(here.supervisor.fresh() for _ in range(3)))
            times.append(here.energy_at)
            await here.supervisor.fresh()
            assert here.energy_at == times[-1], "what is under 50 ms old is fresh"
            await asyncio.sleep(0.06)
        assert len(set(times)) == 4
        reads = json.loads(here.control.with_suffix(".reads").read_text())
        assert reads == {"a": 4, "b": 4}


@in_loop
async def test_a_request_is_served_in_the_middle_of_a_slow_pass(tmp_path: Path) -> None:
    # A pass takes 2 x 100 x 5 ms, and the provider is never idle.
    sampling = SamplingConfig(energy_seconds=60.0, load_seconds=0.5, deadline_seconds=5.0)
    async with host(tmp_path, sampling, calls=100, delay=0.005) as here:
        await here.until(here.is_full)
        times = []
        for _ in range(20):
            await asyncio.sleep(0.1)
            before = here.energy_at
            times.append(await here.fresh_takes())
            assert here.energy_at != before
        assert sorted(times)[-2] < 0.05


@in_loop
async def test_release_lets_go_of_the_library_until_it_is_taken_up(tmp_path: Path) -> None:
    async with host(tmp_path) as here:
        await here.until(here.is_full)
        pid = here.pid
        here.supervisor.release()
        await here.until(lambda: not is_alive(pid), 3)
        assert not descendants()
        await asyncio.sleep(0.6)
        assert here.supervisor.worker_pids == (None,)
        here.supervisor.take_up()
        await here.until(here.is_full)
        assert here.snapshot.worker_restarts == {"reload": 1}


@pytest.mark.parametrize("orders", [{"open": "hang"}, {"at": {"a": "hang"}}])
@in_loop
async def test_close_ends_even_a_hung_child_in_time(tmp_path: Path, orders: dict[str, Any]) -> None:
    async with host(tmp_path, SamplingConfig(), **orders) as here:
        await here.until(lambda: bool(descendants()))
        await asyncio.sleep(0.5)


@in_loop
async def test_a_cancelled_supervisor_leaves_no_children(tmp_path: Path) -> None:
    here = Host(tmp_path, SAMPLING)
    run = asyncio.create_task(here.supervisor.run())
    await here.until(here.is_full)
    pid = here.pid
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await here.until(lambda: not is_alive(pid))
    await here.supervisor.close()


@pytest.mark.parametrize("orders", [{}, {"at": {"a": "hang"}}, {"open": "hang"}])
def test_children_end_with_their_parent(tmp_path: Path, orders: dict[str, Any]) -> None:
    control = tmp_path / "control.json"
    control.write_text(json.dumps({"devices": ["a"], **orders}))
    script = f"""
        import asyncio, os, signal
        from exporter.config import SamplingConfig
        from exporter.fleet import Fleet
        from exporter.supervision.frames import WorkerRequest
        from exporter.supervision.supervisor import Supervisor

        async def main():
            request = WorkerRequest(
                provider="unruly", scenario={str(control)!r}, opener="tests.integration.unruly:open_unruly"
            )
            supervisor = Supervisor(Fleet([("unruly", True)], SamplingConfig()), [request], SamplingConfig())
            asyncio.create_task(supervisor.run())
            await asyncio.sleep(0.6)
            print(*supervisor.worker_pids, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

        asyncio.run(main())
    """
    parent = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    child = int(parent.stdout)
    began = time.monotonic()
    while is_alive(child):
        assert time.monotonic() - began < 2
        time.sleep(0.01)


def test_a_worker_inherits_its_pipes_and_nothing_else(tmp_path: Path) -> None:
    async def look() -> tuple[dict[str, str], str, list[int]]:
        stray = os.open(tmp_path, os.O_RDONLY)
        os.set_inheritable(stray, True)
        try:
            async with host(tmp_path) as here:
                await here.until(here.is_full)
                proc = Path(f"/proc/{here.pid}")
                kinds = {link.name: str(link.readlink()) for link in (proc / "fd").iterdir()}
                ignored = int((proc / "status").read_text().partition("SigIgn:\t")[2].split()[0], 16)
                signals = [number for number in range(1, 32) if ignored >> number - 1 & 1]
                return kinds, str((proc / "cwd").readlink()), signals
        finally:
            os.close(stray)

    kinds, cwd, signals = asyncio.run(look())
    assert kinds.pop("0") == "/dev/null"
    assert kinds.pop("1") == kinds.pop("2")
    assert len(kinds) == 2
    assert all(kind.startswith("pipe:") for kind in kinds.values())
    assert cwd == "/"
    assert {signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP} <= set(signals)
    assert signal.SIGTERM not in signals


def test_a_worker_loads_no_event_loop_and_no_web_server() -> None:
    script = "import exporter.supervision.worker, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "exporter.supervision.worker" in loaded
    assert not {"asyncio", "prometheus_client", "yaml", "h11", "logging", "pynvml", "amdsmi"} & set(loaded)


def test_requests_carry_only_what_is_set() -> None:
    assert msgspec.to_builtins(WorkerRequest(provider="nvidia")) == {"provider": "nvidia"}
