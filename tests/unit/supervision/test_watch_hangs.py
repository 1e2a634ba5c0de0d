"""Reads and workers that do not come back: who is blamed, and how it goes on."""

from exporter.model import Device, GpuState, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Ask, Kill, Restarted, Spawn, State, Status
from tests.unit.supervision.stage import TICK, Stage


def test_a_read_that_never_returns_costs_the_device_a_strike_and_the_worker_its_life() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    actions = stage.run(2.5)
    assert [type(action) for action in actions][:2] == [Kill, Restarted]
    assert stage.states() == {"b": GpuState.HUNG}
    assert stage.causes() == ["hang"]
    assert not stage.status().up
    assert "device b did not answer within 2 s" in stage.status().reason
    stage.hang = set()
    stage.run(3)
    assert stage.states() == {"b": GpuState.OK}
    assert stage.status().up
    assert stage.spawns[-1].exclude == ()


def test_a_device_is_found_by_as_much_of_its_key_as_there_is_room_to_tell() -> None:
    long = "k" * 600
    stage = Stage((long, long[:400], "c"))
    stage.run(5)
    stage.hang = {long}
    stage.run(15)
    assert stage.states() == {long: GpuState.HUNG}
    assert any(spawn.exclude == (long,) for spawn in stage.spawns)
    assert stage.watch.ready, "the others go on"


def test_while_one_device_hangs_the_others_do_not_wait_for_a_growing_back_off() -> None:
    stage = Stage()
    stage.run(1)
    for child in (1, 2, 3):
        stage.end(child, -11)
        stage.run(10)
    stage.hang = {"b"}
    begin = stage.now
    while not (stage.spawns[-1].exclude and stage.watch.ready):
        stage.run(TICK)
    assert stage.now - begin < 8.0


def test_a_second_miss_holds_the_device_apart_and_the_others_go_on() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(12)
    assert stage.causes() == ["hang", "hang"]
    workers = [spawn for spawn in stage.spawns if spawn.only is None]
    assert [spawn.exclude for spawn in workers] == [(), (), ("b",)]
    # The one in question must not hang again before the others have been read.
    assert [spawn.last for spawn in workers] == [(), ("b",), ("b",)]
    assert stage.states() == {"b": GpuState.HUNG}
    assert stage.status().up


def test_a_device_held_apart_is_tried_in_a_probe_of_its_own_and_taken_back() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(120)
    probes = [spawn for spawn in stage.spawns if spawn.only]
    assert {probe.only for probe in probes} == {"b"}
    # 5, 10, 20, 40 and then 60 s between them, and the time that each takes.
    assert 3 <= len(probes) <= 5
    assert stage.status().up
    assert stage.causes() == ["hang", "hang"]
    stage.hang = set()
    actions = stage.run(70)
    worker = [spawn for spawn in stage.spawns if spawn.only is None][-1]
    assert Ask(worker.child, frames.Exclude(())) in actions
    assert stage.states() == {"b": GpuState.HUNG}
    stage.busy[worker.child] = (Spawn(child=worker.child), False)
    stage.run(1)
    assert stage.states() == {"b": GpuState.OK}


def test_a_device_taken_back_is_held_again_at_its_first_miss() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(12)
    stage.hang = set()
    stage.run(60)
    worker = [spawn for spawn in stage.spawns if spawn.only is None][-1]
    stage.busy[worker.child] = (Spawn(child=worker.child), False)
    stage.run(5)
    stage.hang = {"b"}
    stage.run(5)
    assert [spawn.exclude for spawn in stage.spawns if spawn.only is None][-1] == ("b",)
    assert stage.causes() == ["hang"] * 3


def test_when_every_device_hangs_it_is_an_outage_and_no_chain() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(11)
    stage.hang = {"a", "b", "c"}
    stage.run(8)
    assert stage.states() == dict.fromkeys("abc", GpuState.HUNG)
    assert stage.of(Status)[-2:] == [
        Status(False, "one device after the other does not answer", None),
        Status(True, "", "1.0", news=False),
    ]
    stage.run(120)
    assert all(spawn.exclude in {(), ("b",)} for spawn in stage.spawns)
    assert [spawn for spawn in stage.spawns if spawn.only is None][-1].exclude == ()
    told = [action for action in stage.log if isinstance(action, State) and action.news]
    assert len(told) <= 8, "what comes and goes is told a few times only"
    stage.hang = set()
    stage.run(40)
    assert stage.states() == dict.fromkeys("abc", GpuState.OK)
    assert stage.status().up


def test_several_devices_that_hang_are_held_apart_as_long_as_all_others_answer() -> None:
    stage = Stage(tuple("abcdefgh"))
    stage.run(5)
    stage.hang = {"a", "c", "f"}
    stage.run(40)
    assert stage.status().up
    assert [spawn for spawn in stage.spawns if spawn.only is None][-1].exclude == ("a", "c", "f")
    assert {key for key, state in stage.states().items() if state is GpuState.HUNG} == {"a", "c", "f"}
    assert len(stage.causes()) <= 7
    stage.run(300)
    assert len(stage.causes()) <= 7, "and there is peace"


