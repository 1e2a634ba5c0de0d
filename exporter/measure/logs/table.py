"""The rows of a CSV that a tool printed in a loop: with a preamble, heads in between, messages, and a cut end."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

Row = Mapping[str, str]
"""Cells by the name of their column, both stripped."""


class Table(NamedTuple):
    columns: tuple[str, ...]
    """Of all heads, in the order of their first appearance."""
    rows: tuple[Row, ...]
    messages: tuple[str, ...]
    """Lines after the first head that are neither a head nor a row, such as errors of the driver."""
    truncated: bool


def read_table(content: bytes, is_head: Callable[[Sequence[str]], bool], name: Callable[[str], str]) -> Table:
    """Read what ends with a newline; what follows the last one is a half row.

    `is_head` tells a line's cells apart from rows; `name` makes a column's name of its cell in the head.
    """
    whole = content[: content.rfind(b"\n") + 1]
    head: tuple[str, ...] = ()
    columns: dict[str, None] = {}
    rows: list[Row] = []
    messages: list[str] = []
    for line in _lines(whole):
        cells = _cells(line)
        if is_head(cells):
            head = tuple(name(cell) for cell in cells)
            columns |= dict.fromkeys(head)
        elif not head:
            continue
        elif len(cells) == len(head):
            rows.append(dict(zip(head, cells, strict=True)))
        else:
            messages.append(line)
    return Table(tuple(columns), tuple(rows), tuple(messages), len(whole) < len(content))


def _lines(content: bytes) -> Iterator[str]:
    # Only newlines end a row: splitlines() knows a dozen more characters that do.
    for line in content.decode("utf-8-sig", errors="replace").split("\n"):
        if stripped := line.strip():
            yield stripped


def _cells(line: str) -> tuple[str, ...]:
    try:
        return tuple(cell.strip() for cell in next(csv.reader([line], skipinitialspace=True)))
    except csv.Error:
        return ()
