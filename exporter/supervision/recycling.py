"""When a worker is replaced although it runs: old, grown too large, or without a reading that succeeds. Pure."""

import enum
from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from exporter.config import WorkersConfig
from exporter.fleet import groups
from exporter.model import Group, Sample
from exporter.supervision.backoff import Backoff

BROKEN_PASSES = 10
"""After so many reads of every device running, of which none gave a value, the library is opened anew."""
OVERGROWN = 2
"""At so many times its limit a worker is ended, whether or not another can take its place."""
_FIRST_SECONDS = 60.0
_LONGEST_SECONDS = 3600.0
"""Between two replacements."""
_CALM_SECONDS = 7200.0
"""A worker that lives so long before it needs to be replaced has the back-off start over."""


class Usage(NamedTuple):
    """What a child takes of the host; None: it could not be measured."""

    memory_bytes: int | None = None
    """Resident, and backed by no file."""
    descriptors: int | None = None


class Verdict(enum.Enum):
    KEEP = enum.auto()
    REPLACE = enum.auto()
    """By a successor that opens the library while this one goes on reading."""
    END = enum.auto()
    """At once: it does harm, or it is of no use."""


class Recycling:
    """Judges the worker of one provider."""

    def __init__(self, workers: WorkersConfig, random: Random, now: float) -> None:
        self.workers = workers
        self._backoff = Backoff(_FIRST_SECONDS, _LONGEST_SECONDS, random)
        self._born = now
        self._asked = False
        """Whether this worker was to be replaced before."""
        self._not_before = now
        self._broken: dict[str, int] = {}
        """Reads running that gave nothing, by device."""

    def born(self, now: float) -> None:
        """Note the start of a worker."""
        self._born = now
        self._asked = False
        self._broken.clear()

    def enumerated(self, keys: Iterable[str]) -> None:
        """Take the devices that the worker reads."""
        self._broken = {key: self._broken.get(key, 0) for key in keys}

    def sampled(self, sample: Sample) -> None:
        """Learn from a sample whether its device gives anything."""
        key = sample.device.key
        if key not in self._broken:
            return
        if sample.lost or sample.asleep:
            # A device that is gone says nothing about the library.
            del self._broken[key]
        elif not sample.failed:
            self._broken[key] = 0
        elif Group.LOAD in sample.taken_at:
            # Power alone is the most of what a read for energy asks for: that it broke does not say that all does.
            self._broken[key] = self._broken[key] + 1 if _is_empty(sample) else 0

    def judge(self, usage: Usage, now: float) -> tuple[Verdict, str]:
        """Return what is to be done about the worker, and why."""
        excess = self._excess(usage, OVERGROWN)
        if excess is not None:
            return Verdict.END, excess
        if now < self._not_before:
            return Verdict.KEEP, ""
        if self._broken and min(self._broken.values()) >= BROKEN_PASSES:
            return Verdict.END, "every reading of every device breaks: the library is opened anew"
        age, most = now - self._born, self.workers.max_age_seconds
        reason = self._excess(usage, 1)
        if reason is None and most is not None and age >= most:
            reason = f"the worker is {age:.0f} s old"
        return (Verdict.KEEP, "") if reason is None else (Verdict.REPLACE, reason)

    def begun(self, now: float) -> None:
        """Note that a replacement has begun: the next one has to wait."""
        calm = min(_CALM_SECONDS, self.workers.max_age_seconds or _CALM_SECONDS)
        if not self._asked and now - self._born >= calm:
            self._backoff.reset()
        self._asked = True
        self._not_before = now + self._backoff.next()

    def _excess(self, usage: Usage, times: int) -> str | None:
        limits = self.workers
        if _exceeds(usage.memory_bytes, limits.max_memory_bytes, times):
            return f"the worker holds {(usage.memory_bytes or 0) / 2**20:.0f} MiB of memory"
        if _exceeds(usage.descriptors, limits.max_descriptors, times):
            return f"the worker holds {usage.descriptors} open descriptors"
        return None


def _exceeds(amount: int | None, limit: int | None, times: int) -> bool:
    return amount is not None and limit is not None and amount > limit * times


def _is_empty(sample: Sample) -> bool:
    return not any(groups.gave(sample, group) for group in sample.taken_at if group in groups.ITS_OWN)
