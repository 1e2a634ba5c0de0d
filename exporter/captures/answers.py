"""How an answer of a vendor's library is written in a capture.

Numbers, texts, lists and mappings stand for themselves; a mapping is a dict or a struct. What is none of these is a
mapping of one key that begins with a dollar sign: a handle by its name, a refusal by the vendor's status, bytes in
base64, a member of an enumeration by its name, an exception of Python by its kind, text that is not UTF-8, and what a
call filled into a struct that it was given.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from exporter.validation import join, shown

HANDLE, ERROR, BYTES = "$handle", "$error", "$bytes"
MEMBER, RAISES, UNDECODABLE, FILLS = "$member", "$raises", "$undecodable", "$fills"
FIELD_VALUES = "nvmlDeviceGetFieldValues"
"""Its answers are a table: by field, or field/scope, the value or a refusal."""
ANY = "*"
"""In place of the arguments of a call: whatever they are."""

_EXCEPTIONS: Mapping[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (KeyError, ValueError, OSError, AttributeError, TypeError, IndexError, RuntimeError, MemoryError)
}
_CALL = re.compile(r"(?P<function>[A-Za-z_]\w*)(?:\((?P<arguments>[^()]*)\))?", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w{0,60}", re.ASCII)
_FIELD = re.compile(r"(?P<field>\d{1,5})(?:/(?P<scope>\d{1,10}))?", re.ASCII)
_HIGHEST_STATUS = 2**32 - 1


class Handle(NamedTuple):
    """What a library hands out to be asked about a device; two of one name are the same."""

    name: str


class Member(NamedTuple):
    """Of an enumeration of the vendor's package."""

    name: str


class Refusal(NamedTuple):
    """The vendor's status in place of an answer."""

    code: int


class Filled(NamedTuple):
    """Members of the struct that the call was given, after it."""

    members: dict[str, Any]


class Raised(NamedTuple):
    """An exception that is not the vendor's own."""

    error: Exception


Field = tuple[int, int]
"""An NVML field id and its scope."""


def parse_call(text: str) -> tuple[str, str] | None:
    """Return function and arguments of `function(a, b)`, in one spelling; None: it is no call."""
    match = _CALL.fullmatch(text)
    if match is None:
        return None
    arguments = match["arguments"]
    return match["function"], ", ".join(part.strip() for part in arguments.split(",")) if arguments else ""


def parse_field(text: str) -> Field | None:
    """Return field and scope of `185` or `185/1`; None: it is neither."""
    match = _FIELD.fullmatch(text)
    return None if match is None else (int(match["field"]), int(match["scope"] or 0))


def is_name(text: str) -> bool:
    """Tell whether a handle may have this name."""
    return _NAME.fullmatch(text) is not None


def exception_name(error: BaseException) -> str:
    """Return the kind under which an exception that is not the vendor's own is kept."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _EXCEPTIONS), "RuntimeError")


def decode(tree: Any, struct: Callable[[dict[str, Any]], Any] = dict) -> Any:
    """Return the answer that is written as `tree`; `struct` makes of a mapping what the vendor's module returns."""
    if isinstance(tree, list):
        return [decode(item, struct) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) == 1:
        ((key, value),) = tree.items()
        if key in _MARKED:
            return _MARKED[key](value)
    return struct({key: decode(value, struct) for key, value in tree.items()})


def complaints(tree: Any, path: str) -> Iterator[str]:
    """Yield what is wrong with a written answer, with key paths."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from complaints(item, f"{path}[{index}]")
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        if not key.startswith("$"):
            yield from complaints(value, join(path, key))
        elif key not in _MARKED:
            yield f"{join(path, key)}: expected one of {', '.join(_MARKED)}"
        elif len(tree) > 1:
            yield f"{path}: {key} stands with other keys"
        elif not _fits(key, value):
            yield f"{join(path, key)}: expected {_WANTED[key]}, got {shown(value)}"
        elif key == FILLS:
            yield from complaints(value, join(path, key))


def bytes_of(text: Any) -> bytes | None:
    """Return what is written in base64; None: it is not."""
    try:
        return base64.b64decode(text, validate=True) if isinstance(text, str) else None
    except (binascii.Error, ValueError):
        return None


def _undecodable(text: str) -> Raised:
    return Raised(UnicodeDecodeError("utf-8", bytes_of(text) or b"\xff", 0, 1, "invalid start byte"))


_MARKED: Mapping[str, Callable[[Any], Any]] = {
    HANDLE: Handle,
    ERROR: Refusal,
    MEMBER: Member,
    BYTES: bytes_of,
    RAISES: lambda kind: Raised(_EXCEPTIONS[kind]("as recorded")),
    UNDECODABLE: _undecodable,
    FILLS: lambda members: Filled({name: decode(value) for name, value in members.items()}),
}
_WANTED = {
    HANDLE: "the name of a handle",
    ERROR: "a status of the vendor's library",
    BYTES: "base64",
    MEMBER: "the name of a member",
    RAISES: f"one of {', '.join(_EXCEPTIONS)}",
    UNDECODABLE: "base64",
    FILLS: "members by name",
}


def _fits(key: str, value: Any) -> bool:
    if key in (HANDLE, MEMBER):
        return isinstance(value, str) and is_name(value)
    if key == ERROR:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST_STATUS
    if key == RAISES:
        return isinstance(value, str) and value in _EXCEPTIONS
    if key == FILLS:
        return isinstance(value, dict)
    return bytes_of(value) is not None
