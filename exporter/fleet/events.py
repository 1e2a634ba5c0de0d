"""How often a device's driver reported each error, and when last."""

from collections.abc import Iterable, Mapping

from exporter.metrics import FATAL_EVENTS
from exporter.model import ErrorEvent

MOST_CODES = 64
"""Of one device; more are left out and counted as a failure of the reading."""

Code = tuple[str, str]
"""Kind and code."""


class EventCounts:
    def __init__(self) -> None:
        self.counts: Mapping[Code, float] = {}
        self.timestamps: Mapping[Code, float] = {}

    def listen(self, kinds: Iterable[str]) -> bool:
        """Take which kinds are listened to; return whether that is news."""
        fatal: dict[Code, float] = {(kind, code): 0 for kind in kinds for code in FATAL_EVENTS.get(kind, ())}
        if fatal.keys() <= self.counts.keys():
            return False
        self.counts = {**fatal, **self.counts}
        return True

    def add(self, events: Iterable[ErrorEvent], wall: float) -> int:
        """Count events that were reported by Unix time `wall`. Return how many there was no room for."""
        counts, timestamps, left_out = dict(self.counts), dict(self.timestamps), 0
        for event in events:
            code = (event.kind, event.code)
            if code not in counts and len(counts) >= MOST_CODES:
                left_out += event.count
                continue
            counts[code] = counts.get(code, 0) + event.count
            at = wall if event.at is None else min(event.at, wall)
            timestamps[code] = max(at, timestamps.get(code, 0.0))
        self.counts, self.timestamps = counts, timestamps
        return left_out
