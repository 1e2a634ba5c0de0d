"""When did the simulated machine begin to live? The answer is the same at each start of the daemon."""

import os
import time
from pathlib import Path

from exporter.providers.simulated.schema import Scenario

# The wall clock is steered and the monotonic one is not, so the same file time is not quite the same monotonic time at
# each start. Whole multiples of this hide it nearly always; a scenario that must be sure gives epoch_seconds.
_GRAIN = 10.0


def epoch_of(scenario: Scenario, path: Path, *, built_in: bool, root: Path = Path("/")) -> float:
    """Return CLOCK_MONOTONIC seconds at the scenario's time zero. Raises OSError where a file cannot be asked.

    A file's is its modification time, so that its time line starts when it is written; the built-in one's is the boot;
    `start` is when the daemon started, which is the parent of the worker that reads devices.
    """
    if scenario.epoch_seconds is not None:
        return scenario.epoch_seconds
    kind = scenario.epoch or ("boot" if built_in else "modified")
    if kind == "boot":
        return 0.0
    if kind == "start":
        return _parent_started(root)
    monotonic = path.stat().st_mtime - (time.time() - time.monotonic())
    return monotonic // _GRAIN * _GRAIN


def _parent_started(root: Path) -> float:
    stat = (root / "proc" / str(os.getppid()) / "stat").read_text(encoding="utf-8", errors="replace")
    ticks = int(stat.rpartition(")")[2].split()[19])
    # The kernel counts sleep of the whole machine there, the monotonic clock does not.
    asleep = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return ticks / os.sysconf("SC_CLK_TCK") - round(asleep, 1)
