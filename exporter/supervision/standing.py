"""What is said of a provider and its devices: up or down, in question or not, why, and whether that is news. Pure."""

from collections.abc import Callable, Container

from exporter.model import GpuState
from exporter.supervision.actions import Action, State, Status

HEALTHY_SECONDS = 60.0
OPENING = "the library is being opened"
NO_DEVICES = "no device was found"
_FALLS = 3
_MOST_TOLD = 8
"""Reasons that are remembered: some have numbers in them, and are all different."""


class Standing:
    def __init__(self, say: Callable[[Action], None], clock: float) -> None:
        """`say` takes what is to be published. `clock` here and below: the watch's own, which counts no stalls."""
        self._say = say
        self._status = Status(False, OPENING, None)
        self._told: list[str] = []
        """Why it is down, by what was said of it since it was up: it may alternate between two reasons for days."""
        self._up_at: float | None = None
        self._falls = 0
        """How often it went down since it was last well."""
        self._failing_since: float | None = clock
        """When it went down after it was last well; None: it is well."""
        self._hung: set[str] = set()

    def works(self, keys: tuple[str, ...], library_version: str | None, clock: float) -> None:
        """Take what a library that works has enumerated; without a device it delivers nothing."""
        for key in sorted(self._hung.difference(keys)):
            self.clear(key)
        if self._up_at is None:
            self._up_at = clock
        self._report(Status(bool(keys), "" if keys else NO_DEVICES, library_version), clock)

    def down(self, reason: str, clock: float) -> None:
        """Take why nothing is read."""
        self._up_at = None
        self._report(Status(False, reason, None), clock)

    def fell(self) -> None:
        """Note that a worker is lost, before `down`."""
        if self._up_at is not None:
            self._falls += 1

    def suspect(self, key: str, reason: str) -> None:
        """Put a device in question."""
        if key not in self._hung:
            self._hung.add(key)
            self._say(State(key, GpuState.HUNG, reason, not self._is_restless))

    def clear(self, key: str) -> None:
        """Take a device out of question."""
        if key in self._hung:
            self._hung.discard(key)
            self._say(State(key, GpuState.OK, "", not self._is_restless))

    def absolve(self, but: Container[str]) -> None:
        """Take devices out of question without their having answered, all but these."""
        for key in sorted(self._hung):
            if key not in but:
                self._hung.discard(key)
                self._say(State(key, GpuState.OK, "", news=False))

    def is_well(self, clock: float) -> bool:
        """Tell whether it has been up for a minute, and let bygones be bygones if so."""
        if self._up_at is None or clock - self._up_at < HEALTHY_SECONDS:
            return False
        self._falls = 0
        if self._status.up:
            self._failing_since = None
            if self._told:
                self._told.clear()
                self._say(self._status)
        return True

    def down_seconds(self, clock: float) -> float | None:
        """Return for how long it has been failing, with what it was up for less than a minute; None: it is up."""
        if self._status.up or self._failing_since is None:
            return None
        return clock - self._failing_since

    def start_over(self, clock: float) -> None:
        """Count failures from here on."""
        self._failing_since = clock
        self._told.clear()

    @property
    def _is_restless(self) -> bool:
        """Whether it comes and goes: that is in the metrics each time, and in the log once."""
        return self._falls >= _FALLS

    def _report(self, status: Status, clock: float) -> None:
        if not status.up and self._failing_since is None:
            self._failing_since = clock
        if status == self._status:
            return
        self._status = status
        news = not self._is_restless if status.up else status.reason not in self._told
        if news:
            self._told = [] if status.up else [*self._told, status.reason][-_MOST_TOLD:]
        self._say(Status(status.up, status.reason, status.library_version, news))
