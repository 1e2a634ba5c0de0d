"""Who reaps processes whose parents have ended, where we are the first one of a container and nobody else can? We do.

Such are left behind by commands that were run in the container (`docker exec`, `kubectl exec`). Without us each of them
would stay a zombie and take one of the processes that the container may have.
"""

import contextlib
import os
from pathlib import Path


def reap() -> None:
    """Reap ended children of other sessions than ours: those that we have started are of ours, and are waited for."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        session = os.getsid(0)
        for pid in map(int, children):
            with contextlib.suppress(OSError):
                if os.getsid(pid) != session:
                    os.waitpid(pid, os.WNOHANG)
