"""What a watch knows of one child: what it does, since when, and how it ends. Pure."""

import enum
from collections.abc import Sequence

from exporter.supervision import frames
from exporter.supervision.progress import Read

_LONGEST_WAIT_SECONDS = 120.0


class Activity(enum.Enum):
    OPENING = "opening the library"
    ENUMERATING = "enumerating the devices"
    READING = "reading a device"
    WAITING = "waiting for its next pass"


class Role(enum.Enum):
    WORKER = enum.auto()
    """Its readings are published."""
    SUCCESSOR = enum.auto()
    """It opens the library to take the worker's place."""
    RETIRED = enum.auto()
    """A successor has taken its place."""
    PROBE = enum.auto()
    """It tries one device."""


class Child:
    """Times are those of the watch's own clock, which does not count the time in which the parent stood still."""

    def __init__(self, number: int, role: Role, now: float, allowed: float) -> None:
        self.number = number
        self.role = role
        self.only: str | None = None
        """The device that a probe tries."""
        self.excluded: frozenset[str] = frozenset()
        """Devices that it was told not to read."""
        self.activity = Activity.OPENING
        self.library_version: str | None = None
        self.up = False
        self.passed = False
        """It has finished a pass over its devices."""
        self.sampled = False
        """A device gave a reading; for a probe: its read returned."""
        self.answered: dict[str, bool] = {}
        """Devices whose reads return, with whether they are there or lost."""
        self.failure: frames.Failed | None = None
        self.broke: str | None = None
        """Why it is not understood."""
        self.stuck_on: str | None = None
        """The device whose read never returned."""
        self.crashed_in: str | None = None
        """The device in whose read an exception ended it, or a signal that nobody sent."""
        self.settled = False
        """Its end has been accounted for."""
        self.ending_at: float | None = None
        """When it has to be gone: killed if it was asked, abandoned if it was killed."""
        self.killed = False
        self.abandoned = False
        self._since = now
        self._allowed = allowed
        self._reads: list[tuple[Read, float]] = []
        """With the time at which each was first seen."""

    @property
    def ending(self) -> bool:
        return self.ending_at is not None

    @property
    def present(self) -> tuple[str, ...]:
        """The devices that it reads and that are there."""
        return tuple(key for key, present in self.answered.items() if present)

    @property
    def reading(self) -> str | None:
        """The device whose read is under way; the inner one, when a request for fresh energy is served in a read."""
        return self._reads[-1][0].key if self._reads else None

    def late(self, now: float, deadline: float) -> bool:
        """Tell whether what it does takes longer than it may; `deadline` is that of a read."""
        if self._reads:
            return now - self._reads[-1][1] > deadline
        return now - self._since > self._allowed

    def looked(self, reads: Sequence[Read], now: float, deadline: float) -> None:
        """Follow which reads are under way, by its page of progress."""
        if tuple(reads) == tuple(read for read, _ in self._reads):
            return
        seen = {read.number: since for read, since in self._reads}
        if len(self._reads) > 1 and reads and reads[0].number in seen and self._reads[-1][0] not in reads:
            # The read around the other was interrupted for so long.
            seen[reads[0].number] += now - self._reads[-1][1]
        self._reads = [(read, seen.get(read.number, now)) for read in reads]
        self._does(Activity.READING, now, deadline)

    def heard(self, report: frames.Report, now: float, deadline: float, open_deadline: float) -> None:
        """Follow what the child reports."""
        match report:
            case frames.Sampled():
                self._does(Activity.READING, now, deadline)
                return
            case frames.FreshDone():
                return
            case frames.Waiting(seconds):
                self.passed = True
                self._does(Activity.WAITING, now, min(_LONGEST_WAIT_SECONDS, seconds) + deadline)
            case frames.Enumerating():
                self._does(Activity.ENUMERATING, now, open_deadline)
            case frames.Opened(version):
                self.library_version = version
                self._does(Activity.ENUMERATING, now, open_deadline)
            case _:
                self._does(Activity.READING, now, deadline)
        self._reads.clear()

    def _does(self, activity: Activity, now: float, allowed: float) -> None:
        self.activity = activity
        self._since = now
        self._allowed = allowed
