"""What a journal file looks like: a line that says what it is and checks the rest, and the rest in MessagePack."""

import re
import zlib

import msgspec

from exporter.fleet.record import FleetRecord, impossible

VERSION = 1
"""Raised when old content would be understood wrongly. A field that is new and has a default needs no other one."""
MAX_BYTES = 16 << 20
"""Far beyond the largest fleet: 256 devices take 0.6 MiB, 4096 workloads with long names 4 MiB."""

_HEAD = "gpu-exporter journal {} {:08x} {}\n"
_HEAD_PATTERN = re.compile(rb"gpu-exporter journal (\d{1,9})(?: ([0-9a-f]{8}) (\d{1,9}))?[^\n]{0,200}\n")


class JournalError(Exception):
    """The file cannot be used. The message says why, as the end of a sentence about it."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    at: float
    """CLOCK_MONOTONIC seconds of that boot."""
    fleet: FleetRecord


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Content)


def encode(content: Content) -> bytes:
    body = _encoder.encode(content)
    return _HEAD.format(VERSION, zlib.crc32(body), len(body)).encode("ascii") + body


def decode(data: bytes) -> Content:
    """Return the content of a file. Raises JournalError for anything but what `encode` has made."""
    if not data:
        raise JournalError("is empty")
    head = _HEAD_PATTERN.match(data)
    if head is None:
        raise JournalError("is not a journal of gpu-exporter")
    if int(head[1]) != VERSION:
        raise JournalError(f"has format {int(head[1])}, and this version of gpu-exporter reads format {VERSION}")
    body = data[head.end() :]
    if head[2] is None or len(body) != int(head[3]):
        raise JournalError("is truncated, or has something appended")
    if zlib.crc32(body) != int(head[2], 16):
        raise JournalError("is damaged: its checksum is not that of its content")
    try:
        content = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise JournalError(f"is not understood: {error}") from None
    if complaint := impossible(content.fleet, content.at):
        raise JournalError(f"is impossible: it holds {complaint}")
    return content
