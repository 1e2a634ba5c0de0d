"""One read of one device: what becomes of answers, refusals and errors."""

from collections.abc import Callable, Iterable
from typing import Any

from exporter.providers.nvidia.fields import PLAIN, Field, Fields
from exporter.providers.nvidia.fields import number as number_of
from exporter.providers.nvidia.library import (
    REFUSALS,
    AbsentError,
    BrokenError,
    Known,
    Nvml,
    UnknownError,
    raise_outcome,
)
from exporter.providers.sanitise import Range, Readings


class Reading(Readings):
    """Asks one device, and keeps the names of readings that broke or were out of range.

    It cleans them itself: in an object of its own each number would cost another call.
    `doubt` is called when a reading answers "unknown error"; it raises LostError when the whole GPU is gone.
    """

    BITS = 32

    def __init__(self, nvml: Nvml, handle: Any, doubt: Callable[[], None]) -> None:
        super().__init__()
        self.nvml = nvml
        self.handle = handle
        self.answered = False
        """Whether any call gave a value."""
        self.unknown = False
        """Whether any call gave NVML's "unknown error"."""
        self._doubt = doubt

    def get(self, name: str, function: str, *arguments: Any, handle: Any = None) -> Any:
        """Return what NVML answers for the reading `name`, or None. Raises LostError and ProviderError.

        `handle`: another handle of the same GPU, such as that of a MIG instance.
        """
        try:  # as `ask`, in one function: it is called hundreds of times in a second
            value = self.nvml.call(function, self.handle if handle is None else handle, *arguments)
        except AbsentError:
            return None
        except BrokenError as error:
            self.broken(name, error)
            return None
        self.answered = True
        return value

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

    def fixed(self, known: Known, name: str, function: str, *arguments: Any) -> Any:
        """Return the same of what does not change: from `known`, once it is there."""
        key = (function, *arguments)
        if key not in known:
            value = self.get(name, function, *arguments)
            if self.broke(name):
                return None
            known[key] = value
        return known[key]

    def unless_refused(self, known: Known, name: str, function: str, *arguments: Any) -> Any:
        """Return the same of what a GPU has or has not: once it was refused, which is in `known`, it is not asked for.

        A refusal costs more than an answer.
        """
        key = (function, *arguments)
        if key in known:
            return None
        value = self.get(name, function, *arguments)
        if value is None and not self.broke(name):
            known[key] = None
        return value

    def first(self, name: str, *functions: str, arguments: tuple[Any, ...] = ()) -> Any:
        """Return the first answer of functions that older or newer drivers know under different names."""
        for function in functions:
            answer = self.get(name, function, *arguments)
            if answer is not None:
                return answer
        return None

    def fields(self, asked: Fields) -> dict[Field, float]:
        """Return the raw values of the fields that have one. Each field is judged by its own status, with its name."""
        values: dict[Field, float] = {}
        if not asked:
            return values
        try:
            answers = self.nvml.fields(self.handle, asked)
        except AbsentError:
            return values
        except BrokenError as error:
            self.broken(next(iter(asked.names.values())), error)
            return values
        self.answered = True
        for (field, name), (kind, status, bits) in zip(asked.names.items(), answers, strict=False):
            if status:
                if status not in REFUSALS:
                    self._judge(name, status)
            elif kind in PLAIN:
                values[field] = bits
            else:
                value = number_of(kind, bits)
                if value is not None:
                    values[field] = value
        return values

    def numbers(
        self, name: str, raw: Iterable[tuple[str, Any]], bounds: Range, *, per: float = 1, bits: int = 32
    ) -> dict[str, float]:
        """Return those that are there of several parts of one reading, each with its label."""
        values = {}
        for label, given in raw:
            value = self.number(name, given, bounds, per=per, bits=bits)
            if value is not None:
                values[label] = value
        return values

    def broken(self, name: str, error: BrokenError) -> None:
        """Note that a reading broke. Raises LostError when that is because the GPU is lost."""
        self.fail(name)
        if isinstance(error, UnknownError):
            self.unknown = True
            self._doubt()

    def _judge(self, name: str, status: int) -> None:
        try:
            raise_outcome(status)
        except BrokenError as error:
            self.broken(name, error)
