from collections.abc import Callable
from random import Random

from exporter.config import SamplingConfig
from exporter.model import Device, GpuState, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kill, Restarted, Spawn, State, Status
from exporter.supervision.watch import MAX_CHILDREN, Watch

START = 1000.0
TICK = 0.25


class Stage:
    """A watch whose children are played by the test, on a clock that only the test moves."""

    def __init__(self, devices: tuple[str, ...] = ("a", "b", "c")) -> None:
        self.now = START
        self.watch = Watch(SamplingConfig(), Random(7), START)
        self.devices = devices
        self.log: list[Action] = []
        self.immortal = False
        self.play: Callable[[Spawn], None] = self.serve
        """What a child does when it is started."""
        self.hang: set[str] = set()
        self.stopped: set[int] = set()
        self.spawns: list[Spawn] = []
        self.busy: dict[int, tuple[Spawn, bool]] = {}

    def act(self, actions: list[Action]) -> list[Action]:
        self.log += actions
        for action in actions:
            if isinstance(action, Spawn):
                self.spawns.append(action)
                self.play(action)
            elif isinstance(action, Kill) and not self.immortal:
                self.end(action.child, -9)
        return actions

    def say(self, child: int, *reports: frames.Report) -> None:
        for report in reports:
            self.act(self.watch.heard(child, report, self.now))

    def end(self, child: int, status: int) -> None:
        self.busy.pop(child, None)
        self.act(self.watch.ended(child, status, self.now))

    def serve(self, spawn: Spawn) -> None:
        """Open, enumerate, and read at every tick until a device hangs."""
        devices = tuple(Device(vendor="test", key=key) for key in self.devices)
        self.say(spawn.child, frames.Opened("1.0"), frames.Enumerating(), frames.Enumerated(devices))
        self.busy[spawn.child] = (spawn, False)

    def work(self) -> None:
        for child, (spawn, is_stuck) in list(self.busy.items()):
            if is_stuck or child in self.stopped:
                continue
            keys = [spawn.only] if spawn.only else [key for key in self.devices if key not in spawn.exclude]
            for key in keys:
                self.say(child, frames.Reading(key))
                if key in self.hang:
                    self.busy[child] = (spawn, True)
                    break
                self.say(child, frames.Sampled(Sample(device=Device(vendor="test", key=key))))
            else:
                if spawn.only:
                    self.end(child, 0)
                else:
                    self.say(child, frames.Waiting(TICK))

    def run(self, seconds: float) -> list[Action]:
        """Let time pass; return what was asked for meanwhile."""
        begin = len(self.log)
        until = self.now + seconds
        while self.now < until:
            self.now += TICK
            self.work()
            self.act(self.watch.tick(self.now, self.stopped))
        return self.log[begin:]

    def of(self, kind: type[Action], actions: list[Action] | None = None) -> list[Action]:
        return [action for action in (self.log if actions is None else actions) if isinstance(action, kind)]

    def states(self) -> dict[str, GpuState]:
        return {action.key: action.state for action in self.log if isinstance(action, State)}

    def status(self) -> Status:
        return [action for action in self.log if isinstance(action, Status)][-1]

    def causes(self) -> list[str]:
        return [action.cause for action in self.log if isinstance(action, Restarted)]


def test_a_worker_is_started_at_once_and_is_up_when_it_has_enumerated() -> None:
    stage = Stage()
    stage.run(5)
    assert stage.spawns == [Spawn(child=1)]
    assert stage.status() == Status(True, "", "1.0")
    assert stage.causes() == []


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


def test_hanging_elsewhere_soon_after_is_an_outage_and_no_chain() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(11)
    stage.hang = {"b", "c"}
    stage.run(3)
    assert stage.states() == dict.fromkeys("abc", GpuState.HUNG)
    assert stage.status().reason == "one device after the other does not answer"
    stage.run(120)
    assert all(spawn.exclude in {(), ("b",)} for spawn in stage.spawns)
    assert [spawn for spawn in stage.spawns if spawn.only is None][-1].exclude == ()
    told = [action for action in stage.log if isinstance(action, State) and action.news]
    assert len(told) <= 8, "what comes and goes is told a few times only"
    stage.hang = set()
    stage.run(40)
    assert stage.states() == dict.fromkeys("abc", GpuState.OK)
    assert stage.status().up


def test_three_devices_that_miss_once_each_are_an_outage() -> None:
    stage = Stage(("a", "b", "c", "d"))
    for key in ("a", "b", "c"):
        stage.run(8)
        stage.hang = {key}
        stage.run(2.5)
        stage.hang = set()
    assert stage.states()["d"] is GpuState.HUNG
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
    stage.say(worker, frames.Reading("a"))
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
    stage.say(1, frames.Reading("a"))
    stage.now += 3600
    assert stage.watch.overdue(stage.now) == ()
    assert stage.act(stage.watch.tick(stage.now)) == []
    stage.say(1, frames.Sampled(Sample(device=Device(vendor="test", key="a"))))
    stage.run(5)
    assert stage.causes() == []


def test_a_read_interrupted_by_a_request_keeps_its_own_deadline() -> None:
    stage = Stage()
    stage.run(1)
    stage.busy.clear()
    stage.say(1, frames.Reading("a"))
    stage.run(1)
    stage.say(1, frames.Reading("b"))
    stage.run(1.5)
    stage.say(1, frames.Sampled(Sample(device=Device(vendor="test", key="b"))), frames.FreshDone(1))
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
    assert stage.spawns[-1] == Spawn(child=2)


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


def test_no_probe_is_sent_after_a_child_that_is_stuck_on_the_device() -> None:
    stage = Stage()
    stage.run(2)
    stage.hang = {"b"}
    stage.immortal = True
    stage.run(300)
    assert [spawn.only for spawn in stage.spawns if spawn.only] == []
    assert stage.watch.abandoned == 2
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


def test_a_device_that_is_gone_from_the_bus_is_not_in_question_any_more() -> None:
    stage = Stage()
    stage.run(5)
    stage.hang = {"b"}
    stage.run(12)
    worker = stage.watch.worker
    assert worker is not None
    stage.say(worker, frames.Enumerating(), frames.Enumerated((Device(vendor="test", key="a"),)))
    assert stage.states() == {"b": GpuState.OK}
