"""How much of the daemon its HTTP clients may take, and who has to go when it is too much."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

import msgspec

_READ_SECONDS = 1.0
"""What a reader is given for its page, however many others want its connection."""
_FEW_PAGES = 8
_MAX_PAGE_BYTES = 2 << 20
"""Of pages that are kept for slow readers; beyond it, and beyond a few, the readers of the oldest page go."""

_SPARED = 8
"""Peers that go at once when descriptors are short: a worker that is started needs some as well."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds in count, bytes and seconds."""

    max_requests: int = 40
    """Pages being made at the same time; more requests get 503. 0: as many as there are connections."""
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


class _Page:
    """What several slow readers may be taking."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.readers = 0


class Crowd:
    """The connections of one server: those that wait for a request, and those that are being answered.

    `now` is CLOCK_MONOTONIC seconds.
    """

    def __init__(self, limits: Limits) -> None:
        self.limit(limits)
        self._waiting: dict[Peer, None] = {}  # the one that has waited longest comes first
        self._answered: set[Peer] = set()
        self._slow: dict[Peer, tuple[float, _Page]] = {}  # of those that are answered; the slowest comes first
        self._pages: dict[bytes, _Page] = {}
        self._page_bytes = 0
        self._requests = 0
        self.refused = 0
        """Requests that got 503 and connections that were closed for want of room."""

    def limit(self, limits: Limits) -> None:
        """Take other bounds; those who are there stay."""
        self._max_requests = limits.max_requests
        self._max_peers = limits.max_requests + limits.max_idle

    def __len__(self) -> int:
        return len(self._waiting) + len(self._answered)

    def __iter__(self) -> Iterator[Peer]:
        return iter((*self._waiting, *self._answered))

    @property
    def requests(self) -> int:
        """Requests whose page is being made."""
        return self._requests

    @property
    def pages(self) -> int:
        """Pages that are kept because slow readers have not taken them."""
        return len(self._pages)

    def arrived(self, peer: Peer, now: float) -> bool:
        """Take in a newcomer, if need be in the place of the peer that has waited longest; False: there is no room."""
        if len(self) >= self._max_peers:
            self.refused += 1
            if self._waiting:
                self._evict([next(iter(self._waiting))])
            elif self._oldest_since() > now - _READ_SECONDS:
                return False
            else:
                self._spare_a_page()
        self._waiting[peer] = None
        return True

    def make_room(self) -> bool:
        """End the peers that have waited longest, to give descriptors back; False: none waits."""
        oldest = list(islice(self._waiting, _SPARED))
        self.refused += len(oldest)
        self._evict(oldest)
        return bool(oldest)

    def answering(self, peer: Peer) -> None:
        self._waiting.pop(peer, None)
        self._answered.add(peer)

    def slow(self, peer: Peer, content: bytes, now: float) -> bytes:
        """Note that the peer does not take its page at once; return the one that all send who take the same."""
        page = self._pages.get(content)
        if page is None:
            page = self._pages[content] = _Page(content)
            self._page_bytes += len(content)
        page.readers += 1
        self._slow[peer] = (now, page)
        while self._page_bytes > _MAX_PAGE_BYTES and len(self._pages) > _FEW_PAGES:
            self._spare_a_page()
        return page.content

    def waiting(self, peer: Peer) -> None:
        self.left(peer)
        self._waiting[peer] = None

    def left(self, peer: Peer) -> None:
        """Forget the peer; harmless when it is not known."""
        self._answered.discard(peer)
        self._waiting.pop(peer, None)
        slow = self._slow.pop(peer, None)
        if slow is not None:
            page = slow[1]
            page.readers -= 1
            if not page.readers:
                del self._pages[page.content]
                self._page_bytes -= len(page.content)

    @contextmanager
    def request(self, *, counted: bool = True) -> Iterator[bool]:
        """Hold a place while a page is made; gives False when all are taken. What is not counted always has one."""
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

    def _oldest_since(self) -> float:
        """Return since when the slowest reader has been at it."""
        return next((since for since, _ in self._slow.values()), math.inf)

    def _spare_a_page(self) -> None:
        """End the readers of the page that has been read for longest."""
        _, page = next(iter(self._slow.values()))
        readers = [peer for peer, (_, taken) in self._slow.items() if taken is page]
        self.refused += len(readers)
        self._evict(readers)

    def _evict(self, peers: list[Peer]) -> None:
        for peer in peers:
            self.left(peer)
            peer.evict()
