"""The parent's hold on one child process: it is started, fed, listened to, killed and reaped without waiting."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from exporter.framing import Frame, Inbox, encode
from exporter.kernel import stat_of
from exporter.supervision import frames
from exporter.supervision.output import Line, Output
from exporter.supervision.progress import Progress, shared
from exporter.supervision.recycling import Usage

_PIPE_BYTES = 256 * 1024
_READ_BYTES = 16 * 1024
_LAST_PIECES = 64
"""The most that is read of what a child printed before its end."""

_R = TypeVar("_R")


class Heard(NamedTuple, Generic[_R]):
    reports: tuple[_R, ...]
    emptied: bool
    """Nothing more is in the pipe for the moment."""
    ended: bool = False
    """Nothing will ever come."""


class ChildProcess(Generic[_R]):
    """Descriptors are non-blocking, and closed by `close`. Needs a running event loop."""

    def __init__(
        self,
        module: str,
        name: str,
        inbox: Inbox[_R],
        output: Output,
        log: Callable[[list[Line]], None],
        passed: Sequence[int] = (),
    ) -> None:
        """Start `python -m module name REPORTS REQUESTS PARENT PASSED...`. Raises OSError.

        What it prints goes through `output`, one for all children of a kind, and is given to `log` as it comes.
        `passed`: descriptors that it gets besides those of its pipes.
        """
        self._loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as undo:
            self.reports, report_end = _pipe(undo)
            request_end, self.requests = _pipe(undo)
            self._printed, output_end = _pipe(undo)
            # What a first pass over many devices gives, so that the child seldom waits for us; 64 KiB do as well.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.reports, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            command = [sys.executable, "-u", "-P", "-m", module, name]
            self._process = subprocess.Popen(  # noqa: S603 -- our own module under our own interpreter
                [*command, *map(str, (report_end, request_end, os.getpid(), *passed))],
                stdin=subprocess.DEVNULL,
                stdout=output_end,
                stderr=output_end,
                pass_fds=(report_end, request_end, *passed),
                cwd="/",
                # What a library starts is ended with the worker.
                process_group=0,
                # The very modules that the parent runs, wherever they come from.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            )
            undo.pop_all()
        for descriptor in (report_end, request_end, output_end):
            os.close(descriptor)
        for descriptor in (self.reports, self.requests, self._printed):
            os.set_blocking(descriptor, False)
        self._inbox = inbox
        self._output = output
        self._log = log
        self._loop.add_reader(self._printed, self._on_output)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Frame) -> bool:
        """Send a request; false when the child does not take any."""
        data = encode(request)
        try:
            return os.write(self.requests, data) == len(data)
        except OSError:
            return False

    def hear(self) -> Heard[_R]:
        """Return the reports in the next piece of the pipe. Raises FrameError."""
        try:
            data = os.read(self.reports, _READ_BYTES)
        except BlockingIOError:
            return Heard((), emptied=True)
        if not data:
            return Heard((), emptied=True, ended=True)
        return Heard(tuple(self._inbox.feed(data)), emptied=len(data) < _READ_BYTES)

    def last_words(self) -> None:
        """After its end: log what it printed and nobody has read."""
        for _ in range(_LAST_PIECES):
            if not self._on_output():
                break
        self._log(self._output.end(time.monotonic()))

    def _on_output(self) -> bool:
        """Log a piece of what it printed; false when nothing was there."""
        try:
            data = os.read(self._printed, _READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._log(self._output.feed(data, time.monotonic()))
        else:
            self._loop.remove_reader(self._printed)
        return bool(data)

    def kill(self) -> None:
        """Kill it with all that it has started."""
        if self._process.returncode is None:  # afterwards the number may be another's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    def status(self) -> int | None:
        """Reap it. None: it has not ended. Negative: the signal that ended it."""
        if self._process.returncode is None:
            # Nothing is there to wait for where SIGCHLD was ignored by whoever started us.
            with contextlib.suppress(ChildProcessError):
                if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    return None
                self.kill()
        return self._process.poll()

    def swept(self) -> bool:
        """After its end: reap what it left behind, where that has become our child; true when nothing is left.

        It has where we are the first process of a container.
        """
        try:
            while os.waitpid(-self.pid, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        return False

    def usage(self) -> Usage:
        """Measure it without waiting: nothing here takes a lock that a call into a driver may hold, as smaps would."""
        memory = descriptors = None
        with contextlib.suppress(OSError, ValueError):
            status = Path(f"/proc/{self.pid}/status").read_text(errors="replace")
            memory = (
                int(status.partition("\nRssAnon:")[2].split(maxsplit=1)[0]) * 1024 if "RssAnon:" in status else None
            )
        with contextlib.suppress(OSError):
            descriptors = sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())
        return Usage(memory, descriptors)

    def is_stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        try:
            return stat_of("/proc", self.pid).state in ("T", "t")
        except (OSError, ValueError):
            return False

    def close(self) -> None:
        for descriptor in (self.reports, self.requests, self._printed):
            self._loop.remove_reader(descriptor)
            self._loop.remove_writer(descriptor)
            os.close(descriptor)
        if self._process.returncode is None:
            # It cannot be killed and is left behind: subprocess is not to complain of it when this object goes.
            self._process.returncode = -signal.SIGKILL


class Process(ChildProcess[frames.Report]):
    """A worker or a probe."""

    def __init__(self, number: int, start: frames.Start, output: Output, log: Callable[[list[Line]], None]) -> None:
        """Start the child, as any. Raises OSError."""
        self.number = number
        self.provider = start.request.provider
        page = shared()
        try:
            self.progress = Progress(page)
            super().__init__(
                "exporter.supervision.worker", self.provider, frames.reports(), output, log, passed=(page,)
            )
        finally:
            os.close(page)
        self.ask(start)

    def close(self) -> None:
        super().close()
        self.progress.close()


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    return reader, writer
