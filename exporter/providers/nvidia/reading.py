"""One read of one device: what becomes of answers, refusals and errors."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from exporter.providers.nvidia.library import AbsentError, BrokenError, Nvml, UnknownError, raise_outcome
from exporter.providers.sanitise import Range, Readings

T = TypeVar("T")

Field = tuple[int, int]
"""An NVML field id and its scope."""

_VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of a field's value, by its valueType."""


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
        target = self.handle if handle is None else handle
        return self._attempt(name, lambda: self.nvml.call(function, target, *arguments))

    def first(self, name: str, *functions: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Return the first answer of functions that older or newer drivers know under different names."""
        for function in functions:
            answer = self.get(name, function, *arguments)
            if answer is not None:
                return answer
        return None

    def fields(self, names: Mapping[Field, str]) -> Mapping[Field, float]:
        """Return the raw values of the fields that have one. Each field is judged by its own status, with its name."""
        answers = self._attempt(
            next(iter(names.values())), lambda: self.nvml.call("nvmlDeviceGetFieldValues", self.handle, list(names))
        )
        values: dict[Field, float] = {}
        if answers is None:
            return values
        for (field, name), answer in zip(names.items(), answers, strict=False):
            value = self._attempt(name, partial(_field_value, answer))
            if value is not None:
                values[field] = value
        return values

    def number(self, name: str, raw: Any, bounds: Range, *, per: int = 1, bits: int = 32) -> float | None:
        """Return `raw` / `per` within `bounds`, which are in the base unit; `bits` is the width of the raw field."""
        return self.readings.number(name, raw, bounds, per=per, bits=bits)

    def broke(self, name: str) -> bool:
        return name in self.readings.failed

    def _attempt(self, name: str, action: Callable[[], T]) -> T | None:
        try:
            value = action()
        except AbsentError:
            return None
        except UnknownError:
            self.unknown = True
            self.readings.fail(name)
            self._doubt()
            return None
        except BrokenError:
            self.readings.fail(name)
            return None
        self.answered = True
        return value


def _field_value(answer: Any) -> float | None:
    if answer.nvmlReturn:
        raise_outcome(answer.nvmlReturn)
    kind = answer.valueType
    if not 0 <= kind < len(_VALUE_MEMBERS):
        return None
    value: float | None = getattr(answer.value, _VALUE_MEMBERS[kind], None)
    return value
