"""For how much of the time since the read before each process kept the GPU busy.

The driver keeps samples for some seconds, and gives those that are newer than a time that the caller has seen. Asked
for those since 0 it gives all of them, with processes that are long gone.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from exporter.providers.nvidia.library import INSUFFICIENT_SIZE, NOT_FOUND, SUCCESS, AbsentError, BrokenError
from exporter.providers.nvidia.reading import Reading

_FUNCTION = "nvmlDeviceGetProcessUtilization"
_TRIES = 3
_PERCENT = 100
_FIRST_SECONDS = 1.0
"""How far the first read looks back."""
_FUTURE_SECONDS = 60.0
"""A sample that is further ahead of the wall clock was taken before the clock was set back."""


class _Before(msgspec.Struct):
    newest: int
    """Microseconds of the newest sample that was seen."""
    started: Mapping[int, int | None]
    """Start times of the processes that were there, by pid."""


class ShareReader:
    """Remembers for each GPU up to when its samples were read. `wall_clock`: Unix seconds."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._before: dict[str, _Before] = {}

    def read(self, reading: Reading, key: str, started: Mapping[int, int | None]) -> Mapping[int, float] | None:
        """Return the mean share of each process in `started`, 0 to 1; None where this GPU does not tell.

        `started`: start times of the processes that hold memory, by pid. One whose pid was another process at the read
        before is left out: the samples may be of either.
        """
        now = int(self._wall_clock() * 1e6)
        first = now - int(_FIRST_SECONDS * 1e6)
        before = self._before.get(key) or _Before(first, {})
        since = before.newest if before.newest <= now + _FUTURE_SECONDS * 1e6 else first
        samples = _samples(reading, max(1, since))
        if samples is None:
            self._before.pop(key, None)
            return None
        # Rows of processes that are gone were seen with absurd values.
        sound = [s for s in samples if s.pid in started and 0 <= s.smUtil <= _PERCENT and s.timeStamp > since]
        newest = max((s.timeStamp for s in sound if s.timeStamp <= now + _FUTURE_SECONDS * 1e6), default=since)
        self._before[key] = _Before(newest, dict(started))
        mixed = {pid for pid, at in started.items() if before.started.get(pid, at) != at}
        return {pid: ratio for pid, ratio in mean_shares(started, sound).items() if pid not in mixed}


def mean_shares(pids: Mapping[int, Any], samples: list[Any]) -> dict[int, float]:
    """Return the mean of each process' samples over all periods; a process without a sample was not busy.

    Drivers give one sample for each process, or one for each period in which it was busy: the process with the most
    samples tells how many periods there were.
    """
    total: defaultdict[int, int] = defaultdict(int)
    count: Counter[int] = Counter()
    for sample in samples:
        total[sample.pid] += sample.smUtil
        count[sample.pid] += 1
    periods = max(count.values(), default=1)
    return {pid: total[pid] / periods / _PERCENT for pid in pids}


def _samples(reading: Reading, since: int) -> list[Any] | None:
    """Return the driver's samples that are newer than `since`; empty: nobody was busy."""
    for _ in range(_TRIES):
        try:
            rows: list[Any] = reading.nvml.call(_FUNCTION, reading.handle, since)
        except AbsentError as refusal:
            # pynvml raises for the success of its first call, which asks how many there are.
            return [] if refusal.code == SUCCESS else None
        except BrokenError as error:
            if error.code == NOT_FOUND:
                return []
            if error.code != INSUFFICIENT_SIZE:  # else there was one more by the second call
                break
        else:
            reading.answered = True
            return rows
    # Nothing of it is a field of Sample that could be named as failed but the processes, and these are known.
    return None
