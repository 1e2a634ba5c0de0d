"""How bytes come and go on the socket of one connection, in the clear; `secure` has those that go through TLS.

The socket is used as it is: asyncio's transports keep 256 KiB for each TLS connection, and a copy of what a slow reader
has not taken yet. Nothing is held here.
"""

import asyncio
import socket
import struct
from collections.abc import Callable

_RESET = struct.pack("ii", 1, 0)
"""struct linger: on, and no time to send the rest."""

NOT_YET = (BlockingIOError, InterruptedError)


class Stream:
    """Lives in the event loop that made it. `readable` is called whenever there may be something to read."""

    faults: tuple[type[OSError], ...] = ()
    """What `receive` raises when the peer did something wrong, beside leaving."""

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

    @property
    def closed(self) -> bool:
        return self._socket.fileno() < 0

    def read(self) -> None:
        """Go on calling `readable`."""
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._readable)

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def receive(self, buffer: memoryview) -> int | None:
        """Read into the buffer; 0: the peer sends nothing more; None: nothing is there yet. Raises OSError."""
        try:
            return self._socket.recv_into(buffer)
        except NOT_YET:
            return None

    def send_now(self, data: bytes | memoryview) -> int:
        """Return how much of the data was taken, 0 when that would mean waiting. Raises OSError."""
        try:
            return self._socket.send(data)
        except NOT_YET:
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

    def finish(self) -> None:
        """Say that nothing more will be sent. Raises OSError."""
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

    def _unblock(self) -> None:
        if self._blocked is not None and not self._blocked.done():
            self._blocked.set_result(None)
