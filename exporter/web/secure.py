"""How bytes come and go on the socket of one connection through TLS. Loaded where there is TLS: it brings OpenSSL."""

import contextlib
import select
import socket
import ssl
from collections.abc import Callable
from typing import Any

from exporter.web.stream import NOT_YET, Stream

_NOT_YET = (*NOT_YET, ssl.SSLWantReadError)


class SecureStream(Stream):
    """As a stream in the clear, once `shake_hands` is through."""

    faults = (ssl.SSLError,)

    def __init__(self, taken: socket.socket, readable: Callable[[], None], context: ssl.SSLContext) -> None:
        """Raise OSError when the peer has left."""
        super().__init__(taken, readable)
        self._socket = self._tls = context.wrap_socket(taken, server_side=True, do_handshake_on_connect=False)
        self._room = select.poll()
        self._room.register(self._tls, select.POLLOUT)

    def read(self) -> None:
        if not self._reading and not self.closed:
            super().read()
            self._look_for_more()

    def shake_hands(self) -> bool:
        """Do as much of the TLS handshake as can be done; True: it is through. Raises OSError."""
        try:
            self._tls.do_handshake()
        except _NOT_YET:
            return False
        except ssl.SSLWantWriteError:
            self._read_when_writable()
            return False
        if self._tls.family != socket.AF_UNIX:
            # We have nothing to say now, and a client without TCP_NODELAY waits 40 ms for a sign before it asks.
            self._tls.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return True

    def peer_certificate(self) -> dict[str, Any]:
        """Return what the peer's verified certificate says; empty: it gave none. Raises OSError, ValueError."""
        return dict(self._tls.getpeercert() or {})

    def receive(self, buffer: memoryview) -> int | None:
        try:
            received = self._tls.recv_into(buffer)
        except _NOT_YET:
            return None
        except ssl.SSLWantWriteError:
            # TLS has to answer a change of keys before it can read on, to a peer that takes nothing.
            self._read_when_writable()
            return None
        if received:
            self._look_for_more()
        return received

    def send_now(self, data: bytes | memoryview) -> int:
        if not self._room.poll(0):
            return 0  # OpenSSL would keep 16 KiB of it, enciphered, until it can send them
        try:
            return self._tls.send(data)
        except (*_NOT_YET, ssl.SSLWantWriteError):
            return 0

    def send_in_the_clear(self, data: bytes) -> None:
        """Send what a peer without TLS understands, as far as it is taken at once. Raises OSError."""
        socket.socket.send(self._tls, data)

    def finish(self) -> None:
        """Say that nothing more will be sent. What is received from here on is not deciphered. Raises OSError."""
        with contextlib.suppress(OSError, ValueError):  # the peer's own farewell is not waited for
            self._tls.unwrap()
        super().finish()

    def _look_for_more(self) -> None:
        # What is deciphered and not fetched: no further byte may come that would wake us.
        if self._tls.pending():
            self._loop.call_soon(self._wake)

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
