"""Runs a command and measures it: signals, files, what is shown, and the exit status."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Coroutine, Iterator
from typing import IO, Any, TypeVar

from exporter import logs
from exporter.config import Config
from exporter.measure import output, tables
from exporter.measure.command import FORWARDED, Command, CommandError
from exporter.measure.live import Progress, live_line
from exporter.measure.measurement import Measurement, Request
from exporter.measure.output import OutputError, Place, make_directory, replace
from exporter.measure.results import Report, encode
from exporter.measure.session import Session, SessionError
from exporter.validation import printable

FAILED = 125
"""The exit status when the command was never started, as of `timeout` and `env`."""
_ENDING = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
_DRAW_SECONDS = 0.5
_MOST_REASONS = 8
_T = TypeVar("_T")


class _Interrupted(Exception):  # noqa: N818 -- a signal, not an error
    def __init__(self, number: int) -> None:
        self.number = number


class _Interrupts:
    """Signals that come while we measure: the command's, if it runs, else ours."""

    def __init__(self) -> None:
        self.number: int | None = None
        """The first that means the end; None: none came."""
        self._command: Command | None = None
        self._event = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in FORWARDED:
            # What whoever started us wants ignored (nohup) is for the command to inherit.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._came, number)

    def started(self, command: Command | None) -> None:
        """Pass signals on to this command from here on; None: it has ended."""
        self._command = command

    async def unless(self, doing: Coroutine[Any, Any, _T]) -> _T:
        """Do it, or raise _Interrupted as soon as a signal has come that means the end."""
        task, came = asyncio.create_task(doing), asyncio.create_task(self._event.wait())
        try:
            await asyncio.wait([task, came], return_when=asyncio.FIRST_COMPLETED)
            if self.number is not None:
                raise _Interrupted(self.number)
            return await task
        finally:
            for each in (task, came):
                each.cancel()
            await asyncio.gather(task, came, return_exceptions=True)

    def _came(self, number: int) -> None:
        if number in _ENDING and self.number is None:
            self.number = number
            self._event.set()
        if self._command is not None:
            self._command.send(number)


def measure(config: Config, request: Request) -> int:
    """Measure and return the exit status: that of the command, or FAILED when it was never started."""
    _take_care()
    # What the library says is for whoever looks for a fault; the verdict says what it means.
    logs.configure("error", config.log.format)
    return asyncio.run(_measure(config, request))


def _take_care() -> None:
    """Make good what whoever started us may have left: without it files and exit statuses would be mixed up."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Else the next file of ours takes its place. The command finds it closed, as it would without us.
            os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


async def _measure(config: Config, request: Request) -> int:
    interrupts = _Interrupts()
    try:
        place = make_directory(request.output, time.time())
    except OutputError as error:
        tell(str(error))
        return FAILED
    progress = Progress(live_line(2, os.environ.get("TERM")))
    measurement = Measurement(request, Session(config, request.interval), place.path, progress)
    drawing = asyncio.create_task(_keep_drawing(progress))
    try:
        with _opened(place) as file:
            status = await _run_all(measurement, interrupts, file)
    except _Interrupted as interrupted:
        status = 128 + interrupted.number
    except CommandError as error:
        tell(str(error))
        status = error.status
    except (SessionError, OutputError) as error:
        tell(str(error))
        status = measurement.last_status or 1 if measurement.runs else FAILED
    finally:
        drawing.cancel()
        progress.close()
        await measurement.session.close()
    if not measurement.runs:
        place.discard()
        return status
    report = measurement.report()
    failed = write_results(report, place, markdown=request.markdown)
    if _is_terminal(2):
        sys.stderr.write(f"{tables.terminal(report)}\nResults: {printable(str(place.path))}\n")
    elif not report.power_valid:
        tell_verdict(report)
    return status or failed


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[IO[str]]:
    """Give the file of samples. Raises OutputError."""
    path = place.path / output.SAMPLES
    try:
        file = path.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}") from None
    try:
        yield file
    finally:
        # Rows that the disk did not take are told of already.
        with contextlib.suppress(OSError):
            file.close()


async def _run_all(measurement: Measurement, interrupts: _Interrupts, file: IO[str]) -> int:
    measurement.progress.begin("looking for GPUs")
    session, request = measurement.session, measurement.request
    await interrupts.unless(session.start(request.gpus))
    measurement.progress.gpus = len(session.gpus)
    with session.recording(file, measurement.watch):
        measurement.write_identity()
        await interrupts.unless(measurement.idle_baseline())
        status = 0
        for _ in range(request.repeat):
            status = await measurement.run(interrupts.started)
            if status or interrupts.number is not None:
                break
        measurement.write_identity(at_end=True)
    return status


async def _keep_drawing(progress: Progress) -> None:
    while progress.is_shown:
        progress.draw()
        await asyncio.sleep(_DRAW_SECONDS)


def write_results(report: Report, place: Place, *, markdown: bool) -> int:
    """Write the files that tell what was found; return 1, and say why, when they could not be written, else 0."""
    try:
        replace(place.path / output.ENERGY, encode(report))
        if markdown:
            replace(place.path / output.TABLE, tables.markdown(report).encode())
    except OutputError as error:
        tell(str(error))
        return 1
    return 0


def tell_verdict(report: Report) -> None:
    """Say why the joules cannot be trusted, in a few lines."""
    reasons = [
        f"{window.name}: {reason.text}" for run in report.runs for window in run.windows for reason in window.reasons
    ]
    tell("the power data are not valid" + ("" if reasons else ": there is no window"))
    for reason in reasons[:_MOST_REASONS]:
        tell(reason)
    if len(reasons) > _MOST_REASONS:
        tell(f"and {len(reasons) - _MOST_REASONS} reasons more, in {output.ENERGY}")


def _is_terminal(descriptor: int) -> bool:
    return sys.stderr is not None and os.isatty(descriptor)


def tell(text: str) -> None:
    """Write a line to standard error, if there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"gpu-exporter: {printable(text)}\n")
            sys.stderr.flush()
