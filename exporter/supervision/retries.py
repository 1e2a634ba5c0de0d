"""When the next worker is started after one has ended, and what its end is called. Pure."""

import signal
from random import Random

from exporter.supervision import frames
from exporter.supervision.backoff import Backoff
from exporter.supervision.child import Child
from exporter.supervision.schedule import ALL_LOST_SECONDS

RETRY_SECONDS = 1.0
LONGEST_PATIENCE_SECONDS = 600.0
_CRASHES = 3
_CRASH_WINDOW_SECONDS = 60.0
FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)
"""No library ends its process with these: it was an operator, or the kernel for want of memory."""


class Retries:
    def __init__(self, random: Random, now: float) -> None:
        self.spawn_at = now
        self.patience = ALL_LOST_SECONDS
        """How long a worker keeps a library in which every device is lost before it is opened anew."""
        self._retry = Backoff(RETRY_SECONDS, 30.0, random)
        self._unavailable = Backoff(5.0, 60.0, random)
        self._recycled = Backoff(RETRY_SECONDS, 300.0, random)
        self._crashes: list[float] = []
        self._unusable = False

    def soon(self, now: float) -> None:
        """Let the next one start as soon as this can go on without end: it cannot, as the next miss is an outage."""
        self.spawn_at = now + RETRY_SECONDS

    def later(self, now: float) -> None:
        """Let the next one start after the back-off."""
        self.spawn_at = now + self._retry.next()

    def recycled(self, now: float) -> None:
        """Let the next one start after the back-off of a library that outgrows every worker."""
        self.spawn_at = now + self._recycled.next()

    def ended(self, child: Child, status: int | None, now: float) -> frames.Failed:
        """Take the end of a worker that nobody asked for; return its cause and the reason that is shown."""
        failure = child.failure or frames.Failed("crash", end(child, status))
        if failure.cause == "unavailable":
            self.spawn_at = now + self._unavailable.next()
            return failure
        self.later(now)
        if failure.cause == "lost" and child.passed and not child.sampled:
            # A GPU that stays off the bus: opening the library again and again helps nobody.
            self.patience = min(LONGEST_PATIENCE_SECONDS, self.patience * 2)
        if failure.cause != "crash" or (status in FROM_OUTSIDE and not child.killed):
            return failure
        self._crashes = [at for at in self._crashes if now - at < _CRASH_WINDOW_SECONDS] + [now]
        self._unusable |= len(self._crashes) >= _CRASHES
        if self._unusable:
            reason = f"the library is unusable, its worker crashes again and again: {failure.reason}"
            return frames.Failed("crash", reason)
        return failure

    def answered(self) -> None:
        """Note that a device gives readings."""
        self.patience = ALL_LOST_SECONDS

    def well(self) -> None:
        """Note that the provider has been well for a while."""
        self._retry.reset()
        self._unavailable.reset()
        self._recycled.reset()
        self._unusable = False

    def taken_up(self, now: float) -> None:
        """Start over: whoever released the devices has changed something about them."""
        self.well()
        self.answered()
        self._crashes.clear()
        self.spawn_at = now


def end(child: Child, status: int | None) -> str:
    """Return in words how a child ended; no status: it was given up."""
    if status is None:
        return "the worker cannot be killed"
    if child.broke is not None and child.killed and status == -signal.SIGKILL:
        return f"the worker is not understood: {child.broke}"
    if status >= 0:
        return f"the worker ended by itself with status {status}"
    try:
        return f"the worker was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"the worker was ended by signal {-status}"
