"""How a page is made for a scrape: fresh energy from the workers, what the journal lets pass, and the renderer."""

import time

from exporter.config import Config
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.journal import Journal
from exporter.journal.pages import show
from exporter.metrics import Block
from exporter.supervision.supervisor import Supervisor

FRESH_SECONDS = 0.05
"""How long a scrape waits for the drivers."""


class Pages:
    def __init__(self, fleet: Fleet, supervisor: Supervisor, journal: Journal, config: Config) -> None:
        self._fleet = fleet
        self._supervisor = supervisor
        self._journal = journal
        self._renderer = _renderer(config)

    def choose(self, config: Config) -> None:
        """Show what this configuration says from the next page on."""
        self._renderer = _renderer(config)

    async def page(self, form: Format, blocks: frozenset[Block] | None, gzip: bool) -> bytes:
        """Return a page of these blocks (None: all), plain or as one gzip member."""
        if blocks is None or Block.ENERGY in blocks:
            until = time.monotonic() + FRESH_SECONDS
            answers = self._supervisor.fresh(FRESH_SECONDS)
            # While the workers read.
            self._renderer.prepare(self._fleet.world(time.monotonic()), form, blocks, gzip=gzip)
            await answers
            world = self._fleet.world(time.monotonic())
            shown = self._journal.shown(world, until - time.monotonic())
            # While the journal is written: it holds what was made here unless that was late.
            self._renderer.prepare(world, form, blocks, gzip=gzip, energy=True)
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
