"""The parent's hold on one child process: it is started, fed, listened to, killed and reaped without waiting."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from exporter.framing import Frame, Inbox, encode
from exporter.kernel import stat_of
from exporter.supervision import frames
from exporter.supervision.recycling import Usage

_PIPE_BYTES = 256 * 1024
_READ_BYTES = 16 * 1024

_R = TypeVar("_R")


class Heard(NamedTuple, Generic[_R]):
    reports: tuple[_R, ...]
    emptied: bool
    """Nothing more is in the pipe for the moment."""
    ended: bool = False
    """Nothing will ever come."""


class ChildProcess(Generic[_R]):
    """Descriptors are non-blocking, and closed by `close`."""

    def __init__(self, module: str, name: str, inbox: Inbox[_R]) -> None:
        """Start `python -m module name REPORTS REQUESTS PARENT`. Raises OSError."""
        with contextlib.ExitStack() as undo:
            self.reports, report_end = _pipe(undo)
            request_end, self._requests = _pipe(undo)
            self.output, output_end = _pipe(undo)
            # What a first pass over many devices gives, so that the child seldom waits for us; 64 KiB do as well.
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.reports, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            command = [sys.executable, "-u", "-P", "-m", module, name]
            self._process = subprocess.Popen(  # noqa: S603 -- our own module under our own interpreter
                [*command, str(report_end), str(request_end), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=output_end,
                stderr=output_end,
                pass_fds=(report_end, request_end),
                cwd="/",
                # What a library starts is ended with the worker.
                process_group=0,
                # The very modules that the parent runs, wherever they come from.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)},
            )
            undo.pop_all()
        for descriptor in (report_end, request_end, output_end):
            os.close(descriptor)
        for descriptor in (self.reports, self._requests, self.output):
            os.set_blocking(descriptor, False)
        self._inbox = inbox

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Frame) -> bool:
        """Send a request; false when the child does not take any."""
        data = encode(request)
        try:
            return os.write(self._requests, data) == len(data)
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

    def printed(self) -> bytes | None:
        """Return a piece of what it printed: b"" when there is nothing yet, None at the end."""
        try:
            return os.read(self.output, _READ_BYTES) or None
        except BlockingIOError:
            return b""

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
        for descriptor in (self.reports, self._requests, self.output):
            os.close(descriptor)
        if self._process.returncode is None:
            # It cannot be killed and is left behind: subprocess is not to complain of it when this object goes.
            self._process.returncode = -signal.SIGKILL


class Process(ChildProcess[frames.Report]):
    """A worker or a probe."""

    def __init__(self, number: int, start: frames.Start) -> None:
        """Start the child. Raises OSError."""
        self.number = number
        self.provider = start.request.provider
        super().__init__("exporter.supervision.worker", self.provider, frames.reports())
        self.ask(start)


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    reader, writer = os.pipe()
    undo.callback(os.close, reader)
    undo.callback(os.close, writer)
    return reader, writer
