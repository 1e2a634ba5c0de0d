"""The HTTP server: listens, bounds what clients take, and turns a handler's failure into a 500."""

import asyncio
import logging
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from exporter.addresses import written
from exporter.model import WebCounts
from exporter.web.accept import Listener
from exporter.web.connection import Connection
from exporter.web.limits import Limits
from exporter.web.listen import open_sockets
from exporter.web.messages import Handler, Request, Response, plain
from exporter.web.site import Site

if TYPE_CHECKING:
    from exporter.web.guard import Guard  # it brings YAML and hashing, which only those with such a file are to pay

logger = logging.getLogger(__name__)

MAX_FAILURES_LOGGED = 100
NEWCOMERS_SECONDS = 0.5
"""Whoever has connected when the server closes may ask for so long: on a socket that outlives it nobody else hears."""
_TICK_SECONDS = 0.01


class Server:
    """Made by `serve`. Lives in the event loop that made it."""

    def __init__(self, handler: Handler, limits: Limits, uncounted: frozenset[str], guard: "Guard | None") -> None:
        self._handler = handler
        self._guard = guard
        self._site = Site(
            self._respond,
            limits,
            uncounted,
            refuse=self._refuse,
            encryption=lambda: None if guard is None else guard.encryption(),
            headers=lambda: {} if guard is None else guard.headers,
        )
        self._listeners: list[Listener] = []
        self._logged: set[tuple[type[Exception], str]] = set()
        self.addresses: tuple[str, ...] = ()
        """Where it listens, with the ports that the kernel chose."""
        self.failures = 0
        """Requests whose handler raised or took too long."""

    @property
    def refused(self) -> int:
        """Requests that got 503 or 429 and connections that were closed, because there were too many."""
        return self._site.crowd.refused + (0 if self._guard is None else self._guard.refused)

    @property
    def denied(self) -> int:
        """Requests without a valid login, and TLS handshakes without a valid certificate."""
        return self._site.denied + (0 if self._guard is None else self._guard.denied)

    @property
    def counts(self) -> WebCounts:
        return WebCounts(refused=self.refused, failed=self.failures, denied=self.denied)

    def limit(self, limits: Limits) -> None:
        """Hold to these limits from here on."""
        self._site.limits = limits
        self._site.crowd.limit(limits)

    @property
    def connections(self) -> int:
        return len(self._site.crowd)

    async def listen(self, addresses: Sequence[str], passed: Sequence[socket.socket] | None = None) -> None:
        """Listen on all of them or on none. Raises ListenError."""
        sockets = open_sockets(tuple(addresses)) if passed is None else list(passed)
        self.addresses = tuple(_address(each) for each in sockets)
        site = self._site

        def welcome(taken: socket.socket, name: str) -> None:
            Connection(site, taken, name)  # the event loop holds it, as long as it waits for something

        self._listeners += [Listener(each, welcome, site.crowd.make_room) for each in sockets]

    async def close(self, grace: float = 1.0) -> None:
        """Stop listening, answer who has asked, or has only just come, for up to `grace` seconds, and hang up."""
        for listener in self._listeners:
            listener.close()
        peers = [peer for peer in self._site.crowd if isinstance(peer, Connection)]
        self._site.closing = True
        until = time.monotonic() + min(grace, NEWCOMERS_SECONDS)
        while any(peer.is_new for peer in peers) and time.monotonic() < until:  # noqa: ASYNC110 -- it is the end
            await asyncio.sleep(_TICK_SECONDS)
        tasks = {task for peer in peers if (task := peer.close_when_done()) is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for peer in peers:
            peer.abort()
        await asyncio.sleep(0)  # those that were cancelled end in the next turn of the loop

    async def _refuse(self, request: Request) -> Response | None:
        if self._guard is None:
            return None
        try:
            async with asyncio.timeout(self._site.limits.response_seconds):
                return await self._guard.refusal(request, limited=request.path not in self._site.uncounted)
        except TimeoutError:
            self._guard.refused += 1
            return plain(503, "too many logins are being checked; try again", (("Retry-After", "10"),))
        except Exception as error:  # noqa: BLE001 - whatever breaks, nobody passes
            self._failed(request, error)
            return plain(500, "the login could not be checked; the log says why")

    async def _respond(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(self._site.limits.response_seconds):
                return await self._handler(request)
        except Exception as error:  # noqa: BLE001 - whatever breaks in a page, the endpoint stays up
            self._failed(request, error)
            return plain(500, "the page could not be made; the log says why")

    def _failed(self, request: Request, error: Exception) -> None:
        self.failures += 1
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        key = (type(error), "" if place is None else f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}")
        if key in self._logged or len(self._logged) >= MAX_FAILURES_LOGGED:
            logger.debug("%s %r failed again: %r", request.method, request.path, error)
            return
        self._logged.add(key)
        logger.error("%s %r failed", request.method, request.path, exc_info=error)


async def serve(
    addresses: Sequence[str],
    handler: Handler,
    *,
    limits: Limits | None = None,
    uncounted: frozenset[str] = frozenset(),
    guard: "Guard | None" = None,
    sockets: Sequence[socket.socket] | None = None,
) -> Server:
    """Serve until `close`.

    `uncounted` are the paths that neither `limits.max_requests` nor the rate limit counts: probes, which must not end a
    daemon for being busy. `guard` says who may ask. `sockets` listen already, and are served instead of `addresses`.

    Raises ListenError.
    """
    server = Server(handler, limits or Limits(), uncounted, guard)
    await server.listen(addresses, sockets)
    return server


def _address(listening: socket.socket) -> str:
    """Return the address as people write it; of a socket in the file system its path."""
    where = listening.getsockname()
    return written(*where[:2]) if isinstance(where, tuple) else f"unix:{where or '?'}"
