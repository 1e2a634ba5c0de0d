"""What the daemon costs while it runs: processor time and memory of each process, and how long a start takes."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import pss_mebibytes
from tests.benchmarks.suite.environments import runtime
from tests.benchmarks.suite.rig import IDLE, TRAINING, Meter, Scraper, all_pids, exporter, plan_of, scenario, until_full
from tests.benchmarks.suite.section import Section
from tests.integration.daemon import Daemon, running

AT_10_HZ: Mapping[str, Any] = {"sampling": {"energy_seconds": 0.1}}
CASES: Mapping[str, tuple[int, str, Mapping[str, Any], Mapping[str, Any], bool]] = {
    "8 H100, default, scraped each second": (8, "H100-SXM", TRAINING, {}, True),
    "8 H100, default, not scraped": (8, "H100-SXM", TRAINING, {}, False),
    "8 H100 at idle, scraped each second": (8, "H100-SXM", IDLE, {}, True),
    "8 A100, default (10.75 Hz), scraped each second": (8, "A100-SXM", TRAINING, {}, True),
    "8 H100 at 10 Hz, scraped each second": (8, "H100-SXM", TRAINING, AT_10_HZ, True),
    "64 H100, default, scraped each second": (64, "H100-SXM", TRAINING, {}, True),
}
DEFAULT = "8 H100, default, scraped each second"
ALONE = ("8 A100, default (10.75 Hz), scraped each second", "64 H100, default, scraped each second")
PARTS = ("parent", "worker", "agent")
SETTLED_SECONDS = 3.0
STARTS = 5


class Watched:
    def __init__(self, daemon: Daemon, *, scraped: bool) -> None:
        (worker,) = daemon.children()
        agent = set(all_pids(daemon)) - {daemon.process.pid, worker}
        self.scraper = Scraper(daemon.url) if scraped else None
        self.pids = {"parent": [daemon.process.pid], "worker": [worker], "agent": sorted(agent)}

    def scrape(self) -> None:
        if self.scraper is not None:
            self.scraper.scrape()

    def begin(self) -> None:
        self.meters = {name: Meter(pids) for name, pids in self.pids.items()}


def footprint(seconds: float) -> Section:
    section = Section("Processor time and memory")
    rows = []
    with contextlib.ExitStack() as stack:
        watched = {}
        for name, (count, model, load, config, scraped) in CASES.items():
            daemon = stack.enter_context(exporter(scenario(count, model, load), config))
            watched[name] = Watched(daemon, scraped=scraped)
        time.sleep(SETTLED_SECONDS)
        for each in watched.values():
            each.begin()
        end = time.monotonic() + 1.5 * seconds
        while time.monotonic() < end:
            for each in watched.values():
                each.scrape()
            time.sleep(1)
        for name, each in watched.items():
            used = [meter.read().processor for meter in each.meters.values()]
            rows.append([name, *(f"{share:.2%}" for share in used), f"**{sum(used):.2%}**"])
            section.figures[f"processor {name}"] = sum(used)
    section.say(
        f"Processor time of one core over {1.5 * seconds:g} s; all of them ran at the same time. The agent looks up "
        "who uses the GPUs."
    )
    section.table(("", *PARTS, "all"), rows)
    _memory(section)
    _starts(section)
    return section


def _memory(section: Section) -> None:
    """Each alone: what two daemons share would be counted by halves."""
    rows = []
    for name in (DEFAULT, *ALONE):
        count, model, load, config, _ = CASES[name]
        with exporter(scenario(count, model, load), config) as daemon:
            watched, began = Watched(daemon, scraped=True), time.monotonic()
            while time.monotonic() - began < 2 * SETTLED_SECONDS:
                watched.scrape()
                time.sleep(0.5)
            parent, worker, agent = (sum(map(pss_mebibytes, pids)) for pids in watched.pids.values())
        rows.append([name, *(f"{m:.1f}" for m in (parent, worker, parent + worker, agent, parent + worker + agent))])
        section.figures[f"memory {name}"] = parent + worker
    section.say(
        "Memory (PSS, MiB) of one daemon alone, in an environment that has the packages it asks for and no more. "
        "The agent is there until nothing has changed for a minute."
    )
    section.table(("", "parent", "worker", "both", "agent", "all"), rows)


def _starts(section: Section) -> None:
    rows = []
    for count in (8, 64):
        taken = [_start(count) for _ in range(STARTS)]
        section.figures[f"start {count}"] = statistics.median(taken)
        rows.append([str(count), f"{statistics.median(taken):.2f}", f"{max(taken):.2f}"])
    section.say(
        f"From the start of the process to the first page with all readings of all GPUs, {STARTS} starts, seconds."
    )
    section.table(("devices", "median", "slowest"), rows)


def _start(count: int) -> float:
    with tempfile.TemporaryDirectory() as name:
        text = scenario(count)
        python, more = runtime()
        environment = {**plan_of(text, Path(name)), **more, "RUNTIME_DIRECTORY": "", "STATE_DIRECTORY": ""}
        with running(
            "--provider=nvidia", log=Path(name) / "log", env=environment, python=python, ready=False
        ) as daemon:
            return until_full(daemon, count)
