"""A worker is replaced while it reads: who counts meanwhile, and what happens when one of the two fails."""

import itertools

import pytest

from exporter.model import Device, GpuState, Group, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kept, Kill, Restarted, Spawn, State, Status
from exporter.supervision.recycling import Usage
from exporter.supervision.watch import MAX_CHILDREN
from tests.unit.supervision.stage import DEFAULT, TICK, Stage

LARGE = Usage(2**30 + 1, 40)
HUGE = Usage(2**32, 40)
SMALL = Usage(2**26, 40)


def measured(stage: Stage, usage: Usage) -> list[Action]:
    worker = stage.watch.worker
    assert worker is not None
    return stage.act(stage.watch.measured(worker, usage, stage.now))


def opening(stage: Stage) -> int:
    """A successor that opens its library, and goes on doing so."""
    stage.run(5)
    stage.play = lambda _: None
    assert [type(action) for action in measured(stage, LARGE)] == [Spawn]
    return stage.spawns[-1].child


def test_the_worker_reads_until_its_successor_has_enumerated() -> None:
    stage = Stage()
    successor = opening(stage)
    assert stage.run(5) == []
    assert stage.watch.worker == 1
    assert stage.watch.successor == successor
    stage.serve(stage.spawns[-1])
    assert stage.watch.worker == successor
    assert stage.log[-2:] == [Restarted("recycle", "the worker holds 1024 MiB of memory"), Ask(1, frames.Shutdown())]
    stage.end(1, 0)
    stage.run(5)
    assert stage.watch.children == (successor,)
    assert stage.causes() == ["recycle"]
    assert stage.of(Status) == [Status(True, "", "1.0")], "nobody sees it on the page"
    assert stage.states() == {}


def test_a_worker_of_the_age_is_replaced() -> None:
    stage = Stage()
    stage.run(5)
    stage.now += DEFAULT.max_age_seconds or 0
    measured(stage, SMALL)
    assert "s old" in next(action.reason for action in stage.log if isinstance(action, Restarted))


def test_a_worker_that_was_replaced_and_does_not_end_is_killed_and_then_given_up() -> None:
    stage = Stage()
    opening(stage)
    stage.serve(stage.spawns[-1])
    stage.busy.pop(1)
    stage.immortal = True
    assert Kill(1) in stage.run(1.5)
    assert Abandoned(1) in stage.run(2.5)
    assert stage.causes() == ["recycle"]
    assert stage.watch.ready


@pytest.mark.parametrize("case", ["fails", "crashes", "hangs", "is not understood", "is not started"])
def test_a_successor_that_fails_costs_the_worker_nothing(case: str) -> None:
    stage = Stage()
    if case == "is not started":
        stage.run(5)
        stage.play = lambda spawn: stage.act(stage.watch.not_started(spawn.child, "EAGAIN", stage.now)) and None
        measured(stage, LARGE)
    else:
        successor = opening(stage)
        if case == "fails":
            stage.say(successor, frames.Failed("unavailable", "the library has another version than the driver"))
            stage.end(successor, 69)
        elif case == "crashes":
            stage.end(successor, -11)
        elif case == "is not understood":
            stage.act(stage.watch.broken(successor, "garbage", stage.now))
        stage.run(21)
    assert stage.watch.worker == 1
    assert stage.watch.ready
    assert stage.causes() == []
    assert stage.of(Status) == [Status(True, "", "1.0")]
    (kept,) = stage.of(Kept)
    assert isinstance(kept, Kept)
    assert (
        kept.reason
        == {
            "fails": "the library has another version than the driver",
            "crashes": "the worker was ended by SIGSEGV",
            "hangs": "it hangs while opening the library",
            "is not understood": "the worker is not understood: garbage",
            "is not started": "no child process can be started: EAGAIN",
        }[case]
    )
    spawned = len(stage.spawns)
    measured(stage, LARGE)
    assert len(stage.spawns) == spawned, "not at once again"
    stage.run(70)
    measured(stage, LARGE)
    assert len(stage.spawns) == spawned + 1


def test_a_successor_that_finds_fewer_devices_than_are_read_does_not_take_over() -> None:
    """As in a container whose permissions were withdrawn: what is open stays open, and nothing else can be opened."""
    stage = Stage()
    successor = opening(stage)
    stage.devices = ("a",)
    stage.serve(stage.spawns[-1])
    assert Ask(successor, frames.Shutdown()) in stage.log
    stage.end(successor, 0)
    assert stage.watch.worker == 1
    assert stage.of(Kept) == [Kept("it does not find all devices that the worker reads")]
    assert stage.causes() == []
    assert stage.of(Status) == [Status(True, "", "1.0")]


@pytest.mark.parametrize("gone", ["lost", "not listed any more"])
def test_a_device_that_the_worker_does_not_find_either_holds_up_no_successor(gone: str) -> None:
    stage = Stage()
    stage.run(5)
    if gone == "lost":
        stage.say(1, frames.Sampled(Sample(device=Device(vendor="test", key="c"), lost=True)))
    else:
        stage.say(1, frames.Enumerating(), frames.Enumerated(tuple(Device(vendor="test", key=key) for key in "ab")))
    stage.devices = ("a", "b")
    measured(stage, LARGE)
    assert stage.causes() == ["recycle"]
    assert stage.watch.worker == 2


