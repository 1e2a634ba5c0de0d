"""From where the exporter sees other users' processes: as root, as a plain user, past hidepid, in a pid namespace."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.tools import unavailable

_NOBODY = 65_534
_PLAIN = ("setpriv", f"--regid={_NOBODY}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all")
"""User 0 of another group and without capabilities: it reads its own files, and is a stranger to other users."""


class Stranger(NamedTuple):
    """A process of another user that is no child of ours."""

    pid: int
    started: int


@contextmanager
def stranger() -> Iterator[Stranger]:
    """Start a process named sleep as another user."""
    _needs_root()
    # Its parent ends at once: a child of the test would be one of the exporter's parent.
    started = subprocess.run(
        ["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"],
        stdout=subprocess.PIPE,
        user=_NOBODY,
        check=True,
        timeout=10,
    )
    pid = int(started.stdout)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        yield Stranger(pid, int(stat.rpartition(")")[2].split()[19]))
    finally:
        os.kill(pid, signal.SIGKILL)


def as_root(root: Path) -> tuple[str, ...]:
    (root / "proc").symlink_to("/proc")
    return ()


def as_plain_user(root: Path) -> tuple[str, ...]:
    (root / "proc").symlink_to("/proc")
    return _PLAIN


def past_hidepid(root: Path, level: int = 2) -> tuple[str, ...]:
    """Level 2 hides what others run; level 1 shows that there is something."""
    (root / "proc").mkdir()
    mount = f'mount -t proc -o hidepid={level} proc "{root}/proc" && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", mount, "sh", *_PLAIN)


def in_a_namespace(root: Path) -> tuple[str, ...]:
    _needs_root()
    (root / "proc").mkdir()
    return ("unshare", "--pid", "--fork", "--kill-child", f"--mount-proc={root}/proc")


def in_a_namespace_with_the_hosts_proc(root: Path) -> tuple[str, ...]:
    (root / "proc").symlink_to("/proc")
    return ("unshare", "--pid", "--fork", "--kill-child")


def _needs_root() -> None:
    if os.geteuid() != 0:
        unavailable("the right to be other users and to make namespaces", "run the tests as root")
