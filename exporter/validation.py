"""Does a tree of plain values fit a msgspec type? Every mismatch is reported, each with its key path.

msgspec itself stops at the first one. What is wanted of a value stands at the field's type: the bounds of msgspec.Meta,
and in its `extra` the noun to call the value by (`noun`), a function that returns a complaint or None (`check`), and
whether the value is never to be told (`secret`).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")

MAX_PROBLEMS = 50
MAX_SHOWN = 60
_SECRET = re.compile(r"\$2[abxy]?\$|-----BEGIN")
"""A password's hash, or a key in PEM form, wherever in a file it got."""


class ValidationError(Exception):
    """`messages`: one line for each problem."""

    def __init__(self, messages: Iterable[str]) -> None:
        found = list(islice(messages, MAX_PROBLEMS + 1))
        if len(found) > MAX_PROBLEMS:
            found[MAX_PROBLEMS:] = ["and more like these"]
        self.messages = tuple(found)
        super().__init__("\n".join(found))


def convert(tree: object, type_: type[T], problems: Iterable[str] = ()) -> T:
    """Return `tree` as `type_`. Raises ValidationError with `problems` found before and all that are found here."""
    info = inspect.type_info(type_)
    found = list(islice(problems, MAX_PROBLEMS + 1))
    found += islice(_mismatches(tree, info, ""), MAX_PROBLEMS + 1)
    if found:
        raise ValidationError(found)
    return msgspec.convert(_without_empty_sections(tree, info), type_)


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return `, did you mean "x"?` for the nearest of `known`, or nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 -- for who has mistaken a word

    near = get_close_matches(word[:100], list(known), n=1, cutoff=0.6)
    return f', did you mean "{near[0]}"?' if near else ""


def join(path: str, key: str) -> str:
    """Path of `key` below `path`, safe to print."""
    name = key if re.fullmatch(r"[\w.-]{1,60}", key, re.ASCII) else shown(key)
    return f"{path}.{name}" if path else name


def printable(text: str) -> str:
    """Return the text on one line, with escapes for what a terminal would obey."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shown(value: object) -> str:
    """Return a value as it would be written in the file, on one line and short; of a secret nothing."""
    if isinstance(value, str):
        if _SECRET.search(value):
            return '"…"'
        return f'"{printable(value[:MAX_SHOWN])}{"…" if len(value) > MAX_SHOWN else ""}"'
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and value.bit_length() > 64:  # noqa: PLR2004 -- Python may refuse to print a large one
        return "a number of more than 64 bits"
    words = {None: "nothing", True: "true", False: "false"}
    return words[value] if value is None or isinstance(value, bool) else str(value)


def _mismatches(value: object, info: inspect.Type, path: str) -> Iterator[str]:
    if isinstance(info, inspect.UnionType):
        if value is None:
            return
        info = next(member for member in info.types if not isinstance(member, inspect.NoneType))
    extra: Mapping[str, Any] = {}
    if isinstance(info, inspect.Metadata):
        extra, info = info.extra or {}, info.type
    if isinstance(info, inspect.AnyType):  # whatever it holds is looked at by those who read it
        return
    if isinstance(info, inspect.StructType):
        yield from _struct(value, info, path)
    elif isinstance(info, inspect.VarTupleType):
        yield from _list(value, info, path)
    elif isinstance(info, inspect.DictType):
        yield from _mapping(value, info, extra, path)
    elif complaint := _scalar(value, info, extra):
        yield f"{path}: {complaint}"


def _scalar(value: object, info: inspect.Type, extra: Mapping[str, Any]) -> str | None:
    if isinstance(info, inspect.StrType):
        if not isinstance(value, str):
            return "expected text" if extra.get("secret") else f"expected text, got {shown(value)}"
        check: Callable[[str], str | None] | None = extra.get("check")
        return None if check is None else check(value)
    if isinstance(info, inspect.LiteralType):
        fits, wanted = isinstance(value, str) and value in info.values, f"one of {', '.join(map(str, info.values))}"
    elif isinstance(info, inspect.BoolType):
        fits, wanted = isinstance(value, bool), "true or false"
    elif isinstance(info, inspect.IntType | inspect.FloatType):
        fits, wanted = _is_number(value, info), _number(info, extra)
    else:
        raise TypeError(f"fields of type {type(info).__name__} cannot be checked")
    return None if fits else f"expected {wanted}, got {shown(value)}"


def _struct(value: object, info: inspect.StructType, path: str) -> Iterator[str]:
    if value is None:  # a section whose every line is commented out
        value = {}
    if not isinstance(value, dict):
        yield f"{path or 'the file'}: expected options by name, got {shown(value)}"
        return
    fields = {field.encode_name: field for field in info.fields}
    for key, item in value.items():
        if key in fields:
            yield from _mismatches(item, fields[key].type, join(path, key))
        else:
            yield f"{join(path, key)}: unknown option{suggestion(key, fields)}"
    for name, field in fields.items():
        if field.required and name not in value:
            yield f"{join(path, name)}: needed"


def _mapping(value: object, info: inspect.DictType, extra: Mapping[str, Any], path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: expected values by name" + ("" if extra.get("secret") else f", got {shown(value)}")
        return
    for key, item in value.items():
        yield from _mismatches(key, info.key_type, join(path, key))
        yield from _mismatches(item, info.value_type, join(path, key))


def _list(value: object, info: inspect.VarTupleType, path: str) -> Iterator[str]:
    if not isinstance(value, list | tuple):
        yield f"{path}: expected a list, got {shown(value)}"
        return
    low, high = info.min_length or 0, info.max_length
    if len(value) < low or (high is not None and len(value) > high):
        yield f"{path}: expected {_between(low, high)} entries, got {len(value)}"
    for index, item in enumerate(value):
        yield from _mismatches(item, info.item_type, f"{path}[{index}]")


def _is_number(value: object, info: inspect.IntType | inspect.FloatType) -> bool:
    if isinstance(value, bool):
        return False
    if not isinstance(value, int if isinstance(info, inspect.IntType) else int | float):
        return False
    if isinstance(value, float) and math.isnan(value):
        return False
    # An int is compared as it is: it may be too large for a float.
    return (info.ge is None or value >= info.ge) and (info.le is None or value <= info.le)


def _number(info: inspect.IntType | inspect.FloatType, extra: Mapping[str, Any]) -> str:
    noun = extra.get("noun", "a whole number" if isinstance(info, inspect.IntType) else "a number")
    return f"{noun} {_between(info.ge, info.le)}".rstrip()


def _between(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"from {low:g} to {high:g}"
    if low is not None:
        return f"of at least {low:g}"
    return "" if high is None else f"of at most {high:g}"


def _without_empty_sections(tree: object, info: inspect.Type) -> object:
    if isinstance(info, inspect.VarTupleType) and isinstance(tree, list | tuple):
        return [_without_empty_sections(item, info.item_type) for item in tree]
    if not isinstance(info, inspect.StructType):
        return tree
    if not isinstance(tree, dict):
        return {} if tree is None else tree
    types = {field.encode_name: field.type for field in info.fields}
    return {key: _without_empty_sections(item, types[key]) for key, item in tree.items()}
