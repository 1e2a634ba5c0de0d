"""What a call into AMD SMI means: a value, no such reading, a dead handle, a broken reading, or a library that is gone.

Every call of the provider passes here, so that the worker can serve an urgent request before it.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from exporter.providers.protocol import ProviderError
from exporter.providers.sanitise import Readings

# Status codes of amdsmi.h.
_ABSENT = frozenset({2, 3, 5, 40})
"""Not supported, not implemented, symbol missing in this driver, no data."""
_GONE = frozenset({18, 32, 34})
"""Initialisation lost, not initialised, driver not loaded: nothing will answer until the library is opened anew."""
_NOT_FOUND = 31
"""An unknown handle, or a reading that the device does not have."""
_DRIVER_NOT_LOADED = 34
_WORDS = {
    8: "timeout",
    10: "no permission",
    12: "input/output error",
    14: "a file of the driver could not be opened",
    15: "out of resources",
    16: "internal exception",
    18: "initialisation failed",
    30: "busy: another process holds its lock",
    32: "not initialised",
    34: "the amdgpu driver is not loaded",
}

_ADDRESS = "amdsmi_get_gpu_device_bdf"


class Absent(Exception):  # noqa: N818 -- an outcome, not an error
    """Neither an error nor a value: the device or driver has no such reading."""


class HandleGone(Exception):  # noqa: N818 -- an outcome, not an error
    """The handle is dead: driver reload, partition change, or a card that left the bus."""


class Broken(Exception):  # noqa: N818 -- an outcome, not an error
    """The reading failed in a way that does not mean "not supported"."""


class Answer(NamedTuple):
    value: Any
    broken: bool = False


class Calls:
    """The functions of one amdsmi module, with their failures sorted."""

    def __init__(self, module: Any, between_calls: Callable[[], None], version: tuple[int, ...]) -> None:
        self._module = module
        self._between_calls = between_calls
        self.version = version
        """Of the library, as `versions.library_version` has it."""

    def __call__(self, function: str, *arguments: object) -> Any:
        """Call `function`. Raises Absent, HandleGone, Broken, or ProviderError when the library is gone."""
        bound = getattr(self._module, function, None)
        if bound is None:
            raise Absent(function)
        self._between_calls()
        try:
            return bound(*arguments)
        except Exception as error:  # amdsmi raises KeyError, ValueError, OSError and UnicodeDecodeError too
            raise self._outcome(function, arguments, error) from error

    def ask(self, function: str, *arguments: object) -> Answer:
        """Call `function`; no such reading is None, and so is one that broke."""
        try:
            return Answer(self(function, *arguments))
        except Absent:
            return Answer(None)
        except Broken:
            return Answer(None, broken=True)

    def reading(self, readings: Readings, name: str, function: str, *arguments: object) -> Any:
        """Call `function` as `ask` does, and note a failure as reading `name`."""
        answer = self.ask(function, *arguments)
        if answer.broken:
            readings.fail(name)
        return answer.value

    def whatever(self, function: str, *arguments: object) -> Any:
        """Call `function` for something that a device may as well go without: any failure but an outage is None."""
        try:
            return self.ask(function, *arguments).value
        except HandleGone:
            return None

    def member(self, enumeration: str, name: str) -> Any:
        """Return a member of one of the module's enumerations, or None where this release has no such member."""
        return getattr(getattr(self._module, enumeration, None), name, None)

    def constant_name(self, family: str, value: object) -> str | None:
        """Return the name, after `family`, of the constant with this value; values differ between releases."""
        constants = vars(getattr(self._module, "amdsmi_wrapper", None) or object)
        for name, known in constants.items():
            head, found, tail = name.partition(f"{family}_")
            if found and head in {"", "AMDSMI_"} and known == value and not tail.startswith("_"):
                return tail
        return None

    def _outcome(self, function: str, arguments: tuple[object, ...], error: Exception) -> Exception:
        code = code_of(error)
        if code in _ABSENT:
            return Absent(function)
        if code in _GONE:
            return ProviderError(f"AMD SMI: {in_words(error)}")
        if code == _NOT_FOUND:
            return HandleGone(function) if arguments and self._is_dead(function, arguments[0]) else Absent(function)
        if isinstance(error, OSError):  # from ROCm 7.14 the library is loaded at the first call
            return ProviderError(f"AMD SMI: {in_words(error)}")
        return Broken(function)

    def _is_dead(self, function: str, handle: object) -> bool:
        """Ask for the address, which is known of every living handle: NOT_FOUND to that is about the handle."""
        if function == _ADDRESS:
            return True
        self._between_calls()
        try:
            getattr(self._module, _ADDRESS)(handle)
        except Exception as error:  # noqa: BLE001 -- sorted by its code
            return code_of(error) == _NOT_FOUND
        return False


def mapping(raw: object) -> Mapping[str, Any]:
    """Return an answer that is a dict, and an empty one for any other."""
    return raw if isinstance(raw, dict) else {}


def code_of(error: BaseException | None) -> int | None:
    """Return the status code that an exception of amdsmi carries, or None."""
    code = getattr(error, "err_code", None)
    return code if isinstance(code, int) else None


def driver_is_missing(error: BaseException) -> bool:
    return code_of(error) == _DRIVER_NOT_LOADED


def in_words(error: BaseException) -> str:
    """Return an error of amdsmi on one line."""
    code = code_of(error)
    if code is not None:
        return _WORDS.get(code, f"error {code}")
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
