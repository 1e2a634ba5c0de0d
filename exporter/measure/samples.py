"""samples.csv: every reading of a measurement, one row each, written so that whatever ends the run loses none.

The first line names format and version, the second the columns. A cell without a value is empty. A row counts when its
line is ended: what a crash or a full disk left of the last one is dropped by the reader, which says so.
"""

import csv
import io
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, NamedTuple

from exporter.measure.records import MOST_SECONDS, Point
from exporter.model import GpuState

VERSION_LINE = "# gpu-exporter samples 1"
COLUMNS = (
    "unix_seconds",
    "monotonic_seconds",
    "gpu",
    "state",
    "power_watts",
    "energy_counter_joules",
    "utilization_ratio",
    "temperature_celsius",
)
HEADER = f"{VERSION_LINE}\n{','.join(COLUMNS)}\n"


class SamplesError(ValueError):
    """The text is not a samples.csv of a version that is known; says where."""


class Samples(NamedTuple):
    points: tuple[Point, ...]
    truncated: bool
    """Whether an unfinished last row was dropped."""


class SampleWriter:
    """Writes rows to a text file that is opened with newline="", and keeps none of them back."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        file.write(HEADER)
        file.flush()

    def write(self, points: Sequence[Point]) -> None:
        """Write rows, all in one piece; raises OSError when the disk does not take them."""
        self._file.write("".join(map(row, points)))
        self._file.flush()


def row(point: Point) -> str:
    """Return the line of a reading, with its end, as `csv.writer` would give it."""
    return (
        f"{point.at:.6f},{point.monotonic:.6f},{_quoted(point.gpu)},{point.state},"
        f"{_cell(point.power_watts)},{_cell(point.counter_joules)},"
        f"{_cell(point.utilization_ratio)},{_cell(point.temperature_celsius)}\n"
    )


@lru_cache(maxsize=1024)
def _quoted(key: str) -> str:
    """Return the cell of a GPU's key: of all cells it alone may need quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow((key, ""))
    return line.getvalue().removesuffix(",")


def read_samples(content: bytes) -> Samples:
    """Return the readings of a samples.csv that may be cut anywhere; raises SamplesError."""
    whole = content[: content.rfind(b"\n") + 1]
    truncated = len(whole) < len(content) or whole.count(b"\n") < HEADER.count("\n")
    try:
        text = whole.decode()
    except UnicodeDecodeError as error:
        line = whole.count(b"\n", 0, error.start) + 1
        raise SamplesError(f"line {line}: not UTF-8") from None
    lines = text.splitlines()
    expected = HEADER.splitlines()
    for number, (found, wanted) in enumerate(zip(lines, expected, strict=False), 1):
        if found != wanted:
            raise SamplesError(f"line {number}: expected {wanted!r}, found {found[:80]!r}")
    points = tuple(_point(cells, number) for number, cells in enumerate(csv.reader(lines[2:]), 3))
    return Samples(points, truncated)


def _point(cells: list[str], number: int) -> Point:
    if len(cells) != len(COLUMNS):
        raise SamplesError(f"line {number}: expected {len(COLUMNS)} cells, found {len(cells)}")
    at, monotonic, gpu, state, *readings = cells
    if not gpu:
        raise SamplesError(f"line {number}: gpu is empty")
    if state not in tuple(GpuState):
        raise SamplesError(f"line {number}: state: {state[:40]!r} is none of {', '.join(GpuState)}")
    watts, joules, utilization, celsius = (
        None if not cell else _number(cell, name, number) for cell, name in zip(readings, COLUMNS[4:], strict=True)
    )
    return Point(
        at=_time(at, COLUMNS[0], number),
        monotonic=_time(monotonic, COLUMNS[1], number),
        gpu=gpu,
        state=GpuState(state),
        power_watts=watts,
        counter_joules=joules,
        utilization_ratio=utilization,
        temperature_celsius=celsius,
    )


def _time(cell: str, column: str, line: int) -> float:
    value = _number(cell, column, line)
    if not 0 <= value < MOST_SECONDS:
        raise SamplesError(f"line {line}: {column}: {cell[:40]!r} is no time")
    return value


def _number(cell: str, column: str, line: int) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SamplesError(f"line {line}: {column}: {cell[:40]!r} is not a number")
    return value


def _cell(value: float | None) -> str:
    return "" if value is None else repr(value)
