"""The parent's side of all workers: time, requests for fresh energy, release, and an end that takes 3 s at most."""

import asyncio
import logging
import time
from collections.abc import Collection, Coroutine, Sequence
from random import Random

from exporter.config import SamplingConfig, WorkersConfig
from exporter.model import Snapshot
from exporter.pace import pause
from exporter.supervision.audience import Audience
from exporter.supervision.frames import WorkerRequest
from exporter.supervision.keeper import Keeper
from exporter.supervision.lasting import lasting_failure

logger = logging.getLogger("exporter.supervision")

TICK_SECONDS = 0.25
CLOSE_SECONDS = 2.8
MEASURE_SECONDS = 10.0
_CLOSE_TICK_SECONDS = 0.01
_DEFAULT = WorkersConfig()


class Supervisor:
    """One worker per request. To be used in the main thread, as the children end with the thread that starts them."""

    def __init__(
        self,
        audience: Audience,
        requests: Sequence[WorkerRequest],
        sampling: SamplingConfig,
        workers: WorkersConfig = _DEFAULT,
        *,
        random: Random | None = None,
        measure_seconds: float = MEASURE_SECONDS,
    ) -> None:
        """Start nothing yet; needs a running event loop.

        `random`: where jitter comes from. `measure_seconds`: how often it is looked what a worker takes of the host.
        """
        self.turned_at = time.monotonic()
        """CLOCK_MONOTONIC at the last turn of `run`: one every 250 ms while all is well."""
        self.released_until: float | None = None
        """CLOCK_MONOTONIC at which released devices are taken up without being asked; None: they are not released."""
        self._audience = audience
        self._workers = workers
        source = random or Random()  # noqa: S311 -- jitter
        self._keepers = tuple(
            Keeper(audience, request, sampling, workers, source, self._count_abandoned, measure_seconds)
            for request in requests
        )
        self._closed = False

    def limit(self, workers: WorkersConfig) -> None:
        """Take other limits from here on; for a release that has begun its own time counts."""
        self._workers = workers
        for keeper in self._keepers:
            keeper.limit(workers)

    @property
    def worker_pids(self) -> tuple[int | None, ...]:
        """Pid of the worker of each request; None while there is none."""
        return tuple(keeper.worker_pid for keeper in self._keepers)

    async def run(self) -> None:
        """Keep the workers until `close`. When cancelled without it, the children are killed and left behind."""
        try:
            while not self._closed:
                self._tick()
                await pause(TICK_SECONDS)
        finally:
            if not self._closed:
                self._closed = True
                self._drop()

    def fresh(self, timeout: float = 0.05) -> Coroutine[None, None, None]:
        """Ask each worker for one fresh energy reading; what is returned waits for those that answer in time.

        `timeout` is seconds from the call, so that something else can be done meanwhile. Never raises. Readings under
        50 ms old are fresh, callers at the same time share a request, and a worker that owes an answer is neither asked
        again nor waited for.
        """
        asked = {answer for keeper in self._keepers if (answer := keeper.ask_fresh(timeout)) is not None}
        return _all_of(asked, time.monotonic() + timeout)

    def release(self) -> None:
        """End all workers, which lets go of the devices, and start none until `take_up`, or until the time is over.

        May be repeated: the time begins anew.
        """
        if self._closed:
            return
        now, seconds = time.monotonic(), self._workers.release_seconds
        self.released_until = now + seconds
        logger.info("the devices are released", extra={"for_seconds": f"{seconds:g}"})
        self._audience.released(True, now)
        for keeper in self._keepers:
            keeper.release()

    def take_up(self) -> None:
        """Start the workers again. Does nothing while they are not released."""
        if self._closed or self.released_until is None:
            return
        self.released_until = None
        logger.info("the devices are taken up again")
        self._audience.released(False, time.monotonic())
        for keeper in self._keepers:
            keeper.take_up()

    def lasting_failure(self, snapshots: Sequence[Snapshot], now: float) -> str | None:
        """Return why an orchestrator should start everything anew: a provider with GPUs is down for too long.

        None: there is no such reason, nobody wants to know, or the devices are released. `snapshots`: of all providers
        at `now`, CLOCK_MONOTONIC.
        """
        after = self._workers.exit_after_seconds
        if after is None or self.released_until is not None:
            return None
        down = {keeper.provider: keeper.watch.down_seconds(now) for keeper in self._keepers}
        seconds = {provider: seconds for provider, seconds in down.items() if seconds is not None}
        return lasting_failure(snapshots, seconds, after)

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
        if self.released_until is not None and now >= self.released_until:
            self.take_up()
        for keeper in self._keepers:
            keeper.tick(now)
        self.turned_at = now

    def _drop(self) -> None:
        for keeper in self._keepers:
            keeper.drop()

    def _count_abandoned(self) -> None:
        self._audience.abandoned(sum(keeper.watch.abandoned for keeper in self._keepers))


async def _all_of(answers: Collection[asyncio.Future[None]], until: float) -> None:
    awaited = [answer for answer in answers if not answer.done()]
    if awaited:
        await asyncio.wait(awaited, timeout=until - time.monotonic())
