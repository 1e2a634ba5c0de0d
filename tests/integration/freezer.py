"""Holds processes so that not even SIGKILL ends them, as a driver does that never returns from a call.

The freezer of cgroup v1 does this. That of v2 lets SIGKILL through, so on a host with v2 alone a hierarchy of v1 is
mounted for the time of the test: the kernel still has it.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class Freezer:
    def __init__(self, group: Path) -> None:
        self._group = group

    def freeze(self, *pids: int) -> None:
        """Hold these and all that were held before. Returns when they are."""
        for pid in pids:
            (self._group / "cgroup.procs").write_text(str(pid))
        self._turn("FROZEN")

    def thaw(self) -> None:
        """Let all of them go: what was killed meanwhile ends."""
        self._turn("THAWED")

    def _turn(self, state: str) -> None:
        until = time.monotonic() + 5
        file = self._group / "freezer.state"
        file.write_text(state)
        while file.read_text().strip() != state:
            assert time.monotonic() < until, f"{file} does not become {state}"
            time.sleep(0.001)


@contextlib.contextmanager
def freezer() -> Iterator[Freezer]:
    """Give a freezer of its own, empty. Where there is none, the test is skipped, under CI it fails."""
    with contextlib.ExitStack() as stack:
        try:
            root = stack.enter_context(_hierarchy())
            group = root / f"gpu-exporter-{os.getpid()}"
            group.mkdir()
        except (OSError, subprocess.CalledProcessError) as error:
            reason = f"no freezer of cgroup v1 can be used ({error}): run as root, with CONFIG_CGROUP_FREEZER"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        stack.callback(_remove, group)
        made = Freezer(group)
        stack.callback(made.thaw)
        yield made


@contextlib.contextmanager
def _hierarchy() -> Iterator[Path]:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup" and "freezer" in options.split(","):
            yield Path(where)
            return
    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "cgroup", "-o", "freezer", "none", directory]
        subprocess.run(mount, check=True, capture_output=True)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", directory], check=True)


def _remove(group: Path) -> None:
    until = time.monotonic() + 5
    while True:  # what was thawed takes a moment to be gone
        try:
            group.rmdir()
        except OSError:
            assert time.monotonic() < until, f"{group} is in use"
            time.sleep(0.01)
        else:
            return
