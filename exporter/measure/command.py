"""The command whose joules are measured: started, waited for, and sent the signals that are meant for it.

What it reads and prints is its own: it has our standard input, output and error. Its group of processes is its own as
well, and signals go to all of it, except where there is a terminal: there it stays in ours, so that Ctrl-C, Ctrl-Z and
reading from the terminal work as without us, and what the keyboard sends reaches it without our help.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from exporter.measure.relay import Relay

FORWARDED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_OF_THE_KEYBOARD = (signal.SIGINT, signal.SIGQUIT)
CANNOT_RUN = 126
NOT_FOUND = 127
_LAST_OUTPUT_SECONDS = 5.0
_POLL_SECONDS = 0.01


class CommandError(Exception):
    """It could not be started; `status` is what a shell would give."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Command:
    """One run of the command, in a running event loop."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        look: Callable[[int, bytes], None] | None = None,
    ) -> None:
        """Start it. `look` is given what it prints, with 1 or 2 for where. Raises CommandError."""
        self._on_terminal = on_terminal()
        pipes = None if look is None else subprocess.PIPE
        self.started_at = time.monotonic()
        """CLOCK_MONOTONIC before its first instruction."""
        self.ended_at: float | None = None
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- what the user asks for
                list(arguments),
                env=dict(environment),
                stdout=pipes,
                stderr=pipes,
                process_group=None if self._on_terminal else 0,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            status = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
            raise CommandError(f"cannot run {arguments[0]}: {reason}", status) from None
        self._relays = []
        if look is not None:
            for stream, number in ((self._process.stdout, 1), (self._process.stderr, 2)):
                assert stream is not None  # noqa: S101 -- for the type checker: it is a pipe
                source = os.dup(stream.fileno())
                stream.close()
                self._relays.append(Relay(source, number, partial(look, number)))

    @property
    def status(self) -> int | None:
        """The exit status, 128 + the number of the signal that ended it; None: it has not ended."""
        code = self._process.returncode
        return code if code is None or code >= 0 else 128 - code

    async def wait(self) -> int:
        """Return the exit status, when it has ended and all that it printed is passed on."""
        await self._ended()
        self.ended_at = time.monotonic()
        status = self._process.wait()
        for relay in self._relays:
            await relay.finish(_LAST_OUTPUT_SECONDS)
        return status if status >= 0 else 128 - status

    def send(self, number: int) -> None:
        """Pass a signal on that came to us."""
        if self._process.poll() is not None or (self._on_terminal and number in _OF_THE_KEYBOARD):
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._on_terminal:
                os.kill(self._process.pid, number)
            else:
                os.killpg(self._process.pid, number)

    async def _ended(self) -> None:
        try:
            descriptor = os.pidfd_open(self._process.pid)
        except OSError:  # Linux before 5.3
            while self._process.poll() is None:  # noqa: ASYNC110 -- there is nothing else to wait on
                await asyncio.sleep(_POLL_SECONDS)
            return
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)


def on_terminal() -> bool:
    """Tell whether we have a terminal whose keyboard sends signals to our group of processes."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(terminal)
    return True
