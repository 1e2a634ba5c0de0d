"""Which totals may be shown: those that the journal holds already, or any while there is no journal."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from exporter.fleet import Fleet
from exporter.journal.places import Places, boot_id
from exporter.journal.store import Store, StoreError
from exporter.journal.writer import Writer
from exporter.metrics import Block
from exporter.model import World
from exporter.pace import pause

logger = logging.getLogger("exporter.journal")

LATE_SECONDS = 0.02
"""How long a page waits for its totals to be written at most."""
LEAST_SECONDS = 0.005
"""How long it waits in any case: a write takes well under a millisecond."""
TICK_SECONDS = 1.0
IDLE_SECONDS = 5.0
"""How often the journal is written while nobody scrapes, and how soon writing is tried again after it failed."""
HUNG_SECONDS = 5.0
"""A write that takes longer is told about. The totals shown stand still until it returns: it may still succeed."""
CLOSE_SECONDS = 0.5


class Journal:
    """Stands between the fleet and the page. Lives in the event loop and never waits for a file system there."""

    def __init__(self, fleet: Fleet, store: Store | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`store`: None where nothing is to be kept. `clock`: of the fleet's readings. Needs a running event loop."""
        self._fleet = fleet
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(self._loop) if store is not None else None
        self._up = False
        self._told: bool | None = None
        self._shown: World | None = None
        """The newest world that the journal holds, or that was shown while there was none."""
        self._writing: asyncio.Future[None] | None = None
        self._tried_at = 0.0

    def begin(self) -> None:
        """Take over what a daemon before has left. Waits for the file system: nothing is served yet."""
        if self._store is None:
            return
        record, reason = self._store.start()
        if record is not None:
            self._fleet.restore(record, self._clock())
            logger.info("totals go on from the journal", extra={"devices": len(record.cards)})
        elif not reason:
            logger.info("the journal is new: totals begin at 0")
        self._tried_at = self._clock()
        self._tell(up=not reason, reason=reason)

    def shown(self, world: World, left: float = LATE_SECONDS) -> Coroutine[None, None, World | None]:
        """Have this world written, and wait in what is returned for the one whose energy may be shown.

        It is this or a newer one; when writing is late, an older one or None. `left`: seconds until the page is late.
        """
        if self._is_missing(world) and self._writing is None:
            self._write()
        return self._written_by(self._loop.time() + min(max(left, LEAST_SECONDS), LATE_SECONDS), world)

    def _is_missing(self, world: World) -> bool:
        return self._store is not None and self._guards and _energy(world) > _energy(self._shown)

    async def _written_by(self, until: float, world: World) -> World | None:
        if self._store is None:
            return world
        while self._is_missing(world):
            writing = self._writing or self._write()
            left = until - self._loop.time()
            if left <= 0 or not (await asyncio.wait({writing}, timeout=left))[0]:
                return self._shown
        if _energy(world) >= _energy(self._shown):
            self._shown = world
        return self._shown

    async def keep(self) -> None:
        """Let time pass, until cancelled."""
        while self._store is not None:
            await pause(TICK_SECONDS)
            try:
                self.tick()
            except Exception:  # pages keep the journal as well, and matter more
                logger.exception("the journal is not written without being asked")

    def tick(self) -> None:
        """Write now and then without being asked, and try again after a failure."""
        passed = self._clock() - self._tried_at
        if self._store is None:
            return
        if self._writing is None and passed >= IDLE_SECONDS:
            self._write()
        elif self._writing is not None and passed > HUNG_SECONDS:
            self._tell(up=False, reason="the file system does not answer; the totals shown stand still")

    async def close(self) -> None:
        """Write the last totals, and leave them as the copy of a clean stop. Gives up after half a second."""
        if self._store is None or self._writer is None:
            return
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                if self._writing is not None:
                    await asyncio.wait({self._writing})
                await asyncio.wait({self._write()})
                await self._writer.submit(partial(self._store.leave, self._fleet.record(self._clock())))
        except TimeoutError:
            logger.warning("the journal is not closed: the file system does not answer")
        except StoreError as error:
            logger.warning("a clean stop leaves nothing for after a reboot", extra={"reason": str(error)})

    @property
    def _guards(self) -> bool:
        """Whether a page may show only what is written: there is a journal, or there will be when the write returns."""
        return self._up or self._writing is not None

    def _write(self) -> asyncio.Future[None]:
        """Start to write all that there is to know at this moment; no other write is under way."""
        assert self._store is not None and self._writer is not None  # noqa: S101, PT018 -- for the type checker
        now = self._tried_at = self._clock()
        world = self._fleet.world(now)
        self._writing = self._writer.submit(partial(self._store.write, self._fleet.record(now)))
        self._writing.add_done_callback(partial(self._written, world))
        return self._writing

    def _written(self, world: World, writing: asyncio.Future[None]) -> None:
        self._writing = None
        failure = writing.exception()
        if failure is None:
            self._shown = world
        self._tell(up=failure is None, reason=str(failure))

    def _tell(self, *, up: bool, reason: str) -> None:
        self._up = up
        self._fleet.journaled(up)
        if up is self._told:
            return
        if not up:
            logger.warning("there is no journal: after a restart totals begin at 0", extra={"reason": reason})
        elif self._told is not None:
            logger.info("there is a journal again")
        self._told = up


def opened(fleet: Fleet, places: Places | None, root: Path = Path("/")) -> Journal:
    """Return the journal in these directories, begun. Needs a running event loop."""
    if places is None:
        logger.info("no directory for a journal: totals begin at 0 at each start")
        return Journal(fleet, None)
    try:
        store = Store(places, boot_id(root))
    except OSError as error:
        logger.warning("there is no journal: the kernel does not tell the boot", extra={"reason": str(error)})
        fleet.journaled(up=False)
        return Journal(fleet, None)
    journal = Journal(fleet, store)
    journal.begin()
    return journal


def _energy(world: World | None) -> int:
    return -1 if world is None else world.versions[Block.ENERGY]
