"""What the kernel tells in the small files of /proc and /sys: read without waiting, and no more than is wanted."""

import os
from typing import NamedTuple

INITIAL_PID_NAMESPACE = "pid:[4026531836]"
"""As the kernel numbers the namespaces that it starts with: include/linux/proc_ns.h."""
OURSELVES = "/proc/self"

_PIECE_BYTES = 65536
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD


class Stat(NamedTuple):
    """/proc/PID/stat; one read, so all of it is of the same process."""

    name: str
    """Cut at 15 bytes; may be empty."""
    started: int
    """Clock ticks since boot, field 22."""
    parent: int
    kernel: bool
    """A thread of the kernel, which never has a GPU open."""
    state: str
    """Z and X: it has ended. T and t: a signal or a debugger holds it."""


def stat_of(proc: str, pid: int) -> Stat:
    """Read the stat of a process; `proc`: where proc is mounted. Raises OSError, ValueError for what is no stat."""
    head, closing, tail = read_small(f"{proc}/{pid}/stat").rpartition(b")")  # a name may hold anything, parentheses too
    fields = tail.split() if closing else []
    try:
        # A name may be cut in the middle of a character.
        name = head.partition(b"(")[2].decode("utf-8", "replace")
        kernel = bool(int(fields[6]) & _KERNEL_THREAD)
        return Stat(name, int(fields[19]), int(fields[1]), kernel, fields[0].decode("ascii"))
    except IndexError:
        raise ValueError("no stat of a process") from None


def is_of_the_host(proc: str, own: str = OURSELVES) -> bool:
    """Tell whether the proc mounted at `proc` shows processes under the pids of the initial namespace, as drivers do.

    `own`: our process in a proc of our own namespace. What cannot be told for certain is not the host's.
    """
    if leads_to(f"{proc}/1/ns/pid") == INITIAL_PID_NAMESPACE or _has_kernel_threads(proc):
        return True
    # With hidepid neither is seen. What is mounted is of our own namespace if we have one number there.
    pid = leads_to(f"{proc}/self")
    return leads_to(f"{own}/ns/pid") == INITIAL_PID_NAMESPACE and bool(pid) and len(numbers_of(proc, pid)) == 1


def numbers_of(proc: str, pid: str) -> tuple[int, ...]:
    """Return the numbers of a process in nested pid namespaces, that of the mount first; empty: it cannot be told."""
    try:
        _, found, rest = read_all(f"{proc}/{pid}/status").partition(b"\nNSpid:")
        return tuple(map(int, rest.partition(b"\n")[0].split())) if found else ()
    except (OSError, ValueError):
        return ()


def leads_to(path: str) -> str:
    """Return where a link leads; empty: it cannot be told."""
    try:
        return os.readlink(path)  # noqa: PTH115 -- paths are text here, as in all of /proc
    except OSError:
        return ""


def read_small(path: str, folder: int | None = None) -> bytes:
    """Read a file of which the first 4 KiB matter; `folder`: descriptor of where it lies. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def read_all(path: str, limit: int = _PIECE_BYTES) -> bytes:
    """Read at most `limit` bytes of a file, or of a copy of it. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        # It is handed out in pieces of the kernel's own size.
        data = piece = os.read(descriptor, limit)
        while piece and len(data) < limit:
            piece = os.read(descriptor, limit - len(data))
            data += piece
        return data
    finally:
        os.close(descriptor)


def _has_kernel_threads(proc: str) -> bool:
    """Whether the second process is the kernel's: only the host has those."""
    try:
        second = stat_of(proc, 2)
    except (OSError, ValueError):
        return False
    return second.kernel and second.parent == 0
