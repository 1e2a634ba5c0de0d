"""One HTTP/1.1 connection: bytes in, requests to the handler, responses out, each within its time.

A connection waits for a head, answers it, and waits again. While it answers it reads nothing, so a peer that sends
requests ahead is held back by TCP and served in order.
"""

import asyncio
import http
import logging
import socket
from typing import TYPE_CHECKING

from exporter.validation import printable
from exporter.web.limits import Limits
from exporter.web.messages import Response, plain
from exporter.web.site import NO_REQUEST, Encryption, Site, request_of
from exporter.web.stream import Stream
from exporter.web.usual import head_of, read

if TYPE_CHECKING:
    import h11  # it is loaded by the first client that it takes

    from exporter.web.secure import SecureStream  # it brings OpenSSL, which only those with TLS are to pay

logger = logging.getLogger(__name__)

CHUNK = 16 * 1024
"""Bytes of a body sent together with the head: the most that one TLS record holds."""

_BUSY = plain(503, "too many requests are being served; try again", (("Retry-After", "1"),))
_NO_READER = plain(503, "such requests cannot be read at the moment", (("Retry-After", "10"),))
_NOT_TLS = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nthis port speaks HTTPS, not HTTP\n"
_NO_CERTIFICATE = {"PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"}


class Connection:
    def __init__(self, site: Site, taken: socket.socket, name: str) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._http: h11.Connection | None = None
        """While a request is read, or answered, that is not a usual one: it takes as much memory as all the rest."""
        self._stream = Stream(taken, self._readable)
        self._name = name
        self._request = NO_REQUEST
        self._body_left = 0
        self._unsent = b""
        self._slow = False
        """The peer does not take the response at once."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._handshake: tuple[Encryption, SecureStream] | None = None
        """Set until the one of TLS is through."""
        self._agreed: Encryption | None = None
        """What it came in by; None: in the clear."""
        self._idle = False
        self.is_new = True
        """Nothing was asked over it yet."""
        self._over = False
        """The last response is sent, or the connection is lost: what still comes in is dropped."""
        self._told = False
        """What is wrong with the peer stands in the log already."""
        if not site.crowd.arrived(self, self._loop.time()):
            self._drop("there is no room for another connection")
            return
        encryption = self._agreed = site.encryption()
        if encryption is None:
            self._expect(self._limits.head_seconds, "no request came in time")
        else:
            try:
                self._stream = secured = encryption.stream(taken, self._readable)
            except OSError as error:  # it left already
                self._drop(f"no TLS handshake: {_words(error)}")
                return
            self._handshake = encryption, secured
            self._expect(self._limits.head_seconds, "no TLS handshake came in time")
        self._stream.read()

    # What the server and the crowd call.

    def evict(self) -> None:
        self._drop("the room is needed for others")

    def close_when_done(self) -> asyncio.Task[None] | None:
        """End at once, or after the response to what has been asked; return the task of that."""
        if self._task is None and not self._over:
            self._readable()  # it may have come already, and would be lost with the connection
        self._over = True
        if self._task is None:
            self._close()
        return self._task

    def abort(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._drop("the server is closing")

    # The way of a request.

    @property
    def _limits(self) -> Limits:
        return self._site.limits

    def _readable(self) -> None:
        if self._task is not None:
            self._stream.pause()  # until that is answered: most peers wait for it, and cost no change to what is polled
            return
        if self._handshake is not None:
            self._shake_hands(*self._handshake)
            return
        try:
            received = self._stream.receive(self._site.buffer)
        except OSError as error:
            if self._http is not None or isinstance(error, self._stream.faults):
                self._drop(f"it broke off: {_words(error)}")
            else:
                self._close()
            return
        if received is None:
            return
        if not received:
            if not self._over and self._http is not None:
                logger.debug("%s left in the middle of a request", self._name)
            self._close()
        elif not self._over:
            self._received(bytes(self._site.buffer[:received]))

    def _received(self, data: bytes) -> None:
        if self._idle:
            self._idle = False
            self._expect(self._limits.head_seconds, "the request was not complete in time")
        if self._http is None:
            usual = read(data, self._host)
            if usual is not None:
                self._request = usual.request
                if not self._turned_away():
                    self._begin(close=usual.close)
                return
            try:
                import h11  # noqa: PLC0415 -- as above
            except Exception as error:  # noqa: BLE001 -- there is no descriptor or no memory left, or it is not whole
                logger.debug("%s sent what cannot be read: %s", self._name, printable(str(error)))
                self._site.crowd.refused += 1
                self._begin(_NO_READER, close=True)
                return
            self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.head_bytes)
        self._http.receive_data(data)
        self._advance(self._http)

    def _shake_hands(self, encryption: Encryption, stream: "SecureStream") -> None:
        try:
            if not stream.shake_hands():
                return
            complaint = encryption.complaint(stream.peer_certificate())
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None)
            if reason == "HTTP_REQUEST":
                self._answer_in_the_clear(stream)
                return
            self._site.denied += reason in _NO_CERTIFICATE
            self._drop(f"no TLS handshake: {_words(error)}")
            return
        if complaint is not None:
            self._site.denied += 1
            self._drop(f"its certificate does not do: {complaint}")
            return
        self._handshake = None
        self._expect(self._limits.head_seconds, "no request came in time")
        self._readable()

    def _answer_in_the_clear(self, stream: "SecureStream") -> None:
        logger.debug("%s does not speak TLS", self._name)
        self._handshake = None
        try:
            stream.send_in_the_clear(_NOT_TLS)
        except OSError:
            self._close()
        else:
            self._see_off()

    def _advance(self, protocol: "h11.Connection") -> None:
        """Go on with what has been received, up to the next complete request."""
        import h11  # noqa: PLC0415 -- as above

        while self._task is None and not self._over:
            try:
                event = protocol.next_event()
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint, str(error))
                return
            if isinstance(event, h11.Request):
                self._head(protocol, event)
            elif isinstance(event, h11.Data):
                self._body_left -= len(event.data)
                if self._body_left < 0:
                    self._begin(close=True)
            elif isinstance(event, h11.EndOfMessage):
                self._begin(close=False)
            else:  # NEED_DATA, or PAUSED until the response is sent
                return

    def _head(self, protocol: "h11.Connection", event: "h11.Request") -> None:
        limits = self._limits
        # Also of one that is refused: what HEAD asks for gets no body.
        self._request, self._body_left = request_of(event, self._host), limits.body_bytes
        if self._turned_away():
            return
        if event.http_version not in {b"1.0", b"1.1"}:
            self._refuse(505, "neither HTTP/1.0 nor HTTP/1.1")
        elif len(event.target) + sum(len(name) + len(value) + 4 for name, value in event.headers) > limits.head_bytes:
            self._refuse(431, "the head is too large")
        elif {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:
            self._refuse(400, "it says twice how long it is")  # what is in front of us may have taken the other
        else:
            length = max((int(value) for name, value in event.headers if name == b"content-length"), default=0)
            # We want no bodies: what is long, or waits to be asked for, is answered without it.
            if length > limits.body_bytes or protocol.they_are_waiting_for_100_continue:
                self._begin(close=True)

    @property
    def _host(self) -> str:
        return self._name.rpartition(":")[0]

    def _turned_away(self) -> bool:
        """Hang up on who is asked for more than it has given when it came; tells whether that was so."""
        required = self._site.encryption()
        if required is None or required is self._agreed or required.honours(self._agreed):
            return False
        # Without a response: nothing was begun, so clients ask again over a new connection.
        self._drop("what is asked of clients has changed since it came")
        return True

    def _refuse(self, status: int, reason: str) -> None:
        logger.debug("%s sent what is no request: %s", self._name, printable(reason))
        self._told = True
        self._begin(plain(status), close=True)

    def _begin(self, refusal: Response | None = None, *, close: bool) -> None:
        self._stop_timer()
        self.is_new = False
        self._site.crowd.answering(self)
        self._task = self._loop.create_task(self._answer(refusal, close=close))

    async def _answer(self, refusal: Response | None, *, close: bool) -> None:
        seconds = self._limits.response_seconds
        try:
            head = self._framed(refusal or await self._response(), close=close)
            async with asyncio.timeout(seconds):
                await self._send(head)
        except TimeoutError:
            self._drop(f"the response was not taken within {seconds:g} s")
            return
        except OSError:
            if not self._over and not self._told:
                logger.debug("%s left before the response was complete", self._name)
            self._close(unsent=True)
            return
        except Exception:  # a response that breaks the protocol costs its connection and nothing else
            logger.exception("%s cannot be sent its response", self._name)
            self._drop("its response cannot be sent")
            return
        finally:
            self._unsent, self._slow = b"", False
            self._task = None
        self._next(close=close)

    async def _response(self) -> Response:
        site, request = self._site, self._request
        refusal = await site.refuse(request)
        if refusal is not None:
            return refusal
        with site.crowd.request(counted=request.path not in site.uncounted) as admitted:
            return await site.respond(request) if admitted else _BUSY

    def _framed(self, response: Response, *, close: bool) -> bytes:
        """Return the head, and leave the body in `_unsent`."""
        added = self._site.headers()
        replaced = {name.lower() for name in added}
        headers = [(name, value) for name, value in response.headers if name.lower() not in replaced]
        headers += [*added.items(), ("Content-Length", str(len(response.body)))]
        if close or self._over or self._site.closing:
            headers.append(("Connection", "close"))
        if self._http is None:
            if self._request.method != "HEAD":
                self._unsent = response.body
            return head_of(response.status, headers)
        import h11  # noqa: PLC0415 -- as above

        protocol = self._http
        phrase = http.HTTPStatus(response.status).phrase.encode()
        head = protocol.send(h11.Response(status_code=response.status, headers=headers, reason=phrase))
        if response.body and self._request.method != "HEAD":
            self._unsent = protocol.send(h11.Data(data=response.body)) or b""
        protocol.send(h11.EndOfMessage())
        return head or b""

    async def _send(self, head: bytes) -> None:
        """Send it all. Raises OSError when the peer is gone."""
        first = head + self._unsent[: max(0, CHUNK - len(head))]
        sent = 0
        while sent < len(first):
            taken = self._stream.send_now(memoryview(first)[sent:])
            sent += taken
            if not taken:
                await self._held_up()
        sent -= len(head)
        first = head = b""  # a slow reader costs its page, and shares that
        while sent < len(self._unsent):
            taken = self._stream.send_now(memoryview(self._unsent)[sent:])
            sent += taken
            if not taken:
                await self._held_up()

    async def _held_up(self) -> None:
        if not self._slow:
            self._slow = True
            self._unsent = self._site.crowd.slow(self, self._unsent, self._loop.time())
        await self._stream.writable()

    def _next(self, *, close: bool) -> None:
        """Wait for another request, or see the peer off."""
        self._request = NO_REQUEST
        self._site.crowd.waiting(self)
        protocol = self._http
        if self._over or close or self._site.closing or (protocol is not None and not _is_done(protocol)):
            self._see_off()
            return
        if protocol is not None:
            protocol.start_next_cycle()
        self._idle = protocol is None or not protocol.trailing_data[0]
        limits = self._limits
        self._expect(limits.idle_seconds if self._idle else limits.head_seconds, "no further request came in time")
        self._stream.read()
        if protocol is None or self._idle:
            self._http = None
        else:
            self._advance(protocol)

    def _see_off(self) -> None:
        """Wait for the peer to hang up: closing with unread bytes would make TCP drop what is still on its way."""
        self._over = True
        try:
            self._stream.finish()
        except OSError:
            self._close()
            return
        self._expect(self._limits.linger_seconds, "it did not hang up")
        self._stream.read()

    def _expect(self, seconds: float, otherwise: str) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._drop, otherwise)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, reason: str) -> None:
        if not self._over and not self._told:
            logger.debug("%s is disconnected: %s", self._name, reason)
        self._close(unsent=self._task is not None)

    def _close(self, *, unsent: bool = False) -> None:
        self._over = True
        self.is_new = False
        self._http = None
        self._stop_timer()
        self._stream.close(unsent=unsent)
        self._site.crowd.left(self)


def _is_done(protocol: "h11.Connection") -> bool:
    """Whether both sides have said all of a request, and may go on."""
    import h11  # noqa: PLC0415 -- as above

    return protocol.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}


def _words(error: Exception) -> str:
    """Say what went wrong without the place in OpenSSL's and Python's source."""
    return printable(str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error))
