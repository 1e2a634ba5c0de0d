"""Keeps the children of one provider: carries out what its watch decides, and hands on what they report."""

import asyncio
import logging
import time
from collections.abc import Callable
from random import Random

from exporter.config import SamplingConfig, WorkersConfig
from exporter.fleet import MOST_DEVICES
from exporter.supervision import frames
from exporter.supervision.actions import Abandoned, Action, Ask, Kept, Kill, Restarted, Spawn, State, Status
from exporter.supervision.audience import Audience
from exporter.supervision.fresh import FreshRequests
from exporter.supervision.output import Line, Output
from exporter.supervision.process import Process
from exporter.supervision.watch import RELEASED, Watch

logger = logging.getLogger("exporter.supervision")

_SLICE_SECONDS = 0.005
"""Of listening to one child before everything else in the event loop gets its turn."""
_LAST_PIECES = 64
_MOST_LEFT = 16
"""The most that is read from a child that is late or has ended."""


class Keeper:
    """Lives in the event loop, and never waits for a child."""

    def __init__(
        self,
        audience: Audience,
        request: frames.WorkerRequest,
        sampling: SamplingConfig,
        workers: WorkersConfig,
        random: Random,
        abandoned: Callable[[], None],
        measure_seconds: float,
    ) -> None:
        """`abandoned` is called when the number of children that cannot be killed has changed."""
        now = time.monotonic()
        self.watch = Watch(sampling, random, now, workers)
        self._audience = audience
        self._request = request
        self._sampling = sampling
        self._abandoned = abandoned
        self._loop = asyncio.get_running_loop()
        self._processes: dict[int, Process] = {}
        self._output = Output(now)
        self._listening: set[int] = set()
        """Children whose pipe wakes us up."""
        self._deaf: set[int] = set()
        """Children that are not listened to any more."""
        self._left: list[Process] = []
        """Children that have ended, and whose own children have not."""
        self._fresh = FreshRequests()
        self._relieved: tuple[int | None, frozenset[str]] = (None, frozenset())
        """Which child was told to read the energy of which devices less often."""
        self._measure_seconds = measure_seconds
        self._measured_at = now
        self._closing = False

    @property
    def provider(self) -> str:
        return self._request.provider

    @property
    def worker_pid(self) -> int | None:
        number = self.watch.worker
        return None if number is None else self._processes[number].pid

    def limit(self, workers: WorkersConfig) -> None:
        self.watch.limit(workers)

    def tick(self, now: float) -> None:
        """Let time pass: reap, judge and start children."""
        for process in list(self._processes.values()):
            self._catch_up(process)
            self._look(process)
            self._reap(process)
        for number in self.watch.overdue(now):
            self._hear_out(self._processes[number])
            self._look(self._processes[number])
        now = time.monotonic()
        late = [self._processes[number] for number in self.watch.overdue(now)]
        self._act(self.watch.tick(now, {process.number for process in late if process.is_stopped()}))
        self._left = [process for process in self._left if not process.swept()][-_MOST_LEFT:]
        self._relieve(now)
        if now - self._measured_at >= self._measure_seconds:
            self._measured_at = now
            self._measure(now)

    def ask_fresh(self, timeout: float) -> asyncio.Future[None] | None:
        """Ask the worker for fresh energy; None: there is nobody to ask, nothing to wait for, or no hope in waiting."""
        now = time.monotonic()
        if self._fresh.awaited:
            return self._fresh.shared(now, timeout)
        number = self.watch.worker
        if number is None or not self.watch.ready:
            return None
        process = self._processes[number]
        asked = self._fresh.is_needed(now) and process.ask(self._fresh.next())
        answer = self._fresh.asked(number, now) if asked else None
        self._catch_up(process)  # while it reads
        return answer

    def release(self, *, closing: bool = False) -> None:
        """Ask all children to end, and start none."""
        self._closing = closing
        self._act(self.watch.release(time.monotonic()))

    def take_up(self) -> None:
        self._act(self.watch.take_up(time.monotonic()))

    def drop(self) -> None:
        """Kill what is left, without waiting for it."""
        for process in list(self._processes.values()):
            process.kill()
            self._forget(process)

    def _act(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Spawn():
                    self._spawn(action)
                case Kill(child):
                    self._processes[child].kill()
                    self._fresh.gone(child)
                case Ask(child, request):
                    self._ask(self._processes[child], request)
                case Abandoned(count):
                    level = logging.WARNING if count else logging.INFO
                    message = "child processes that cannot be killed: the driver does not let go of them"
                    logger.log(level, message, extra={"provider": self._request.provider, "count": count})
                    self._abandoned()
                case Status() | State() | Restarted() | Kept():
                    if not self._closing:
                        self._tell(action)

    def _spawn(self, action: Spawn) -> None:
        start = frames.Start(
            request=self._request,
            sampling=self._sampling,
            exclude=action.exclude,
            last=action.last,
            known=action.known,
            only=action.only,
        )
        try:
            process = Process(action.child, start, self._output, self._log)
        except OSError as error:
            self._act(self.watch.not_started(action.child, str(error), time.monotonic()))
            return
        self._processes[action.child] = process
        self._listen(process)

    def _ask(self, process: Process, request: frames.Request) -> None:
        if not process.ask(request) and isinstance(request, frames.Exclude):
            self._act(self.watch.broken(process.number, "it takes no requests", time.monotonic()))

    def _relieve(self, now: float) -> None:
        """Tell the worker which devices another provider delivers energy of, when that has changed."""
        number = self.watch.worker
        if number is None or not self.watch.ready:
            return
        if number != self._relieved[0]:
            self._relieved = (number, frozenset())
            self._fresh.relieve(frozenset())
        keys = self._audience.relieved(self._request.provider, now)
        # One that takes no requests is told at the next tick; until then it reads too often.
        if keys != self._relieved[1] and self._processes[number].ask(frames.Relieve(tuple(sorted(keys)))):
            self._relieved = (number, keys)
            self._fresh.relieve(keys)

    def _tell(self, action: Status | State | Restarted | Kept) -> None:
        provider = self._request.provider
        match action:
            case Status(up, reason, library_version, news):
                self._audience.provider_status(provider, up=up, reason=reason, library_version=library_version)
                if news and up:
                    logger.info("provider is up", extra={"provider": provider, "library_version": library_version})
                elif news and reason != RELEASED:  # which was told once for all of them
                    level = logging.WARNING if self._audience.is_wanted(provider) else logging.INFO
                    logger.log(level, "provider is down", extra={"provider": provider, "reason": reason})
            case State(key, state, reason, news):
                self._audience.device_state(provider, key, state)
                self._fresh.forget(key)
                if news and reason:
                    logger.warning("GPU is hung", extra={"uuid": key, "provider": provider, "reason": reason})
                elif news:
                    logger.info("GPU answers again", extra={"uuid": key, "provider": provider})
            case Restarted(cause, reason):
                self._audience.restarted(provider, cause)
                if reason:
                    logger.info("worker is replaced", extra={"provider": provider, "reason": reason})
            case Kept(reason):
                fields = {"provider": provider, "reason": reason}
                logger.warning("worker is kept, as its successor does not get ready", extra=fields)

    def _listen(self, process: Process) -> None:
        self._listening.add(process.number)
        self._loop.add_reader(process.reports, self._on_reports, process)

    def _pause(self, process: Process) -> None:
        self._listening.discard(process.number)
        self._loop.remove_reader(process.reports)

    def _on_reports(self, process: Process) -> None:
        if self._is_urgent:
            self._listen_or_rest(process)
        else:
            self._pause(process)

    @property
    def _is_urgent(self) -> bool:
        """Whether reports are taken as they come. Else each tick takes what came since the one before.

        That saves the wake-ups, most of what supervision costs. Readings carry their own time, so nothing is lost.
        """
        return self._fresh.awaited or not self.watch.calm

    def _catch_up(self, process: Process) -> None:
        """Take what a child reported while it was not listened to, and listen to it again if that is urgent."""
        if self._processes.get(process.number) is not process:
            return
        if process.number in self._listening or process.number in self._deaf:
            return
        if self._is_urgent:
            self._listen(process)
        self._listen_or_rest(process)

    def _listen_or_rest(self, process: Process) -> None:
        if not self._listen_for_a_slice(process):
            self._pause(process)
            self._loop.call_later(_SLICE_SECONDS, self._catch_up, process)

    def _listen_for_a_slice(self, process: Process) -> bool:
        """Take what the child reported; false when there is more than fits into one slice of time."""
        until = time.monotonic() + _SLICE_SECONDS
        while not self._hear(process):
            if time.monotonic() > until:
                return False
        return True

    def _hear_out(self, process: Process) -> None:
        """Take all that a child reported which is late or has ended."""
        for _ in range(_LAST_PIECES):
            if process.number in self._deaf or self._hear(process):
                return

    def _hear(self, process: Process) -> bool:
        """Take one piece of what the child reported; true when nothing more is there."""
        try:
            heard = process.hear()
        except frames.FrameError as error:
            self._stop_listening(process)
            self._act(self.watch.broken(process.number, str(error), time.monotonic()))
            return True
        self._take(process, heard.reports)
        if heard.ended:
            self._stop_listening(process)
            self._look(process)
            self._act(self.watch.closed(process.number, time.monotonic()))
        return heard.emptied

    def _stop_listening(self, process: Process) -> None:
        self._pause(process)
        self._deaf.add(process.number)
        self._fresh.gone(process.number)

    def _take(self, process: Process, reports: tuple[frames.Report, ...]) -> None:
        now, wall = time.monotonic(), time.time()
        for report in reports:
            before = self.watch.worker
            if isinstance(report, frames.Enumerated) and self.watch.successor == process.number and before is not None:
                # What it takes over from has the last word on what it has read.
                self._hear_out(self._processes[before])
            elif isinstance(report, frames.Failed):
                self._look(process)
            actions = self.watch.heard(process.number, report, now)
            if self.watch.worker == process.number:
                if before is not None and before != process.number:
                    self._fresh.gone(before)
                self._publish(report, now, wall)
            self._act(actions)

    def _publish(self, report: frames.Report, now: float, wall: float) -> None:
        provider = self._request.provider
        match report:
            case frames.Sampled(sample):
                self._fresh.sampled(sample)
                self._audience.observed(provider, sample, now, wall)
            case frames.Enumerated(devices):
                self._fresh.enumerated(device.key for device in devices[:MOST_DEVICES])
                self._audience.enumerated(provider, devices, now)
            case frames.PassTook(seconds):
                for group, took in seconds.items():
                    self._audience.pass_took(provider, group, took)
            case frames.FreshDone(token):
                self._fresh.done(token)
            case _:
                pass

    def _look(self, process: Process) -> None:
        self.watch.looked(process.number, process.progress.reads(), time.monotonic())

    def _measure(self, now: float) -> None:
        number = self.watch.worker
        if number is not None:
            self._act(self.watch.measured(number, self._processes[number].usage(), now))

    def _log(self, lines: list[Line]) -> None:
        for line in lines:
            logger.log(line.level, "the library printed: %s", line.text, extra={"provider": self._request.provider})

    def _reap(self, process: Process) -> None:
        status = process.status()
        if status is None:
            return
        self._hear_out(process)
        self._look(process)
        process.last_words()
        self._fresh.gone(process.number)
        self._forget(process)
        if not process.swept():
            self._left.append(process)
        self._act(self.watch.ended(process.number, status, time.monotonic()))

    def _forget(self, process: Process) -> None:
        self._listening.discard(process.number)
        self._deaf.discard(process.number)
        del self._processes[process.number]
        process.close()
