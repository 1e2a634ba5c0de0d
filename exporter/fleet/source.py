"""What is known of one provider: its health, what it lists, and what is published of it."""

import math
from operator import attrgetter, is_

from exporter.fleet.counters import NameCounts
from exporter.model import NOT_OPENED, Device, DeviceSnapshot, Snapshot

REFRESH_SECONDS = 1.0
"""How often the figures that change with every read are taken over into what is published."""

_SHOWN = attrgetter(*(name for name in Snapshot.__struct_fields__ if name != "devices"))


class Source:
    def __init__(self, name: str, *, wanted: bool) -> None:
        self.name = name
        self.wanted = wanted
        self.tried = False
        """Whether the first attempt to open it is over."""
        self.up = False
        self.reason = NOT_OPENED
        self.library_version: str | None = None
        self.listed: dict[str, Device] = {}
        """By key of the card."""
        self.aliases: dict[str, str] = {}
        """Keys of cards by another key that this provider gives them."""
        self.expected: int | None = None
        self.failures = NameCounts()
        self.rejections = NameCounts()
        self.restarts: dict[str, int] = {}
        self.durations: dict[str, float] = {}
        self.last_timestamp: float | None = None
        self.changed = True
        """Whether something is to be published before it is time."""
        self._elsewhere = 0
        self._refreshed_at = -math.inf
        self._published: Snapshot | None = None

    def publish(self, devices: tuple[DeviceSnapshot, ...], elsewhere: int, now: float) -> tuple[Snapshot, bool]:
        """Return what is published, and whether the block of the exporter looks different for it.

        `elsewhere`: how many of its devices are those of a preferred provider, and so are not expected of this one.
        """
        before = self._published
        if elsewhere != self._elsewhere:
            self._elsewhere, self.changed = elsewhere, True
        due = self.changed or now - self._refreshed_at >= REFRESH_SECONDS
        if before is not None and not due and _same(before.devices, devices):
            return before, False
        if due:
            self._refreshed_at, self.changed = now, False
        keep = before if before is not None and not due else None
        after = Snapshot(
            provider=self.name,
            up=self.up,
            wanted=self.wanted,
            reason=self.reason,
            library_version=self.library_version,
            devices=devices,
            devices_expected=None if self.expected is None else max(0, self.expected - elsewhere),
            last_sample_timestamp=keep.last_sample_timestamp if keep else self.last_timestamp,
            sample_duration_seconds=keep.sample_duration_seconds if keep else dict(self.durations),
            read_failures=keep.read_failures if keep else dict(self.failures.counts),
            rejected_readings=keep.rejected_readings if keep else dict(self.rejections.counts),
            worker_restarts=self.restarts,
        )
        self._published = after
        return after, before is None or _shown(before) != _shown(after)


def _same(before: tuple[DeviceSnapshot, ...], after: tuple[DeviceSnapshot, ...]) -> bool:
    return len(before) == len(after) and all(map(is_, before, after))


def _shown(snapshot: Snapshot) -> tuple[object, int]:
    """Return all that the block of the exporter shows of a provider."""
    answering = sum(device.state.answers for device in snapshot.devices)
    return _SHOWN(snapshot), answering
