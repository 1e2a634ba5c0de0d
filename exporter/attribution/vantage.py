"""Whether a mounted proc shows the host's processes under the pids that drivers tell, and all of them."""

import os

import msgspec

from exporter.attribution.processes import started_at
from exporter.kernel import INITIAL_PID_NAMESPACE, read_all

_INITIAL_CGROUP_NAMESPACE = "cgroup:[4026531835]"
"""As kernel.INITIAL_PID_NAMESPACE."""

FOREIGN = "this process is in a pid namespace of its own, where the pids of the driver mean other processes"
FOREIGN_MOUNT = "the configured proc is not the host's: the pids of the driver mean other processes there"
HIDDEN = "proc hides the processes of other users (hidepid)"


class Vantage(msgspec.Struct, frozen=True, kw_only=True):
    foreign: str = ""
    """Why no pid may be looked up there."""
    hidden: str = ""
    """Why some processes are not seen there."""
    private: bool = False
    """Control groups are shown relative to our own."""


def vantage(proc: str, own: str = "/proc/self") -> Vantage:
    """Return what can be seen in the proc that is mounted at `proc`; `own`: our process in a proc of our namespace."""
    if not _is_of_the_host(proc, own):
        return Vantage(foreign=FOREIGN if proc == "/proc" else FOREIGN_MOUNT)
    # A copy of files has no `self`; a real proc shows control groups as whoever reads them is meant to see them.
    is_real = os.path.lexists(f"{proc}/self")
    cgroups = _link(f"{own}/ns/cgroup")
    return Vantage(
        hidden="" if started_at(proc, 1) is not None else HIDDEN,
        private=is_real and cgroups not in ("", _INITIAL_CGROUP_NAMESPACE),
    )


def _is_of_the_host(proc: str, own: str) -> bool:
    if _link(f"{proc}/1/ns/pid") == INITIAL_PID_NAMESPACE or _has_kernel_threads(proc):
        return True
    # With hidepid neither is seen. What is mounted is of our own namespace if we have one number there.
    pid = _link(f"{proc}/self")
    return _link(f"{own}/ns/pid") == INITIAL_PID_NAMESPACE and bool(pid) and _numbers(proc, pid) == 1


def _has_kernel_threads(proc: str) -> bool:
    """Whether the second process is the kernel's, which has no memory of its own: only the host has those."""
    status = _read(f"{proc}/2/status")
    return status.startswith(b"Name:\tkthreadd\n") and b"\nPPid:\t0\n" in status and b"\nVmSize:" not in status


def _numbers(proc: str, pid: str) -> int:
    """Return in how many nested pid namespaces, from that of the mount inwards, the process has a number."""
    _, found, rest = _read(f"{proc}/{pid}/status").partition(b"\nNSpid:")
    return len(rest.partition(b"\n")[0].split()) if found else 0


def _read(path: str) -> bytes:
    try:
        return read_all(path)
    except OSError:
        return b""


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 -- paths are text here, as in all of /proc
    except OSError:
        return ""
