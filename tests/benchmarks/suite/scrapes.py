"""How long a scrape takes and what it costs, by devices, format and compression; fresh, and from memory."""

import contextlib
import time
from collections.abc import Callable
from functools import partial

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
        self.fresh: list[float] = []
        self.processor: list[float] = []
        self.burst: list[float] = []
        self.page: Page = self.scraper.scrape()

    def ask(self) -> None:
        meter = Meter(self.pids)
        before = meter.seconds()
        self.page = self.scraper.scrape()
        time.sleep(AFTER_SECONDS)
        self.processor.append((meter.seconds() - before) * 1e3)
        self.fresh.append(self.page.seconds * 1e3)

    def row(self) -> list[str]:
        return [
            f"{self.count}, {self.variant}",
            f"{series(plain(self.page.body)):,}",
            f"{len(self.page.body):,}",
            f"{quantile(self.fresh, 0.5):.2f}",
            f"{quantile(self.fresh, 0.99):.2f}",
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
        rounds = max(5, round(3 * seconds))
        for _ in range(rounds):
            for each in asked:
                began = time.monotonic()
                each.ask()
                # So that no reading of the one before is fresh enough, and each client comes back after a second.
                time.sleep(max(0.0, 1 / len(asked) - (time.monotonic() - began)))
        for _ in range(BACK_TO_BACK // 10):
            for each in asked:
                each.burst += [each.scraper.scrape().seconds * 1e3 for _ in range(10)]
    section.say(
        f"H100s of the C stand-in. Fresh: {rounds} scrapes 1 s apart, each of which reads the energy of all GPUs anew; "
        "processor time is of all processes of the exporter. Back to back: what was read less than 50 ms ago is "
        f"fresh enough ({BACK_TO_BACK} scrapes). Milliseconds."
    )
    header = ("devices, format", "series", "bytes", "fresh p50", "p99", "processor", "back to back p50", "p99")
    section.table(header, (each.row() for each in asked))
    for each in asked:
        section.figures[f"scrape p50 {each.count} {each.variant}"] = quantile(each.fresh, 0.5)
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
