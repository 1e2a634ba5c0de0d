"""One read of one device: what becomes of answers, refusals and errors."""

import ctypes
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from exporter.providers.nvidia.library import REFUSALS, AbsentError, BrokenError, Nvml, UnknownError, raise_outcome
from exporter.providers.sanitise import Range, Readings

Field = tuple[int, int]
"""An NVML field id and its scope."""

_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field's value, by its type."""
_FIELD_VALUE = struct.Struct("<IIqqIIQ")
"""Id, scope, time stamp, latency, type, status and value: the same on every machine that the library is for."""
_DOUBLE = 0
_PLAIN = frozenset({2, 3})
"""Types whose number is the 64 bits themselves."""
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


class Reading:
    """Asks one device, and keeps the names of readings that broke or were out of range.

    `doubt` is called when a reading answers "unknown error"; it raises LostError when the whole GPU is gone.
    """

    def __init__(self, nvml: Nvml, handle: Any, doubt: Callable[[], None]) -> None:
        self.nvml = nvml
        self.handle = handle
        self.readings = Readings()
        self.answered = False
        """Whether any call gave a value."""
        self.unknown = False
        """Whether any call gave NVML's "unknown error"."""
        self._doubt = doubt

    def get(self, name: str, function: str, *arguments: Any, handle: Any = None) -> Any:
        """Return what NVML answers for the reading `name`, or None. Raises LostError and ProviderError.

        `handle`: another handle of the same GPU, such as that of a MIG instance.
        """
        return self.ask(name, function, self.handle if handle is None else handle, *arguments)

    def ask(self, name: str, function: str, *arguments: Any) -> Any:
        """Return the same of a function that is not given the handle of the GPU."""
        try:
            value = self.nvml.call(function, *arguments)
        except AbsentError:
            return None
        except BrokenError as error:
            self.broken(name, error)
            return None
        self.answered = True
        return value

    def fixed(self, known: dict[tuple[Any, ...], Any], name: str, function: str, *arguments: Any) -> Any:
        """Return the same of what does not change: from `known`, once it is there."""
        key = (function, *arguments)
        if key not in known:
            value = self.get(name, function, *arguments)
            if name in self.readings.failed:
                return None
            known[key] = value
        return known[key]

    def first(self, name: str, *functions: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Return the first answer of functions that older or newer drivers know under different names."""
        for function in functions:
            answer = self.get(name, function, *arguments)
            if answer is not None:
                return answer
        return None

    def fields(self, names: Mapping[Field, str]) -> dict[Field, float]:
        """Return the raw values of the fields that have one. Each field is judged by its own status, with its name."""
        values: dict[Field, float] = {}
        if not names:
            return values
        answers = self.get(next(iter(names.values())), "nvmlDeviceGetFieldValues", list(names))
        if answers is None:
            return values
        if not isinstance(answers, ctypes.Array):
            answers = map(_replayed, answers)
        else:
            # Each access to a member of pynvml's structures goes through a Python function: taken apart as bytes.
            answers = _FIELD_VALUE.iter_unpack(answers)
        for (asked, name), answer in zip(names.items(), answers, strict=False):
            kind, status, value = answer[-3:]
            if status:
                if status not in REFUSALS:
                    self._judge(name, status)
            elif kind in _PLAIN:
                values[asked] = value
            elif kind < len(_OF_TYPE):
                values[asked] = _OF_TYPE[kind](value)
        return values

    def number(self, name: str, raw: Any, bounds: Range, *, per: float = 1, bits: int = 32) -> float | None:
        """Return `raw` / `per` within `bounds`, which are in the base unit; `bits` is the width of the raw field."""
        return None if raw is None else self.readings.number(name, raw, bounds, per=per, bits=bits)

    def numbers(
        self, name: str, raw: Iterable[tuple[str, Any]], bounds: Range, *, per: float = 1, bits: int = 32
    ) -> dict[str, float]:
        """Return those that are there of several parts of one reading, each with its label."""
        values = ((label, self.number(name, value, bounds, per=per, bits=bits)) for label, value in raw)
        return {label: value for label, value in values if value is not None}

    def broke(self, name: str) -> bool:
        return name in self.readings.failed

    def broken(self, name: str, error: BrokenError) -> None:
        """Note that a reading broke. Raises LostError when that is because the GPU is lost."""
        self.readings.fail(name)
        if isinstance(error, UnknownError):
            self.unknown = True
            self._doubt()

    def _judge(self, name: str, status: int) -> None:
        try:
            raise_outcome(status)
        except BrokenError as error:
            self.broken(name, error)


def _replayed(answer: Any) -> tuple[int, int, int]:
    """Return type, status and bits of a field that is a record and not the library's own structure."""
    kind = answer.valueType
    value = getattr(answer.value, _MEMBERS[kind], 0) if kind < len(_MEMBERS) else 0
    bits = struct.unpack("<Q", struct.pack("<d", value))[0] if kind == _DOUBLE else int(value) % (1 << 64)
    return kind, answer.nvmlReturn, bits
