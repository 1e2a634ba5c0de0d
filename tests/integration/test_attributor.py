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

from exporter.attribution.source import NOT_YET
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
from exporter.supervision.need import TERMS, Terms
from tests.integration.freezer import freezer
from tests.integration.hasty import HASTY
from tests.integration.supervised import in_loop, is_alive
from tests.unit.attribution.hosts import write_host, write_process

BRISK = TERMS._replace(tick_seconds=0.1)
STAYS = BRISK._replace(quiet_seconds=60.0)
PATIENT = 20.0
"""Seconds: on a busy machine the start of an agent may take one."""


def world(*processes: ProcessSample) -> World:
    device = Device(vendor="nvidia", key="GPU-1")
    sample = Sample(device=device, processes=processes)
    shown = DeviceSnapshot(gpu="nvidia0", provider="nvidia", device=device, state=GpuState.OK, sample=sample)
    return World(
        snapshots=(Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=(shown,)),), versions={}
    )


EMPTY = World(snapshots=(Snapshot(provider="nvidia", up=False, wanted=True, reason="no driver"),), versions={})


class Host:
    def __init__(self, config: AttributionConfig, module: str, terms: Terms, deadline: float) -> None:
        self.world = world()
        self.published: list[Attribution] = []
        self.published_at = 0.0
        self.abandoned = 0
        self.attributor = Attributor(
            lambda: self.world,
            self.publish,
            config,
            terms.tick_seconds,
            self.count,
            terms=terms,
            module=module,
            deadline=deadline,
            most_abandoned=2,
            random=Random(1),
        )

    def publish(self, attribution: Attribution) -> None:
        self.published.append(attribution)
        self.published_at = time.monotonic()

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
    config: AttributionConfig | None = None,
    module: str = "exporter.attribution.agent",
    terms: Terms = BRISK,
    deadline: float = 1.0,
) -> AsyncIterator[Host]:
    made = Host(config or AttributionConfig(kubelet_socket=None, pod_logs=None), module, terms, deadline)
    run = asyncio.create_task(made.attributor.run())
    try:
        yield made
        assert run.done() == (config is not None and not config.enabled)
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


OLLAMA = "0::/system.slice/ollama.service\n"


def owners(made: Host) -> dict[int, str]:
    """Return the workload of each process by its pid, as it was told last."""
    found = made.published[-1].owners if made.published else ()
    return {owner.pid: "" if owner.workload is None else owner.workload.key for owner in found}


@in_loop
async def test_agent_without_anything_to_do_leaves_and_what_it_said_stands(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "exporter")
    proc = write_host(tmp_path)
    for pid in (77, 78):
        write_process(proc, pid, OLLAMA)
    config = AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc))
    async with host(config, terms=HASTY._replace(kept_seconds=0.5), deadline=PATIENT) as made:
        made.world = world(ProcessSample(pid=77, started=5000))
        await made.until(lambda: owners(made) == {77: "service/ollama.service"})
        first, said = made.attributor.agent_pid, len(made.published)
        await made.until(lambda: made.attributor.agent_pid is None)
        assert first is not None
        assert not is_alive(first)

        # Another process calls it back, and one that is gone is forgotten.
        await asyncio.sleep(1)
        assert len(made.published) == said
        made.world = world(ProcessSample(pid=78, started=5000))
        await made.until(lambda: owners(made) == {78: "service/ollama.service"})
        await made.until(lambda: made.attributor.agent_pid is None)

        # Nobody asks anything else: it looks again by itself, and stays where it finds something else.
        write_process(proc, 78, "0::/system.slice/sshd.service\n")
        await made.until(lambda: owners(made) == {78: "service/sshd.service"})
        await made.until(lambda: made.attributor.agent_pid is None)
        assert time.monotonic() - made.published_at > HASTY.quiet_seconds
        assert all(status.up for each in made.published for status in each.sources)
        assert all(each.owners for each in made.published[said - 1 :])
    assert caplog.records == []


@in_loop
async def test_agent_stays_where_a_source_changes_by_itself(tmp_path: Path) -> None:
    proc, jobs = write_host(tmp_path), tmp_path / "jobs"
    jobs.mkdir()
    config = AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc), job_files=str(jobs))
    async with host(config, terms=HASTY, deadline=PATIENT) as made:
        await made.until(lambda: len(made.sources) == 2)
        pid = made.attributor.agent_pid
        await asyncio.sleep(1.5)
        (jobs / "0").write_text("4711\n")
        await made.until(lambda: made.published[-1].unplaced_devices == 1)
        assert made.attributor.agent_pid == pid is not None


@pytest.mark.parametrize(
    "terms",
    [STAYS._replace(age_seconds=0.5), STAYS._replace(measure_seconds=0.5, memory_bytes=1)],
    ids=["age", "memory"],
)
@in_loop
async def test_agent_that_is_old_or_large_is_replaced_and_nobody_sees_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, terms: Terms
) -> None:
    caplog.set_level(logging.INFO, "exporter")
    proc, jobs = write_host(tmp_path), tmp_path / "jobs"
    write_process(proc, 77, OLLAMA)
    jobs.mkdir()
    config = AttributionConfig(kubelet_socket=None, pod_logs=None, proc=str(proc), job_files=str(jobs))
    async with host(config, terms=terms, deadline=PATIENT) as made:
        made.world = world(ProcessSample(pid=77, started=5000))
        await made.until(lambda: bool(owners(made)) and len(made.sources) == 2)
        first, said = made.attributor.agent_pid, len(made.published)
        await made.until(lambda: made.attributor.agent_pid not in (None, first))
        second = made.attributor.agent_pid
        await made.until(lambda: made.attributor.agent_pid not in (None, second))
        assert made.published[said:] == [], "each told the same as the one before"
    assert {record.message for record in caplog.records} == {"the process that asks is replaced"}


@in_loop
async def test_what_was_said_stands_for_a_while_when_the_agent_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", f"answer, then exit:{tmp_path}/trace")
    async with host(module=UNRULY, terms=HASTY._replace(kept_seconds=1.0), deadline=PATIENT) as made:
        await made.until(lambda: made.sources == (SourceStatus(source="proc", up=True),))
        await made.until(lambda: made.attributor.agent_pid is None)
        await made.reason("it ended with 3")
        assert owners(made) == {77: ""}
        await made.until(lambda: owners(made) == {})


@in_loop
async def test_agent_that_takes_the_place_of_another_is_heard_when_it_knows_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", "late")
    async with host(module=UNRULY, terms=STAYS._replace(age_seconds=0.5), deadline=PATIENT) as made:
        await made.until(lambda: owners(made) == {77: ""})
        said = len(made.published)
        for _ in range(2):
            pid = made.attributor.agent_pid
            await made.until(lambda pid=pid: made.attributor.agent_pid not in (None, pid))
        assert [len(each.owners) for each in made.published] == [0, 1]
        assert said == 2


@in_loop
async def test_source_that_does_not_answer_any_more_is_said_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_EXPORTER_UNRULY", f"answer, then silent:{tmp_path}/trace")
    async with host(module=UNRULY, terms=STAYS._replace(age_seconds=2.0)) as made:
        await made.until(lambda: owners(made) == {77: ""})
        await made.reason(NOT_YET)
        assert owners(made) == {}
