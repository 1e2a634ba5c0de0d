"""The parent's side of all workers: time, requests for fresh energy, and an end that is never waited for too long."""

import asyncio
import time
from collections.abc import Sequence
from random import Random

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.keeper import Keeper

TICK_SECONDS = 0.25
CLOSE_SECONDS = 2.8
_CLOSE_TICK_SECONDS = 0.01


class Supervisor:
    """One worker per request. To be used in the main thread, as the children end with the thread that starts them."""

    def __init__(
        self, fleet: Fleet, requests: Sequence[WorkerRequest], sampling: SamplingConfig, random: Random | None = None
    ) -> None:
        """Start nothing yet; needs a running event loop. `random`: where jitter comes from."""
        self._fleet = fleet
        source = random or Random()  # noqa: S311 -- jitter
        self._keepers = tuple(Keeper(fleet, request, sampling, source, self._count_abandoned) for request in requests)
        self._closed = False

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Pid of the worker of each request; None while there is none."""
        return tuple(keeper.worker_pid for keeper in self._keepers)

    async def run(self) -> None:
        """Keep the workers until `close`. When cancelled without it, the children are killed and left behind."""
        try:
            while not self._closed:
                self._tick()
                await asyncio.sleep(TICK_SECONDS)
        finally:
            if not self._closed:
                self._closed = True
                self._drop()

    async def fresh(self, timeout: float = 0.05) -> None:  # noqa: ASYNC109 -- it bounds the wait and raises nothing
        """Get one fresh energy reading from each worker that answers within `timeout` seconds. Never raises.

        Readings under 50 ms old are fresh, callers at the same time share a request, and a worker that owes an answer
        is neither asked again nor waited for.
        """
        asked = {answer for keeper in self._keepers if (answer := keeper.ask_fresh(timeout)) is not None}
        if asked:
            await asyncio.wait(asked, timeout=timeout)

    def release(self) -> None:
        """End all workers, which lets go of the devices, and start none until `take_up`."""
        self._fleet.released(True)
        for keeper in self._keepers:
            keeper.release()

    def take_up(self) -> None:
        """Start the workers again."""
        self._fleet.released(False)
        for keeper in self._keepers:
            keeper.take_up()

    async def close(self) -> None:
        """End all children within 3 s: by asking, then by SIGKILL, and by leaving behind what survives that."""
        if self._closed:  # by a `run` that was cancelled or broke: no child is left to end
            return
        self._closed = True
        for keeper in self._keepers:
            keeper.release(closing=True)
        until = time.monotonic() + CLOSE_SECONDS
        while any(keeper.watch.children for keeper in self._keepers) and time.monotonic() < until:
            await asyncio.sleep(_CLOSE_TICK_SECONDS)
            self._tick()
        self._drop()

    def _tick(self) -> None:
        now = time.monotonic()
        for keeper in self._keepers:
            keeper.tick(now)

    def _drop(self) -> None:
        for keeper in self._keepers:
            keeper.drop()

    def _count_abandoned(self) -> None:
        self._fleet.abandoned(sum(keeper.watch.abandoned for keeper in self._keepers))
