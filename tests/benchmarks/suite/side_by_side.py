"""Our daemon beside its peers: all run at the same time, are asked in turn, and only ratios within one run count."""

import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from tests.benchmarks.figures import quantile
from tests.benchmarks.suite import peers
from tests.benchmarks.suite.environments import MissingError, runtime
from tests.benchmarks.suite.peers import NODE, NVITOP, OURS, STATIC, Peer
from tests.benchmarks.suite.rig import Meter, Scraper, exporter, plain, scenario, series
from tests.benchmarks.suite.section import Section

SETTLED_SECONDS = 3.0
SETTLING_SECONDS = 120.0
RUNS = 3
BACK_TO_BACK = 100
CLOCK_SHOWS = 3
"""Scrapes after which it is known that a client keeps to a clock."""
ASTRAY_SECONDS = (0.0, 0.1, 0.3, 0.2)
"""By which a client comes late that keeps to no clock: no two intervals in a row are the same."""
BURST_MILLISECONDS = 1500.0
"""After which a slow one is asked no more."""
ORDER = (OURS, NVITOP, NODE, STATIC)


class Seen(NamedTuple):
    """Of one peer in one run."""

    processor: float
    """Share of one core."""
    mebibytes: float
    settled: float
    """MiB as well, when it takes no more than for good; that of the window where it was not waited for."""
    spaced: float
    """Milliseconds of a scrape, p50, by a client that keeps to a clock of 1 s, as Prometheus keeps to its own."""
    spaced_p99: float
    astray: float
    """The same of one that asks about once a second, but by no clock."""
    burst: float
    """The same, back to back."""
    series: int
    bytes: int


Run = Mapping[str, Seen]


@contextlib.contextmanager
def tenants(count: int) -> Iterator[str]:
    """Yield a scenario of so many H100s, each of which is used by a process that is there."""
    processes = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        used = [[{"pid": p.pid, "name": "sleep", "memory_used_bytes": 40e9, "share": 0.9}] for p in processes]
        yield scenario(count, processes=used)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def recorded(text: str) -> bytes:
    with exporter(text) as daemon, contextlib.closing(Scraper(daemon.url)) as scraper:
        return plain(scraper.scrape().body)


def compare(
    count: int, runs: int, seconds: float, names: Sequence[str] = (NVITOP, NODE, STATIC), *, settle: bool = False
) -> tuple[list[Run], list[str]]:
    """Run our daemon and the peers of these names side by side, and return what was seen, and what is missing.

    They are started anew for each run. Prometheus asks for gzip, and so does this. `settle`: the
    last run goes on until all of them take no more than for good. Raises MissingError for ours.
    """
    runtime()
    with tenants(count) as text:
        page = recorded(text)
        openers: dict[str, Callable[[], contextlib.AbstractContextManager[Peer]]] = {
            OURS: lambda: peers.ours(text),
            NVITOP: lambda: peers.nvitop_exporter(text),
            NODE: lambda: peers.node_exporter(page),
            STATIC: lambda: peers.nginx(page),
        }
        missing: dict[str, str] = {}
        seen = []
        for run in range(runs):
            with contextlib.ExitStack() as stack:
                found = []
                for name in (OURS, *names):
                    if name in missing:
                        continue
                    try:
                        found.append(stack.enter_context(openers[name]()))
                    except MissingError as error:
                        missing[name] = str(error)
                seen.append(_watched(found, seconds, settle=settle and run == runs - 1))
    return seen, list(missing.values())


