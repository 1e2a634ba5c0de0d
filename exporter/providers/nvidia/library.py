"""How does a call into NVML end? With a value, or with one of a few outcomes that the provider acts upon."""

import ctypes
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

from exporter.providers.nvidia.fields import Answer, Fields, answers
from exporter.providers.protocol import ProviderError

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
INSUFFICIENT_SIZE = 7
TIMEOUT = 10
FUNCTION_NOT_FOUND = 13

_GPU_IS_LOST = 15
_UNKNOWN = 999
_GARBAGE = 24
"""No status that these calls give: the answer itself is none."""

REFUSALS = frozenset(
    {
        SUCCESS,  # two wrappers of pynvml raise NVMLError for a first answer of success
        INVALID_ARGUMENT,
        NOT_SUPPORTED,
        4,  # NO_PERMISSION: the parent of MIG instances, seen from inside a container
        FUNCTION_NOT_FOUND,  # the driver is older than pynvml
        21,  # NO_DATA
        25,  # ARGUMENT_VERSION_MISMATCH
        26,  # DEPRECATED: what driver 595 answers for the power state
    }
)

_GONE = {
    1: "the NVIDIA library is not initialised",
    9: "the NVIDIA kernel module is not loaded",
    12: "libnvidia-ml.so.1 was not found: no NVIDIA driver is installed, or it is not in the loader's path",
    18: "the NVIDIA library and the loaded kernel module differ in version: reload the module or reboot",
}


# pynvml makes room for as many rows as the library says, and believes what it says of them.
_UNREADABLE = (MemoryError, OverflowError, ValueError, TypeError, IndexError)

_WORDS = {
    4: "no permission",
    15: "the GPU is lost",
    17: "blocked by the operating system",
    20: "out of memory",
    _UNKNOWN: "unknown error",
}


