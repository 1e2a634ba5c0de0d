"""How a page is made for a scrape: fresh energy from the workers, what the journal lets pass, and the renderer."""

import asyncio
import logging
import time
from typing import NamedTuple

from exporter.config import Config
from exporter.daemon.expected import MOST_CLIENTS, Expected
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.journal import Journal
from exporter.journal.pages import show
from exporter.metrics import Block
from exporter.supervision.supervisor import Supervisor

logger = logging.getLogger(__name__)

FRESH_SECONDS = 0.05
"""How long a scrape waits for the drivers."""
AHEAD_SECONDS = 0.02
"""So long before an expected scrape its page is there: one that comes as early or as late as may be expected finds it,
with readings that count as fresh. It is answered in an eighth of the time with 8 H100, as caches are warm."""

Asked = tuple[Format, frozenset[Block] | None, bool]
"""Format, blocks (None: all), and whether as one gzip member."""


class Made(NamedTuple):
    content: bytes
    began: float
    number: int
    """Of all pages that were begun."""


class Pages:
    def __init__(self, fleet: Fleet, supervisor: Supervisor, journal: Journal, config: Config) -> None:
        self._fleet = fleet
        self._supervisor = supervisor
        self._journal = journal
        self._renderer = _renderer(config)
        self._expected = Expected()
        self._coming: asyncio.Queue[tuple[float, Asked]] = asyncio.Queue()
        self._ahead: dict[Asked, asyncio.Future[Made | None]] = {}
        """Pages that nobody has asked for yet; None: it could not be made."""
        self._took = 0.0
        """Seconds that the last of them took."""
        self._begun = 0

    def choose(self, config: Config) -> None:
        """Show what this configuration says from the next page on."""
        self._renderer = _renderer(config)
        self._begun += 1  # what was made ahead shows what the configuration before it says

    async def page(self, form: Format, blocks: frozenset[Block] | None, gzip: bool, client: str) -> bytes:
        """Return a page of these blocks (None: all), plain or as one gzip member."""
        asked = form, blocks, gzip
        expected = self._expected.came((client, asked), time.monotonic())
        if expected is not None:
            self._coming.put_nowait((expected, asked))
        ahead = self._ahead.pop(asked, None)
        made = None if ahead is None else await asyncio.shield(ahead)
        # One that was begun before another page might have a total that is less than what was shown there.
        if made is None or made.number != self._begun or time.monotonic() - made.began >= FRESH_SECONDS:
            made = await self._make(*asked)
        return made.content

    async def keep_ahead(self) -> None:
        """Make the pages of those who scrape on a clock just before they ask, until cancelled."""
        async with asyncio.TaskGroup() as making:
            while True:
                making.create_task(self._make_ahead(*await self._coming.get()))

    async def _make_ahead(self, at: float, asked: Asked) -> None:
        await asyncio.sleep(at - AHEAD_SECONDS - min(self._took, AHEAD_SECONDS) - time.monotonic())
        if len(self._ahead) >= MOST_CLIENTS:
            self._ahead.clear()  # of clients that did not come
        ahead = self._ahead[asked] = asyncio.get_running_loop().create_future()
        made = None
        try:
            made = await self._make(*asked)
            self._took = time.monotonic() - made.began
        except Exception:  # whoever asks for it makes another, and is told
            logger.exception("a page cannot be made ahead")
        finally:
            ahead.set_result(made)

    async def _make(self, form: Format, blocks: frozenset[Block] | None, gzip: bool) -> Made:
        began = time.monotonic()
        self._begun += 1
        number = self._begun
        if blocks is None or Block.ENERGY in blocks:
            until = began + FRESH_SECONDS
            answers = self._supervisor.fresh(FRESH_SECONDS)
            try:
                # While the workers read.
                self._renderer.prepare(self._fleet.world(began), form, blocks, gzip=gzip)
            finally:
                await answers
            world = self._fleet.world(time.monotonic())
            shown = self._journal.shown(world, until - time.monotonic())
            try:
                # While the journal is written: it holds what was made here unless that was late.
                self._renderer.prepare(world, form, blocks, gzip=gzip, energy=True)
            finally:
                energy = await shown
            content = show(self._renderer, world, energy, form, blocks, gzip=gzip)
        else:
            content = self._renderer.page(self._fleet.world(began), form, blocks, gzip=gzip)
        self._fleet.dropped(self._renderer.dropped)
        return Made(content, began, number)


def _renderer(config: Config) -> Renderer:
    return Renderer(
        config.metrics.disable,
        created=config.metrics.created,
        process_labels=config.processes.labels,
        each_link=config.metrics.links == "each",
    )
