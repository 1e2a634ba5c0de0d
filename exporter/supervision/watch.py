"""What to do about the children of one provider: reports, exits and time come in, actions come out. Pure.

At most one worker and one probe live at a time. A child that cannot be killed is abandoned, and while too many are,
none is started. Whoever feeds a watch has read what a child reported before asking whether it is late.
"""

import signal
from collections.abc import Container
from random import Random

from exporter.config import SamplingConfig
from exporter.model import GpuState
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kill, Restarted, Spawn, State, Status
from exporter.supervision.backoff import Backoff
from exporter.supervision.child import Child
from exporter.supervision.quarantine import Quarantine, Verdict

MAX_CHILDREN = 4
"""Of one provider, whether alive or abandoned."""
SHUTDOWN_SECONDS = 1.0
KILL_SECONDS = 2.0
RETRY_SECONDS = 1.0
HEALTHY_SECONDS = 60.0
RELEASED = "the devices are released on request"
OPENING = "the library is being opened"
NO_DEVICES = "no device was found"
_CREDIT_SECONDS = 1.0
"""Between two ticks at most so much time counts against a child: the rest is a stall of the parent or the machine."""
_CRASHES = 3
_FALLS = 3
_CRASH_WINDOW_SECONDS = 60.0


class Watch:
    """The state machine. Every method returns the actions to be carried out, in order."""

    def __init__(self, sampling: SamplingConfig, random: Random, now: float) -> None:
        self._deadline = sampling.deadline_seconds
        self._open_deadline = sampling.open_deadline_seconds
        self._quarantine = Quarantine(random)
        self._retry = Backoff(RETRY_SECONDS, 30.0, random)
        self._unavailable = Backoff(5.0, 60.0, random)
        self._children: dict[int, Child] = {}
        self._numbers = 0
        self._spawn_at = now
        self._up_at: float | None = None
        self._falls = 0
        """How often it went down since it was last well."""
        self._ticked = now
        self._credited = 0.0
        self._released = False
        self._crashes: list[float] = []
        self._unusable = False
        self._devices: tuple[str, ...] = ()
        self._hung: set[str] = set()
        self._status = Status(False, OPENING, None)
        self._told = ""
        self._actions: list[Action] = []

    @property
    def worker(self) -> int | None:
        """The child whose reports count; None while there is none or it is being ended."""
        child = self._live(probe=False)
        return None if child is None or child.ending else child.number

    @property
    def ready(self) -> bool:
        """Whether the worker has enumerated its devices and can be asked for fresh energy."""
        child = self._live(probe=False)
        return child is not None and child.up and not child.ending

    @property
    def calm(self) -> bool:
        """Whether the worker has finished its first pass, and is not in question."""
        child = self._live(probe=False)
        return child is not None and child.passed and not child.ending

    @property
    def children(self) -> tuple[int, ...]:
        """Every child that has not ended, with the abandoned ones."""
        return tuple(self._children)

    @property
    def abandoned(self) -> int:
        return sum(child.abandoned for child in self._children.values())

    def overdue(self, now: float) -> tuple[int, ...]:
        """Return the children that seem late: read what they reported, and look whether they are stopped."""
        clock = self._clock(now)
        return tuple(child.number for child in self._children.values() if self._is_late(child, clock))

    def tick(self, now: float, stopped: Container[int] = ()) -> list[Action]:
        """Let time pass. `stopped`: children that a signal or a debugger holds."""
        clock = self._credited = self._clock(now)
        self._ticked = now
        for child in list(self._children.values()):
            if child.ending_at is not None:
                if not child.abandoned and clock >= child.ending_at:
                    self._outlived(child, now)
            elif self._is_late(child, clock):
                self._missed(child, now, is_stopped=child.number in stopped)
        self._feel_well(now)
        self._start_children(now)
        return self._drained()

    def heard(self, number: int, report: frames.Report, now: float) -> list[Action]:
        """Take one report of a child."""
        child = self._children.get(number)
        if child is None or child.ending:
            return []
        child.heard(report, self._clock(now), self._deadline, self._open_deadline)
        match report:
            case frames.Sampled(sample):
                child.sampled = True
                if child.only is None:
                    self._answered(sample.device.key, now)
            case frames.Enumerated(devices) if child.only is None:
                self._enumerated(child, tuple(device.key for device in devices), now)
            case frames.Failed():
                child.failure = report
            case _:
                pass
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
        child = self._children.pop(number, None)
        if child is not None:
            if child.abandoned:
                self._actions.append(Abandoned(self.abandoned))
            self._settle(child, now, status)
            self._start_children(now)
        return self._drained()

    def not_started(self, number: int, reason: str, now: float) -> list[Action]:
        """Take note that the system refused to start a child."""
        child = self._children.get(number)
        if child is not None:
            child.failure = frames.Failed("unavailable", f"no child process can be started: {reason}")
        return self.ended(number, 0, now)

    def release(self, now: float, reason: str = RELEASED) -> list[Action]:
        """Ask every child to end, and start none until `take_up`. What is known of the devices is kept."""
        if not self._released:
            self._released = True
            for child in self._children.values():
                if child.ending:
                    continue
                child.ending_at = self._clock(now) + SHUTDOWN_SECONDS
                self._actions.append(Ask(child.number, frames.Shutdown()))
                if child.only is None and not child.settled:
                    child.settled = True
                    self._actions.append(Restarted("reload"))
            self._down(reason)
        return self._drained()

    def take_up(self, now: float) -> list[Action]:
        """Start children again."""
        if self._released:
            self._released = False
            self._spawn_at = now
            self._start_children(now)
        return self._drained()

    def _clock(self, now: float) -> float:
        return self._credited + min(max(now - self._ticked, 0.0), _CREDIT_SECONDS)

    def _drained(self) -> list[Action]:
        actions, self._actions = self._actions, []
        return actions

    def _live(self, *, probe: bool) -> Child | None:
        for child in self._children.values():
            if not child.abandoned and (child.only is not None) == probe:
                return child
        return None

    def _is_late(self, child: Child, clock: float) -> bool:
        return not child.ending and child.late(clock, self._deadline)

    def _start_children(self, now: float) -> None:
        if self._released:
            return
        if self._live(probe=False) is None:
            if len(self._children) >= MAX_CHILDREN:
                self._down(f"{self.abandoned} child processes cannot be killed: the driver does not let go of them")
            elif now >= self._spawn_at:
                self._spawn(now, only=None)
            return
        key = self._quarantine.due(now)
        if (
            key is not None
            and self.ready
            and self._live(probe=True) is None
            and len(self._children) < MAX_CHILDREN - 1
            # A child that is stuck in a call on this device and cannot be killed answers the question.
            and not any(child.stuck_on == key for child in self._children.values())
        ):
            self._spawn(now, only=key)

    def _spawn(self, now: float, only: str | None) -> None:
        self._numbers += 1
        child = Child(self._numbers, only, self._clock(now), self._open_deadline)
        self._children[child.number] = child
        if only is not None:
            self._actions.append(Spawn(child=child.number, only=only))
            return
        # Those that may hang again come last: by then the others have been read.
        exclude, last = tuple(sorted(self._quarantine.held)), tuple(sorted(self._quarantine.struck))
        self._actions.append(Spawn(child=child.number, exclude=exclude, last=last))

    def _kill(self, child: Child, now: float) -> None:
        child.killed = True
        child.ending_at = self._clock(now) + KILL_SECONDS
        self._actions.append(Kill(child.number))

    def _outlived(self, child: Child, now: float) -> None:
        if not child.killed:
            self._kill(child, now)
            return
        child.abandoned = True
        self._actions.append(Abandoned(self.abandoned))
        self._settle(child, now, None)

    def _enumerated(self, child: Child, keys: tuple[str, ...], now: float) -> None:
        self._devices = keys
        self._quarantine.enumerated(keys)
        for key in self._hung - set(keys):
            self._clear(key)
        if not child.up:
            child.up = True
            self._up_at = now
        # A library without a device works, and delivers nothing.
        self._report(Status(bool(keys), "" if keys else NO_DEVICES, child.library_version))

    def _answered(self, key: str, now: float) -> None:
        self._quarantine.answered(key, now)
        if key in self._hung and key not in self._quarantine.held:
            self._clear(key)

    def _clear(self, key: str) -> None:
        self._hung.discard(key)
        self._actions.append(State(key, GpuState.OK, "", not self._is_restless))

    def _suspect(self, key: str, reason: str) -> None:
        if key not in self._hung:
            self._hung.add(key)
            self._actions.append(State(key, GpuState.HUNG, reason, not self._is_restless))

    def _missed(self, child: Child, now: float, *, is_stopped: bool) -> None:
        child.stuck_on = None if is_stopped else (child.only or child.reading)
        self._kill(child, now)
        if child.only is not None:
            return
        child.settled = True
        self._actions.append(Restarted("hang"))
        if is_stopped:
            reason = "the worker is stopped by a signal or a debugger"
        elif child.stuck_on is None:
            reason = f"the worker hangs while {child.activity.value}"
            for key in self._devices:
                self._suspect(key, reason)
        else:
            verdict = self._quarantine.missed(child.stuck_on, self._devices, now)
            reason = self._blame(child.stuck_on, verdict)
            if verdict is not Verdict.OUTAGE:
                # The others wait, and it cannot go on like this: one more device, and it is an outage.
                self._fell(reason, now + RETRY_SECONDS)
                return
        self._fell(reason, now + self._retry.next())

    def _blame(self, key: str, verdict: Verdict) -> str:
        reason = f"device {key} did not answer within {self._deadline:g} s"
        if verdict is Verdict.OUTAGE:
            reason = "one device after the other does not answer"
            for other in self._devices:
                self._suspect(other, reason)
        elif verdict is Verdict.QUARANTINE:
            reason += " for the second time: the others go on without it, and it is tried again now and then"
        self._suspect(key, reason)
        return reason

    def _settle(self, child: Child, now: float, status: int | None) -> None:
        """Account for the end of a child, or for its being given up (no status)."""
        if child.settled:
            return
        child.settled = True
        if child.only is not None:
            self._quarantine.tried(child.only, now, answered=child.sampled)
            worker = self.worker
            if child.sampled and worker is not None:
                self._actions.append(Ask(worker, frames.Exclude(tuple(sorted(self._quarantine.held)))))
            return
        failure = child.failure or frames.Failed("crash", _end(child, status))
        if failure.cause == "unavailable":
            self._fell(failure.reason, now + self._unavailable.next())
            return
        self._actions.append(Restarted(failure.cause))
        reason = failure.reason
        if failure.cause == "crash":
            self._crashes = [at for at in self._crashes if now - at < _CRASH_WINDOW_SECONDS] + [now]
            self._unusable |= len(self._crashes) >= _CRASHES
            if self._unusable:
                reason = f"the library is unusable, its worker crashes again and again: {reason}"
        self._fell(reason, now + self._retry.next())

    def _fell(self, reason: str, spawn_at: float) -> None:
        if self._up_at is not None:
            self._falls += 1
        self._spawn_at = spawn_at
        self._down(reason)

    def _down(self, reason: str) -> None:
        self._up_at = None
        self._report(Status(False, reason, None))

    def _feel_well(self, now: float) -> None:
        if self._up_at is None or now - self._up_at < HEALTHY_SECONDS:
            return
        self._retry.reset()
        self._unavailable.reset()
        self._quarantine.recovered()
        self._falls = 0
        self._unusable = False
        if self._told and self._status.up:
            self._told = ""
            self._actions.append(self._status)

    @property
    def _is_restless(self) -> bool:
        """Whether it comes and goes: that is in the metrics each time, and in the log once."""
        return self._falls >= _FALLS

    def _report(self, status: Status) -> None:
        if status == self._status:
            return
        self._status = status
        news = not self._is_restless if status.up else status.reason != self._told
        if news:
            self._told = status.reason
        self._actions.append(Status(status.up, status.reason, status.library_version, news))


def _end(child: Child, status: int | None) -> str:
    if status is None:
        return "the worker cannot be killed"
    if child.broke is not None and child.killed and status == -signal.SIGKILL:
        return f"the worker is not understood: {child.broke}"
    if status >= 0:
        return f"the worker ended by itself with status {status}"
    try:
        return f"the worker was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"the worker was ended by signal {-status}"