def _watched(found: Sequence[Peer], seconds: float, *, settle: bool) -> Run:
    time.sleep(SETTLED_SECONDS)
    scrapers = {peer.name: Scraper(peer.url) for peer in found}
    bodies = {name: scraper.scrape().body for name, scraper in scrapers.items()}
    burst: dict[str, list[float]] = {name: [] for name in scrapers}
    meters = {peer.name: Meter(peer.pids) for peer in found}
    first = _in_turn(scrapers, [0.0] * (CLOCK_SHOWS + round(seconds)))
    spaced = {name: each[CLOCK_SHOWS:] for name, each in first.items()}
    used = {name: meter.read() for name, meter in meters.items()}
    astray = _in_turn(scrapers, [ASTRAY_SECONDS[turn % len(ASTRAY_SECONDS)] for turn in range(round(seconds))])
    for _ in range(BACK_TO_BACK // 5):
        for name, scraper in scrapers.items():
            if sum(burst[name]) < BURST_MILLISECONDS:
                burst[name] += [scraper.scrape().seconds * 1e3 for _ in range(5)]
    deadline = time.monotonic() + (SETTLING_SECONDS if settle else 0)
    while time.monotonic() < deadline and not all(peer.settled() for peer in found):
        for scraper in scrapers.values():
            scraper.scrape()
        time.sleep(1)
    settled = {name: meter.read().mebibytes for name, meter in meters.items()} if settle else {}
    for scraper in scrapers.values():
        scraper.close()
    return {
        name: Seen(
            used[name].processor,
            used[name].mebibytes,
            settled.get(name, used[name].mebibytes),
            quantile(spaced[name], 0.5),
            quantile(spaced[name], 0.99),
            quantile(astray[name], 0.5),
            quantile(burst[name], 0.5),
            series(plain(bodies[name])),
            len(bodies[name]),
        )
        for name in scrapers
    }


def _in_turn(scrapers: Mapping[str, Scraper], late: Sequence[float]) -> dict[str, list[float]]:
    """Scrape each once a second, one after the other, and return the milliseconds. `late`: seconds, by round."""
    taken: dict[str, list[float]] = {name: [] for name in scrapers}
    began = time.monotonic()
    for turn, after in enumerate(late):
        for place, (name, scraper) in enumerate(scrapers.items()):
            time.sleep(max(0.0, began + turn + place / len(scrapers) + after - time.monotonic()))
            taken[name].append(scraper.scrape().seconds * 1e3)
    return taken


def ratio(runs: Sequence[Run], peer: str, of: Callable[[Seen], float]) -> float:
    """Return the median over the runs of our figure by the peer's in the same run."""
    return statistics.median(of(run[OURS]) / of(run[peer]) for run in runs)


def side_by_side(seconds: float) -> Section:
    section = Section("Side by side")
    for count in (8, 64):
        runs, missing = compare(count, RUNS, seconds, settle=True)
        section.say(
            f"{count} H100s of the C stand-in with a process each: medians of {RUNS} runs of {seconds:g} s, all at "
            "the same time, each scraped once a second with gzip, by a clock and then by none, and back to back. "
            "Processor time is of one core and includes the scrapes by a clock; memory is PSS in MiB of all "
            "processes; a scrape is p50 in milliseconds. In brackets: our figure by theirs. Ours and nvitop-exporter "
            "each run in an environment that has what it asks for and no more."
        )
        for line in missing:
            section.say(f"Not measured: {line}")
        section.table(
            (
                "",
                "processor",
                "MiB",
                "MiB, settled",
                "scrape, by a clock",
                "p99",
                "by none",
                "back to back",
                "series",
                "bytes, gzip",
            ),
            (_row(runs, name) for name in ORDER if name in runs[0]),
        )
        for name in runs[0]:
            for field in ("processor", "mebibytes", "spaced", "astray", "burst"):
                section.figures[f"{count} {name} {field}"] = ratio(runs, name, attrgetter(field))
            section.figures[f"{count} {name} settled"] = ratio(runs[-1:], name, attrgetter("settled"))
    section.say(
        "Settled: in the last run, once the process of ours that looks up who uses the GPUs has left, about a minute "
        "after the last change; it comes back with the next one."
    )
    section.say(
        "Each scrape of ours reads the energy of all GPUs anew: some 20 ms before it comes where the client keeps to a "
        "clock, as Prometheus does, so that the page is ready; else before it answers. nvitop-exporter answers from "
        "what it read by itself in the last second, and has no energy; the last two send a page that never changes: "
        "node_exporter reads and checks the file at each scrape, nginx sends it as it is."
    )
    return section


def _row(runs: Sequence[Run], name: str) -> list[str]:
    def told(field: str, form: str, of: Sequence[Run] = runs) -> str:
        value = statistics.median(getattr(run[name], field) for run in of)
        by = ratio(of, name, attrgetter(field))
        return f"{value:{form}}" + ("" if name == OURS else f" ({by:.2f})")

    figures = [told("processor", ".2%"), told("mebibytes", ".1f"), told("settled", ".1f", runs[-1:])]
    figures += [told("spaced", ".2f")]
    p99 = statistics.median(run[name].spaced_p99 for run in runs)
    figures += [f"{p99:.2f}", told("astray", ".2f"), told("burst", ".2f")]
    return [name, *figures, f"{runs[0][name].series:,}", f"{runs[0][name].bytes:,}"]
