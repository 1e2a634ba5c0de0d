"""What parent and worker say to each other over their two pipes, packed by `framing`."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from exporter.framing import MAX_FRAME_BYTES, FrameError, Inbox, encode
from exporter.framing import Frame as _Frame
from exporter.model import Device, Group, Sample
from exporter.settings import SamplingConfig
from exporter.supervision.schedule import ALL_LOST_SECONDS

__all__ = ["MAX_FRAME_BYTES", "FrameError", "Inbox", "encode"]
"""Of `framing`, for those who speak with workers."""

FRESH_SECONDS = 0.05
"""An energy reading that is younger is as good as a fresh one."""

Cause = Literal["unavailable", "lost", "crash"]


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which provider a worker serves, and what its opener is given."""

    provider: str
    """Its name in PROVIDERS."""
    root: str = "/"
    host: str | None = None
    """Below which the host's /proc is, if not below the root."""
    scenario: str | None = None
    opener: str | None = None
    """`module:attribute` of an opener that is taken instead of the one in PROVIDERS."""


class Start(_Frame, frozen=True, kw_only=True):
    """The first request of every child."""

    request: WorkerRequest
    sampling: SamplingConfig
    exclude: tuple[str, ...] = ()
    """Keys of devices that are enumerated and not read."""
    last: tuple[str, ...] = ()
    """Keys of devices that are read after the others, in this order."""
    known: tuple[str, ...] = ()
    """Keys of devices that were there before: while one is missing, they are enumerated more often."""
    only: str | None = None
    """A probe: read this device once, say so, and end."""
    patience_seconds: float = ALL_LOST_SECONDS
    """With every device lost for so long the library is opened anew."""


class Fresh(_Frame, frozen=True):
    """Read the energy group of every device before the next call into the library, then answer with the token."""

    token: int


class Exclude(_Frame, frozen=True):
    """Replaces the set of devices that are not read."""

    keys: tuple[str, ...]


class Relieve(_Frame, frozen=True):
    """Replaces the set of devices whose energy another provider delivers: it is read at the pace of state here."""

    keys: tuple[str, ...]


class Shutdown(_Frame, frozen=True):
    """Close the provider and end."""


class Opened(_Frame, frozen=True):
    library_version: str | None


class Enumerating(_Frame, frozen=True):
    """The devices are about to be enumerated."""


class Enumerated(_Frame, frozen=True):
    devices: tuple[Device, ...]


class Sampled(_Frame, frozen=True):
    sample: Sample


class PassTook(_Frame, frozen=True):
    """Seconds that reading all devices took, by group."""

    seconds: Mapping[Group, float]


class Waiting(_Frame, frozen=True):
    """Nothing to do for so many seconds."""

    seconds: float


class FreshDone(_Frame, frozen=True):
    token: int


class Failed(_Frame, frozen=True):
    """The last frame of a child that ends by itself, and why."""

    cause: Cause
    reason: str


Request = Start | Fresh | Exclude | Relieve | Shutdown
Report = Opened | Enumerating | Enumerated | Sampled | PassTook | Waiting | FreshDone | Failed


def reports() -> Inbox[Report]:
    """Return the parent's inbox of one child."""
    return Inbox(msgspec.msgpack.Decoder(Report))


def requests() -> Inbox[Request]:
    """Return the child's inbox."""
    return Inbox(msgspec.msgpack.Decoder(Request))
