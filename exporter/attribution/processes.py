"""What /proc tells of one process: its name, when it started, as whom it runs, and its control groups."""

import enum

import msgspec

from exporter.attribution import cgroup
from exporter.attribution.files import read_proc

_STARTED = 19
"""Position of the start time among the fields of a stat that follow the name: the 22nd of all."""


class Missing(enum.Enum):
    """Why nothing is known of a process."""

    ENDED = enum.auto()
    """It is not there: it has ended, or it is hidden."""
    RECYCLED = enum.auto()
    """Another process has its pid."""
    DENIED = enum.auto()


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
        name, before = _stat(proc, pid)
        if started is not None and before != started:
            return Missing.RECYCLED
        uid = _uid(read_proc(f"{proc}/{pid}/status"))
        place = _place(proc, pid, private=private)
        _, after = _stat(proc, pid)
    except (FileNotFoundError, NotADirectoryError, ProcessLookupError):
        return Missing.ENDED
    except (OSError, ValueError):
        return Missing.DENIED
    if before != after:
        return Missing.RECYCLED
    return Seen(pid=pid, started=before, name=name, uid=uid, place=place)


def started_at(proc: str, pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None: it cannot be told."""
    try:
        return _stat(proc, pid)[1]
    except (OSError, ValueError):
        return None


def _stat(proc: str, pid: int) -> tuple[str, int]:
    """Return name and start. Raises OSError; ValueError when it does not look like a stat."""
    head, closing, tail = read_proc(f"{proc}/{pid}/stat").rpartition(b")")
    # The name stands in parentheses and may hold any character, parentheses and spaces too.
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    fields = tail.split()
    if not closing or len(fields) <= _STARTED:
        raise ValueError("no stat of a process")
    if fields[0] in (b"Z", b"X"):
        raise ProcessLookupError  # it has ended and only waits for its parent
    return name or f"pid {pid}", int(fields[_STARTED])


def _uid(status: bytes) -> int | None:
    """Return the real user id."""
    _, found, rest = status.partition(b"\nUid:")
    return int(rest.split(None, 1)[0]) if found else None


def _place(proc: str, pid: int, *, private: bool) -> cgroup.Place | None:
    try:
        text = read_proc(f"{proc}/{pid}/cgroup").decode("utf-8", "replace")
    except FileNotFoundError:
        # A kernel without control groups, unless the process has ended, which the look at its start then shows.
        return cgroup.Place(level=cgroup.Level.ROOT)
    return cgroup.parse(text, private=private)