# The GPU, type and data of an event, and the instance that it is of.
_EVENT = struct.Struct("<8xQQ8x")
_EVENT_ROOM = ctypes.c_uint64 * (_EVENT.size // 8)


Known = dict[tuple[Any, ...], Any]
"""What a GPU has answered and would answer again, by function and arguments; None: it refuses."""


class AbsentError(Exception):
    """There is no such value here: not supported, not permitted, not known to this driver."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code

    def __str__(self) -> str:
        return in_words(self.code)  # seldom asked for: it is raised several times in each read


class LostError(Exception):
    """The GPU that was asked is off the bus; the others may go on."""


class BrokenError(Exception):
    """An answer that does not mean "not supported"."""

    def __init__(self, code: int) -> None:
        super().__init__(in_words(code))
        self.code = code


class UnknownError(BrokenError):
    """NVML's "unknown error": some drivers say it of one reading, others of a GPU that is lost."""

    def __init__(self) -> None:
        super().__init__(_UNKNOWN)


def in_words(code: int) -> str:
    """Return what an operator can make of an NVML status."""
    return f"NVML status {code}: {_WORDS[code]}" if code in _WORDS else f"NVML status {code}"


def raise_outcome(code: int) -> NoReturn:
    """Raise what an NVML status other than success means. Raises ProviderError when all GPUs are affected."""
    if code in _GONE:
        raise ProviderError(_GONE[code])
    if code == _GPU_IS_LOST:
        raise LostError(in_words(code))
    if code == _UNKNOWN:
        raise UnknownError
    if code in REFUSALS:
        raise AbsentError(code)
    raise BrokenError(code)


class Nvml:
    """The one way into the library. `library` is the module pynvml, or an object with its functions and exceptions."""

    def __init__(self, library: Any, between_calls: Callable[[], None]) -> None:
        self._library = library
        self._between_calls = between_calls
        self._functions: dict[str, Callable[..., Any]] = {}
        self._is_binding = isinstance(library, ModuleType) and hasattr(library, "_nvmlGetFunctionPointer")
        # Compared by `.value` only: NVMLError is unhashable, and comparing it with None raises AttributeError.
        self._status_errors: tuple[type[Exception], ...] = (library.NVMLError,)
        # Raised by the process lists of old drivers; not an NVMLError, and not in every pynvml.
        mismatch = getattr(library, "NVMLLibraryMismatchError", None)
        self._version_errors: tuple[type[Exception], ...] = (
            (AttributeError,)
            if mismatch is None
            else (
                AttributeError,
                mismatch,
            )
        )

    def call(self, function: str, *arguments: Any) -> Any:
        """Return what pynvml's `function` returns; text that is not UTF-8 comes with replacement characters.

        Raises AbsentError, LostError, UnknownError, BrokenError, or ProviderError.
        """
        self._between_calls()
        try:
            return (self._functions.get(function) or self._found(function))(*arguments)
        except Exception as error:  # noqa: BLE001 -- raised again unless its outcome is known
            return self._outcome(error)

    def beside(self, function: str, *arguments: Any) -> Any:
        """Do the same without serving urgent requests: on the way out, or from another thread than the provider's."""
        try:
            return (self._functions.get(function) or self._found(function))(*arguments)
        except Exception as error:  # noqa: BLE001 -- as above
            return self._outcome(error)

    def _outcome(self, error: Exception) -> str:
        """Return the text that could not be decoded, or raise what the error means."""
        if isinstance(error, UnicodeDecodeError):
            # pynvml decodes strictly; a board with raw bytes in its name keeps the rest of it.
            return error.object.decode("utf-8", "replace")
        if isinstance(error, self._version_errors):
            raise AbsentError(FUNCTION_NOT_FOUND) from None
        if isinstance(error, self._status_errors):
            raise_outcome(int(getattr(error, "value", _UNKNOWN)))
        if isinstance(error, _UNREADABLE):
            raise BrokenError(_GARBAGE) from error
        raise error

    def fields(self, handle: Any, asked: Fields) -> Iterator[Answer]:
        """Return what the library answers for each field. Raises what `call` raises.

        pynvml lays out such a call through two Python functions for each field: where the library is pynvml itself,
        and not what records or replays its calls, the function that it calls is called past it.
        """
        if not self._is_binding:
            return answers(self.call("nvmlDeviceGetFieldValues", handle, list(asked.names)))
        self._between_calls()
        room = asked.room()
        status = self._past("nvmlDeviceGetFieldValues", handle, len(asked), room)
        if status:
            raise_outcome(status)
        return answers(room)

    def event(self, events: Any, milliseconds: int) -> tuple[int, int] | None:
        """Return type and data of the next event of a set, or None where none comes in time. Raises what `call` raises.

        For a thread of its own, as `beside`. Past pynvml as `fields`, since nearly always there is none: its error is
        made and raised and caught for each GPU of each round.
        """
        if not self._is_binding:
            try:
                event = self.beside("nvmlEventSetWait_v2", events, milliseconds)
            except BrokenError as error:
                if error.code == TIMEOUT:
                    return None
                raise
            return event.eventType, event.eventData
        room = _EVENT_ROOM()
        status = self._past("nvmlEventSetWait_v2", events, room, milliseconds)
        if status == TIMEOUT:
            return None
        if status:
            raise_outcome(status)
        kind, data = _EVENT.unpack(room)
        return kind, data

    def _past(self, function: str, *arguments: Any) -> int:
        """Return the status of a function of the shared object that pynvml has loaded."""
        try:
            status: int = self._library._nvmlGetFunctionPointer(function)(*arguments)  # noqa: SLF001 -- see `fields`
        except self._status_errors as error:  # the driver is older than the function
            return int(getattr(error, "value", _UNKNOWN))
        return status

    def make(self, structure: str) -> Any:
        """Return a new structure of pynvml's, for a function that fills one in. Raises AbsentError."""
        return self.beside(structure)

    def _found(self, function: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(self._library, function)
        self._functions[function] = found
        return found
