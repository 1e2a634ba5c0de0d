"""Whatever a library does: starts keep to the back-off, no device is forgotten, and a release ends it all."""

from collections import Counter
from enum import Enum, auto
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.fleet import MOST_DEVICES
from exporter.model import Device, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Ask, Spawn
from exporter.supervision.recycling import Usage
from exporter.supervision.retries import RETRY_SECONDS
from tests.unit.supervision.stage import TICK, Stage

KEYS = ("a", "b", "c")
SIZES = st.sampled_from([2**20, 2**30 + 1, 2**32])


class Mood(Enum):
    """What a library does when it is opened."""

    WELL = auto()
    MISSING = auto()
    HANGS = auto()
    CRASHES = auto()
    CRASHES_LATER = auto()
    DRIVER_GOES = auto()


class Moody(Stage):
    """Every child of it is in the mood that comes next, and the last mood stays."""

    def __init__(self, moods: list[Mood]) -> None:
        super().__init__(KEYS)
        self.moods = moods
        self.starts: list[float] = []
        self.read: Counter[str] = Counter()
        self.play = self.follow

    def follow(self, spawn: Spawn) -> None:
        if spawn.only is None and self.watch.successor != spawn.child:
            self.starts.append(self.now)
        mood = self.moods[0] if len(self.moods) == 1 else self.moods.pop(0)
        if mood is Mood.MISSING:
            self.say(spawn.child, frames.Failed("unavailable", "there is no library"))
            self.end(spawn.child, 69)
        elif mood is Mood.CRASHES:
            self.end(spawn.child, -11)
        elif mood is not Mood.HANGS:
            self.serve(spawn)
            if mood is Mood.CRASHES_LATER:
                self.end(spawn.child, -6)
            elif mood is Mood.DRIVER_GOES:
                self.say(spawn.child, frames.Failed("lost", "the driver was unloaded"))
                self.end(spawn.child, 69)

    def begin(self, child: int, key: str) -> None:
        self.read[key] += 1
        super().begin(child, key)

    def measure(self, memory: int) -> None:
        worker = self.watch.worker
        if worker is not None:
            for action in self.act(self.watch.measured(worker, Usage(memory, 9), self.now)):
                if isinstance(action, Ask) and isinstance(action.request, frames.Shutdown):
                    self.end(action.child, 0)


MOODS = st.lists(st.sampled_from(Mood), min_size=1, max_size=6)


@settings(max_examples=30, deadline=None)
@given(MOODS, st.sets(st.sampled_from(KEYS)), SIZES)
def test_no_library_is_started_faster_than_the_back_off(moods: list[Mood], hang: set[str], memory: int) -> None:
    stage = Moody(moods)
    stage.hang = hang
    for _ in range(60):
        stage.run(10)
        stage.measure(memory)
    gaps = [later - earlier for earlier, later in pairwise(stage.starts)]
    assert all(gap >= 0.9 * RETRY_SECONDS for gap in gaps)
    # One that stays as it is: the longest back-off is 30 s and more.
    assert len([start for start in stage.starts if start > stage.now - 300]) <= 14


@settings(max_examples=30, deadline=None)
@given(MOODS, st.sets(st.sampled_from(KEYS)))
def test_every_device_is_tried_again_within_two_minutes(moods: list[Mood], hang: set[str]) -> None:
    stage = Moody([*moods, Mood.WELL])
    stage.hang = hang
    stage.run(300)
    for _ in range(3):
        before = stage.read.copy()
        stage.run(125)
        assert all(stage.read[key] > before[key] for key in KEYS), "also one that hangs for ever"
    stage.hang = set()
    stage.run(125)
    # A child on the stage does not follow requests while it runs, so a device that was taken back has to be played.
    worker = stage.watch.worker
    assert worker is not None
    stage.busy[worker] = (Spawn(child=worker), False)
    stage.run(5)
    assert stage.status().up
    assert all(state.answers for state in stage.states().values())


@settings(max_examples=30, deadline=None)
@given(MOODS, st.sets(st.sampled_from(KEYS)), SIZES, st.floats(0, 60), st.booleans())
def test_a_release_ends_every_child_within_four_seconds(
    moods: list[Mood], hang: set[str], memory: int, after: float, immortal: bool
) -> None:
    stage = Moody(moods)
    stage.hang = hang
    stage.run(after)
    stage.measure(memory)
    stage.immortal = immortal
    stage.act(stage.watch.release(stage.now))
    stage.busy.clear()
    stage.run(3 + 4 * TICK)
    assert len(stage.watch.children) == stage.watch.abandoned
    assert immortal or not stage.watch.children
    assert ("may hold them" in stage.status().reason) == bool(stage.watch.children)
    starts = len(stage.spawns)
    stage.run(600)
    assert len(stage.spawns) == starts


def test_ever_new_devices_cost_no_more_than_the_bound() -> None:
    stage = Moody([Mood.WELL])
    stage.run(1)
    stage.busy.clear()
    for turn in range(3):
        devices = tuple(Device(vendor="test", key=f"{turn}-{number}") for number in range(1000))
        stage.say(1, frames.Enumerated(devices))
        for device in devices:
            stage.begin(1, device.key)
            stage.sampled(1, Sample(device=device))
    stage.say(1, frames.Enumerating())
    stage.run(25)
    # All that was listed last is in question, as far as a fleet has room for it.
    assert len(stage.states()) == MOST_DEVICES
