"""Tells the log which sources of attribution come and go: each change once, and the same one not again for a while."""

import logging
from collections.abc import Sequence

from exporter.attribution.source import NOT_YET
from exporter.model import SourceStatus

QUIET_SECONDS = 600.0
_REMEMBERED = 100

logger = logging.getLogger("exporter.attribution")


class SourceLog:
    def __init__(self) -> None:
        self._before: dict[str, SourceStatus] = {}
        self._told: dict[tuple[str, str], float] = {}
        """When it was last said at full volume, by source and reason; the reason of a source that is up is empty."""

    def tell(self, sources: Sequence[SourceStatus], now: float) -> None:
        """Log what is different from the last time."""
        for status in sources:
            before = self._before.get(status.source)
            if status.up:
                if before is not None and not before.up and before.reason != NOT_YET:
                    self._log(logging.INFO, "source of attribution is up", status, now)
            elif status.reason != NOT_YET and (before is None or before.up or before.reason != status.reason):
                self._log(logging.WARNING, "source of attribution is down", status, now)
        self._before = {status.source: status for status in sources}

    def _log(self, level: int, message: str, status: SourceStatus, now: float) -> None:
        key = (status.source, status.reason)
        said = self._told.get(key)
        if said is not None and now - said < QUIET_SECONDS:
            level = logging.DEBUG
        else:
            if len(self._told) >= _REMEMBERED:
                self._told.clear()
            self._told[key] = now
        fields = {"source": status.source} | ({"reason": status.reason} if status.reason else {})
        logger.log(level, message, extra=fields)
