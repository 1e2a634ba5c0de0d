"""A site in fast motion: what Prometheus would have scraped of simulated GPUs, as input of promtool's tests of rules.

The real provider, fleet and renderer make the pages, on a clock that is turned by hand.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from exporter.config import SamplingConfig
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.model import Group, Groups
from exporter.providers.protocol import OpenContext, ProviderError
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.prometheus import find

PROVIDER = "simulated"
TARGET = 'job="gpu-exporter", instance="node"'
_EACH_TIME = frozenset({Group.ENERGY, Group.LOAD})
_AT_SCRAPES = _EACH_TIME | {Group.STATE, Group.PROCESSES}


class Expected(NamedTuple):
    at: float
    expression: str
    samples: Mapping[str, float]
    """Value by labels, in braces."""


class Site:
    """One host and the Prometheus that scrapes it. Times are seconds since the first scrape, when Unix time begins."""

    def __init__(self, scenario: str, *, scrape_seconds: float = 30.0, read_seconds: float = 10.0) -> None:
        self.now = 0.0
        self.clock_error_seconds = 0.0
        """By how much the host's clock is ahead of Prometheus'."""
        self.answers = True
        """Whether the exporter answers a scrape."""
        self.scrape_seconds = scrape_seconds
        self._read_seconds = read_seconds
        sampling = SamplingConfig(
            energy_seconds=read_seconds,
            load_seconds=read_seconds,
            state_seconds=scrape_seconds,
            processes_seconds=scrape_seconds,
        )
        self.fleet = Fleet([(PROVIDER, True)], sampling)
        self._renderer = Renderer()
        context = OpenContext(between_calls=lambda: None)
        self.machine = Machine(load_scenario(scenario), 0.0)
        self._provider = open_machine(self.machine, context, lambda: self.now).provider
        self._pages: list[dict[str, str]] = []

    def run(self, seconds: float) -> None:
        """Let time pass, with reads and scrapes."""
        until = self.now + seconds
        while self.now < until:
            is_scrape = self.now >= len(self._pages) * self.scrape_seconds
            self._read(_AT_SCRAPES if is_scrape else _EACH_TIME)
            if is_scrape:
                self._pages.append(self._page() if self.answers else {})
            self.now += self._read_seconds

    def _read(self, groups: Groups) -> None:
        try:
            devices = self._provider.devices()
        except ProviderError as error:
            self.fleet.provider_status(PROVIDER, up=False, reason=str(error), library_version=None)
            return
        self.fleet.provider_status(PROVIDER, up=True, reason="", library_version=None)
        self.fleet.enumerated(PROVIDER, devices, self.now)
        for device in devices:
            sample = self._provider.read(device, groups)
            self.fleet.observed(PROVIDER, sample, self.now, self.now + self.clock_error_seconds)

    def _page(self) -> dict[str, str]:
        page = self._renderer.page(self.fleet.world(self.now), Format.TEXT_0_0_4, None).decode()
        self.fleet.dropped(self._renderer.dropped)
        lines = [line.rpartition(" ") for line in page.splitlines() if not line.startswith("#")]
        return {_of_target(series): value for series, _, value in lines}

    def input_series(self) -> list[dict[str, str]]:
        """Return what was stored, with the ends of series as Prometheus marks them, and `up`."""
        names = dict.fromkeys(name for page in self._pages for name in page)
        stored = {name: " ".join(_values(page.get(name) for page in self._pages)) for name in names}
        stored[_of_target("up")] = " ".join(str(int(bool(page))) for page in self._pages)
        return [{"series": name, "values": values} for name, values in stored.items()]

    def check(
        self, path: Path, rules: Sequence[Path], expected: Sequence[Expected], every_seconds: float | None = None
    ) -> None:
        """Have promtool evaluate the rules at each scrape, or as often as is said, whatever intervals they have.

        `path`: where the test is written to.
        """
        interval = f"{self.scrape_seconds:.0f}s"
        checks = [
            {
                "expr": one.expression,
                "eval_time": f"{one.at:.0f}s",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in one.samples.items()],
            }
            for one in expected
        ]
        test = {"interval": interval, "input_series": self.input_series(), "promql_expr_test": checks}
        files = [str(file) for file in rules]
        evaluated = f"{every_seconds or self.scrape_seconds:.0f}s"
        path.write_text(json.dumps({"rule_files": files, "evaluation_interval": evaluated, "tests": [test]}))
        done = subprocess.run(
            [find(3).promtool, "test", "rules", str(path)], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def _of_target(series: str) -> str:
    """Return the series with the labels of the target; promtool writes labels as pages do."""
    name, _, labels = series.partition("{")
    return f"{name}{{{TARGET}{', ' if labels else '}'}{labels}"


def _values(values: Iterable[str | None]) -> Iterator[str]:
    before: str | None = None
    for value in values:
        yield value if value is not None else "_" if before in (None, "stale") else "stale"
        before = value
