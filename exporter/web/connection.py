"""One HTTP/1.1 connection: bytes in, requests to the handler, responses out, each within its time.

A connection waits for a head, answers it, and waits again. While it answers it reads nothing, so a peer that sends
requests ahead is held back by TCP and served in order.
"""

import asyncio
import http
import logging
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from typing import cast

import h11

from exporter.web.limits import Crowd, Limits
from exporter.web.messages import Request, Response, plain

logger = logging.getLogger(__name__)

CHUNK = 64 * 1024
"""Bytes of a body handed to the transport at once: what a slow reader costs beside the page itself."""

_RESET = struct.pack("ii", 1, 0)
"""struct linger: on, and no time to send the rest."""

_NO_REQUEST = Request("", "")
_BUSY = plain(503, "too many requests are being served; try again", (("Retry-After", "1"),))


class Site:
    """What all connections of a server share."""

    def __init__(
        self,
        respond: Callable[[Request], Awaitable[Response]],
        limits: Limits,
        uncounted: frozenset[str],
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self.respond = respond
        """Never raises."""
        self.limits = limits
        self.uncounted = uncounted
        self.tls = tls
        self.crowd = Crowd(limits)
        # The loop fills it and we copy out of it before it returns to the loop, so one serves all.
        self.buffer = memoryview(bytearray(limits.head_bytes))


class Connection(asyncio.BufferedProtocol):
    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=site.limits.head_bytes)
        self._raw: asyncio.Transport | None = None
        self._transport: asyncio.Transport | None = None
        """What requests are read from and responses written to: `_raw`, or TLS over it once shaken hands."""
        self._name = "?"
        self._request = _NO_REQUEST
        self._body_left = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._idle = False
        self._over = False
        """The last response is sent, or the connection is lost: what still comes in is dropped."""

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = raw = cast("asyncio.Transport", transport)
        peer = raw.get_extra_info("peername")
        self._name = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "?"
        raw.set_write_buffer_limits(0)  # `pause_writing` then means: not all of it is taken
        if not self._site.crowd.arrived(self):
            self._drop("there is no room for another connection")
        elif self._site.tls is None:
            self._transport = raw
            self._expect(self._site.limits.head_seconds, "no request came in time")
        else:
            self._task = self._loop.create_task(self._shake_hands(raw, self._site.tls))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface's
        return self._site.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._over:
            return
        if self._idle:
            self._idle = False
            self._expect(self._site.limits.head_seconds, "the request was not complete in time")
        self._http.receive_data(bytes(self._site.buffer[:nbytes]))
        self._advance()

    def eof_received(self) -> bool:
        if not self._over and (self._http.their_state is h11.SEND_BODY or self._http.trailing_data[0]):
            logger.debug("%s left in the middle of a request", self._name)
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - who left says nothing that we need
        self._over = True
        self._stop_timer()
        self._writable.set()
        self._site.crowd.left(self)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # What the server and the crowd call.

    def evict(self) -> None:
        self._drop("the room is needed for others")

    def close_when_done(self) -> asyncio.Task[None] | None:
        """End at once, or after the response that is being made or taken; return the task of that."""
        self._over = True
        if self._transport is None or self._task is None:  # a TLS handshake has a task, but no transport yet
            self._drop("the server is closing")
        return self._task

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._drop("the server is closing")

    # The way of a request.

    async def _shake_hands(self, raw: asyncio.Transport, context: Callable[[], ssl.SSLContext]) -> None:
        limits = self._site.limits
        try:
            transport = await self._loop.start_tls(
                raw,
                self,
                context(),
                server_side=True,
                ssl_handshake_timeout=limits.head_seconds,
                ssl_shutdown_timeout=limits.response_seconds,
            )
        except OSError as error:  # ssl.SSLError and timeouts are OSErrors
            self._drop(f"no TLS handshake: {error}")
            self._site.crowd.left(self)
            return
        finally:
            self._task = None
        if transport is None or self._over:
            raw.abort()
            self._site.crowd.left(self)
            return
        # asyncio's TLS pauses at the bound, not above it: with a bound of 0 it would pause for ever.
        transport.set_write_buffer_limits(high=1, low=0)
        self._transport = transport
        self._expect(limits.head_seconds, "no request came in time")
        self._advance()

    def _advance(self) -> None:
        """Go on with what has been received, up to the next complete request."""
        while self._task is None and self._transport is not None and not self._over:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint, str(error))
                return
            if isinstance(event, h11.Request):
                self._head(event)
            elif isinstance(event, h11.Data):
                self._body_left -= len(event.data)
                if self._body_left < 0:
                    self._begin(close=True)
            elif isinstance(event, h11.EndOfMessage):
                self._begin(close=False)
            else:  # NEED_DATA, or PAUSED until the response is sent
                return

    def _head(self, event: h11.Request) -> None:
        limits = self._site.limits
        if event.http_version not in {b"1.0", b"1.1"}:
            self._refuse(505, "neither HTTP/1.0 nor HTTP/1.1")
        elif len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > limits.head_bytes:
            self._refuse(431, "the head is too large")
        else:
            self._request, self._body_left = _request(event), limits.body_bytes
            length = max((int(value) for name, value in event.headers if name == b"content-length"), default=0)
            # We want no bodies: what is long, or waits to be asked for, is answered without it.
            if length > limits.body_bytes or self._http.they_are_waiting_for_100_continue:
                self._begin(close=True)

    def _refuse(self, status: int, reason: str) -> None:
        logger.debug("%s sent what is no request: %s", self._name, reason)
        self._begin(plain(status), close=True)

    def _begin(self, refusal: Response | None = None, *, close: bool) -> None:
        transport = self._open_transport()
        self._stop_timer()
        transport.pause_reading()
        self._site.crowd.answering(self)
        self._task = self._loop.create_task(self._answer(transport, refusal, close=close))

    async def _answer(self, transport: asyncio.Transport, refusal: Response | None, *, close: bool) -> None:
        seconds = self._site.limits.response_seconds
        counted = refusal is None and self._request.path not in self._site.uncounted
        try:
            with self._site.crowd.request(counted) as admitted:
                if refusal is not None:
                    response = refusal
                else:
                    response = await self._site.respond(self._request) if admitted else _BUSY
                async with asyncio.timeout(seconds):
                    complete = await self._send(transport, response, close=close)
        except TimeoutError:
            self._drop(f"the response was not taken within {seconds:g} s")
            return
        except Exception:  # a response that breaks the protocol costs its connection and nothing else
            logger.exception("%s cannot be sent its response", self._name)
            self._drop("its response cannot be sent")
            return
        finally:
            self._task = None
        if complete:
            self._next(transport)
        else:
            logger.debug("%s left before the response was complete", self._name)

    async def _send(self, transport: asyncio.Transport, response: Response, *, close: bool) -> bool:
        """Write it all; False: the peer is gone."""
        headers = [*response.headers, ("Content-Length", str(len(response.body)))]
        if close or self._over:
            headers.append(("Connection", "close"))
        head = self._http.send(
            h11.Response(
                status_code=response.status, headers=headers, reason=http.HTTPStatus(response.status).phrase.encode()
            )
        )
        body = memoryview(b"")
        if response.body and self._request.method != "HEAD":
            body = memoryview(self._http.send(h11.Data(data=response.body)))
        self._http.send(h11.EndOfMessage())
        chunk: bytes | memoryview = head + body[:CHUNK]
        start = CHUNK
        while True:
            if transport.is_closing():
                return False
            transport.write(chunk)
            await self._writable.wait()
            if start >= len(body):
                return not transport.is_closing()
            chunk = body[start : start + CHUNK]
            start += CHUNK

    def _next(self, transport: asyncio.Transport) -> None:
        """Wait for another request, or see the peer off."""
        self._request = _NO_REQUEST
        self._site.crowd.waiting(self)
        if not self._over and self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
            self._idle = not self._http.trailing_data[0]
            limits = self._site.limits
            self._expect(limits.idle_seconds if self._idle else limits.head_seconds, "no further request came in time")
            transport.resume_reading()
            self._advance()
        elif transport.can_write_eof():
            # Closing with unread bytes would make TCP drop the response that is still on its way.
            self._over = True
            transport.write_eof()
            self._expect(self._site.limits.linger_seconds, "it did not hang up")
            transport.resume_reading()
        else:
            self._over = True
            transport.close()

    def _open_transport(self) -> asyncio.Transport:
        if self._transport is None:
            raise AssertionError("no request comes before the connection is made")
        return self._transport

    def _expect(self, seconds: float, otherwise: str) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._drop, otherwise)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, reason: str) -> None:
        if not self._over:
            logger.debug("%s is disconnected: %s", self._name, reason)
        self._over = True
        self._stop_timer()
        if self._raw is None:
            return
        if self._task is not None and not self._raw.is_closing():
            # A plain close would leave what is unsent, up to megabytes, with the kernel until it gives up on the peer.
            self._raw.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        (self._transport or self._raw).abort()


def _request(event: h11.Request) -> Request:
    target = event.target.decode("ascii")
    if target[:7].lower() == "http://" or target[:8].lower() == "https://":
        # The form that proxies are asked in; servers have to take it as well.
        _, slash, rest = target.partition("://")[2].partition("/")
        target = slash + rest or "/"
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(event.method.decode("ascii"), path, query, headers)
