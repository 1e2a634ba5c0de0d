"""What all connections of a server share."""

import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from exporter.web.limits import Crowd, Limits
from exporter.web.messages import Request, Response, target_of

if TYPE_CHECKING:
    import h11  # as in connection

    from exporter.web.secure import SecureStream  # as in connection


class Encryption(Protocol):
    """How one connection is encrypted."""

    def stream(self, taken: socket.socket, readable: Callable[[], None]) -> "SecureStream":
        """Return the stream of a new connection, whose peer is to shake hands. Raises OSError when it has left."""

    def complaint(self, certificate: Mapping[str, Any]) -> str | None:
        """Return why a peer with this verified certificate (empty: none) may not ask anything; None: it may."""

    def honours(self, earlier: "Encryption | None") -> bool:
        """Tell whether who came in by `earlier` (None: in the clear) has met all that is asked for here."""


class Site:
    def __init__(
        self,
        respond: Callable[[Request], Awaitable[Response]],
        limits: Limits,
        uncounted: frozenset[str],
        *,
        refuse: Callable[[Request], Awaitable[Response | None]],
        encryption: Callable[[], Encryption | None],
        headers: Callable[[], Mapping[str, str]],
    ) -> None:
        self.respond = respond
        """Never raises."""
        self.refuse = refuse
        """Gives the answer to a request that may not pass. Never raises."""
        self.encryption = encryption
        """For the next connection; None: none."""
        self.headers = headers
        """Of every response; they replace those of the same name."""
        self.limits = limits
        self.uncounted = uncounted
        self.crowd = Crowd(limits)
        self.closing = False
        """Whether each response is the last of its connection."""
        self.denied = 0
        """Peers whose certificate was not good enough."""
        # It is copied from before anybody else is served, so one serves all.
        self.buffer = memoryview(bytearray(limits.head_bytes))


NO_REQUEST = Request("", "")


def request_of(event: "h11.Request", client: str) -> Request:
    path, query = target_of(event.target.decode("ascii"))
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(event.method.decode("ascii"), path, query, headers, client)
