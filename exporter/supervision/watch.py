"""What to do about the children of one provider: reports, exits and time come in, actions come out. Pure.

At most one worker lives at a time, and beside it a probe or a successor. A child that cannot be killed is abandoned,
and while too many are, none is started. Whoever feeds a watch has read what a child reported, and looked which reads
are under way, before asking whether it is late or telling that it has ended.
"""

from collections.abc import Container, Sequence
from random import Random

from exporter.config import SamplingConfig, WorkersConfig
from exporter.fleet import MOST_DEVICES
from exporter.model import Sample
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kept, Kill, Restarted, Spawn
from exporter.supervision.blame import Blame
from exporter.supervision.child import Child, Role
from exporter.supervision.children import Children
from exporter.supervision.progress import Read, recognised
from exporter.supervision.quarantine import Quarantine
from exporter.supervision.recycling import Recycling, Usage
from exporter.supervision.recycling import Verdict as Judgement
from exporter.supervision.retries import FROM_OUTSIDE, Retries, end
from exporter.supervision.standing import Standing

MAX_CHILDREN = 4
"""Of one provider, whether alive or abandoned."""
SHUTDOWN_SECONDS = 1.0
KILL_SECONDS = 2.0
RELEASED = "the devices are released on request"
_CREDIT_SECONDS = 1.0
"""Between two ticks at most so much time counts against a child: the rest is a stall of the parent or the machine."""


