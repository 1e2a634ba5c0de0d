"""NVML's fields: what one call asks for, as the library wants it laid out, and the numbers in what it answers."""

import ctypes
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Field = tuple[int, int]
"""An NVML field id and its scope."""
Answer = tuple[int, int, int]
"""Type, status, and the 64 bits of the value."""

PLAIN = frozenset({2, 3})
"""Types whose number is the 64 bits themselves."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field's value, by its type."""
_DOUBLE = 0
# Id, scope, time stamp, latency, type, status and value: the same on every machine that the library is for.
_ASKED = struct.Struct("<IIqqIIQ")
_ANSWERED = struct.Struct("<24xIIQ")
_SIGN_32, _SIGN_64 = 1 << 31, 1 << 63
_OF_TYPE: tuple[Callable[[int], float], ...] = (
    lambda bits: float(struct.unpack("<d", bits.to_bytes(8, "little"))[0]),
    lambda bits: bits & 0xFFFF_FFFF,
    lambda bits: bits,
    lambda bits: bits,
    lambda bits: bits - 2 * (bits & _SIGN_64),
    lambda bits: (bits & 0xFFFF_FFFF) - 2 * (bits & _SIGN_32),
    lambda bits: bits & 0xFFFF,
)
"""The number in a value's 64 bits, by its type: double, unsigned int, long and long long, long long, int, short."""


class Fields:
    """Fields that are asked for in one call, each with the name of the reading that it is for.

    Made once and kept: an H100 is asked for a hundred of them, most of them about its links.
    """

    __slots__ = ("_layout", "_room", "names")

    def __init__(self, names: Mapping[Field, str]) -> None:
        self.names = dict(names)
        self._layout = b"".join(_ASKED.pack(number, scope, 0, 0, 0, 0, 0) for number, scope in self.names)
        self._room = ctypes.c_char * len(self._layout)

    def __len__(self) -> int:
        return len(self.names)

    def room(self) -> "ctypes.Array[ctypes.c_char]":
        """Return what the library is given to fill in, of this one call."""
        return self._room.from_buffer_copy(self._layout)


def answers(raw: Any) -> Iterator[Answer]:
    """Take apart what the library has filled in, or pynvml has made of it."""
    if not isinstance(raw, ctypes.Array):
        return map(_replayed, raw)
    # Each access to a member of pynvml's structures goes through a Python function: taken apart as bytes.
    return _ANSWERED.iter_unpack(raw)


def number(kind: int, bits: int) -> float | None:
    """Return the number in the 64 bits of a value, or None where its type is none that there is."""
    return _OF_TYPE[kind](bits) if kind < len(_OF_TYPE) else None


def _replayed(answer: Any) -> Answer:
    """Return the same of a field that is a record and not the library's own structure."""
    kind = answer.valueType
    value = getattr(answer.value, _MEMBERS[kind], 0) if kind < len(_MEMBERS) else 0
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] if kind == _DOUBLE else int(value) % (1 << 64)
    return kind, answer.nvmlReturn, bits
