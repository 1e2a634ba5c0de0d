"""YAML as people expect it: text to plain values, refusing what would be misread.

The numbers, booleans and nulls are those of YAML 1.2: `1e3` is a number, while `yes`, `012` as octal and `1:30` as
ninety are not what PyYAML's YAML 1.1 makes of them. Duplicate keys, aliases and deep nesting are refused.
"""

import errno
import os
import re
import select
import stat
import time
from pathlib import Path
from typing import Any

import yaml

from exporter.validation import join, printable, shown

MAX_BYTES = 1 << 20
MAX_DEPTH = 32
MAX_VALUES = 10_000
"""Keys count as well. It takes a quarter of a second to read so many, in which the daemon does nothing else."""
MANY_VALUES = 200_000
"""Of a file that may hold traces, and that the daemon does not read."""
MAX_SECONDS = 5.0
"""For a pipe to deliver; one that nobody writes into would be waited for without end."""

_PREFIX = "tag:yaml.org,2002:"
_WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
_PATTERNS: tuple[tuple[str, str, str], ...] = (
    ("null", r"(?:~|null|Null|NULL|)", "~nN\0"),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)", "-+0123456789"),
    (
        "float",
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))",
        "-+0123456789.",
    ),
)


class YamlError(Exception):
    """The text is not YAML that is accepted here; one line with the place."""


class Document:
    """`value`: the plain value; `problems`: one line for each duplicate key and each value of a foreign type."""

    def __init__(self, node: yaml.Node | None) -> None:
        self.problems: list[str] = []
        self.value: Any = None if node is None else self._value(node, "")

    def _value(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self.problems.append(f"{path or 'the file'}: a key is not a name (line {line})")
                continue
            key = key_node.value
            where = join(path, key)
            if key in result:
                self.problems.append(f"{where}: given twice (line {line})")
                continue
            result[key] = self._value(value_node, where)
        return result

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        tag, text = node.tag.removeprefix(_PREFIX), node.value
        if tag == "str":
            return text
        try:
            return _convert(tag, text)
        except (KeyError, ValueError):
            self.problems.append(f"{path or 'the file'}: cannot be read as {shown(node.tag)}: {shown(text)}")
            return None


def read(path: str | Path, *, again: bool = False) -> bytes:
    """Return what the file holds; of one that `load` refuses for its size only the beginning.

    `again`: it will be read more than once, which pipes and devices do not stand. Raises OSError, ValueError where no
    file can have the name.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        if again and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise OSError(errno.EINVAL, "not a regular file, and it is read more than once")
        return _read(descriptor)
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    until = time.monotonic() + MAX_SECONDS
    data = bytearray()
    while len(data) <= MAX_BYTES:
        if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"its end did not come within {MAX_SECONDS:g} s")
        if not (piece := os.read(descriptor, MAX_BYTES + 1 - len(data))):
            break
        data += piece
    return bytes(data)


def load(data: bytes, *, most: int = MAX_VALUES) -> Document:
    """Read one YAML document of at most so many values. Raises YamlError where it cannot be read at all."""
    if len(data) > MAX_BYTES:
        raise YamlError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise YamlError(f"not UTF-8 text (byte {e.start})") from None
    try:
        loader = _Loader(text)
        loader.left = most
        try:
            node = loader.get_single_node()
        except (ValueError, OverflowError):  # PyYAML makes characters and versions of numbers without looking at them
            raise YamlError(_place(loader.get_mark()) + "there is no such character or number") from None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as e:
        raise YamlError(_describe(e)) from None
    except yaml.reader.ReaderError as e:
        before = text[: e.position]
        place = yaml.Mark("", e.position, before.count("\n"), e.position - before.rfind("\n") - 1, None, 0)
        raise YamlError(f"{_place(place)}the character {text[e.position]!a} is not allowed") from None
    except yaml.YAMLError as e:
        raise YamlError(printable(" ".join(str(e).split()))) from None
    return Document(node)


def _convert(tag: str, text: str) -> Any:
    if tag in ("null", "bool"):
        return _WORDS[text.lower()]
    if tag == "int":
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if tag == "float":
        return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
    raise KeyError(tag)


def _describe(error: yaml.MarkedYAMLError) -> str:
    what = " ".join(str(part) for part in (error.context, error.problem) if part)
    # The name of an anchor or a handle may be a secret that lost its quotes.
    what = re.sub(r"(anchor|alias|handle) (?:'.*?'|\".*?\")", r"\1", what)
    return _place(error.problem_mark or error.context_mark) + printable(what or "not YAML")


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


class _Loader(yaml.SafeLoader):
    # A mapping of its own: add_implicit_resolver would change it for everyone who shares it.
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 -- as PyYAML declares it
    _depth = 0
    left = 0
    """Values that may still come."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call] # not annotated in PyYAML's stubs
        if isinstance(event, yaml.AliasEvent):
            raise YamlError(_place(event.start_mark) + "aliases (*name) are not supported")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise YamlError(_place(event.start_mark) + f"nested deeper than {MAX_DEPTH} levels")
        self.left -= 1
        if self.left < 0:
            raise YamlError(_place(event.start_mark) + "there are too many values before this one")
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


for _tag, _pattern, _first in _PATTERNS:
    for _character in _first:
        _Loader.yaml_implicit_resolvers.setdefault("" if _character == "\0" else _character, []).append(
            (_PREFIX + _tag, re.compile(_pattern + r"\Z"))
        )
