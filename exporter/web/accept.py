"""How connections are taken from a listening socket, also when the process may open no more descriptors.

asyncio's own way logs a hundred errors for each attempt that fails for want of descriptors, and tries a hundred times
more often after each.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from exporter.addresses import written

logger = logging.getLogger(__name__)

AT_ONCE = 64
"""Connections taken before everything else in the event loop gets its turn."""
PAUSE_SECONDS = 1.0
TOLD_SECONDS = 60.0
SEND_BUFFER = 64 * 1024
"""Bytes for the kernel to keep for one peer, of which it makes twice as many: of itself it takes megabytes, and in a
container they are counted as the daemon's."""

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NOBODY_CAME = {errno.EAGAIN, errno.EINTR, errno.ECONNABORTED}


class Listener:
    """Takes connections until it is closed. Lives in the event loop that made it."""

    def __init__(
        self,
        listening: socket.socket,
        welcome: Callable[[socket.socket, str], object],
        make_room: Callable[[], bool],
    ) -> None:
        """`welcome` gets each connection with a name for its peer; `make_room` ends some; False: none can be spared."""
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # of what it accepts
        self._socket = listening
        self._welcome = welcome
        self._make_room = make_room
        self._loop = asyncio.get_running_loop()
        self._told_at: float | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def close(self) -> None:
        """Harmless when it is closed already."""
        if self._socket.fileno() < 0:
            return
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket, self._take)

    def _take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                taken, address = self._socket.accept()
            except OSError as error:
                if error.errno in _SHORTAGES:
                    self._short(error)
                elif error.errno not in _NOBODY_CAME:
                    # Of one connection only: TCP hands on here what went wrong with it before it was taken.
                    logger.debug("a connection was lost before it was taken: %s", error)
                return
            try:
                self._welcome(taken, written(*address[:2]) if isinstance(address, tuple) else "a local client")
            except OSError as error:
                taken.close()
                logger.debug("a connection was lost as it was taken: %s", error)

    def _short(self, error: OSError) -> None:
        now = self._loop.time()
        if self._told_at is None or now - self._told_at > TOLD_SECONDS:
            self._told_at = now
            logger.warning("connections cannot be taken, those that wait for a request are closed: %s", error.strerror)
        if not self._make_room():
            self._loop.remove_reader(self._socket)
            self._pause = self._loop.call_later(PAUSE_SECONDS, self._resume)
