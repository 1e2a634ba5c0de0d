"""Who waits for fresh energy of one provider, for what, and until when."""

import asyncio
from collections.abc import Iterable

from exporter.model import Group, Sample
from exporter.supervision import frames


class FreshRequests:
    """One request at a time, to one child; whoever comes meanwhile shares it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._listed: frozenset[str] = frozenset()
        self._energy_at: dict[str, float] = {}
        self._relieved: frozenset[str] = frozenset()
        self._token = 0
        self._child = 0
        self._asked_at = 0.0
        self._pending: asyncio.Future[None] | None = None

    @property
    def awaited(self) -> bool:
        return self._pending is not None

    def shared(self, now: float, timeout: float) -> asyncio.Future[None] | None:
        """Return the answer that is under way; None: it is late, and there is no hope in waiting for it."""
        return self._pending if now - self._asked_at < timeout else None

    def is_needed(self, now: float) -> bool:
        """Tell whether a device has no reading of under 50 ms; without any device there is nothing to ask for."""
        return any(
            now - at >= frames.FRESH_SECONDS and key not in self._relieved for key, at in self._energy_at.items()
        )

    def next(self) -> frames.Fresh:
        """Return a request to be sent."""
        self._token += 1
        return frames.Fresh(self._token)

    def asked(self, child: int, now: float) -> asyncio.Future[None]:
        """Note that the request was sent; return its answer."""
        self._child, self._asked_at = child, now
        self._pending = self._loop.create_future()
        return self._pending

    def enumerated(self, keys: Iterable[str]) -> None:
        """Take the devices that count, each from its first reading on."""
        self._listed = frozenset(keys)
        self._energy_at = {key: at for key, at in self._energy_at.items() if key in self._listed}

    def relieve(self, keys: frozenset[str]) -> None:
        """Expect nothing fresh of these devices, and of all others."""
        self._relieved = keys

    def sampled(self, sample: Sample) -> None:
        key = sample.device.key
        if sample.lost:
            self.forget(key)
        elif key in self._listed and (at := sample.taken_at.get(Group.ENERGY)) is not None:
            self._energy_at[key] = at

    def forget(self, key: str) -> None:
        """Expect no reading of a device until it gives one."""
        self._energy_at.pop(key, None)

    def done(self, token: int) -> None:
        """Take an answer of the child that was asked."""
        if token == self._token:
            self._let_go()

    def gone(self, child: int) -> None:
        """Note that a child will not answer."""
        if child == self._child:
            self._let_go()

    def _let_go(self) -> None:
        if self._pending is not None:
            self._pending.set_result(None)
            self._pending = None
