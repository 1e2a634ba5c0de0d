"""The rows of a CSV that a tool printed in a loop: with a preamble, heads in between, messages, and a cut end."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence

Row = Mapping[str, str]
"""Cells by the name of their column, both stripped."""
_SHOWN = 120


class Table:
    """Reads what ends with a newline; what follows the last one is a half row.

    Rows are made of the text each time that they are asked for: a day of eight GPUs is millions of them.
    """

    def __init__(
        self, content: bytes, is_head: Callable[[Sequence[str]], bool], name: Callable[[str], str] = str
    ) -> None:
        """`is_head` tells a line's cells apart from rows; `name` makes a column's name of its cell in the head."""
        self._content = content
        self._is_head = is_head
        self._name = name
        self._end = content.rfind(b"\n") + 1
        self.truncated = self._end < len(content)

    @property
    def has_head(self) -> bool:
        return next(self._lines(), None) is not None

    def columns(self) -> tuple[str, ...]:
        """Return those of all heads, in the order of their first appearance."""
        return tuple(dict.fromkeys(column for head, cells, _ in self._lines() if cells is None for column in head))

    def rows(self) -> Iterator[Row]:
        for head, cells, _ in self._lines():
            if cells is not None and len(cells) == len(head):
                yield dict(zip(head, cells, strict=True))

    def notes(self) -> list[str]:
        """Tell of lines after the first head that are neither a head nor a row, such as errors of the driver."""
        count, first = 0, ""
        for head, cells, line in self._lines():
            if cells is not None and len(cells) != len(head):
                count, first = count + 1, first or line[:_SHOWN]
        if not count:
            return []
        lines = (
            "1 line of the log is no row and was" if count == 1 else f"{count} lines of the log are no rows and were"
        )
        return [f"{lines} left out, {'it says' if count == 1 else 'the first'}: {first}."]

    def _lines(self) -> Iterator[tuple[tuple[str, ...], Sequence[str] | None, str]]:
        """Yield from the first head on: names of the head that holds, cells (None: it is the head), and the line."""
        head: tuple[str, ...] | None = None
        for line in _stripped(self._content, self._end):
            cells = _cells(line)
            if self._is_head(cells):
                head = tuple(self._name(cell) for cell in cells)
                yield head, None, line
            elif head is not None:
                yield head, cells, line


def _stripped(content: bytes, end: int) -> Iterator[str]:
    # Only newlines end a row: splitlines() knows a dozen more characters that do.
    start = 0
    while start < end:
        stop = content.index(b"\n", start)
        if stripped := content[start:stop].decode("utf-8", errors="replace").strip():
            yield stripped
        start = stop + 1


def _cells(line: str) -> Sequence[str]:
    if '"' not in line:
        return [cell.strip() for cell in line.split(",")]
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error:
        return ()


def no_number(table: Table, column: str) -> Sequence[str]:
    """Say what stands in a column that has no number that can be used; nothing, if the table has no rows."""
    first = next((row[column] for row in table.rows() if column in row), None)
    return () if first is None else (f"{column} has no number that can be used; the first of its cells is {first!r}.",)


def timeless_rows(count: int) -> Sequence[str]:
    rows = "1 row of the log has" if count == 1 else f"{count} rows of the log have"
    return (f"{rows} no time or no GPU and {'was' if count == 1 else 'were'} left out.",) if count else ()