def test_a_successor_takes_over_from_a_worker_that_crashes() -> None:
    stage = Stage()
    successor = opening(stage)
    stage.end(1, -11)
    stage.run(0.5)
    assert stage.watch.worker == successor
    assert not stage.watch.ready
    assert stage.status().reason == "the worker was ended by SIGSEGV"
    stage.serve(stage.spawns[-1])
    assert stage.status().up
    assert stage.causes() == ["crash"]
    assert len(stage.spawns) == 2


def test_a_successor_learns_which_devices_were_held_apart_while_it_opened_the_library() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    while stage.states().get("b") is not GpuState.HUNG or not stage.watch.ready:
        stage.run(TICK)
    stage.play = lambda _: None
    measured(stage, LARGE)
    successor = stage.watch.successor
    assert successor is not None
    stage.run(3)
    assert stage.watch.worker == successor
    assert Ask(successor, frames.Exclude(("b",))) in stage.log


def test_a_worker_that_hangs_while_its_successor_comes_is_a_hang() -> None:
    stage = Stage()
    successor = opening(stage)
    stage.immortal = True
    stage.hang = {"b"}
    stage.run(2.5)
    assert stage.watch.worker is None
    stage.hang = set()
    stage.serve(stage.spawns[-1])
    assert stage.watch.worker == successor
    assert stage.causes() == ["hang"]
    assert Ask(1, frames.Shutdown()) not in stage.log, "it was killed"


def test_beside_the_worker_there_is_one_child_at_a_time() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    while not any(spawn.only for spawn in stage.spawns):
        stage.run(TICK)
    assert measured(stage, LARGE) == [], "no successor while a probe tries a device"
    while len(stage.watch.children) > 1:
        stage.run(TICK)
    probes = len([spawn for spawn in stage.spawns if spawn.only])
    stage.play = lambda _: None
    measured(stage, LARGE)
    assert stage.watch.successor is not None
    stage.run(15)
    assert len([spawn for spawn in stage.spawns if spawn.only]) == probes, "no probe while a successor comes"


def test_no_successor_takes_the_place_that_a_worker_may_need() -> None:
    stage = Stage()
    stage.immortal = True
    stage.play = lambda _: None
    while stage.watch.abandoned < MAX_CHILDREN - 1:
        stage.run(1)
    stage.play = stage.serve
    stage.run(40)
    assert stage.watch.ready
    assert measured(stage, LARGE) == []
    # What does harm is ended all the same.
    worker = stage.watch.worker
    assert worker is not None
    assert Ask(worker, frames.Shutdown()) in measured(stage, HUGE)


def test_a_worker_at_twice_its_limit_is_ended_at_once_with_a_reason_on_the_page() -> None:
    stage = Stage()
    stage.run(5)
    actions = measured(stage, HUGE)
    assert actions == [
        Ask(1, frames.Shutdown()),
        Restarted("recycle"),
        Status(False, "the worker holds 4096 MiB of memory", None),
    ]
    stage.busy.pop(1)
    assert Kill(1) in stage.run(1.5), "also while it hangs"
    stage.run(2)
    assert stage.status().up


def test_a_library_that_outgrows_every_worker_is_started_less_and_less_often() -> None:
    stage = Stage()
    starts: list[float] = []
    while stage.now < 1000.0 + 3600.0:
        stage.run(10)
        if stage.watch.ready:
            for action in measured(stage, HUGE):
                if isinstance(action, Ask):
                    stage.end(action.child, 0)
                    starts.append(stage.now)
    assert 10 <= len(starts) <= 24
    assert max(later - earlier for earlier, later in itertools.pairwise(starts)) > 250
    assert set(stage.causes()) == {"recycle"}
    told = [action for action in stage.of(Status) if isinstance(action, Status) and action.news]
    assert len(told) < 10


def test_a_library_of_which_every_read_breaks_is_opened_anew_now_and_then() -> None:
    stage = Stage(("a",))
    broken = Sample(device=Device(vendor="test", key="a"), taken_at=dict.fromkeys(Group, 1.0), failed=("power_watts",))
    for _ in range(3600):
        stage.run(1)
        worker = stage.watch.worker
        if worker is not None and stage.watch.ready:
            stage.busy.pop(worker, None)
            stage.begin(worker, "a")
            stage.sampled(worker, broken)
            stage.say(worker, frames.Waiting(1.0))
            if stage.now % 10 == 0:
                for action in measured(stage, SMALL):
                    if isinstance(action, Ask):
                        stage.end(action.child, 0)
    assert 4 <= len(stage.causes()) <= 10
    assert set(stage.causes()) == {"recycle"}


def test_a_release_ends_the_successor_as_well() -> None:
    stage = Stage()
    successor = opening(stage)
    actions = stage.act(stage.watch.release(stage.now))
    assert {action.child for action in actions if isinstance(action, Ask)} == {1, successor}
    stage.end(1, 0)
    stage.end(successor, 0)
    assert stage.run(60) == []
    assert stage.causes() == ["reload"]
    assert stage.of(Kept) == []
    stage.play = stage.serve
    stage.act(stage.watch.take_up(stage.now))
    assert stage.status().up
    assert stage.of(State) == []
