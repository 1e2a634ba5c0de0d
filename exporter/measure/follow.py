"""Reads the file of marks as it grows: at once where the kernel tells of changes, so that windows have sharp edges."""

import asyncio
import contextlib
import ctypes
import os
import time
from pathlib import Path

from exporter.measure.marks import Marks

LOOK_SECONDS = 0.02
"""How often it is looked where the kernel does not tell."""
LOOK_ANYWAY_SECONDS = 0.5
"""And where it does, after nobody else has looked for so long: it says nothing of what is written on another host."""
_PIECE_BYTES = 64 * 1024
_MOST_BYTES = 4 * 1024 * 1024
"""Of marks; what comes after them is not read."""
_IN_MODIFY = 0x2
_IN_NONBLOCK, _IN_CLOEXEC = 0o4000, 0o2000000


class Follower:
    """Lives in the event loop."""

    def __init__(self, path: Path, marks: Marks) -> None:
        """Make the file. Raises OSError."""
        self.path = path
        self._marks = marks
        self._taken = 0
        self._file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._loop = asyncio.get_running_loop()
        self._notices = _notices(path)
        if self._notices is not None:
            self._loop.add_reader(self._notices, self._noticed, self._notices)
        self._every = LOOK_SECONDS if self._notices is None else LOOK_ANYWAY_SECONDS
        self._next = self._loop.call_later(self._every, self.read)

    def read(self) -> None:
        """Take what is new, and look again in a while.

        To be called by whoever is awake anyway: that saves waking up for a look.
        """
        self._next.cancel()
        self._next = self._loop.call_later(self._every, self.read)
        now = time.monotonic()
        if os.fstat(self._file).st_size < os.lseek(self._file, 0, os.SEEK_CUR):
            os.lseek(self._file, 0, os.SEEK_SET)  # it was written anew instead of being appended to
        while self._taken < _MOST_BYTES and (data := os.read(self._file, _PIECE_BYTES)):
            self._taken += len(data)
            self._marks.feed(data, now)

    def close(self) -> None:
        """Take the last of it."""
        self.read()
        self._next.cancel()
        if self._notices is not None:
            self._loop.remove_reader(self._notices)
            os.close(self._notices)
        os.close(self._file)

    def _noticed(self, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, _PIECE_BYTES)
        self.read()


def _notices(path: Path) -> int | None:
    """Return a descriptor that becomes readable when the file changes; None: the kernel does not give one."""
    libc = ctypes.CDLL(None)
    descriptor: int = libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor
