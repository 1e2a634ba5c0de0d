"""Children that start, end, break, or cannot be killed."""

import signal

import pytest

from exporter.model import Device, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Kill, Spawn, Status
from exporter.supervision.watch import MAX_CHILDREN
from tests.unit.supervision.stage import TICK, Stage


def test_a_worker_is_started_at_once_and_is_up_when_it_has_enumerated() -> None:
    stage = Stage()
    stage.run(5)
    assert stage.spawns == [Spawn(child=1)]
    assert stage.status() == Status(True, "", "1.0")
    assert stage.causes() == []


def test_a_library_that_hangs_while_it_is_opened_is_tried_again_with_back_off() -> None:
    stage = Stage()
    stage.play = lambda _: None
    stage.run(200)
    assert 5 <= len(stage.spawns) <= 9
    assert set(stage.causes()) == {"hang"}
    assert [action.reason for action in stage.of(Status)] == ["the worker hangs while opening the library"]
    stage.play = stage.serve
    stage.run(60)
    assert stage.status().up


def test_a_missing_library_is_asked_for_less_and_less_often_and_told_once() -> None:
    stage = Stage()

    def unavailable(spawn: Spawn) -> None:
        stage.say(spawn.child, frames.Failed("unavailable", "libnvidia-ml.so.1 is not installed"))
        stage.end(spawn.child, 69)

    stage.play = unavailable
    stage.run(600)
    assert 10 <= len(stage.spawns) <= 16
    assert stage.of(Status) == [Status(False, "libnvidia-ml.so.1 is not installed", None)]
    assert stage.causes() == []
    stage.play = stage.serve
    stage.run(70)
    assert stage.status() == Status(True, "", "1.0")


def test_reasons_that_alternate_are_told_once_each() -> None:
    """A driver that fails is at times too slow to say so, on a machine with much to do."""
    stage = Stage()

    def fails(spawn: Spawn) -> None:
        reason = "unknown error" if spawn.child % 2 else "no answer in time"
        stage.say(spawn.child, frames.Failed("unavailable", reason))
        stage.end(spawn.child, 69)

    def told() -> list[str]:
        return [action.reason for action in stage.log if isinstance(action, Status) and action.news]

    stage.play = fails
    stage.run(600)
    assert told() == ["unknown error", "no answer in time"]
    assert len([action for action in stage.log if isinstance(action, Status)]) > 5
    stage.play = stage.serve
    stage.run(70)
    stage.play = fails
    stage.end(stage.spawns[-1].child, 69)
    stage.run(100)
    assert {"unknown error", "no answer in time"} <= set(told()[3:])


def test_a_library_that_finds_no_device_is_down_with_that_reason_and_told_once() -> None:
    stage = Stage(devices=())
    stage.run(200)
    assert stage.spawns == [Spawn(child=1)]
    assert stage.of(Status) == [Status(False, "no device was found", "1.0")]
    stage.say(1, frames.Enumerated((Device(vendor="test", key="a"),)))
    assert stage.status() == Status(True, "", "1.0")
    stage.say(1, frames.Enumerated(()))
    assert stage.status() == Status(False, "no device was found", "1.0")


def test_a_lost_library_is_reopened() -> None:
    stage = Stage()
    stage.run(5)
    stage.say(1, frames.Failed("lost", "the driver was unloaded"))
    stage.end(1, 69)
    assert stage.causes() == ["lost"]
    assert stage.status().reason == "the driver was unloaded"
    stage.run(2)
    assert stage.status().up


def test_a_crash_is_counted_and_told_with_its_signal() -> None:
    stage = Stage()
    stage.run(5)
    stage.end(1, -11)
    assert stage.causes() == ["crash"]
    assert stage.status().reason == "the worker was ended by SIGSEGV"
    stage.run(2)
    assert stage.watch.worker == 2


def test_a_worker_is_told_of_devices_that_were_there_before_it() -> None:
    stage = Stage()
    stage.run(1)
    stage.devices = ("a", "d")
    for _ in range(2):
        stage.end(stage.spawns[-1].child, -11)
        stage.run(5)
    assert [spawn.known for spawn in stage.spawns] == [(), ("a", "b", "c"), ("b", "c", "a", "d")]


def test_an_exit_that_nobody_asked_for_is_a_crash() -> None:
    stage = Stage()
    stage.run(5)
    stage.end(1, 0)
    assert stage.causes() == ["crash"]


def test_a_library_that_crashes_again_and_again_is_called_unusable_and_tried_less_often() -> None:
    stage = Stage()

    def crash(spawn: Spawn) -> None:
        stage.serve(spawn)
        stage.end(spawn.child, -11)

    stage.play = crash
    stage.run(300)
    assert "unusable" in stage.status().reason
    assert len(stage.spawns) <= 16
    assert set(stage.causes()) == {"crash"}
    told = [action for action in stage.of(Status) if isinstance(action, Status) and action.news]
    assert len(told) <= 6
    stage.play = stage.serve
    stage.run(120)
    assert stage.log[-1] == Status(True, "", "1.0")


