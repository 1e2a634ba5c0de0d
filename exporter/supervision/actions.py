"""What a watch asks of the shell around it."""

import msgspec

from exporter.model import GpuState
from exporter.supervision import frames
from exporter.supervision.schedule import ALL_LOST_SECONDS


class Spawn(msgspec.Struct, frozen=True, kw_only=True):
    child: int
    exclude: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    only: str | None = None
    patience_seconds: float = ALL_LOST_SECONDS
    """As of `frames.Start`."""


class Kill(msgspec.Struct, frozen=True):
    """Send SIGKILL, and wait for the end."""

    child: int


class Ask(msgspec.Struct, frozen=True):
    child: int
    request: frames.Request


class Status(msgspec.Struct, frozen=True):
    """The provider's state changed; `reason` is empty when it is up."""

    up: bool
    reason: str
    library_version: str | None
    news: bool = True
    """Worth a line in the log: false while a provider comes and goes for a reason that was told."""


class State(msgspec.Struct, frozen=True):
    """A device is in question, or is not any more."""

    key: str
    state: GpuState
    reason: str
    news: bool = True
    """As with `Status`."""


class Restarted(msgspec.Struct, frozen=True):
    cause: str
    """Of metrics.RESTART_CAUSES."""
    reason: str = ""
    """Why a worker that ran was replaced; empty where `Status` tells it."""


class Kept(msgspec.Struct, frozen=True):
    """The worker was to be replaced and goes on, since its successor did not get so far."""

    reason: str


class Abandoned(msgspec.Struct, frozen=True):
    count: int
    """How many children of this provider could not be killed."""


Action = Spawn | Kill | Ask | Status | State | Restarted | Kept | Abandoned
