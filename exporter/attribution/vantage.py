"""Whether a mounted proc shows the host's processes under the pids that drivers tell, and all of them."""

import os

import msgspec

from exporter.attribution.processes import started_at
from exporter.kernel import OURSELVES, is_of_the_host, leads_to

_INITIAL_CGROUP_NAMESPACE = "cgroup:[4026531835]"
"""As kernel.INITIAL_PID_NAMESPACE."""

FOREIGN = "this process is in a pid namespace of its own, where the pids of the driver mean other processes"
FOREIGN_MOUNT = "the configured proc is not the host's: the pids of the driver mean other processes there"
HIDDEN = "proc hides the processes of other users (hidepid)"


class Vantage(msgspec.Struct, frozen=True, kw_only=True):
    foreign: str = ""
    """Why no pid may be looked up there."""
    hiding: bool = False
    """The first process is not seen there, and so others may not be."""
    private: bool = False
    """Control groups are shown relative to our own."""


def vantage(proc: str, own: str = OURSELVES) -> Vantage:
    """Return what can be seen in the proc that is mounted at `proc`; `own`: our process in a proc of our namespace."""
    if not is_of_the_host(proc, own):
        return Vantage(foreign=FOREIGN if proc == "/proc" else FOREIGN_MOUNT)
    # A copy of files has no `self`; a real proc shows control groups as whoever reads them is meant to see them.
    is_real = os.path.lexists(f"{proc}/self")
    cgroups = leads_to(f"{own}/ns/cgroup")
    return Vantage(
        hiding=started_at(proc, 1) is None,
        private=is_real and cgroups not in ("", _INITIAL_CGROUP_NAMESPACE),
    )
