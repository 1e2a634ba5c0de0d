"""What is looked at now and then: changes for the log and for systemd, cards that come and go, failures that last."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from exporter.announce import Announcer, summary
from exporter.fleet import Fleet
from exporter.model import WebCounts
from exporter.pace import pause
from exporter.pci import count_gpus
from exporter.providers import PROVIDERS, ProviderEntry
from exporter.systemd import Systemd

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LOOKS_PER_COUNT = 60
"""After how many of those PCI is asked again for GPUs: cards come and go on hosts that can plug them."""


def count(fleet: Fleet, names: Sequence[str]) -> None:
    """Tell the fleet what PCI shows of each provider's GPUs."""
    for name in names:
        fleet.expected(name, _expected(PROVIDERS[name]))


def _expected(entry: ProviderEntry) -> int | None:
    if entry.count is not None:
        return entry.count(Path("/"))
    return None if entry.pci_vendor is None else count_gpus(entry.pci_vendor)


class Lookout:
    def __init__(
        self,
        fleet: Fleet,
        names: Sequence[str],
        web: Callable[[], WebCounts],
        well: Callable[[], bool],
        systemd: Systemd,
    ) -> None:
        """`web`: what clients met with. `well`: whether what is in force is what the files of the configuration say."""
        self._fleet = fleet
        self._names = names
        self._web = web
        self._well = well
        self._systemd = systemd
        self._announcer = Announcer()

    async def keep_looking(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                for _ in range(LOOKS_PER_COUNT):
                    self._look()
                    await pause(LOOK_SECONDS)
                count(self._fleet, self._names)
            except Exception:  # metrics are worth more than what is said of them
                logger.exception("what has changed cannot be told")
                await asyncio.sleep(LOOK_SECONDS * LOOKS_PER_COUNT)

    def _look(self) -> None:
        self._fleet.served(self._web())
        self._fleet.configured(well=self._well())
        world = self._fleet.glance(time.monotonic())
        for level, message, fields in self._announcer.lines(world):
            logger.log(level, message, extra=fields)
        self._systemd.status(summary(world))
