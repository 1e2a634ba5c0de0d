"""A site in fast motion: what Prometheus would have scraped of simulated GPUs, as input of promtool's tests of rules.

The real provider, fleet and renderer make the pages, on a clock that is turned by hand.
"""

from collections.abc import Iterable, Iterator

from exporter.config import SamplingConfig
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.model import Group, Groups
from exporter.providers.protocol import OpenContext, ProviderError
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.scenario import load_scenario

PROVIDER = "simulated"
TARGET = 'job="gpu-exporter", instance="node"'
_EACH_TIME = frozenset({Group.ENERGY, Group.LOAD})
_AT_SCRAPES = _EACH_TIME | {Group.STATE, Group.PROCESSES}


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
        self._provider = open_machine(Machine(load_scenario(scenario), 0.0), context, lambda: self.now).provider
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


def _of_target(series: str) -> str:
    """Return the series with the labels of the target; promtool writes labels as pages do."""
    name, _, labels = series.partition("{")
    return f"{name}{{{TARGET}{', ' if labels else '}'}{labels}"


def _values(values: Iterable[str | None]) -> Iterator[str]:
    before: str | None = None
    for value in values:
        yield value if value is not None else "_" if before in (None, "stale") else "stale"
        before = value