def test_a_lost_device_is_no_sign_of_an_outage_as_its_reads_return() -> None:
    stage = Stage(tuple("abcd"))
    stage.run(5)
    stage.lost = {"d"}
    stage.hang = {"a", "b"}
    stage.run(40)
    assert [spawn for spawn in stage.spawns if spawn.only is None][-1].exclude == ("a", "b")
    assert stage.status().up


def test_when_an_outage_is_over_for_all_but_the_first_device_the_others_go_on() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"a", "b", "c"}
    stage.run(60)
    stage.hang = {"a"}
    stage.run(90)
    assert stage.status().up
    assert {key for key, state in stage.states().items() if state is GpuState.HUNG} == {"a"}


def test_devices_that_miss_once_each_while_the_others_answer_are_no_outage() -> None:
    stage = Stage(("a", "b", "c", "d"))
    for key in ("a", "b", "c"):
        stage.run(8)
        stage.hang = {key}
        stage.run(2.5)
        stage.hang = set()
    assert "d" not in stage.states()
    stage.run(10)
    assert set(stage.states().values()) == {GpuState.OK}


def test_a_strike_is_forgiven_after_a_minute_of_good_reads() -> None:
    stage = Stage()
    for _ in range(3):
        stage.run(70)
        stage.hang = {"b"}
        stage.run(2.5)
        stage.hang = set()
    stage.run(5)
    assert stage.causes() == ["hang"] * 3
    assert all(spawn.exclude == () for spawn in stage.spawns)


def test_a_stopped_worker_is_replaced_and_blames_no_device() -> None:
    stage = Stage()
    stage.run(5)
    worker = stage.watch.worker
    assert worker is not None
    stage.begin(worker, "a")
    stage.stopped = {worker}
    stage.run(10)
    assert stage.states() == {}
    assert stage.causes() == ["hang"]
    assert stage.status().up


def test_a_worker_stopped_between_passes_is_noticed() -> None:
    stage = Stage()
    stage.run(5)
    assert stage.watch.worker == 1
    stage.stopped = {1}
    stage.run(8)
    assert stage.causes() == ["hang"]
    assert stage.watch.worker == 2
    assert stage.states() == {}


def test_a_stall_of_the_parent_blames_nobody() -> None:
    stage = Stage()
    stage.run(5)
    stage.begin(1, "a")
    stage.now += 3600
    assert stage.watch.overdue(stage.now) == ()
    assert stage.act(stage.watch.tick(stage.now)) == []
    stage.sampled(1, Sample(device=Device(vendor="test", key="a")))
    stage.run(5)
    assert stage.causes() == []


def test_a_read_interrupted_by_a_request_keeps_its_own_deadline() -> None:
    stage = Stage()
    stage.run(1)
    stage.busy.clear()
    stage.begin(1, "a")
    stage.run(1)
    stage.begin(1, "b")
    stage.run(1.5)
    stage.sampled(1, Sample(device=Device(vendor="test", key="b")))
    stage.say(1, frames.FreshDone(1))
    assert stage.run(0.75) == []
    assert Kill(1) in stage.run(0.5)
    assert stage.states() == {"a": GpuState.HUNG}


def test_a_read_interrupted_by_reads_of_which_no_end_was_seen_keeps_its_own_deadline() -> None:
    stage = Stage()
    stage.run(1)
    stage.busy.clear()
    stage.begin(1, "a")
    stage.run(1)
    for key in ("b", "c", "b", "c"):
        stage.begin(1, key)
        stage.run(1.5)
        stage.reads[1] = stage.reads[1][:-1]  # the next one begins before anybody looks
    stage.look(1)
    assert stage.run(0.75) == []
    assert Kill(1) in stage.run(0.5)
    assert stage.states() == {"a": GpuState.HUNG}


def test_an_enumeration_that_hangs_puts_every_device_in_question_and_counts_no_strike() -> None:
    stage = Stage()
    stage.run(5)
    stage.busy.clear()
    stage.say(1, frames.Enumerating())
    assert Kill(1) not in stage.run(19.5)
    assert Kill(1) in stage.run(1)
    assert stage.states() == dict.fromkeys("abc", GpuState.HUNG)
    stage.run(3)
    assert stage.states() == dict.fromkeys("abc", GpuState.OK)
    assert stage.spawns[-1] == Spawn(child=2, known=("a", "b", "c"))


def test_no_probe_is_sent_after_a_child_that_is_stuck_on_the_device() -> None:
    stage = Stage()
    stage.run(2)
    stage.hang = {"b"}
    stage.immortal = True
    stage.run(300)
    assert [spawn.only for spawn in stage.spawns if spawn.only] == []
    assert stage.watch.abandoned == 2
    assert stage.status().up


def test_a_device_that_is_gone_from_the_bus_is_not_in_question_any_more() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(12)
    worker = stage.watch.worker
    assert worker is not None
    stage.say(worker, frames.Enumerating(), frames.Enumerated((Device(vendor="test", key="a"),)))
    assert stage.states() == {"b": GpuState.OK}
