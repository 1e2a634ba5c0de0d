"""The parent's side of attribution, over agents that misbehave and over the real one, in the loop of the test."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import pytest

from exporter.config import AttributionConfig
from exporter.model import (
    Attribution,
    Device,
    DeviceSnapshot,
    GpuState,
    ProcessSample,
    Sample,
    Snapshot,
    SourceStatus,
    World,
)
from exporter.supervision.attributor import Attributor
from tests.integration.freezer import freezer
from tests.integration.supervised import in_loop, is_alive
from tests.unit.attribution.hosts import write_host, write_process


def world(*processes: ProcessSample) -> World:
    device = Device(vendor="nvidia", key="GPU-1")
    sample = Sample(device=device, processes=processes)
    shown = DeviceSnapshot(gpu="nvidia0", provider="nvidia", device=device, state=GpuState.OK, sample=sample)
    return World(
        snapshots=(Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=(shown,)),), versions={}
    )


EMPTY = World(snapshots=(Snapshot(provider="nvidia", up=False, wanted=True, reason="no driver"),), versions={})


class Host:
    def __init__(self, config: AttributionConfig, module: str) -> None:
        self.world = world()
        self.published: list[Attribution] = []
        self.abandoned = 0
        self.attributor = Attributor(
            lambda: self.world,
            self.published.append,
            config,
            1.0,
            self.count,
            module=module,
            deadline=1.0,
            most_abandoned=2,
            random=Random(1),
        )

    def count(self, abandoned: int) -> None:
        self.abandoned = abandoned

    @property
    def sources(self) -> tuple[SourceStatus, ...]:
        return self.published[-1].sources if self.published else ()

    async def until(self, condition: Callable[[], bool], seconds: float = 15.0) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds, self.published[-1:]
            await asyncio.sleep(0.02)

    async def reason(self, text: str) -> None:
        """Wait until proc is down for this reason."""
        await self.until(lambda: any(not status.up and text in status.reason for status in self.sources))


@contextlib.asynccontextmanager
async def host(
    config: AttributionConfig | None = None, module: str = "exporter.attribution.agent"
) -> AsyncIterator[Host]:
    made = Host(config or AttributionConfig(kubelet_socket=None, pod_logs=None), module)
    run = asyncio.create_task(made.attributor.run())
    try:
        yield made
        assert not run.done()
    finally:
        pid = made.attributor.agent_pid
        began = time.monotonic()
        await made.attributor.close()
        assert time.monotonic() - began < 1.5
        await run
        assert pid is None or not is_alive(pid)


def reaped(pid: int) -> int:
    return os.waitpid(pid, 0)[1]


UNRULY = "tests.integration.unruly_agent"


@in_loop
async def test_agent_that_never_answers_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "hang")
    async with host(module=UNRULY) as made:
        await made.until(lambda: made.attributor.agent_pid is not None)
        first = made.attributor.agent_pid
        await made.reason("it has not answered for more than 1 seconds")
        await made.until(lambda: made.attributor.agent_pid not in (None, first))
        assert first is not None
        assert not is_alive(first)


@in_loop
async def test_agent_that_hangs_after_an_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "once")
    async with host(module=UNRULY) as made:
        await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
        await made.reason("it has not answered")
        await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))


@in_loop
async def test_agent_that_talks_nonsense_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "garbage")
    async with host(module=UNRULY) as made:
        await made.reason("it is not understood: a frame of 4294967295 bytes is announced")


@in_loop
async def test_agent_that_ends_is_replaced_ever_more_slowly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "exit")
    async with host(module=UNRULY) as made:
        await made.reason("it ended with 3")
        begun = len(made.published)
        await asyncio.sleep(4)  # starts after 1 and 2 s; without a back-off there would be one every half second
        assert len(made.published) - begun <= 2
    assert "attribution printed: Traceback: something is wrong" in caplog.text
    # Once at full volume.
    assert [r.levelname for r in caplog.records if r.message == "source of attribution is down"].count("WARNING") == 1


@in_loop
async def test_agent_that_prints_without_end_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "flood")
    async with host(module=UNRULY) as made:
        await made.reason("it has not answered")
    assert sum("attribution printed" in record.message for record in caplog.records) <= 40


@in_loop
async def test_module_that_is_missing_is_said() -> None:
    async with host(module="exporter.attribution.nothing") as made:
        await made.reason("it ended with 1")


@in_loop
async def test_question_larger_than_a_pipe(tmp_path: Path) -> None:
    proc = write_host(tmp_path)
    write_process(proc, 77, "0::/system.slice/ollama.service\n")
    config = AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))
    async with host(config) as made:
        made.world = world(*(ProcessSample(pid=pid, started=5000) for pid in range(77, 15_000)))
        await made.until(lambda: bool(made.published and made.published[-1].owners))
        (owner,) = made.published[-1].owners
        assert owner.workload is not None
        assert owner.workload.key == "service/ollama.service"
        assert made.published[-1].unplaced_processes == 0


@in_loop
async def test_agent_that_was_stopped_is_replaced(tmp_path: Path) -> None:
    proc = write_host(tmp_path)
    async with host(AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))) as made:
        await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
        pid = made.attributor.agent_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await made.reason("it has not answered")
        await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))


@in_loop
async def test_agents_that_cannot_be_killed_are_given_up_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "exporter")
    proc = write_host(tmp_path)
    with freezer() as cold:
        async with host(AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))) as made:
            frozen: list[int] = []
            for count in (1, 2):
                await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
                pid = made.attributor.agent_pid
                assert pid is not None
                cold.freeze(pid)
                frozen.append(pid)
                await made.reason("it has not answered")
                await made.until(lambda count=count: made.abandoned == count)
            await made.reason("2 that were started cannot be killed")
            await asyncio.sleep(2.5)
            assert made.attributor.agent_pid is None
            cold.thaw()
            await made.until(lambda: made.abandoned == 0)
            assert not any(map(is_alive, frozen)), "they are reaped"
            await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
    counted = [
        vars(each)["count"] for each in caplog.records if "cannot be killed" in each.message and "count" in vars(each)
    ]
    assert counted[:2] == [1, 2]
    assert counted[-1] == 0


@in_loop
async def test_close_leaves_behind_agents_that_cannot_be_killed(tmp_path: Path) -> None:
    proc = write_host(tmp_path)
    with freezer() as cold:
        async with host(AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))) as made:
            await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
            pid = made.attributor.agent_pid
            assert pid is not None
            cold.freeze(pid)
            await made.until(lambda: made.abandoned == 1)
        assert is_alive(pid)
        cold.thaw()
        assert reaped(pid) == signal.SIGKILL


@in_loop
async def test_agent_is_started_with_the_first_gpu_and_stays(tmp_path: Path) -> None:
    proc = write_host(tmp_path)
    async with host(AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))) as made:
        made.world = EMPTY
        await asyncio.sleep(1.2)
        assert made.attributor.agent_pid is None
        made.world = world()
        await made.until(lambda: made.attributor.agent_pid is not None)
        pid = made.attributor.agent_pid
        made.world = EMPTY
        await asyncio.sleep(1.2)
        assert made.attributor.agent_pid == pid


@in_loop
async def test_it_is_not_started_where_it_is_off() -> None:
    async with host(AttributionConfig(enabled=False)) as made:
        await asyncio.sleep(1.2)
        assert made.attributor.agent_pid is None
        assert made.published == []
