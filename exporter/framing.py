"""How records are packed for a pipe between two of our processes, and put together again.

A frame is four bytes of length, most significant first, and a msgpack map whose `type` names the record.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

MAX_FRAME_BYTES = 16 * 1024 * 1024
_LENGTH_BYTES = 4
_LEAST, _MOST = -(2**63), 2**64 - 1
"""Whole numbers that msgpack has room for."""

_T = TypeVar("_T")


class Frame(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True):
    """What all records that are sent derive from."""


class FrameError(Exception):
    """The other side sent something that is no frame; its text says what was wrong."""


_encoder = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
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
