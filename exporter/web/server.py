"""The HTTP server: listens, bounds what clients take, and turns a handler's failure into a 500."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence

from exporter.addresses import written
from exporter.model import WebCounts
from exporter.web.accept import Listener
from exporter.web.connection import Connection, Site
from exporter.web.guard import Guard
from exporter.web.limits import Limits
from exporter.web.listen import open_sockets
from exporter.web.messages import Handler, Request, Response, plain

logger = logging.getLogger(__name__)

MAX_FAILURES_LOGGED = 100


class Server:
    """Made by `serve`. Lives in the event loop that made it."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        uncounted: frozenset[str],
        tls: Callable[[], ssl.SSLContext] | None,
        guard: Guard | None,
    ) -> None:
        self._guard = guard
        self._handler = handler
        self._site = Site(self._respond, limits, uncounted, tls)
        self._listeners: list[Listener] = []
        self._logged: set[tuple[type[Exception], str]] = set()
        self.addresses: tuple[str, ...] = ()
        """Where it listens, with the ports that the kernel chose."""
        self.failures = 0
        """Requests whose handler raised or took too long."""

    @property
    def refused(self) -> int:
        """Requests that got 503 and connections that were closed, because there were too many."""
        return self._site.crowd.refused

    @property
    def counts(self) -> WebCounts:
        return WebCounts(refused=self.refused, failed=self.failures)

    @property
    def connections(self) -> int:
        return len(self._site.crowd)

    async def listen(self, addresses: Sequence[str], passed: Sequence[socket.socket] | None = None) -> None:
        """Listen on all of them or on none. Raises ListenError."""
        sockets = open_sockets(tuple(addresses)) if passed is None else list(passed)
        self.addresses = tuple(written(*each.getsockname()[:2]) for each in sockets)
        crowd = self._site.crowd
        self._listeners += [Listener(each, lambda: Connection(self._site), crowd.make_room) for each in sockets]

    async def close(self, grace: float = 1.0) -> None:
        """Stop listening, let the responses in progress end for up to `grace` seconds, and hang up."""
        for listener in self._listeners:
            listener.close()
        peers = [peer for peer in self._site.crowd if isinstance(peer, Connection)]
        tasks = {task for peer in peers if (task := peer.close_when_done()) is not None}
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for peer in peers:
            peer.abort()
        await asyncio.sleep(0)  # the transports tell their protocols in the next turn of the loop

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
    tls: Callable[[], ssl.SSLContext] | None = None,
    guard: Guard | None = None,
    sockets: Sequence[socket.socket] | None = None,
) -> Server:
    """Serve until `close`.

    `uncounted` are the paths that are answered whatever `limits.max_requests` says: probes, which must not end a daemon
    for being busy. `tls` gives the context for the next connection, so that certificates can be replaced while serving.
    `guard` says who may ask. `sockets` listen already, and are served instead of `addresses`.

    Raises ListenError.
    """
    server = Server(handler, limits or Limits(), uncounted, tls, guard)
    await server.listen(addresses, sockets)
    return server
