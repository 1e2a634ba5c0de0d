"""When does the next scrape come? Servers scrape on a clock, so what one will ask for can be made just before. Pure."""

from collections.abc import Hashable
from typing import NamedTuple

TOLERANCE_SECONDS = 0.02
"""Two intervals that differ by more are of no clock; Prometheus keeps to its own within a few milliseconds."""
LEAST_SECONDS, MOST_SECONDS = 0.5, 300.0
"""Intervals of servers: who asks faster finds what was made for the page before."""
MOST_CLIENTS = 16
"""That are remembered; the one that asked the longest time ago is forgotten first."""


class _Seen(NamedTuple):
    at: float
    interval: float | None


class Expected:
    """Remembers who asked for what, and when. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, _Seen] = {}

    def came(self, who: Hashable, now: float) -> float | None:
        """Note a scrape; return when the same client is expected again, None as long as it shows no clock.

        `who`: the client with what it asks for. A clock shows by the third scrape, and anew after one out of turn.
        """
        before = self._seen.pop(who, None)
        interval = None if before is None else now - before.at
        self._seen[who] = _Seen(now, interval)
        if len(self._seen) > MOST_CLIENTS:
            del self._seen[next(iter(self._seen))]
        if before is None or interval is None or before.interval is None:
            return None
        regular = abs(interval - before.interval) <= TOLERANCE_SECONDS
        return now + interval if regular and LEAST_SECONDS <= interval <= MOST_SECONDS else None
