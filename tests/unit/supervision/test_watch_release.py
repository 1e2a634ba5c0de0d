"""The devices are let go of on request, whatever the children are at, and taken up again."""

from collections.abc import Callable

import pytest

from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Ask, Kill, Spawn
from exporter.supervision.watch import MAX_CHILDREN, RELEASED
from tests.unit.supervision.stage import TICK, Stage


def test_release_ends_all_children_and_take_up_starts_again() -> None:
    stage = Stage()
    stage.run(5)
    actions = stage.act(stage.watch.release(stage.now))
    assert Ask(1, frames.Shutdown()) in actions
    stage.end(1, 0)
    stage.run(100)
    assert len(stage.spawns) == 1
    assert stage.causes() == ["reload"]
    stage.act(stage.watch.take_up(stage.now))
    stage.run(1)
    assert stage.status().up


def test_a_child_that_does_not_follow_a_release_is_killed() -> None:
    stage = Stage()
    stage.run(5)
    stage.act(stage.watch.release(stage.now))
    stage.busy.clear()
    assert stage.run(0.75) == []
    assert stage.run(0.5) == [Kill(1)]
    assert stage.watch.children == ()


def opening(stage: Stage) -> None:
    stage.play = lambda _: None
    stage.run(1)


def reading(stage: Stage) -> None:
    stage.run(5)


def probing(stage: Stage) -> None:
    stage.run(5)
    stage.hang = {"b"}
    while len(stage.watch.children) < 2:
        stage.run(TICK)


def held_apart(stage: Stage) -> None:
    probing(stage)
    while len(stage.watch.children) > 1:
        stage.run(TICK)


def being_killed(stage: Stage) -> None:
    stage.run(5)
    stage.immortal = True
    stage.hang = {"b"}
    stage.run(2.5)
    assert stage.of(Kill)
    stage.immortal = False
    stage.hang = set()


def closing_its_library(stage: Stage) -> None:
    stage.run(5)
    stage.busy.clear()
    stage.say(1, frames.Failed("lost", "the driver was unloaded"))


def waiting_for_the_next_try(stage: Stage) -> None:
    stage.run(5)
    stage.end(1, -11)


SITUATIONS = [opening, reading, probing, held_apart, being_killed, closing_its_library, waiting_for_the_next_try]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_release_leaves_no_child_and_keeps_its_reason(situation: Callable[[Stage], None]) -> None:
    stage = Stage()
    situation(stage)
    stage.busy.clear()
    spawned = len(stage.spawns)
    for _ in range(3):
        stage.act(stage.watch.release(stage.now))
        assert stage.status().reason.startswith(RELEASED)
        stage.run(1)
    stage.run(2)
    for child in stage.watch.children:  # one that was killed while nothing could end it
        stage.end(child, -9)
    assert stage.watch.children == ()
    stage.run(300)
    assert len(stage.spawns) == spawned
    assert stage.status().reason == RELEASED
    assert stage.watch.down_seconds(stage.now) is None
    stage.hang = set()
    stage.play = lambda _: None
    for _ in range(3):
        stage.act(stage.watch.take_up(stage.now))
    assert stage.watch.down_seconds(stage.now) == 0
    stage.serve(stage.spawns[-1])
    stage.run(70)
    assert stage.status().up
    assert len([spawn for spawn in stage.spawns[spawned:] if not spawn.only]) == 1


def test_a_child_that_cannot_be_killed_while_released_is_told_since_it_may_hold_the_devices() -> None:
    stage = Stage()
    stage.run(5)
    stage.immortal = True
    stage.busy.clear()
    stage.act(stage.watch.release(stage.now))
    stage.run(4)
    assert stage.of(Abandoned)[-1] == Abandoned(1)
    assert stage.status().reason == f"{RELEASED}, but 1 of the workers cannot be killed and may hold them"
    stage.end(1, -9)
    assert stage.status().reason == RELEASED
    assert stage.of(Abandoned)[-1] == Abandoned(0)


def test_release_and_take_up_can_follow_each_other_at_any_pace_without_more_children_than_the_bound() -> None:
    stage = Stage()
    stage.immortal = True
    for _ in range(30):
        stage.act(stage.watch.take_up(stage.now))
        stage.run(TICK)
        stage.act(stage.watch.release(stage.now))
        stage.run(TICK)
        stage.busy.clear()
        assert len(stage.watch.children) <= MAX_CHILDREN
    stage.run(4)
    assert stage.watch.abandoned == len(stage.watch.children)
    stage.act(stage.watch.take_up(stage.now))
    for child in stage.watch.children:
        stage.end(child, -9)
    stage.run(2)
    assert stage.status().up


def test_whoever_takes_the_devices_up_need_not_wait_for_the_back_off_of_the_old_driver() -> None:
    stage = Stage()

    def crash(spawn: Spawn) -> None:
        stage.end(spawn.child, -11)

    stage.play = crash
    stage.run(300)
    assert "unusable" in stage.status().reason
    stage.act(stage.watch.release(stage.now))
    stage.play = stage.serve
    stage.act(stage.watch.take_up(stage.now))
    assert stage.status().up


def test_a_release_says_nothing_against_a_device_that_was_being_tried() -> None:
    stage = Stage()
    probing(stage)
    probe = stage.spawns[-1]
    assert probe.only == "b"
    stage.act(stage.watch.release(stage.now))
    assert Ask(probe.child, frames.Shutdown()) in stage.log
    for child in stage.watch.children:
        stage.end(child, 0)
    stage.hang = set()
    stage.act(stage.watch.take_up(stage.now))
    stage.run(1)
    # It is still held apart, and tried at once.
    assert stage.spawns[-2].exclude == ("b",)
    assert stage.spawns[-1].only == "b"


def test_time_down_counts_from_the_first_failure_after_the_last_good_minute() -> None:
    stage = Stage()
    assert stage.watch.down_seconds(stage.now) == 0
    stage.run(70)
    assert stage.watch.down_seconds(stage.now) is None
    for _ in range(10):
        stage.play = lambda _: None
        stage.end(stage.spawns[-1].child, -11)
        stage.run(20)
        while not stage.watch.ready:
            if stage.watch.worker is not None:
                stage.serve(stage.spawns[-1])
            stage.run(TICK)
        stage.run(5)
        assert stage.watch.down_seconds(stage.now) is None, "it is up at the moment"
    stage.end(stage.spawns[-1].child, -11)
    down = stage.watch.down_seconds(stage.now)
    assert down is not None
    assert down > 200
    stage.now += 3600
    later = stage.watch.down_seconds(stage.now)
    assert later is not None
    assert later <= down + 1, "a stall is no failure"


def test_a_device_held_apart_is_tried_at_once_after_a_release_which_may_have_been_its_cure() -> None:
    stage = Stage()
    held_apart(stage)
    stage.run(200)  # by now it is tried once a minute
    stage.act(stage.watch.release(stage.now))
    for child in stage.watch.children:
        stage.end(child, 0)
    stage.hang.clear()
    stage.act(stage.watch.take_up(stage.now))
    began = len(stage.spawns) - 1
    stage.run(2)
    assert [spawn.only for spawn in stage.spawns[began:]] == [None, "b"]
    assert Ask(stage.spawns[began].child, frames.Exclude(())) in stage.log
