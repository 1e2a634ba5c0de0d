"""Reads the configuration again on request: all of it counts from then on, or none of it."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from exporter.config import Config, ConfigError
from exporter.daemon.changes import changes, held_back
from exporter.fleet import Fleet
from exporter.systemd import Systemd

if TYPE_CHECKING:
    from exporter.web.guard import Guard  # it brings YAML and hashing, which only those with such a file are to pay

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 0.5
"""Between two reloads: whoever asks for many must not keep pages waiting."""


class Reloader:
    """Lives in the event loop, which stands still while the files are read: they are small, and local."""

    def __init__(
        self,
        config: Config,
        read: Callable[[], Config],
        guard: "Guard | None",
        apply: Callable[[Config], None],
        fleet: Fleet,
        systemd: Systemd,
    ) -> None:
        """`read` raises ConfigError; `apply` cannot fail, and is given what differs in live options only."""
        self.config = config
        self._read = read
        self._guard = guard
        self._apply = apply
        self._fleet = fleet
        self._systemd = systemd
        self._well = True
        fleet.configured(well=True, wall=time.time())

    @property
    def well(self) -> bool:
        """Whether what is in force is what the files say, as far as they were looked at."""
        return self._well and not (self._guard is not None and self._guard.problems)

    def reload(self) -> None:
        """Take over what the files say. With problems, each told in a line of the log, everything stays as it is."""
        self._systemd.reloading()
        problems = self._problems()
        for problem in problems:
            logger.error("not reloaded, the configuration before holds", extra={"problem": problem})
        self._well = not problems
        self._fleet.configured(well=self._well, wall=time.time() if self._well else None)
        self._systemd.ready()

    def _problems(self) -> list[str]:
        try:
            config = self._read()
        except ConfigError as e:
            return list(e.messages)
        except Exception as e:  # noqa: BLE001 -- whatever it is, what runs goes on
            return [f"the configuration cannot be read: {e!r}"]
        problems = held_back(self.config, config)
        # Last, as it takes over what it reads: nothing after it fails.
        if not problems and self._guard is not None:
            problems = self._guard.reload()
        if not problems:
            changed = ", ".join(changes(self.config, config))
            self.config = config
            self._apply(config)
            logger.info("the configuration is reloaded", extra={"changed": changed or "nothing"})
        return problems


async def keep_reloading(reloader: Reloader, wanted: asyncio.Event) -> None:
    """Reload whenever it is wanted, until cancelled; what is wanted meanwhile is one reload more."""
    while True:
        await wanted.wait()
        wanted.clear()
        try:
            reloader.reload()
        except Exception:  # the next one may do better
            logger.exception("the reload broke off")
        await asyncio.sleep(PAUSE_SECONDS)
