"""The child's side of the two pipes: reports out, requests in."""

import os
import select

from exporter.supervision import frames

_PIECE_BYTES = 65536


class ParentGoneError(Exception):
    """Nobody reads the reports any more."""


class Port:
    """Reports are collected and written by `flush`, which waits only for the parent to read."""

    def __init__(self, reports: int, requests: int) -> None:
        """Take two open descriptors, both blocking."""
        self._reports = reports
        self._requests = requests
        self._out = bytearray()
        self._inbox = frames.requests()
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)

    @property
    def holds(self) -> bool:
        """Whether something was sent and not written."""
        return bool(self._out)

    def send(self, report: frames.Report) -> None:
        self._out += frames.encode(report)

    def flush(self) -> None:
        """Write what was sent. Raises ParentGoneError."""
        try:
            while self._out:
                written = os.write(self._reports, self._out)
                del self._out[:written]
        except BrokenPipeError as error:
            raise ParentGoneError from error

    def requests(self, seconds: float) -> list[frames.Request]:
        """Wait for requests for so long and return them; the end of the pipe is a request to shut down."""
        # Rounded up, as poll counts milliseconds: waking early would mean to spin until the time has come.
        if not self._poll.poll(int(seconds * 1000) + 1 if seconds > 0 else 0):
            return []
        data = os.read(self._requests, _PIECE_BYTES)
        return list(self._inbox.feed(data)) if data else [frames.Shutdown()]
