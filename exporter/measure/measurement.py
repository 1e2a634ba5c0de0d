"""One measurement: the runs of a command, what is seen of each, and the report on all of them."""

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from exporter import __version__
from exporter.measure import output
from exporter.measure.command import Command
from exporter.measure.evaluate import evaluate, knowledge
from exporter.measure.follow import Follower
from exporter.measure.live import Progress
from exporter.measure.marks import VARIABLE, Counts, Marks
from exporter.measure.output import OutputError, replace
from exporter.measure.records import Counters, Identity, Mark, Point, Run, Window, settle_seconds
from exporter.measure.results import VERSION, IdentityFile, Report, encode, report
from exporter.measure.session import Session

PATTERN_SECONDS = 2.0
"""For a piece of output of at most 64 KiB, which takes milliseconds."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be measured, and how."""

    command: tuple[str, ...]
    interval: float | None = None
    """Seconds; None: as configured, else session.INTERVAL_SECONDS."""
    gpus: tuple[str, ...] = ()
    repeat: int = 1
    idle_seconds: float = 0.0
    tokens: float | None = None
    queries: float | None = None
    tokens_from: str | None = None
    """A regular expression whose numbers in the command's output are added up."""
    output: str | None = None
    markdown: bool = False


class _Seen(msgspec.Struct, frozen=True):
    """What was looked up around one run."""

    gpus: tuple[Identity, ...]
    counters_at_start: Counters
    counters_at_end: Counters
    start: float
    end: float


