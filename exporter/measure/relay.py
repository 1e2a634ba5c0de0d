"""Passes on what a command prints, byte by byte, while something else looks at it: nothing is held back or changed."""

import asyncio
import contextlib
import os
from collections.abc import Callable

_PIECE_BYTES = 64 * 1024
_PIPE_BYTES = 4096
"""A pipe or terminal that is ready takes so much without waiting."""


class Relay:
    """From a pipe of ours to a descriptor that others share, which therefore stays as it is, blocking or not.

    While whoever reads it does not keep up, nothing more is taken from the command, which then waits as it would
    without us. When nobody reads it any more the pipe is closed, and the command meets what it would have met.
    """

    def __init__(self, source: int, target: int, look: Callable[[bytes], None]) -> None:
        """`source` belongs to the relay from here on."""
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._target = target
        # epoll takes a descriptor once, and standard output and error may be one file: it gets a copy.
        self._copy = os.dup(target)
        self._look = look
        self._pending = memoryview(b"")
        self._ready = True
        """Whether the target is written to without being waited for: files are always ready."""
        self._open = True
        os.set_blocking(source, False)
        self._loop.add_reader(source, self._on_output)

    async def finish(self, seconds: float) -> None:
        """Pass on what is left after the end of the command, and close; a reader that is slow gets so many seconds."""
        until = self._loop.time() + seconds
        while self._open and self._loop.time() < until:
            if not self._pending and not self._read():
                break
            await asyncio.sleep(0 if self._ready else 0.005)
        self.close()

    def close(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._source)
            with contextlib.suppress(OSError):
                self._loop.remove_writer(self._copy)
            os.close(self._source)
            os.close(self._copy)

    def _on_output(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Take a piece; false when there is nothing, or will never be any."""
        try:
            data = os.read(self._source, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._look(data)
        self._pending = memoryview(data)
        self._loop.remove_reader(self._source)
        try:
            self._loop.add_writer(self._copy, self._on_room)
        except PermissionError:  # a file, which epoll does not take, as it never waits
            while self._pending:
                self._on_room()
            return True
        self._ready = False
        return True

    def _on_room(self) -> None:
        try:
            written = os.write(self._target, self._pending[:_PIPE_BYTES])
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more, or its disk is full
            self.close()
            self._pending = memoryview(b"")
            return
        self._pending = self._pending[written:]
        if not self._pending and self._open:
            self._ready = True
            with contextlib.suppress(OSError):
                self._loop.remove_writer(self._copy)
            self._loop.add_reader(self._source, self._on_output)
