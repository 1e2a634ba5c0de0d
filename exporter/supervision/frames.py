"""What parent and child say to each other over their two pipes, and how it is packed.

A frame is four bytes of length, most significant first, and a msgpack map whose `type` names the record.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, Literal, TypeVar

import msgspec

from exporter.config import SamplingConfig
from exporter.model import Device, Group, Sample
from exporter.supervision.schedule import ALL_LOST_SECONDS

MAX_FRAME_BYTES = 16 * 1024 * 1024
FRESH_SECONDS = 0.05
"""An energy reading that is younger is as good as a fresh one."""
_LENGTH_BYTES = 4
_LEAST, _MOST = -(2**63), 2**64 - 1
"""Whole numbers that msgpack has room for."""

Cause = Literal["unavailable", "lost", "crash"]


class WorkerRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which provider a worker serves, and what its opener is given."""

    provider: str
    """Its name in PROVIDERS."""
    root: str = "/"
    scenario: str | None = None
    opener: str | None = None
    """`module:attribute` of an opener that is taken instead of the one in PROVIDERS."""


class _Frame(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    pass


class Start(_Frame, frozen=True, kw_only=True):
    """The first request of every child."""

    request: WorkerRequest
    sampling: SamplingConfig
    exclude: tuple[str, ...] = ()
    """Keys of devices that are enumerated and not read."""
    last: tuple[str, ...] = ()
    """Keys of devices that are read after the others, in this order."""
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


class Shutdown(_Frame, frozen=True):
    """Close the provider and end."""


class Opened(_Frame, frozen=True):
    library_version: str | None


class Enumerating(_Frame, frozen=True):
    """The devices are about to be enumerated."""


class Enumerated(_Frame, frozen=True):
    devices: tuple[Device, ...]


class Reading(_Frame, frozen=True):
    """The device is about to be read: until its `Sampled`, whoever waits knows whom to blame."""

    key: str


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


Request = Start | Fresh | Exclude | Shutdown
Report = Opened | Enumerating | Enumerated | Reading | Sampled | PassTook | Waiting | FreshDone | Failed
_T = TypeVar("_T")


class FrameError(Exception):
    """The other side sent something that is no frame; its text says what was wrong."""


_encoder = msgspec.msgpack.Encoder()


def encode(frame: Request | Report) -> bytes:
    """Return the packed frame.

    Text that is not valid Unicode is replaced, and a whole number beyond 64 bits is no value: one of them must not cost
    a device.
    """
    try:
        payload = _encoder.encode(frame)
    except (UnicodeEncodeError, OverflowError):
        payload = _encoder.encode(_scrubbed(msgspec.to_builtins(frame)))
    return len(payload).to_bytes(_LENGTH_BYTES, "big") + payload


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {_scrubbed(name): _scrubbed(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_scrubbed(item) for item in value]
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return None
    return value


class Inbox(Generic[_T]):
    """Puts frames together from pieces of any size, holding at most one incomplete frame of the maximum size."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[_T]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[_T]:
        """Yield every frame that `data` completes. Raises FrameError; the inbox is of no use after that."""
        self._buffer += data
        begin = 0
        try:
            while (end := self._end(begin)) is not None:
                payload = bytes(self._buffer[begin + _LENGTH_BYTES : end])
                begin = end
                yield self._decoded(payload)
        finally:
            del self._buffer[:begin]

    def _end(self, begin: int) -> int | None:
        if len(self._buffer) - begin < _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[begin : begin + _LENGTH_BYTES], "big")
        if length > MAX_FRAME_BYTES:
            raise FrameError(f"a frame of {length} bytes is announced")
        end = begin + _LENGTH_BYTES + length
        return end if end <= len(self._buffer) else None

    def _decoded(self, payload: bytes) -> _T:
        try:
            return self._decoder.decode(payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise FrameError(str(error)) from error


def reports() -> Inbox[Report]:
    """Return the parent's inbox of one child."""
    return Inbox(msgspec.msgpack.Decoder(Report))


def requests() -> Inbox[Request]:
    """Return the child's inbox."""
    return Inbox(msgspec.msgpack.Decoder(Request))
