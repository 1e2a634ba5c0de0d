"""How much of the daemon its HTTP clients may take, and who has to go when it is too much."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import msgspec

_SPARED = 8
"""Peers that go at once when descriptors are short: a worker that is started needs some as well."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in count, bytes and seconds."""

    max_requests: int = 40
    """Requests between their head and the end of their response; more get 503. 0: as many as there are connections."""
    max_idle: int = 256
    """Connections beyond `max_requests`: the one that has waited longest goes when another arrives."""
    head_bytes: int = 16 * 1024
    body_bytes: int = 16 * 1024
    """A request body up to this size is read and dropped; a longer one costs the connection."""
    head_seconds: float = 10.0
    """From the first byte, or from the start of the connection, to the end of the head; a TLS handshake has as long."""
    response_seconds: float = 10.0
    """How long the answer may take to be made, and then to be taken."""
    idle_seconds: float = 90.0
    """Between two requests; scrapes are 15 to 60 s apart."""
    linger_seconds: float = 1.0
    """How long a peer may take to hang up after the last response, so that it can still read it."""


KEPT = 24
"""Descriptors that connections leave to the log, the workers and what starts them."""


def needed(limits: Limits) -> int:
    """Return how many descriptors the daemon may come to use."""
    return limits.max_requests + limits.max_idle + KEPT


def fitted(limits: Limits, descriptors: int) -> Limits:
    """Return the limits, made smaller where so many descriptors do not suffice."""
    room = max(2, descriptors - KEPT)
    requests = min(limits.max_requests, max(room // 2, room - limits.max_idle))
    return msgspec.structs.replace(limits, max_requests=requests, max_idle=min(limits.max_idle, room - requests))


class Peer(Protocol):
    def evict(self) -> None:
        """Close at once, because others need the room."""


class Crowd:
    """The connections of one server: those that wait for a request, and those that are being answered."""

    def __init__(self, limits: Limits) -> None:
        self._max_requests = limits.max_requests
        self._max_peers = limits.max_requests + limits.max_idle
        self._waiting: dict[Peer, None] = {}  # the one that has waited longest comes first
        self._answered: set[Peer] = set()
        self._requests = 0
        self.refused = 0
        """Requests that got 503 and connections that were closed for want of room."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def __iter__(self) -> Iterator[Peer]:
        return iter((*self._waiting, *self._answered))

    @property
    def requests(self) -> int:
        return self._requests

    def arrived(self, peer: Peer) -> bool:
        """Take in a newcomer, if need be in the place of the peer that has waited longest; False: there is no room."""
        if len(self) >= self._max_peers:
            self.refused += 1
            if not self._waiting:
                return False
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.evict()
        self._waiting[peer] = None
        return True

    def make_room(self) -> bool:
        """End the peers that have waited longest, to give descriptors back; False: none waits."""
        oldest = list(islice(self._waiting, _SPARED))
        for peer in oldest:
            self.refused += 1
            del self._waiting[peer]
            peer.evict()
        return bool(oldest)

    def answering(self, peer: Peer) -> None:
        self._waiting.pop(peer, None)
        self._answered.add(peer)

    def waiting(self, peer: Peer) -> None:
        self._answered.discard(peer)
        self._waiting.pop(peer, None)
        self._waiting[peer] = None

    def left(self, peer: Peer) -> None:
        """Forget the peer; harmless when it is not known."""
        self._answered.discard(peer)
        self._waiting.pop(peer, None)

    @contextmanager
    def request(self, counted: bool = True) -> Iterator[bool]:
        """Hold the place of one request; gives False when all are taken. What is not counted always has one."""
        if not counted:
            yield True
        elif 0 < self._max_requests <= self._requests:
            self.refused += 1
            yield False
        else:
            self._requests += 1
            try:
                yield True
            finally:
                self._requests -= 1
