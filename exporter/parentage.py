"""How a child process of ours makes sure that it does not outlive its parent."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """End when the parent does, even while a call never returns, and let the parent alone decide what signals mean."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        # It ended before it could be watched.
        os._exit(os.EX_UNAVAILABLE)
    # Ctrl-C and `systemctl kill` reach the whole group.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