class Measurement:
    """One invocation: what is found, run by run."""

    def __init__(self, request: Request, session: Session, directory: Path, progress: Progress) -> None:
        self.request = request
        self.session = session
        self.directory = directory
        self.progress = progress
        self.idle: Window | None = None
        self.runs: list[tuple[Run, int | None]] = []
        """Each with the exit status of its command, and without readings: those are the recorder's."""
        self.notes: list[str] = []
        self._follower: Follower | None = None

    @property
    def last_status(self) -> int | None:
        """The exit status of the last run; None: there is none."""
        return self.runs[-1][1] if self.runs else None

    def watch(self, points: Sequence[Point]) -> None:
        """Take the readings of one turn of the event loop as they come."""
        self.progress.tally.take(points)
        if self._follower is not None:
            self._follower.read()

    async def idle_baseline(self) -> None:
        seconds = self.request.idle_seconds
        if seconds > 0:
            self.progress.begin("idle")
            start = time.monotonic()
            await asyncio.sleep(seconds)
            end = time.monotonic()
            await self._settle(end)
            self.idle = Window(name="idle", start=start, end=end)

    async def run(self, started: Callable[[Command | None], None]) -> int:
        """Run the command once and return its exit status. Raises CommandError, OutputError.

        `started` is given the command while it runs.
        """
        number = len(self.runs) + 1
        marks, found = Marks(), self._counts()
        gpus, counters = self.session.recorder.identities(), await self.session.counters()
        with self._followed(marks, number) as follower:
            self.progress.begin("running" if self.request.repeat == 1 else f"run {number} of {self.request.repeat}")
            command = Command(
                self.request.command,
                {**os.environ, VARIABLE: str(follower.path)},
                None if found is None else lambda _, data: _count(marks, found, data),
            )
            started(command)
            try:
                status = await command.wait()
            finally:
                started(None)
        end = command.ended_at or time.monotonic()
        marks.finish()
        if found is not None:
            _count(marks, found, b"", end=True)
        await self._settle(end)
        seen = _Seen(gpus, counters, await self.session.counters(), command.started_at, end)
        self._keep(marks, seen, status)
        if found is not None and found.is_too_slow:
            self._drop_tokens(number)
        elif found is not None and not found.matches:
            self._note(number, ["Nothing that the command printed matches the pattern of --tokens-from."])
        return status

    def _drop_tokens(self, number: int) -> None:
        """Take back what was counted in a part of the output."""
        run, status = self.runs[-1]
        windows = tuple(msgspec.structs.replace(window, output_tokens=None) for window in run.windows)
        self.runs[-1] = msgspec.structs.replace(run, windows=windows), status
        text = (
            f"The pattern of --tokens-from took more than {PATTERN_SECONDS:g} s for a piece of the output: no tokens."
        )
        self._note(number, [text])

    def report(self) -> Report:
        """Judge all that was seen."""
        found = (gpu for run, _ in self.runs for gpu in (*(run.gpus_at_end or ()), *run.gpus))
        gpus = tuple({gpu.gpu: gpu for gpu in found}.values())
        # Once for all: each run by all the readings before it would take the square of their number.
        known = knowledge(Run(points=self.session.recorder.points, windows=(), policy=self.session.policy, gpus=gpus))
        results = [
            evaluate(run, number=n, exit_status=status, known=known) for n, (run, status) in enumerate(self.runs, 1)
        ]
        return report(
            results,
            exporter_version=__version__,
            policy=self.session.policy,
            gpus=self.session.gpus,
            command=self.request.command,
            notes=[*self._notes_of_session(), *self.notes],
        )

    def write_identity(self, *, at_end: bool = False) -> None:
        """Write identity.json. Raises OutputError."""
        last = self.session.recorder.identities() if at_end else None
        content = encode(IdentityFile(version=VERSION, gpus=self.session.gpus, gpus_at_end=last))
        replace(self.directory / output.IDENTITY, content)

    async def _settle(self, end: float) -> None:
        await self.session.settle(end, settle_seconds(self.session.policy, self.session.gpus))

    @contextlib.contextmanager
    def _followed(self, marks: Marks, number: int) -> Iterator[Follower]:
        path = self.directory / output.MARKS
        if number > 1:
            path = path.with_stem(f"{path.stem}-{number}")
        try:
            self._follower = follower = Follower(path, marks)
        except OSError as error:
            raise OutputError(f"{path}: {error.strerror}") from None
        try:
            yield follower
        finally:
            self._follower = None
            follower.close()
            with contextlib.suppress(OSError):
                if path.stat().st_size == 0:
                    path.unlink()

    def _counts(self) -> Counts | None:
        return None if self.request.tokens_from is None else Counts(re.compile(self.request.tokens_from))

    def _keep(self, marks: Marks, seen: _Seen, status: int) -> None:
        given = {
            kind: count
            for kind, count in (("tokens", self.request.tokens), ("queries", self.request.queries))
            if count is not None
        }
        recorder = self.session.recorder
        run = Run(
            points=(),
            windows=marks.windows(seen.start, seen.end, given),
            policy=self.session.policy,
            gpus=seen.gpus,
            gpus_at_end=recorder.identities(),
            idle=self.idle,
            events=tuple(recorder.events),
            counters_at_start=seen.counters_at_start,
            counters_at_end=seen.counters_at_end,
        )
        self.runs.append((run, status))
        self._note(len(self.runs), marks.notes)

    def _note(self, number: int, notes: list[str]) -> None:
        which = "" if self.request.repeat == 1 else f"Run {number}: "
        self.notes += [f"{which}{note}" for note in notes]

    def _notes_of_session(self) -> list[str]:
        notes = []
        if self.session.covered:
            names = ", ".join(self.session.covered)
            notes.append(f"Not counted by themselves, since their package's power is that of another GPU: {names}.")
        if self.session.lost_rows:
            notes.append(f"{output.SAMPLES} does not hold every reading: {self.session.lost_rows}.")
        return notes


def _count(marks: Marks, found: Counts, data: bytes, *, end: bool = False) -> None:
    if found.is_too_slow:
        return
    count = 0.0
    try:
        with _within(PATTERN_SECONDS):
            count = found.feed(data, end=end)
    except TimeoutError:
        found.is_too_slow = True
    if count:
        marks.take(Mark(monotonic=time.monotonic(), kind="tokens", count=count))


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in what takes longer: a pattern with nested repeats may take years for one line."""

    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
