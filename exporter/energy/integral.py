"""Which joules and which seconds do the power readings account for."""

from typing import NamedTuple

import msgspec

from exporter.energy.reading import EnergyReading

GAP_PERIODS = 5
GAP_SECONDS = 2.0


def longest_bridge(period: float) -> float:
    """Return the longest time in seconds between two readings, taken each `period`, over which they are joined."""
    return max(GAP_SECONDS, GAP_PERIODS * period)


class Segment(NamedTuple):
    """A span of time about which the power readings have spoken."""

    start: float
    end: float
    joules: float | None
    """None: a gap, too long to be bridged."""

    def after(self, moment: float) -> "Segment | None":
        """Return the part later than `moment`, with its share of the joules; None: there is none."""
        if moment <= self.start:
            return self
        if moment >= self.end:
            return None
        if self.joules is None:
            return Segment(moment, self.end, None)
        return Segment(moment, self.end, self.joules * (self.end - moment) / (self.end - self.start))


class PowerTrack(msgspec.Struct, frozen=True, gc=False):
    """How far the power readings have been integrated."""

    resolved_at: float | None = None
    """Every earlier moment is covered or a gap; with `watts`, the time of that reading."""
    watts: float | None = None
    """The reading from which the next trapezoid starts; None: the last one is too old, or there is none."""
    seen: bool = False
    """Whether this device ever gave a power reading."""


def follow(track: PowerTrack, reading: EnergyReading) -> tuple[PowerTrack, Segment | None]:
    """Add one reading; the segment is None while it is open whether a missing reading leaves a gap."""
    at, watts = reading.at, reading.power_watts
    seen = track.seen or watts is not None
    if track.resolved_at is None:
        return PowerTrack(at, watts, seen), None
    elapsed = at - track.resolved_at
    if track.watts is None or elapsed > longest_bridge(reading.period_seconds):
        return PowerTrack(at, watts, seen), Segment(track.resolved_at, at, None)
    if watts is None:
        return track, None
    return PowerTrack(at, watts, seen), Segment(track.resolved_at, at, (track.watts + watts) / 2 * elapsed)
