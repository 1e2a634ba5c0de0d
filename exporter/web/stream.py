"""How bytes come and go on the socket of one connection, in the clear or through TLS.

The socket is used as it is: asyncio's transports keep 256 KiB for each TLS connection, and a copy of what a slow reader
has not taken yet. Nothing is held here.
"""

import asyncio
import contextlib
import select
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

_RESET = struct.pack("ii", 1, 0)
"""struct linger: on, and no time to send the rest."""

_NOT_YET = (BlockingIOError, InterruptedError, ssl.SSLWantReadError)


class Stream:
    """Lives in the event loop that made it. `readable` is called whenever there may be something to read."""

    def __init__(self, taken: socket.socket, readable: Callable[[], None]) -> None:
        taken.setblocking(False)
        if taken.family != socket.AF_UNIX:
            # What is sent is complete, and would wait for an acknowledgement of what was sent before.
            taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = taken
        # With TLS the same. asyncio asks its selector for what is not registered yet, and the error that says so would
        # spell out a socket, with two system calls for its addresses.
        self._descriptor = taken.fileno()
        self._readable = readable
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._blocked: asyncio.Future[None] | None = None
        self._room: select.poll | None = None

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def read(self) -> None:
        """Go on calling `readable`."""
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)
            if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
                # Deciphered and not fetched: no further byte may come that would wake us.
                self._loop.call_soon(self._wake)

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS from here on, once `shake_hands` is through."""
        self._socket = context.wrap_socket(self._socket, server_side=True, do_handshake_on_connect=False)
        self._room = select.poll()
        self._room.register(self._socket, select.POLLOUT)

    def shake_hands(self) -> bool:
        """Do as much of the TLS handshake as can be done; True: it is through. Raises OSError."""
        try:
            self._tls().do_handshake()
        except _NOT_YET:
            return False
        except ssl.SSLWantWriteError:
            self._read_when_writable()
            return False
        if self._socket.family != socket.AF_UNIX:
            # We have nothing to say now, and a client without TCP_NODELAY waits 40 ms for a sign before it asks.
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return True

    def peer_certificate(self) -> dict[str, Any]:
        """Return what the peer's verified certificate says; empty: it gave none. Raises OSError, ValueError."""
        return dict(self._tls().getpeercert() or {})

    def receive(self, buffer: memoryview) -> int | None:
        """Read into the buffer; 0: the peer sends nothing more; None: nothing is there yet. Raises OSError."""
        try:
            received = self._socket.recv_into(buffer)
        except _NOT_YET:
            return None
        except ssl.SSLWantWriteError:
            # TLS has to answer a change of keys before it can read on, to a peer that takes nothing.
            self._read_when_writable()
            return None
        if received and isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            self._loop.call_soon(self._wake)
        return received

    def send_now(self, data: bytes | memoryview) -> int:
        """Return how much of the data was taken, 0 when that would mean waiting. Raises OSError."""
        if self._room is not None and not self._room.poll(0):
            return 0  # OpenSSL would keep 16 KiB of it, enciphered, until it can send them
        try:
            return self._socket.send(data)
        except (*_NOT_YET, ssl.SSLWantWriteError):
            return 0

    async def writable(self) -> None:
        """Wait until the peer takes more, or the stream is closed."""
        if self.closed:
            return
        self._blocked = self._loop.create_future()
        self._loop.add_writer(self._descriptor, self._unblock)
        try:
            await self._blocked
        finally:
            self._blocked = None
            if not self.closed:
                self._loop.remove_writer(self._descriptor)

    def send_in_the_clear(self, data: bytes) -> None:
        """Send what a peer without TLS understands, as far as it is taken at once. Raises OSError."""
        socket.socket.send(self._socket, data)

    def finish(self) -> None:
        """Say that nothing more will be sent. What is received from here on is not deciphered. Raises OSError."""
        if isinstance(self._socket, ssl.SSLSocket):
            with contextlib.suppress(OSError, ValueError):  # the peer's own farewell is not waited for
                self._socket.unwrap()
        self._socket.shutdown(socket.SHUT_WR)

    def close(self, *, unsent: bool) -> None:
        """Close at once; `unsent`: drop what the kernel has not sent, which may be megabytes for a peer that sleeps."""
        if self.closed:
            return
        self.pause()
        self._loop.remove_writer(self._descriptor)
        if unsent:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._socket.close()
        self._unblock()

    def _tls(self) -> ssl.SSLSocket:
        if not isinstance(self._socket, ssl.SSLSocket):
            raise AssertionError("there is no TLS on this stream")  # noqa: TRY004 - of the caller, not of a value
        return self._socket

    def _wake(self) -> None:
        if self._reading:
            self._readable()

    def _read_when_writable(self) -> None:
        self.pause()
        self._loop.add_writer(self._descriptor, self._go_on_reading)

    def _go_on_reading(self) -> None:
        self._loop.remove_writer(self._descriptor)
        self.read()
        self._wake()

    def _unblock(self) -> None:
        if self._blocked is not None and not self._blocked.done():
            self._blocked.set_result(None)
