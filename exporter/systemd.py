"""What is said to systemd, or to whatever else listens on $NOTIFY_SOCKET, and how often it wants a sign of life.

The protocol of sd_notify(3): datagrams of NAME=value lines to a socket that the service manager names.
"""

import logging
import os
import socket
import time
from collections.abc import Callable, MutableMapping

from exporter.validation import printable

logger = logging.getLogger(__name__)

SEND_SECONDS = 0.2
"""How long a message that comes once may wait for a manager that does not keep up, which holds up everything else."""
MAX_STATUS = 500


class Systemd:
    """Never raises: what cannot be told is no reason to stop serving. Without a manager it says nothing to nobody."""

    def __init__(
        self, environment: MutableMapping[str, str], pid: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the variables out of `environment`: they are not meant for our children. `pid` is our own."""
        self._clock = clock
        self._address = _address(environment.pop("NOTIFY_SOCKET", ""))
        wanted, watched = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        self.watchdog_seconds = _watchdog(wanted, watched, pid)
        """After so long without a ping we are ended; None: no pings are wanted."""
        self._status = ""
        self._told = False

    def ready(self) -> None:
        """Say that it serves: at the start, and when a reload is over."""
        self._send("READY=1", patience=SEND_SECONDS)

    def reloading(self) -> None:
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock() * 1e6)}", patience=SEND_SECONDS)

    def stopping(self) -> None:
        self._send("STOPPING=1", patience=SEND_SECONDS)

    def ping(self) -> None:
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Say in one line how things are; nothing is sent while that stays the same."""
        if text != self._status and self._send(f"STATUS={printable(text[:MAX_STATUS])}"):
            self._status = text

    def _send(self, *lines: str, patience: float = 0.0) -> bool:
        if self._address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as talking:
                talking.settimeout(patience)
                talking.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError as error:
            if not self._told:
                logger.warning("systemd cannot be told how things are", extra={"reason": error.strerror or str(error)})
            self._told = True
            return False
        self._told = False
        return True


def _address(name: str) -> bytes | None:
    """Return the address of a socket in the file system, or of an abstract one, which is written with @."""
    if name.startswith("@"):
        return b"\0" + os.fsencode(name[1:])
    return os.fsencode(name) if name.startswith("/") else None


def _watchdog(microseconds: str, pid: str, own: int) -> float | None:
    if not microseconds.isdecimal() or int(microseconds) == 0 or pid not in ("", str(own)):
        return None
    return int(microseconds) / 1e6
