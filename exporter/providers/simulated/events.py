"""Errors that a simulated driver reports: when each happens, and what happened between two reads."""

import math
from collections import Counter
from collections.abc import Iterator

from exporter.model import ErrorEvent
from exporter.providers.simulated.device import Row, SimulatedDevice
from exporter.providers.simulated.physics import Window
from exporter.providers.simulated.schema import FaultSpec

_KINDS = {"nvidia": "xid", "amd": "ras"}
"""What the vendor's driver reports, unless the scenario says otherwise."""
_SEVERITIES = ("non_fatal_uncorrected", "fatal", "non_fatal_corrected")
"""Of a `ras` error, whose code is one of these in AMD's records."""
_ALWAYS = Window(0.0, math.inf, 0.0, 0.0)


def event_rows(specs: tuple[FaultSpec, ...], vendor: str) -> Iterator[Row]:
    """Yield a row for each error: it happens at `at`, and again each `every` seconds before `until`."""
    for spec in specs:
        if spec.kind == "event":
            numbers = {
                "code": float(spec.code or 0),
                "at": spec.from_seconds,
                "every": spec.every_seconds or 0.0,
                "until": spec.window.end,
            }
            yield Row("event", _ALWAYS, {"kind": spec.event or _KINDS[vendor]}, numbers)


def kinds(device: SimulatedDevice) -> tuple[str, ...]:
    """Return the kinds of errors that the device is listened to for."""
    told = {row.texts["kind"] for row in device.rows if row.kind == "event"}
    if device.vendor == "nvidia" and device.numbers.get("event_types"):
        told.add(_KINDS["nvidia"])
    return tuple(sorted(told))


def happened(device: SimulatedDevice, since: float, until: float) -> tuple[ErrorEvent, ...]:
    """Return what happened after `since` and up to `until`, counted by kind and code."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in device.rows:
        if row.kind == "event":
            counts[row.texts["kind"], _code(row)] += _times(row, until) - _times(row, since)
    return tuple(ErrorEvent(kind=kind, code=code, count=count) for (kind, code), count in counts.items() if count)


def _code(row: Row) -> str:
    number = int(row.numbers["code"])
    if row.texts["kind"] == "ras" and number < len(_SEVERITIES):
        return _SEVERITIES[number]
    return str(number)


def _times(row: Row, until: float) -> int:
    """Return how often it happened up to and with `until`."""
    at, every, end = row.numbers["at"], row.numbers["every"], row.numbers["until"]
    if until < at:
        return 0
    if not every:
        return 1
    times = math.floor((until - at) / every) + 1
    return min(times, math.ceil((end - at) / every)) if math.isfinite(end) else times