def test_after_a_minute_of_health_the_back_off_starts_over() -> None:
    stage = Stage()
    for _ in range(6):
        stage.run(75)
        begin = stage.now
        spawned = len(stage.spawns)
        stage.end(stage.spawns[-1].child, -11)
        while len(stage.spawns) == spawned:
            stage.run(TICK)
        assert stage.now - begin <= 1.5


def test_children_that_cannot_be_killed_are_given_up_and_bounded() -> None:
    stage = Stage()
    stage.immortal = True
    stage.hang = {"a", "b", "c"}
    stage.run(600)
    assert stage.watch.abandoned == len(stage.watch.children) == len(stage.spawns) == MAX_CHILDREN
    assert stage.causes() == ["hang"] * MAX_CHILDREN


def test_when_an_abandoned_child_ends_the_work_goes_on() -> None:
    stage = Stage()
    stage.immortal = True
    stage.play = lambda _: None
    stage.run(600)
    assert len(stage.spawns) == MAX_CHILDREN
    assert stage.of(Abandoned)[-1] == Abandoned(MAX_CHILDREN)
    assert "cannot be killed" in stage.status().reason
    stage.immortal = False
    stage.play = stage.serve
    stage.end(2, -9)
    assert stage.of(Abandoned)[-1] == Abandoned(MAX_CHILDREN - 1)
    stage.run(1)
    assert stage.status().up


def test_a_child_that_is_not_understood_is_killed_as_a_crash() -> None:
    stage = Stage()
    stage.run(2)
    actions = stage.act(stage.watch.broken(1, "Expected `float`, got `str`", stage.now))
    assert actions == [Kill(1)]
    assert stage.causes() == ["crash"]
    assert "Expected `float`, got `str`" in stage.status().reason


def test_a_child_that_closes_its_pipe_is_given_time_to_end_and_told_by_how_it_did() -> None:
    stage = Stage()
    stage.run(2)
    assert stage.act(stage.watch.closed(1, stage.now)) == []
    stage.end(1, -11)
    assert stage.status().reason == "the worker was ended by SIGSEGV"


def test_a_child_that_closes_its_pipe_and_lives_on_is_killed() -> None:
    stage = Stage()
    stage.run(2)
    stage.busy.clear()
    stage.act(stage.watch.closed(1, stage.now))
    assert Kill(1) in stage.run(1.25)
    assert stage.status().reason == "the worker is not understood: it closed its pipe"
    assert stage.causes() == ["crash"]


def test_a_refused_start_is_tried_again() -> None:
    stage = Stage()

    def refuse(spawn: Spawn) -> None:
        stage.act(stage.watch.not_started(spawn.child, "EAGAIN", stage.now))

    stage.play = refuse
    stage.run(30)
    assert 2 <= len(stage.spawns) <= 4
    assert stage.status().reason == "no child process can be started: EAGAIN"


def test_a_library_that_is_lost_and_hangs_while_it_is_closed_is_lost_and_blames_no_device() -> None:
    stage = Stage()
    stage.run(5)
    stage.busy.clear()
    stage.say(1, frames.Failed("lost", "the driver was unloaded"))
    assert stage.watch.worker is None
    assert Kill(1) in stage.run(1.25)
    assert stage.causes() == ["lost"]
    assert stage.status().reason == "the driver was unloaded"
    assert stage.states() == {}


@pytest.mark.parametrize("status", [-9, -15])
def test_a_worker_that_somebody_kills_again_and_again_says_nothing_about_the_library(status: int) -> None:
    stage = Stage()
    for _ in range(4):
        stage.run(10)
        assert stage.watch.worker is not None
        stage.end(stage.watch.worker, status)
        assert stage.status().reason == f"the worker was ended by {signal.Signals(-status).name}"
    assert stage.causes() == ["crash"] * 4


def test_a_gpu_that_stays_off_the_bus_has_the_library_opened_less_and_less_often() -> None:
    stage = Stage(("a",))
    lost = Sample(device=Device(vendor="test", key="a"), lost=True)
    ends, since = 0, dict[int, float]()

    def serve_nothing(spawn: Spawn) -> None:
        stage.serve(spawn)
        del stage.busy[spawn.child]

    stage.play = serve_nothing
    while stage.now < 1000.0 + 3 * 3600:
        stage.run(1)
        worker = stage.watch.worker
        if worker is None or not stage.watch.ready:
            continue
        stage.begin(worker, "a")
        stage.sampled(worker, lost)
        stage.say(worker, frames.Waiting(1.0))
        since.setdefault(worker, stage.now)
        if stage.now - since[worker] >= stage.spawns[-1].patience_seconds:
            stage.say(worker, frames.Failed("lost", "every device is lost: the library is opened anew"))
            stage.end(worker, 69)
            ends += 1
    assert 15 <= ends <= 30
    assert stage.spawns[-1].patience_seconds == 600.0
    # One good reading, and the next loss is taken as seriously as the first.
    stage.run(2)
    worker = stage.watch.worker
    assert worker is not None
    stage.say(worker, frames.Sampled(Sample(device=Device(vendor="test", key="a"))))
    stage.say(worker, frames.Failed("lost", "every device is lost: the library is opened anew"))
    stage.end(worker, 69)
    stage.run(40)
    assert stage.spawns[-1].patience_seconds == 10.0