class Watch:
    """The state machine. Every method returns the actions to be carried out, in order."""

    def __init__(self, sampling: SamplingConfig, random: Random, now: float, workers: WorkersConfig) -> None:
        self._deadline = sampling.deadline_seconds
        self._open_deadline = sampling.open_deadline_seconds
        self._ticked = now
        self._credited = 0.0
        self._actions: list[Action] = []
        self._standing = Standing(self._actions.append, self._credited)
        self._quarantine = Quarantine(random)
        self._blame = Blame(self._quarantine, self._standing, self._deadline)
        self._retries = Retries(random, now)
        self._recycling = Recycling(workers, random, now)
        self._replaced_for = ""
        """Why a successor was started."""
        self._children = Children()
        self._released = False
        self._devices: tuple[str, ...] = ()
        self._known: tuple[str, ...] = ()
        """Devices that were ever enumerated, those seen last at the end."""

    def limit(self, workers: WorkersConfig) -> None:
        """Take other limits from here on."""
        self._recycling.workers = workers

    @property
    def worker(self) -> int | None:
        """The child whose reports count; None while there is none or it is being ended."""
        child = self._children.running(Role.WORKER)
        return None if child is None else child.number

    @property
    def successor(self) -> int | None:
        """The child whose reports count from its first enumeration on."""
        child = self._children.running(Role.SUCCESSOR)
        return None if child is None else child.number

    @property
    def ready(self) -> bool:
        """Whether the worker has enumerated its devices and can be asked for fresh energy."""
        child = self._children.running(Role.WORKER)
        return child is not None and child.up

    @property
    def calm(self) -> bool:
        """Whether the worker has finished its first pass, and is not in question."""
        child = self._children.running(Role.WORKER)
        return child is not None and child.passed

    @property
    def children(self) -> tuple[int, ...]:
        """Every child that has not ended, with the abandoned ones."""
        return tuple(child.number for child in self._children)

    @property
    def abandoned(self) -> int:
        return self._children.abandoned

    def down_seconds(self, now: float) -> float | None:
        """Return for how long the provider has been failing, stalls not counted; None: it is up, or released."""
        return None if self._released else self._standing.down_seconds(self._clock(now))

    def overdue(self, now: float) -> tuple[int, ...]:
        """Return the children that seem late: read what they reported, and look whether they are stopped."""
        clock = self._clock(now)
        return tuple(child.number for child in self._children if self._is_late(child, clock))

    def tick(self, now: float, stopped: Container[int] = ()) -> list[Action]:
        """Let time pass. `stopped`: children that a signal or a debugger holds."""
        clock = self._credited = self._clock(now)
        self._ticked = now
        for child in self._children:
            if child.ending_at is not None:
                if not child.abandoned and clock >= child.ending_at:
                    self._outlived(child, now)
            elif self._is_late(child, clock):
                self._missed(child, now, is_stopped=child.number in stopped)
        if self._standing.is_well(clock):
            self._retries.well()
            self._quarantine.recovered()
        self._start_children(now)
        return self._drained()

    def heard(self, number: int, report: frames.Report, now: float) -> list[Action]:
        """Take one report of a child."""
        child = self._children.get(number)
        if child is None or child.ending:
            return []
        reading = child.reading
        child.heard(report, self._clock(now), self._deadline, self._open_deadline)
        match report:
            case frames.Sampled(sample):
                child.sampled |= not sample.lost or child.role is Role.PROBE
                if child.role is Role.WORKER:
                    self._recycling.sampled(sample)
                    self._answered(child, sample, now)
            case frames.Enumerated(devices) if child.only is None:
                keys = tuple(device.key for device in devices[:MOST_DEVICES])
                if child.role is Role.SUCCESSOR:
                    self._hand_over(child, keys, now)
                if child.role is Role.WORKER:
                    self._enumerated(child, keys, now)
            case frames.Failed(cause):
                child.failure = report
                if cause == "crash":
                    child.crashed_in = reading
                elif child.role is Role.WORKER:
                    # The library answers, if only that it is of no use: nothing hangs in it.
                    self._blame.absolve()
                # It closes the library, which may hang like any other call.
                child.ending_at = self._clock(now) + SHUTDOWN_SECONDS
            case _:
                pass
        return self._drained()

    def looked(self, number: int, reads: Sequence[Read], now: float) -> None:
        """Take which reads of a child are under way."""
        child = self._children.get(number)
        if child is not None and not child.ending:
            reads = [recognised(read, self._devices) for read in reads]
            child.looked(reads, self._clock(now), self._deadline)

    def measured(self, number: int, usage: Usage, now: float) -> list[Action]:
        """Take what the worker holds of memory and descriptors: it may have to be replaced."""
        child = self._children.get(number)
        if child is None or child is not self._children.running(Role.WORKER):
            return []
        judgement, reason = self._recycling.judge(usage, now)
        if judgement is Judgement.END:
            self._recycling.begun(now)
            self._ask_to_end(child, now)
            child.settled = True
            self._actions.append(Restarted("recycle"))
            self._retries.recycled(now)
            self._fell(reason, now)
        elif judgement is Judgement.REPLACE and self._has_room:
            self._recycling.begun(now)
            self._replaced_for = reason
            self._spawn(Role.SUCCESSOR, now)
        return self._drained()

    def broken(self, number: int, reason: str, now: float) -> list[Action]:
        """Take note that a child cannot be understood: it is killed."""
        child = self._children.get(number)
        if child is not None and not child.killed:
            child.broke = reason
            self._kill(child, now)
        return self._drained()

    def closed(self, number: int, now: float) -> list[Action]:
        """Take note that a child closed its pipe: it is about to end, or else it is killed."""
        child = self._children.get(number)
        if child is not None and not child.ending:
            child.broke = "it closed its pipe"
            child.ending_at = self._clock(now) + SHUTDOWN_SECONDS
        return self._drained()

    def ended(self, number: int, status: int, now: float) -> list[Action]:
        """Take note that a child has ended; `status` is its exit status, or minus the signal that ended it."""
        child = self._children.pop(number)
        if child is not None:
            if child.abandoned:
                self._count_abandoned(now)
            self._settle(child, now, status)
            self._start_children(now)
        return self._drained()

    def not_started(self, number: int, reason: str, now: float) -> list[Action]:
        """Take note that the system refused to start a child."""
        child = self._children.get(number)
        if child is not None:
            child.failure = frames.Failed("unavailable", f"no child process can be started: {reason}")
        return self.ended(number, 0, now)

    def release(self, now: float) -> list[Action]:
        """Ask every child to end, and start none until `take_up`. What is known of the devices is kept."""
        if not self._released:
            self._released = True
            for child in self._children:
                if child.ending:
                    continue
                self._ask_to_end(child, now)
                if child.role is Role.WORKER and not child.settled:
                    child.settled = True
                    self._actions.append(Restarted("reload"))
            self._down(self._released_reason, now)
        return self._drained()

    def take_up(self, now: float) -> list[Action]:
        """Start children again."""
        if self._released:
            self._released = False
            self._standing.start_over(self._clock(now))
            self._retries.taken_up(now)
            self._quarantine.taken_up(now)
            self._start_children(now)
        return self._drained()

    def _clock(self, now: float) -> float:
        return self._credited + min(max(now - self._ticked, 0.0), _CREDIT_SECONDS)

    def _drained(self) -> list[Action]:
        actions = self._actions.copy()
        self._actions.clear()
        return actions

    @property
    def _has_room(self) -> bool:
        """Whether a child can be started beside the worker, with room left for its replacement."""
        return (
            self.ready
            and self._children.live(Role.PROBE) is None
            and self._children.live(Role.SUCCESSOR) is None
            and len(self._children) < MAX_CHILDREN - 1
        )

    def _is_late(self, child: Child, clock: float) -> bool:
        return not child.ending and child.late(clock, self._deadline)

    def _start_children(self, now: float) -> None:
        if self._released:
            return
        if self._children.live(Role.WORKER) is None:
            successor = self._children.running(Role.SUCCESSOR)
            if successor is not None:
                self._promote(successor, now)
            elif len(self._children) >= MAX_CHILDREN:
                self._down(
                    f"{self.abandoned} child processes cannot be killed: the driver does not let go of them", now
                )
            elif now >= self._retries.spawn_at:
                self._spawn(Role.WORKER, now)
            return
        key = self._quarantine.due(now)
        # A child that is stuck in a call on this device and cannot be killed answers the question.
        if key is not None and self._has_room and all(child.stuck_on != key for child in self._children):
            self._spawn(Role.PROBE, now, only=key)

    def _spawn(self, role: Role, now: float, only: str | None = None) -> None:
        child = self._children.add(role, self._clock(now), self._open_deadline)
        if only is not None:
            child.only = only
            self._actions.append(Spawn(child=child.number, only=only))
            return
        if role is Role.WORKER:
            self._recycling.born(now)
        child.excluded = self._quarantine.held
        # Those that may hang again come last: by then the others have been read.
        exclude, last = tuple(sorted(child.excluded)), self._quarantine.struck
        patience = self._retries.patience
        self._actions.append(
            Spawn(child=child.number, exclude=exclude, last=last, known=self._known, patience_seconds=patience)
        )

    def _hand_over(self, successor: Child, keys: tuple[str, ...], now: float) -> None:
        worker = self._children.live(Role.WORKER)
        if worker is not None and not worker.ending and not set(worker.present) <= set(keys):
            # Permissions may have been withdrawn, which what was opened before does not feel.
            successor.failure = frames.Failed("unavailable", "it does not find all devices that the worker reads")
            self._ask_to_end(successor, now)
            return
        if worker is not None:
            worker.role = Role.RETIRED
            if not worker.settled:
                worker.settled = True
                self._actions.append(Restarted("recycle", self._replaced_for))
            if not worker.ending:
                self._ask_to_end(worker, now)
        self._promote(successor, now)

    def _promote(self, successor: Child, now: float) -> None:
        successor.role = Role.WORKER
        self._recycling.born(now)
        self._exclude(successor)

    def _exclude(self, worker: Child) -> None:
        held = self._quarantine.held
        if held != worker.excluded:
            worker.excluded = held
            self._actions.append(Ask(worker.number, frames.Exclude(tuple(sorted(held)))))

    def _ask_to_end(self, child: Child, now: float) -> None:
        child.ending_at = self._clock(now) + SHUTDOWN_SECONDS
        self._actions.append(Ask(child.number, frames.Shutdown()))

    def _kill(self, child: Child, now: float) -> None:
        child.killed = True
        child.ending_at = self._clock(now) + KILL_SECONDS
        self._actions.append(Kill(child.number))

    def _outlived(self, child: Child, now: float) -> None:
        if not child.killed:
            self._kill(child, now)
            return
        child.abandoned = True
        self._count_abandoned(now)
        self._settle(child, now, None)

    def _count_abandoned(self, now: float) -> None:
        self._actions.append(Abandoned(self.abandoned))
        if self._released:
            self._down(self._released_reason, now)

    def _enumerated(self, child: Child, keys: tuple[str, ...], now: float) -> None:
        self._devices = keys
        self._known = (*(key for key in self._known if key not in keys), *keys)[-MOST_DEVICES:]
        self._quarantine.enumerated(keys)
        self._recycling.enumerated(key for key in keys if key not in child.excluded)
        child.answered = {key: present for key, present in child.answered.items() if key in keys}
        child.up = True
        self._standing.works(keys, child.library_version, self._clock(now))

    def _answered(self, worker: Child, sample: Sample, now: float) -> None:
        key = sample.device.key
        if key in worker.answered or len(worker.answered) < MOST_DEVICES:
            worker.answered[key] = not sample.lost
        if not sample.lost:
            self._retries.answered()
        self._quarantine.answered(key, now)
        if key not in self._quarantine.held:
            self._standing.clear(key)

    def _missed(self, child: Child, now: float, *, is_stopped: bool) -> None:
        child.stuck_on = None if is_stopped else (child.only or child.reading)
        if child.role is Role.SUCCESSOR:
            child.failure = frames.Failed("unavailable", f"it hangs while {child.activity.value}")
        self._kill(child, now)
        if child.role is not Role.WORKER:
            return
        child.settled = True
        self._actions.append(Restarted("hang"))
        judgement = self._blame.hung(child, self._devices, now, is_stopped=is_stopped)
        if judgement.soon:
            self._retries.soon(now)
        else:
            self._retries.later(now)
        self._fell(judgement.reason, now)

    def _settle(self, child: Child, now: float, status: int | None) -> None:
        """Account for the end of a child, or for its being given up (no status)."""
        if child.settled:
            return
        child.settled = True
        if child.role is Role.WORKER:
            failure = self._retries.ended(child, status, now)
            if failure.cause != "unavailable":
                self._actions.append(Restarted(failure.cause))
            if child.failure is None and not child.killed and status not in (None, *FROM_OUTSIDE):
                child.crashed_in = child.reading
            if self._blame.crashed(child, self._devices, now):
                self._retries.soon(now)
            self._fell(failure.reason, now)
        elif self._released:
            pass
        elif child.only is not None:
            self._quarantine.tried(child.only, now, answered=child.sampled)
            worker = self._children.running(Role.WORKER)
            if worker is not None:
                self._exclude(worker)
        elif child.role is Role.SUCCESSOR:
            self._actions.append(Kept(child.failure.reason if child.failure else end(child, status)))

    def _fell(self, reason: str, now: float) -> None:
        self._standing.fell()
        self._down(reason, now)

    def _down(self, reason: str, now: float) -> None:
        self._standing.down(self._released_reason if self._released else reason, self._clock(now))

    @property
    def _released_reason(self) -> str:
        if not self.abandoned:
            return RELEASED
        return f"{RELEASED}, but {self.abandoned} of the workers cannot be killed and may hold them"
