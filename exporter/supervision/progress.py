"""What a child reads at this moment, in a page of memory that parent and child share.

To tell it costs no system call and wakes nobody up, so it is told before every read; and the page is still there when
the child hangs, or has crashed.
"""

import contextlib
import mmap
import os
from collections.abc import Collection
from struct import Struct
from typing import NamedTuple

DEEPEST = 2
"""A read, and within it that of a request for fresh energy."""
_DEPTH = Struct("=Q")
_HEAD = Struct("=QH")
_SLOT_BYTES = 504
_FIRST = _DEPTH.size
_BYTES = _FIRST + DEEPEST * _SLOT_BYTES
"""1 KiB, as RLIMIT_FSIZE counts for shared memory too."""


class Read(NamedTuple):
    number: int
    """Of all reads of this child."""
    key: str
    """Of the device, as `told` has it."""


class Progress:
    """One page. The child is the only writer, and what the parent takes may be torn while that goes on.

    That does no harm: only a read that stays there for seconds, or for ever, is of interest.
    """

    def __init__(self, descriptor: int) -> None:
        """Take a descriptor of `shared`; it may be closed afterwards. Raises OSError."""
        self._page = mmap.mmap(descriptor, _BYTES)
        self._count = 0
        self._depth = 0

    def begin(self, key: str) -> None:
        """Tell that a device is about to be read."""
        text = _cut(key)
        self._count += 1
        at = _FIRST + min(self._depth, DEEPEST - 1) * _SLOT_BYTES
        end = at + _HEAD.size + len(text)
        self._page[at:end] = _HEAD.pack(self._count, len(text)) + text
        self._turn(self._depth + 1)

    def end(self) -> None:
        """Tell that the read which began last has returned."""
        self._turn(self._depth - 1)

    def reads(self) -> tuple[Read, ...]:
        """Return the reads that are under way, an inner one after the one that it interrupts."""
        (depth,) = _DEPTH.unpack_from(self._page)
        return tuple(self._slot(_FIRST + place * _SLOT_BYTES) for place in range(min(depth, DEEPEST)))

    def close(self) -> None:
        self._page.close()

    def _turn(self, depth: int) -> None:
        self._depth = depth
        _DEPTH.pack_into(self._page, 0, depth)

    def _slot(self, at: int) -> Read:
        number, length = _HEAD.unpack_from(self._page, at)
        begin = at + _HEAD.size
        return Read(number, self._page[begin : begin + min(length, _SLOT_BYTES)].decode("utf-8", "replace"))


def told(key: str) -> str:
    """Return a key as `reads` has it: of one that is too long, the beginning."""
    return _cut(key).decode("utf-8", "replace")


def recognised(read: Read, keys: Collection[str]) -> Read:
    """Return a read with the whole key of its device, where `keys` has it."""
    if read.key in keys:
        return read
    return read._replace(key=next((key for key in keys if told(key) == read.key), read.key))


def _cut(key: str) -> bytes:
    return key.encode("utf-8", "replace")[: _SLOT_BYTES - _HEAD.size]


def shared() -> int:
    """Return a descriptor of an empty page, to be closed. Raises OSError."""
    with contextlib.ExitStack() as undo:
        try:
            descriptor = os.memfd_create("gpu-exporter-progress")
            undo.callback(os.close, descriptor)
            os.ftruncate(descriptor, _BYTES)
        except OSError as error:  # of a filter of system calls, or a limit on files, which say nothing of memory
            raise OSError(error.errno, f"no memory can be shared with it: {error.strerror}") from error
        undo.pop_all()
    return descriptor
