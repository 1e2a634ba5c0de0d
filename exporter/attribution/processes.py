"""What /proc tells of one process: its name, when it started, as whom it runs, and its control groups."""

import enum
import os

import msgspec

from exporter.attribution import cgroup
from exporter.kernel import Stat, read_all, stat_of


class Missing(enum.Enum):
    """Why nothing is known of a process."""

    ENDED = enum.auto()
    """It is not there: it has ended, or it is hidden."""
    RECYCLED = enum.auto()
    """Another process has its pid."""
    DENIED = enum.auto()
    HIDDEN = enum.auto()
    """It lives, and proc does not show it (hidepid)."""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One process, for the life of the boot."""

    pid: int
    started: int
    """Clock ticks since boot."""
    name: str
    uid: int | None
    place: cgroup.Place | None
    """None: its control groups have a shape that is not known."""


def look_at(proc: str, pid: int, started: int | None, *, private: bool = False) -> Seen | Missing:
    """Read the process that has this pid and started then; None: whichever has it.

    `proc`: where the host's proc is mounted. `private`: as in `cgroup.parse`. The start is read before and after the
    rest, so that what is returned is of one process.
    """
    try:
        before = _stat(proc, pid)
        if started is not None and before.started != started:
            return Missing.RECYCLED
        uid = _uid(read_all(f"{proc}/{pid}/status"))
        place = _place(proc, pid, private=private)
        after = _stat(proc, pid)
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return Missing.ENDED
    except (OSError, ValueError):
        return Missing.DENIED
    if before.started != after.started:
        return Missing.RECYCLED
    return Seen(pid=pid, started=before.started, name=before.name or f"pid {pid}", uid=uid, place=place)


def started_at(proc: str, pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None: it cannot be told."""
    try:
        return _stat(proc, pid).started
    except (OSError, ValueError):
        return None


def is_of_another_user(pid: int) -> bool:
    """Tell whether a process of our own pid namespace lives that we may not signal, seen in proc or not."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _stat(proc: str, pid: int) -> Stat:
    """Raise OSError, also for what has ended and only waits for its parent; ValueError for what is no stat."""
    stat = stat_of(proc, pid)
    if stat.state in ("Z", "X"):
        raise ProcessLookupError
    return stat


def _uid(status: bytes) -> int | None:
    """Return the real user id."""
    _, found, rest = status.partition(b"\nUid:")
    return int(rest.split(None, 1)[0]) if found else None


def _place(proc: str, pid: int, *, private: bool) -> cgroup.Place | None:
    try:
        text = read_all(f"{proc}/{pid}/cgroup").decode("utf-8", "replace")
    except FileNotFoundError:
        # A kernel without control groups, unless the process has ended, which the look at its start then shows.
        return cgroup.Place(level=cgroup.Level.ROOT)
    return cgroup.parse(text, private=private)
