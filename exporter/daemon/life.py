"""Does the daemon still do its work? Then it says so, to probes and to systemd's watchdog; else it may have to end."""

import asyncio
import time
from collections.abc import Callable

from exporter.fleet import Fleet
from exporter.pace import pause
from exporter.supervision.supervisor import Supervisor
from exporter.systemd import Systemd

STALL_SECONDS = 10.0
"""The supervisor lets time pass four times a second; for so long a machine that is out of breath may hold it up."""
LOOK_SECONDS = 1.0
PINGS = 3
"""Signs of life in the time after which the watchdog ends us: one may get lost."""


def turns(now: float, turned_at: float, watchdog_seconds: float | None = None) -> bool:
    """Tell whether the supervisor's loop turns: it last did at `turned_at`. Both are monotonic seconds."""
    allowed = STALL_SECONDS if watchdog_seconds is None else min(STALL_SECONDS, watchdog_seconds / 2)
    return now - turned_at <= allowed


async def keep_pinging(systemd: Systemd, turned_at: Callable[[], float]) -> None:
    """Give signs of life until cancelled, from the event loop, so that there are none when that stands still either."""
    seconds = systemd.watchdog_seconds
    while seconds is not None:
        if turns(time.monotonic(), turned_at(), seconds):
            systemd.ping()
        await asyncio.sleep(seconds / PINGS)


async def lasting_failure(supervisor: Supervisor, fleet: Fleet) -> str:
    """Return what has failed, once that has lasted longer than the configuration wants to wait."""
    while True:
        now = time.monotonic()
        if (failure := supervisor.lasting_failure(fleet.glance(now).snapshots, now)) is not None:
            return failure
        await pause(LOOK_SECONDS)
