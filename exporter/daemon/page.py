"""How a page is made for a scrape: fresh energy from the workers, what the journal lets pass, and the renderer."""

import asyncio
import logging
import time

from exporter.config import Config
from exporter.daemon.expected import Expected
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
"""So long before an expected scrape its page is made. One as early or as late as may be expected then finds readings
that count as fresh, and warm caches: with 8 H100 it is answered in half of the time."""


class Pages:
    def __init__(self, fleet: Fleet, supervisor: Supervisor, journal: Journal, config: Config) -> None:
        self._fleet = fleet
        self._supervisor = supervisor
        self._journal = journal
        self._renderer = _renderer(config)
        self._expected = Expected()
        self._coming: asyncio.Queue[tuple[float, Format, frozenset[Block] | None, bool]] = asyncio.Queue()

    def choose(self, config: Config) -> None:
        """Show what this configuration says from the next page on."""
        self._renderer = _renderer(config)

    async def page(self, form: Format, blocks: frozenset[Block] | None, gzip: bool, client: str) -> bytes:
        """Return a page of these blocks (None: all), plain or as one gzip member."""
        expected = self._expected.came((client, form, blocks, gzip), time.monotonic())
        if expected is not None:
            self._coming.put_nowait((expected, form, blocks, gzip))
        return await self._made(form, blocks, gzip)

    async def keep_ahead(self) -> None:
        """Make the pages of those who scrape on a clock just before they ask, until cancelled."""
        async with asyncio.TaskGroup() as making:
            while True:
                making.create_task(self._make_ahead(*await self._coming.get()))

    async def _make_ahead(self, at: float, form: Format, blocks: frozenset[Block] | None, gzip: bool) -> None:
        """Have readings, blocks and journal ready; a scrape that does not come costs what it would have."""
        await asyncio.sleep(at - AHEAD_SECONDS - time.monotonic())
        try:
            await self._made(form, blocks, gzip)
        except Exception:  # whoever asks for the page is told
            logger.exception("a page cannot be made ahead")

    async def _made(self, form: Format, blocks: frozenset[Block] | None, gzip: bool) -> bytes:
        if blocks is None or Block.ENERGY in blocks:
            until = time.monotonic() + FRESH_SECONDS
            answers = self._supervisor.fresh(FRESH_SECONDS)
            try:
                # While the workers read.
                self._renderer.prepare(self._fleet.world(time.monotonic()), form, blocks, gzip=gzip)
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
            content = self._renderer.page(self._fleet.world(time.monotonic()), form, blocks, gzip=gzip)
        self._fleet.dropped(self._renderer.dropped)
        return content


def _renderer(config: Config) -> Renderer:
    return Renderer(
        config.metrics.disable,
        created=config.metrics.created,
        process_labels=config.processes.labels,
        each_link=config.metrics.links == "each",
    )
