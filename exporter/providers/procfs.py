"""Which process is behind a pid that a vendor's driver names, as far as /proc shows it.

Drivers name pids of the initial pid namespace. In another one the same number is another process, or none: nothing is
looked up there, so that nobody is given the name or the owner of a stranger.
"""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from exporter.kernel import OURSELVES, Stat, is_of_the_host, numbers_of, stat_of

_TICKS = os.sysconf("SC_CLK_TCK")


def boottime() -> float:
    """Return seconds since boot, on the clock of a process' start time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Proc(msgspec.Struct, frozen=True):
    """The /proc below `host`.

    `root`: where /sys is. `own`: pids of the worker and its parent, as this /proc counts. `foreign`: it is not that of
    the initial namespace. `host` None: it is below `root` too.
    """

    root: Path
    own: frozenset[int]
    foreign: bool = False
    boottime: Callable[[], float] = boottime
    host: Path | None = None

    @property
    def above(self) -> Path:
        """Below which /proc is."""
        return self.root if self.host is None else self.host

    def look(self, pid: int, before: float = math.inf) -> Stat | None:
        """Look a process up that a driver has named; None: it has ended, is hidden, or is of another namespace.

        `before`: seconds since boot when the driver was asked. A process that started later has taken over the pid.
        """
        if self.foreign:
            return None
        seen = read_stat(self.above, pid)
        if seen is None or (before < math.inf and seen.started >= int(before * _TICKS)):
            return None
        return seen

    def is_own(self, pid: int, seen: Stat | None) -> bool:
        """Tell whether it is the exporter: the worker, its parent, or a child of either."""
        return not self.foreign and (pid in self.own or (seen is not None and seen.parent in self.own))

    def age(self, seen: Stat) -> float:
        """Return for how many seconds a process has been there."""
        return max(0.0, self.boottime() - seen.started / _TICKS)


def proc_of(root: Path, host: Path | None = None, own: str = OURSELVES) -> Proc:
    """Return the /proc below `host`, or else `root`, as this process sees it; /sys is below `root`.

    `own`: as of `is_of_the_host`.
    """
    proc = f"{root if host is None else host}/proc"
    # Our pid as this /proc counts: that of the host, mounted in a container, counts otherwise than we do.
    pid = next(iter(numbers_of(proc, "self")), os.getpid())
    try:
        parent = stat_of(proc, pid).parent
    except (OSError, ValueError):
        parent = os.getppid()
    return Proc(root, frozenset({pid, parent}) - {0}, foreign=not is_of_the_host(proc, own), host=host)


def read_stat(root: Path, pid: int) -> Stat | None:
    """Read /proc/PID/stat; None when there is none, or it may not be read."""
    try:
        return stat_of(f"{root}/proc", pid)
    except (OSError, ValueError):
        return None


def name_of(pid: int, seen: Stat | None) -> str:
    """Return the kernel's name of a process, or `pid N` where that is not known."""
    return (seen.name if seen else "") or f"pid {pid}"


def listed_pids(root: Path) -> tuple[list[int], int]:
    """List the pids that /proc shows, in order, and tell how many processes it hides (mount option hidepid).

    Raises OSError.
    """
    pids: list[int] = []
    folders = 0
    with os.scandir(root / "proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                pids.append(int(entry.name))
            elif entry.is_dir(follow_symlinks=False):
                folders += 1
    pids.sort()
    if not pids or pids[0] == 1:  # whoever sees the first process sees all
        return pids, 0
    # The kernel counts as links of /proc all processes, those that it does not list too, and two of its own.
    links = (root / "proc").stat().st_nlink
    return pids, max(0, links - 2 - folders - len(pids))


def names_in(folder: str | int) -> list[str]:
    """Return the names in a folder, given by its path or descriptor. Raises OSError."""
    return os.listdir(folder)  # noqa: PTH208 -- of thousands of folders in one pass: a Path for each name is dear


def link_of(path: str) -> str:
    """Return where a link leads. Raises OSError."""
    return os.readlink(path)  # noqa: PTH115 -- as above
