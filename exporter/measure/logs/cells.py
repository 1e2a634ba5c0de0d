"""What a cell of a log says: a number with or without its unit, or a time in one of the ways of writing it."""

import math
import re
from datetime import datetime, tzinfo

from exporter.measure.records import MOST_SECONDS

_NUMBER = re.compile(r"([-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)\s*([A-Za-z%°]*)")
_VALUE = re.compile(r"['\"]value['\"]\s*:\s*([-+]?\d+(?:\.\d*)?)")
"""Of the records {'value': 356, 'unit': 'W'} that amd-smi has in its other forms, and at times in this one."""
_EPOCH = re.compile(r"\d{9,}(?:\.\d+)?")
_NANOSECONDS_FROM = 1e17
_SCALES = {"mW": 1e-3, "kW": 1e3, "mJ": 1e-3, "kJ": 1e3}


def number(cell: str | None, low: float, high: float, unit: str = "") -> float | None:
    """Return the number in W, J, %, or whatever the unit is without its prefix; None: there is none within the bounds.

    `unit`: of the column, for cells that have none.
    Everything that is not a number, such as [N/A], [Unknown Error] or nothing, means that there was no reading.
    """
    if not cell:
        return None
    found = _NUMBER.fullmatch(cell)
    if found is None:
        found = _VALUE.search(cell)
        value = None if found is None else float(found[1])
    else:
        value = float(found[1]) * _SCALES.get(found[2] or unit, 1.0)
    return value if value is not None and low <= value <= high else None


def moment(cell: str | None, zone: tzinfo) -> float | None:
    """Return Unix seconds; a time that does not say its zone is in `zone`. None: it is no time."""
    if not cell:
        return None
    if _EPOCH.fullmatch(cell):
        value = float(cell)
        if value >= _NANOSECONDS_FROM:
            value /= 1e9
        elif value >= MOST_SECONDS:
            value /= 1e3
        return value if value < MOST_SECONDS else None
    try:
        # nvidia-smi writes 2026/11/30 15:22:01.123, which is ISO 8601 but for the slashes.
        time = datetime.fromisoformat(cell.replace("/", "-"))
        stamp = (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None
    return stamp if math.isfinite(stamp) else None
