"""Reads that end their worker, and workers that say why they end: who is blamed, and how it goes on."""

import pytest

from exporter.model import Device, GpuState
from exporter.supervision import frames
from exporter.supervision.actions import Kill, Spawn, State
from tests.unit.supervision.stage import TICK, Stage


def workers(stage: Stage) -> list[Spawn]:
    return [spawn for spawn in stage.spawns if spawn.only is None]


def test_one_crash_in_a_read_puts_no_device_in_question_and_has_it_read_last() -> None:
    stage = Stage()
    stage.run(5)
    stage.crash = {"a"}
    stage.run(TICK)
    stage.crash = set()
    stage.run(3)
    assert stage.causes() == ["crash"]
    assert stage.states() == {}
    assert workers(stage)[-1].last == ("a",)
    assert stage.status().up


@pytest.mark.parametrize("devices", [("a", "b", "c"), ("a", "b"), ("b",)])
def test_a_device_that_crashes_its_worker_twice_is_held_apart_and_the_others_go_on(devices: tuple[str, ...]) -> None:
    stage = Stage(devices)
    stage.run(5)
    stage.crash = {"b"}
    stage.run(6)
    assert stage.causes() == ["crash", "crash"]
    assert [spawn.exclude for spawn in workers(stage)] == [(), (), ("b",)]
    assert stage.states() == {"b": GpuState.HUNG}
    (told,) = [action for action in stage.log if isinstance(action, State)]
    assert told.reason.startswith("device b ended the worker that read it for the second time: the others go on")
    assert stage.status().up
    stage.run(120)
    assert stage.causes() == ["crash", "crash"]
    assert {spawn.only for spawn in stage.spawns if spawn.only} == {"b"}


def test_a_device_that_crashed_is_taken_back_once_its_probe_returns() -> None:
    stage = Stage()
    stage.run(5)
    stage.crash = {"b"}
    stage.run(30)
    stage.crash = set()
    stage.run(70)
    worker = workers(stage)[-1]
    stage.busy[worker.child] = (Spawn(child=worker.child), False)
    stage.run(1)
    assert stage.states() == {"b": GpuState.OK}
    assert stage.causes() == ["crash", "crash"]


def test_a_library_that_crashes_on_every_device_is_unusable_and_no_device_is_blamed() -> None:
    stage = Stage()
    stage.run(5)
    stage.crash = {"a", "b", "c"}
    stage.run(300)
    assert "unusable" in stage.status().reason
    assert set(stage.states().values()) <= {GpuState.OK}
    assert len(stage.spawns) <= 20
    stage.crash = set()
    stage.run(120)
    assert stage.status().up
    assert workers(stage)[-1].exclude == ()


def test_two_devices_that_both_crash_leave_none_in_question() -> None:
    stage = Stage(("a", "b"))
    stage.run(5)
    stage.crash = {"a", "b"}
    stage.run(60)
    assert "unusable" in stage.status().reason
    assert set(stage.states().values()) <= {GpuState.OK}


def test_an_exception_in_a_read_counts_as_a_crash_there() -> None:
    stage = Stage()
    for _ in range(2):
        stage.run(5)
        worker = stage.watch.worker
        assert worker is not None
        stage.begin(worker, "b")
        stage.say(worker, frames.Failed("crash", "IndexError: 3"))
        stage.end(worker, 69)
    stage.run(2)
    assert workers(stage)[-1].exclude == ("b",)
    assert stage.states() == {"b": GpuState.HUNG}


@pytest.mark.parametrize("status", [-9, -15])
def test_a_worker_that_was_killed_by_somebody_in_a_read_accuses_no_device(status: int) -> None:
    stage = Stage()
    for _ in range(4):
        stage.run(5)
        worker = stage.watch.worker
        assert worker is not None
        stage.begin(worker, "b")
        stage.end(worker, status)
    stage.run(5)
    assert (workers(stage)[-1].exclude, workers(stage)[-1].last) == ((), ())
    assert stage.states() == {}


def test_a_worker_that_is_not_understood_accuses_no_device() -> None:
    stage = Stage()
    for _ in range(2):
        stage.run(5)
        worker = stage.watch.worker
        assert worker is not None
        stage.begin(worker, "b")
        stage.act(stage.watch.broken(worker, "garbage", stage.now))
    stage.run(5)
    assert workers(stage)[-1].last == ()


def test_a_crash_between_reads_accuses_no_device() -> None:
    stage = Stage()
    for _ in range(2):
        stage.run(5)
        stage.end(workers(stage)[-1].child, -11)
    stage.run(5)
    assert workers(stage)[-1].last == ()


def test_a_hang_and_a_crash_of_one_device_are_two_strikes() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(3)
    stage.hang, stage.crash = set(), {"b"}
    stage.run(5)
    assert stage.causes() == ["hang", "crash"]
    assert workers(stage)[-1].exclude == ("b",)


def test_who_has_said_why_it_ends_has_time_to_close_and_hides_no_reason() -> None:
    stage = Stage()
    stage.run(5)
    stage.busy.clear()
    stage.begin(1, "b")
    stage.say(1, frames.Failed("lost", "the driver is not loaded"))
    stage.play = lambda _: None
    stage.immortal = True
    stage.run(0.75)
    assert stage.watch.overdue(stage.now) == ()
    assert Kill(1) in stage.run(0.5)
    stage.run(2)
    assert stage.causes() == ["lost"]
    assert stage.status().reason == "the driver is not loaded"
    assert stage.states() == {}


@pytest.mark.parametrize("cause", ["unavailable", "lost"])
def test_devices_in_question_are_so_no_more_when_the_library_says_that_it_is_of_no_use(cause: frames.Cause) -> None:
    stage = Stage()
    stage.run(5)
    stage.busy.clear()
    stage.say(1, frames.Enumerating())
    stage.play = lambda _: None
    stage.run(22)
    assert stage.states() == dict.fromkeys("abc", GpuState.HUNG)
    child = workers(stage)[-1].child
    assert child == 2
    stage.say(child, frames.Failed(cause, "the driver is not loaded"))
    stage.end(child, 69)
    assert stage.states() == dict.fromkeys("abc", GpuState.OK)
    assert stage.status().reason == "the driver is not loaded"
    assert not any(action.news for action in stage.log if isinstance(action, State) and action.state is GpuState.OK)


def test_a_device_that_is_held_apart_stays_in_question_when_the_library_is_of_no_use() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(12)
    worker = stage.watch.worker
    assert worker is not None
    stage.say(worker, frames.Failed("lost", "the driver is not loaded"))
    stage.end(worker, 69)
    assert stage.states() == {"b": GpuState.HUNG}


def test_a_device_that_is_gone_after_a_crash_is_forgotten() -> None:
    stage = Stage()
    stage.run(5)
    stage.crash = {"b"}
    stage.run(6)
    worker = stage.watch.worker
    assert worker is not None
    stage.say(worker, frames.Enumerating(), frames.Enumerated((Device(vendor="test", key="a"),)))
    assert stage.states() == {"b": GpuState.OK}
