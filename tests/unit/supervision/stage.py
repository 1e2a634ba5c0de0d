"""A watch on a stage: its children are played by the test, on a clock that only the test moves."""

from collections.abc import Callable
from random import Random

from exporter.config import SamplingConfig, WorkersConfig
from exporter.model import Device, GpuState, Sample
from exporter.supervision import frames
from exporter.supervision.actions import Action, Kill, Restarted, Spawn, State, Status
from exporter.supervision.progress import Read, told
from exporter.supervision.watch import Watch

START = 1000.0
TICK = 0.25
DEFAULT = WorkersConfig()


class Stage:
    def __init__(self, devices: tuple[str, ...] = ("a", "b", "c"), workers: WorkersConfig = DEFAULT) -> None:
        self.now = START
        self.watch = Watch(SamplingConfig(), Random(7), START, workers)
        self.devices = devices
        self.log: list[Action] = []
        self.immortal = False
        self.play: Callable[[Spawn], None] = self.serve
        """What a child does when it is started."""
        self.hang: set[str] = set()
        self.crash: set[str] = set()
        self.lost: set[str] = set()
        self.stopped: set[int] = set()
        self.spawns: list[Spawn] = []
        self.busy: dict[int, tuple[Spawn, bool]] = {}
        self.reads: dict[int, tuple[Read, ...]] = {}
        self.number = 0

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

    def begin(self, child: int, key: str) -> None:
        """Have a child begin a read, within the one that is under way."""
        self.number += 1
        self.reads[child] = (*self.reads.get(child, ()), Read(self.number, told(key)))
        self.look(child)

    def sampled(self, child: int, sample: Sample) -> None:
        """Have the read that began last return."""
        self.reads[child] = self.reads[child][:-1]
        self.say(child, frames.Sampled(sample))
        self.look(child)

    def look(self, child: int) -> None:
        self.watch.looked(child, self.reads.get(child, ()), self.now)

    def end(self, child: int, status: int) -> None:
        self.busy.pop(child, None)
        self.act(self.watch.ended(child, status, self.now))

    def serve(self, spawn: Spawn) -> None:
        """Open, enumerate, and read at every tick until a device hangs or crashes."""
        devices = tuple(Device(vendor="test", key=key) for key in self.devices)
        self.say(spawn.child, frames.Opened("1.0"), frames.Enumerating(), frames.Enumerated(devices))
        self.busy[spawn.child] = (spawn, False)

    def work(self) -> None:
        for child, (spawn, is_stuck) in list(self.busy.items()):
            if is_stuck or child in self.stopped:
                continue
            keys = [key for key in self.devices if key not in spawn.exclude]
            rank = {key: place for place, key in enumerate(spawn.last, 1)}
            keys = [spawn.only] if spawn.only else sorted(keys, key=lambda key: rank.get(key, 0))
            for key in keys:
                self.begin(child, key)
                if key in self.crash:
                    self.end(child, -11)
                    break
                if key in self.hang:
                    self.busy[child] = (spawn, True)
                    break
                self.sampled(child, Sample(device=Device(vendor="test", key=key), lost=key in self.lost))
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
