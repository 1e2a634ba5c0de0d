"""A service manager's ear: the socket of $NOTIFY_SOCKET, and what daemons say to it."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Manager:
    """`name` is what $NOTIFY_SOCKET is to be: a path, or @ and the name of an abstract socket."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + name[1:] if name.startswith("@") else name)

    def heard(self, seconds: float = 5.0) -> str | None:
        """Return the next message; None: there was none in so many seconds."""
        self._socket.settimeout(max(seconds, 1e-6))
        try:
            return self._socket.recv(4096).decode()
        except TimeoutError:
            return None

    def heard_within(self, seconds: float) -> list[str]:
        """Return what comes in so many seconds."""
        until = time.monotonic() + seconds
        messages = []
        while (left := until - time.monotonic()) > 0:
            if (message := self.heard(left)) is not None:
                messages.append(message)
        return messages

    def hear(self, beginning: str, seconds: float = 20.0) -> list[str]:
        """Wait for a message that begins so, and return all up to it."""
        until = time.monotonic() + seconds
        messages: list[str] = []
        while not messages or not messages[-1].startswith(beginning):
            message = self.heard(until - time.monotonic())
            assert message is not None, f"no {beginning}: {messages}"
            messages.append(message)
        return messages

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening(name: str) -> Iterator[Manager]:
    made = Manager(name)
    try:
        yield made
    finally:
        made.close()
