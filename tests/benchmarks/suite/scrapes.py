"""How long a scrape takes and what it costs, by devices, format and compression; fresh, and from memory."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from random import Random

import msgspec

from exporter.exposition import Format, Renderer
from exporter.metrics import Block
from tests.benchmarks.figures import quantile
from tests.benchmarks.page import first_page, milliseconds, prometheus_client, worlds
from tests.benchmarks.suite.rig import (
    OPENMETRICS,
    TEXT,
    Meter,
    Page,
    Scraper,
    all_pids,
    exporter,
    plain,
    scenario,
    series,
)
from tests.benchmarks.suite.section import Section
from tests.benchmarks.suite.side_by_side import CLOCK_SHOWS

DEVICES = (1, 8, 64)
VARIANTS = {
    "text": (TEXT, False),
    "text, gzip": (TEXT, True),
    "OpenMetrics": (OPENMETRICS, False),
    "OpenMetrics, gzip": (OPENMETRICS, True),
}
BACK_TO_BACK = 200
AFTER_SECONDS = 0.004
"""What is done for a scrape once it is answered is over by then."""


class Asked:
    """One client of one daemon, and what its scrapes took and cost."""

    def __init__(self, count: int, variant: str, url: str, pids: list[int]) -> None:
        accept, compressed = VARIANTS[variant]
        self.count, self.variant = count, variant
        self.scraper = Scraper(url, accept, compressed=compressed)
        self.pids = pids
        self.astray: list[float] = []
        self.fresh: list[float] = []
        self.processor: list[float] = []
        self.burst: list[float] = []
        self.page: Page = self.scraper.scrape()

    def ask_astray(self) -> None:
        """Ask when nobody expects it: all that it costs comes after it."""
        meter = Meter(self.pids)
        before = meter.seconds()
        self.astray.append(self.scraper.scrape().seconds * 1e3)
        time.sleep(AFTER_SECONDS)
        self.processor.append((meter.seconds() - before) * 1e3)

    def ask(self) -> None:
        self.page = self.scraper.scrape()
        self.fresh.append(self.page.seconds * 1e3)

    def row(self) -> list[str]:
        return [
            f"{self.count}, {self.variant}",
            f"{series(plain(self.page.body)):,}",
            f"{len(self.page.body):,}",
            f"{quantile(self.fresh[CLOCK_SHOWS:], 0.5):.2f}",
            f"{quantile(self.fresh[CLOCK_SHOWS:], 0.99):.2f}",
            f"{quantile(self.astray, 0.5):.2f}",
            f"{quantile(self.astray, 0.99):.2f}",
            f"{quantile(self.processor, 0.5):.2f}",
            f"{quantile(self.burst, 0.5):.2f}",
            f"{quantile(self.burst, 0.99):.2f}",
        ]


def scrapes(seconds: float) -> Section:
    section = Section("Scrapes")
    with contextlib.ExitStack() as stack:
        asked = []
        for count in DEVICES:
            daemon = stack.enter_context(exporter(scenario(count)))
            asked += [Asked(count, variant, daemon.url, all_pids(daemon)) for variant in VARIANTS]
        rounds = max(5, round(2 * seconds)) + CLOCK_SHOWS
        order, random = list(asked), Random(1)
        for ask in (Asked.ask_astray, Asked.ask):
            began = time.monotonic()
            for turn in range(rounds):
                if ask is Asked.ask_astray:
                    random.shuffle(order)
                for place, each in enumerate(order):
                    # So that no reading of the one before is fresh enough.
                    time.sleep(max(0.0, began + turn + place / len(order) - time.monotonic()))
                    ask(each)
        for _ in range(BACK_TO_BACK // 10):
            for each in asked:
                each.burst += [each.scraper.scrape().seconds * 1e3 for _ in range(10)]
    section.say(
        f"H100s of the C stand-in, {rounds} scrapes of each client, about one a second, each of which reads the energy "
        "of all GPUs anew: before it answers where the client keeps to no clock, just before it comes where it does, "
        "as Prometheus does. Processor time is of all processes of the exporter, for one by no clock. Back to back: "
        f"what was read less than 50 ms ago is fresh enough ({BACK_TO_BACK} scrapes). Milliseconds."
    )
    header = (
        "devices, format",
        "series",
        "bytes",
        "by a clock p50",
        "p99",
        "by none p50",
        "p99",
        "processor",
        "back to back p50",
        "p99",
    )
    section.table(header, (each.row() for each in asked))
    for each in asked:
        section.figures[f"scrape p50 {each.count} {each.variant}"] = quantile(each.fresh[CLOCK_SHOWS:], 0.5)
    _pages(section)
    return section


def _pages(section: Section) -> None:
    rows = []
    for count in DEVICES:
        inputs = worlds(count, processes=4, count=10)
        fixed: dict[str, int] = dict.fromkeys(Block, 1)
        versioned = [
            msgspec.structs.replace(world, versions={**fixed, Block.ENERGY: 2 + moment})
            for moment, world in enumerate(inputs)
        ]
        library = milliseconds(lambda world: prometheus_client(world, frozenset(Block)), inputs[:5])
        for compress in (False, True):
            show: Callable[..., bytes] = partial(Renderer().page, format=Format.TEXT_0_0_4, gzip=compress)
            show(versioned[-1])
            first = milliseconds(partial(first_page, compress=compress), inputs[:5])
            new, fresh = milliseconds(show, inputs), milliseconds(show, versioned)
            cached = milliseconds(show, versioned[-1:] * 30)
            figures = [f"{first:.2f}", f"{new:.2f}", f"{fresh:.2f}", f"{cached:.3f}"]
            rows.append([f"{count}, {'gzip' if compress else 'plain'}", *figures, "" if compress else f"{library:.2f}"])
    section.say(
        "Making a page in memory, 4 processes a GPU, best of several, milliseconds of processor time: cold (the first "
        "of a renderer), all blocks new, only the energy new (as at a scrape), nothing new; beside prometheus-client."
    )
    header = ("devices", "cold", "all new", "energy new", "cached", "prometheus-client")
    section.table(header, rows)
