"""Which of the files counts at a start, and how it is made sure that no other one ever does.

The live file is replaced before totals are served, and holds for the boot in which it was written: it is not synced, so
that after a loss of power it may be an older one. The copy of a clean stop is synced, holds in any boot, and is gone,
synced, before anything is served.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from exporter.fleet.record import FleetRecord, brought_over
from exporter.journal.directory import Directory
from exporter.journal.format import Content, JournalError, decode, encode
from exporter.journal.places import Places

logger = logging.getLogger("exporter.journal")

LIVE = "live.journal"
STOPPED = "stopped.journal"
RETRY_SECONDS = 60.0
"""How soon the directory of the copy is tried again while there is none: an old copy may lie there, out of reach."""


class StoreError(Exception):
    """Nothing can be written. The message says where and why."""


class Store:
    """To be used by one thread at a time. Every method may wait for the file system."""

    def __init__(self, places: Places, boot: str, clock: Callable[[], float] = time.monotonic) -> None:
        """`boot`: what differs at each boot."""
        self._places = places
        self._boot = boot
        self._clock = clock
        self._live: Directory | None = None
        self._stopped: Directory | None = None
        self._descriptor = -1
        """Of the live file, by which it can be made empty even when its directory cannot be changed any more."""
        self._usable = False
        self._shared = os.path.realpath(places.live) == os.path.realpath(places.stopped)
        self._told = ""
        self._tried_at = 0.0
        """When the directory of the copy was tried last."""

    def start(self) -> tuple[FleetRecord | None, str]:
        """Return what a daemon before has left, None where nothing counts, and why nothing can be kept from now on.

        When this returns, the live file holds what is returned, unless there is a reason, and the copy is gone.
        """
        record, reason = None, ""
        try:
            self._open()
        except OSError as error:
            reason = _said(error, self._places.live)
        try:
            record = self._found()
            if not reason:
                self._begin(record or FleetRecord())
        except OSError as error:
            reason = _said(error, self._places.live)
        if reason and not self._taken_away():
            record = None  # it would be found again at a later start, when more than that has been served
        return record, reason

    def _found(self) -> FleetRecord | None:
        live, stopped = self._look(self._live, LIVE), self._look(self._stopped, STOPPED)
        if live is not None and not self._is_of_now(live):
            logger.info("the live journal is of another boot and is not used", extra={"file": self._path(LIVE)})
            live = None
        if live is not None and stopped is not None and self._is_of_now(stopped) and stopped.at > live.at:
            live = None  # it could not be written any more, and not be removed
        content = live or stopped
        if content is None:
            return None
        return content.fleet if self._is_of_now(content) else brought_over(content.fleet, self._clock())

    def _taken_away(self) -> bool:
        """See to it that neither file is found again, and tell whether that is so."""
        try:
            if self._stopped is not None:
                self._stopped.remove(STOPPED, synced=True)
        except OSError:
            return False
        # A directory that could not be opened may hold a live file all the same.
        return not self._invalidated() and self._live is not None

    def write(self, fleet: FleetRecord) -> None:
        """Replace the live file. Raises StoreError, after having made sure that the one before is not used again."""
        try:
            if self._usable and self._settled():
                self._replace(fleet)
            else:
                self._open()
                self._begin(fleet)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the file before it must go
            self._usable = False
            reason = _said(error, self._places.live)
            raise StoreError(reason + self._invalidated()) from None

    def leave(self, fleet: FleetRecord) -> None:
        """Leave the copy of a clean stop. Raises StoreError."""
        if not self._shared:
            self._open_stopped()
        if self._stopped is None:
            return
        try:
            os.close(self._stopped.replace(STOPPED, self._encoded(fleet), synced=True))
        except OSError as error:
            raise StoreError(_said(error, self._places.stopped)) from None

    def close(self) -> None:
        """Let go of the directories."""
        self._usable = False
        for directory in (self._live, self._stopped):
            if directory is not None:
                directory.close()
        self._live = self._stopped = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _settled(self) -> bool:
        """Whether the next start would look where this one writes, and finds no copy that is out of reach now."""
        missing = self._stopped is None and self._clock() - self._tried_at >= RETRY_SECONDS
        return self._live is not None and self._live.current and not missing

    def _open(self) -> None:
        """Open what is not open, or is no longer what the path leads to. Raises OSError if the live one cannot be."""
        if self._live is not None and not self._live.current:
            self._invalidated()  # the directory may be moved back
            self._live.close()
            self._live = None
        if self._shared:
            self._stopped = None
            self._live = self._live or Directory(self._places.live)
            self._stopped = self._live
            return
        self._open_stopped()
        self._live = self._live or Directory(self._places.live)

    def _open_stopped(self) -> None:
        """Open the directory of the copy, unless it is open and still what the path leads to; says if it cannot be."""
        self._tried_at = self._clock()
        if self._stopped is not None and not self._stopped.current:
            self._stopped.close()
            self._stopped = None
        if self._stopped is None:
            try:
                self._stopped = Directory(self._places.stopped)
            except OSError as error:
                reason = _said(error, self._places.stopped)
                if reason != self._told:
                    logger.warning("a clean stop will leave nothing for after a reboot", extra={"reason": reason})
                self._told = reason

    def _begin(self, fleet: FleetRecord) -> None:
        """Write the first live file, and take the copy away once that is there."""
        self._replace(fleet)
        if self._stopped is not None:
            try:
                self._stopped.remove(STOPPED, synced=True)
            except OSError:
                # It would come back at a later start, so nothing may go on from it now either.
                self._invalidated()
                raise
        self._usable = True

    def _replace(self, fleet: FleetRecord) -> None:
        assert self._live is not None  # noqa: S101 -- for the type checker: it was opened
        descriptor = self._live.replace(LIVE, self._encoded(fleet))
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = descriptor

    def _encoded(self, fleet: FleetRecord) -> bytes:
        return encode(Content(boot_id=self._boot, at=self._clock(), fleet=fleet))

    def _look(self, directory: Directory | None, name: str) -> Content | None:
        if directory is None:
            return None
        try:
            data = directory.read(name)
            return None if data is None else decode(data)
        except JournalError as error:
            aside = directory.put_aside(name)
            logger.warning("%s %s; it is kept as %s", directory.path / name, error, aside)
            return None

    def _is_of_now(self, content: Content) -> bool:
        return content.boot_id == self._boot and content.at <= self._clock()

    def _invalidated(self) -> str:
        """See to it that the live file is not used again; returns what to add to the log if that fails."""
        emptied = False
        if self._descriptor >= 0:
            try:
                os.ftruncate(self._descriptor, 0)
                emptied = True
            except OSError:
                pass
            os.close(self._descriptor)
            self._descriptor = -1
        try:
            if self._live is not None:
                self._live.remove(LIVE)
        except OSError as error:
            if not emptied:
                return f"; {self._path(LIVE)} cannot be removed ({error.strerror}), do so before the next start"
        return ""

    def _path(self, name: str) -> Path:
        return self._places.live / name


def _said(error: Exception, path: Path) -> str:
    return f"{path}: {error.strerror if isinstance(error, OSError) else repr(error)}"
