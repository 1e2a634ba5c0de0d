"""What answers and arguments of a vendor's package are in plain values: structs as mappings, handles by their names."""

import base64
import ctypes
import enum
import re
from collections.abc import Callable
from typing import Any

from exporter.captures.answers import BYTES, HANDLE, MEMBER, Handle, Member


def plain(answer: Any, name: Callable[[int], str]) -> Any:
    """Return `answer` as a capture has it; `name` names the handle that leads to an address.

    Raises TypeError for what cannot be written down.
    """
    address = address_of(answer)
    if address is not None:
        return {HANDLE: name(address)}
    if isinstance(answer, enum.Enum):
        return {MEMBER: answer.name}
    if answer is None or isinstance(answer, bool | int | float | str):
        return _base(answer)
    if isinstance(answer, bytes | bytearray):
        return {BYTES: base64.b64encode(answer).decode("ascii")}
    if isinstance(answer, ctypes.Array | list | tuple):
        return [plain(item, name) for item in answer]
    return {str(key): plain(value, name) for key, value in _members(answer).items() if not str(key).startswith("_")}


def address_of(value: Any) -> int | None:
    """Return where a handle of either vendor leads; None: it is no handle, or leads nowhere."""
    if isinstance(value, Handle):  # of a replay
        return hash(value)
    if isinstance(value, ctypes.c_void_p):
        return value.value
    if isinstance(value, ctypes._Pointer) and struct_of(value) is None:  # noqa: SLF001 -- ctypes has no other name for it
        return ctypes.cast(value, ctypes.c_void_p).value
    return None


def struct_of(argument: Any) -> Any:
    """Return the struct that a call is given to fill in, itself or by a pointer to it; None: it is none."""
    if isinstance(argument, ctypes._Pointer) and argument:  # noqa: SLF001 -- as above
        argument = argument.contents
    # What handles point to has no members.
    return argument if isinstance(argument, ctypes.Structure) and getattr(argument, "_fields_", None) else None


def in_call(argument: Any) -> str:
    """Return an argument as a capture spells it, of a struct the name of its class. Raises TypeError for the rest."""
    if isinstance(argument, enum.Enum | Handle | Member):
        return argument.name
    if isinstance(argument, bytes):
        argument = argument.decode("utf-8", "replace")
    if isinstance(argument, list | tuple):
        return " ".join(map(in_call, argument))
    if isinstance(argument, bool | int | float) or argument is None:
        return str(argument)
    if isinstance(argument, str):
        return re.sub(r"[(),]", "_", argument)
    struct = struct_of(argument)
    if struct is not None:
        return type(struct).__name__
    raise TypeError(f"{type(argument).__name__} cannot be an argument of a call in a capture")


def _members(answer: Any) -> dict[Any, Any]:
    if isinstance(answer, dict):
        return answer
    if isinstance(answer, ctypes.Structure | ctypes.Union):
        return {field[0]: getattr(answer, field[0]) for field in answer._fields_}
    return dict(vars(answer))  # pynvml's own objects; TypeError: nothing that could be written down


def _base(value: Any) -> Any:
    """Return a number or text of a class of its own, such as a member of an enumeration, as a plain one."""
    kinds = (bool, int, float, str)
    return value if value is None else next(kind(value) for kind in kinds if isinstance(value, kind))
