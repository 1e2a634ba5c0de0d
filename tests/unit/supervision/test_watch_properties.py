from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from exporter.config import SamplingConfig, WorkersConfig
from exporter.metrics import RESTART_CAUSES
from exporter.model import Device, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kept, Kill, Restarted, Spawn, State, Status
from exporter.supervision.progress import Read
from exporter.supervision.recycling import Usage
from exporter.supervision.watch import KILL_SECONDS, MAX_CHILDREN, Watch

KEYS = ("a", "b", "c")
DEVICES = tuple(Device(vendor="test", key=key) for key in KEYS)
REPORTS = st.one_of(
    st.just(frames.Opened("1.0")),
    st.just(frames.Enumerating()),
    st.integers(0, 3).map(lambda count: frames.Enumerated(DEVICES[:count])),
    st.sampled_from(DEVICES).map(lambda device: frames.Sampled(Sample(device=device))),
    st.floats(0, 1e9).map(frames.Waiting),
    st.just(frames.FreshDone(1)),
    st.sampled_from(["unavailable", "lost", "crash"]).map(lambda cause: frames.Failed(cause, "so it is")),
)
ANY = st.integers(0, 100)


class AnyHistory(RuleBasedStateMachine):
    """Children and clock do what they like: the watch may be wrong about the cause, never about the bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.watch = Watch(SamplingConfig(), Random(3), 0.0, WorkersConfig())
        self.living: dict[int, Spawn] = {}
        self.killed: dict[int, float] = {}
        self.told: Status | None = None
        self.released = False
        self.born: dict[int, float] = {}

    def act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn():
                    assert not self.released
                    assert action.child not in self.living
                    self.born[action.child] = self.now
                    assert len(set(action.exclude)) <= 2
                    self.living[action.child] = action
                case Kill(child):
                    assert child in self.living
                    assert child not in self.killed
                    self.killed[child] = self.now
                case Ask(child, _):
                    assert child in self.living
                case Status():
                    assert (action.reason == "") == action.up
                    self.told = action
                case Restarted(cause):
                    assert cause in RESTART_CAUSES
                case Abandoned(count):
                    assert count <= len(self.killed)
                case State():
                    assert action.key in KEYS
                case Kept(reason):
                    assert reason

    def child(self, number: int) -> int:
        return list(self.living)[number % len(self.living)]

    @rule(
        seconds=st.one_of(st.just(0.25), st.floats(0.0, 2.0), st.floats(0.0, 5000.0)), stopped=st.sets(ANY, max_size=2)
    )
    def tick(self, seconds: float, stopped: set[int]) -> None:
        self.now += seconds
        self.act(self.watch.tick(self.now, {self.child(number) for number in stopped} if self.living else ()))

    @rule(ticks=st.integers(1, 40))
    def wait(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now += 0.25
            self.act(self.watch.tick(self.now))

    @precondition(lambda self: self.living)
    @rule(number=ANY, report=REPORTS)
    def report(self, number: int, report: frames.Report) -> None:
        self.act(self.watch.heard(self.child(number), report, self.now))

    @precondition(lambda self: self.living)
    @rule(number=ANY, reads=st.lists(st.builds(Read, st.integers(1, 9), st.sampled_from(KEYS)), max_size=2))
    def look(self, number: int, reads: list[Read]) -> None:
        self.watch.looked(self.child(number), reads, self.now)

    @precondition(lambda self: self.living)
    @rule(number=ANY, status=st.sampled_from([0, 1, 69, -9, -11, -64]))
    def end(self, number: int, status: int) -> None:
        child = self.child(number)
        del self.living[child]
        self.killed.pop(child, None)
        self.act(self.watch.ended(child, status, self.now))

    @precondition(lambda self: self.living)
    @rule(number=ANY, memory=st.sampled_from([None, 2**20, 2**30 + 1, 2**40]), descriptors=st.sampled_from([None, 9]))
    def measure(self, number: int, memory: int | None, descriptors: int | None) -> None:
        self.act(self.watch.measured(self.child(number), Usage(memory, descriptors), self.now))

    @precondition(lambda self: self.living)
    @rule(number=ANY)
    def misunderstand(self, number: int) -> None:
        self.act(self.watch.broken(self.child(number), "garbage", self.now))

    @precondition(lambda self: self.living)
    @rule(number=ANY)
    def close_its_pipe(self, number: int) -> None:
        self.act(self.watch.closed(self.child(number), self.now))

    @rule()
    def release(self) -> None:
        self.released = True
        self.act(self.watch.release(self.now))

    @rule()
    def take_up(self) -> None:
        self.released = False
        self.act(self.watch.take_up(self.now))

    @invariant()
    def one_child_counts_and_one_at_most_is_beside_it(self) -> None:
        worker, successor = self.watch.worker, self.watch.successor
        assert worker is None or self.living[worker].only is None
        assert successor is None or self.living[successor].only is None
        assert worker is None or worker != successor
        live = [spawn for child, spawn in self.living.items() if child not in self.killed]
        probes = sum(spawn.only is not None for spawn in live)
        assert probes + (successor is not None) <= 1

    @invariant()
    def a_killed_child_has_a_successor_only_when_it_was_given_time(self) -> None:
        recent = [child for child, at in self.killed.items() if self.now - at < KILL_SECONDS]
        for child in recent:
            at = self.killed[child]
            later = [other for other, spawn in self.living.items() if spawn.only is None and self.born[other] > at]
            assert self.living[child].only is not None or not later or self.watch.worker not in later

    @invariant()
    def children_are_bounded(self) -> None:
        assert set(self.watch.children) == set(self.living)
        assert len(self.living) <= MAX_CHILDREN
        assert self.watch.abandoned <= len(self.killed)

    @invariant()
    def up_means_that_there_is_a_worker(self) -> None:
        if self.told is not None and self.told.up:
            assert any(spawn.only is None for spawn in self.living.values())

    def teardown(self) -> None:
        """However it was treated, it works again once its children do."""
        for child in list(self.living):
            del self.living[child]
            self.act(self.watch.ended(child, -9, self.now))
        self.take_up()
        until = self.now + 70
        while self.now < until and not self.watch.ready:
            self.wait(1)
            worker = self.watch.worker
            if worker is not None:
                self.act(self.watch.heard(worker, frames.Enumerated(DEVICES), self.now))
        assert self.watch.ready


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
