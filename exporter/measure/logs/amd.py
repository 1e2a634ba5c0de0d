"""Logs of `amd-smi metric --csv --watch N`, of several releases of ROCm.

A preamble comes first, then a head that begins with timestamp; some releases repeat it, with an empty line, at each
tick. Times are whole seconds. Cells may be lists in quotes. A loose search for "power" finds power_management, which
says ENABLED: columns are known by their exact names.
"""

from collections.abc import Sequence
from datetime import tzinfo

from exporter.measure.logs.cells import moment, number
from exporter.measure.logs.log import Log, LogError
from exporter.measure.logs.table import Row, Table, no_number, timeless_rows
from exporter.measure.records import MOST_JOULES, MOST_WATTS, Identity, Point

_MOST_CELSIUS = 200.0

# By the exact name, the one that is preferred first: the unified reading of MI300 and later, the current one, the mean.
_POWERS = ("socket_power", "current_socket_power", "current_power", "average_socket_power", "power_usage")
_ENERGIES = ("total_energy_consumption",)
_LOADS = ("gfx_activity", "gfx", "gfx_usage", "gfx_util")
_TEMPERATURES = ("hotspot", "hotspot_temperature", "temperature_hotspot", "edge", "edge_temperature")
_LIMITS = ("socket_power_limit", "power_limit", "max_power")


def is_head(cells: Sequence[str]) -> bool:
    names = {_name(cell) for cell in cells}
    return "gpu" in names and not names.isdisjoint((*_POWERS, *_ENERGIES))


def _name(cell: str) -> str:
    return cell.strip().lower()


def read(content: bytes, zone: tzinfo) -> Log:
    """Return the readings; a time that does not say its zone is in `zone`. Raises LogError."""
    table = Table(content, is_head, _name)
    columns = table.columns()
    if "timestamp" not in columns:
        raise LogError(
            "this output of amd-smi has no column timestamp, so it is of one moment: "
            "log with amd-smi metric --power --csv --watch 1"
        )
    there = [name for name in _POWERS if name in columns]
    power = _first(table, there)
    points: list[Point] = []
    gpus: dict[str, Identity] = {}
    timeless = 0
    for row in table.rows():
        at, index = moment(row.get("timestamp"), zone), row.get("gpu") or ""
        if at is None or not index.isdigit():
            timeless += 1
            continue
        key = f"amd{index}"
        if key not in gpus:
            gpus[key] = _identity(row, key, power)
        points.append(_point(row, at, gpus[key].gpu, power))
    whole = bool(points) and all(point.at == int(point.at) for point in points)
    notes = (
        *table.notes(),
        *(no_number(table, there[0]) if power is None and there else ()),
        *timeless_rows(timeless),
    )
    resolution = 1.0 if whole else 0.0
    return Log("amd-smi", tuple(points), tuple(gpus.values()), table.truncated, resolution, notes)


def _first(table: Table, names: Sequence[str]) -> str | None:
    """Return the first of the columns that has a number anywhere."""
    return next(
        (name for name in names if any(number(row.get(name), 0.0, MOST_WATTS) is not None for row in table.rows())),
        None,
    )


def _identity(row: Row, key: str, power: str | None) -> Identity:
    limits = [found for name in _LIMITS if (found := number(row.get(name), 1.0, MOST_WATTS)) is not None]
    average = power == "average_socket_power"
    return Identity(
        gpu=key,
        label=key,
        vendor="amd",
        limit_watts=max(limits, default=None),
        power_kind="average" if average else None,
    )


def _point(row: Row, at: float, key: str, power: str | None) -> Point:
    busy = _value(row, _LOADS, 100.0)
    return Point(
        at=at,
        monotonic=at,
        gpu=key,
        power_watts=None if power is None else number(row.get(power), 0.0, MOST_WATTS),
        counter_joules=_value(row, _ENERGIES, MOST_JOULES),
        utilization_ratio=None if busy is None else busy / 100,
        temperature_celsius=_value(row, _TEMPERATURES, _MOST_CELSIUS),
    )


def _value(row: Row, names: Sequence[str], most: float) -> float | None:
    return next((found for name in names if (found := number(row.get(name), 0.0, most)) is not None), None)
