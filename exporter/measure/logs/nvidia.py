"""Logs of `nvidia-smi --query-gpu=timestamp,...,power.draw,... --format=csv`, with and without units, in a loop."""

from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Literal, NamedTuple

from exporter.measure.logs.cells import moment, number
from exporter.measure.logs.log import Log, LogError
from exporter.measure.logs.table import Row, Table, no_number, timeless_rows
from exporter.measure.records import MOST_WATTS, Identity, Point
from exporter.model import GpuState

_MOST_CELSIUS = 200.0


class _Power(NamedTuple):
    column: str
    kind: Literal["average", "instant"] | None
    window: float | None


# The mean over a second is best for joules. What the plain one is depends on GPU and driver.
_POWERS = (
    _Power("power.draw.average", "average", 1.0),
    _Power("power.draw", None, None),
    _Power("power.draw.instant", "instant", 0.0),
)
_NAMES = ("uuid", "gpu_uuid", "index", "pci.bus_id", "gpu_bus_id", "serial", "gpu_serial")
"""What tells GPUs apart, the best first."""
_LIMITS = ("power.limit", "enforced.power.limit", "power.default_limit")
_LOST = ("is lost", "requires reset")


def is_head(cells: Sequence[str]) -> bool:
    names = {_name(cell) for cell in cells}
    return any(power.column in names for power in _POWERS)


def _name(cell: str) -> str:
    """Return a column without its unit: power.draw of power.draw [W]."""
    return cell.partition("[")[0].strip().lower()


def read(content: bytes, zone: tzinfo) -> Log:
    """Return the readings; times of nvidia-smi are those of the host, in its `zone`. Raises LogError."""
    units: dict[str, str] = {}

    def name(cell: str) -> str:
        units[_name(cell)] = cell.partition("[")[2].strip(" ]")
        return _name(cell)

    table = Table(content, is_head, name)
    columns = table.columns()
    if "timestamp" not in columns:
        raise LogError("this log of nvidia-smi has no column timestamp: ask for it with --query-gpu=timestamp,...")
    known = next((name for name in _NAMES if name in columns), None)
    watts = _Watts(units)
    power, notes = _power(table, columns, watts)
    points: list[Point] = []
    gpus: dict[str, Identity] = {}
    timeless = 0
    for row in table.rows():
        at = moment(row.get("timestamp"), zone)
        key = _key(row, known)
        if at is None or key is None:
            timeless += 1
            continue
        if key not in gpus:
            gpus[key] = _identity(row, key, power, watts)
        points.append(_point(row, at, gpus[key].gpu, power, watts))
    if known is None and len({point.at for point in points}) < len(points):
        raise LogError("this log of nvidia-smi does not tell GPUs apart: ask for index or uuid in --query-gpu")
    return Log(
        "nvidia-smi",
        tuple(points),
        tuple(gpus.values()),
        table.truncated,
        notes=(*table.notes(), *notes, *timeless_rows(timeless)),
    )


class _Watts(NamedTuple):
    """Reads cells of power in the unit that the cell has, else its column."""

    units: Mapping[str, str]

    def of(self, row: Row, column: str) -> float | None:
        return number(row.get(column), 0.0, MOST_WATTS, self.units.get(column, ""))


def _power(table: Table, columns: Sequence[str], watts: _Watts) -> tuple[_Power, Sequence[str]]:
    """Return the best column that has a number anywhere, else the best one, and a note that it has none."""
    there = [power for power in _POWERS if power.column in columns]
    for power in there:
        if any(watts.of(row, power.column) is not None for row in table.rows()):
            return power, ()
    return there[0], no_number(table, there[0].column)


def _key(row: Row, known: str | None) -> str | None:
    if known is None:
        return "nvidia0"
    value = row.get(known) or ""
    if not value or value.startswith("["):
        return None
    return f"nvidia{value}" if known == "index" else value


def _identity(row: Row, key: str, power: _Power, watts: _Watts) -> Identity:
    index, address = row.get("index"), row.get("pci.bus_id") or row.get("gpu_bus_id")
    limits = [found for name in _LIMITS if (found := watts.of(row, name)) is not None]
    return Identity(
        gpu=key,
        label=f"nvidia{index}" if index else None,
        vendor="nvidia",
        model=_text(row.get("name") or row.get("gpu_name")),
        pci_address=_text(address),
        serial=_text(row.get("serial") or row.get("gpu_serial")),
        driver_version=_text(row.get("driver_version")),
        limit_watts=max(limits, default=None),
        power_kind=power.kind,
        power_window_seconds=power.window,
    )


def _text(cell: str | None) -> str | None:
    return None if not cell or cell.startswith("[") else cell


def _point(row: Row, at: float, key: str, power: _Power, watts: _Watts) -> Point:
    busy = number(row.get("utilization.gpu"), 0.0, 100.0)
    lost = any(word in (row.get(power.column) or "").lower() for word in _LOST)
    return Point(
        at=at,
        monotonic=at,
        gpu=key,
        state=GpuState.LOST if lost else GpuState.OK,
        power_watts=watts.of(row, power.column),
        utilization_ratio=None if busy is None else busy / 100,
        temperature_celsius=number(row.get("temperature.gpu"), 0.0, _MOST_CELSIUS),
    )
