"""How much of one sample is kept: no provider, however wrong, makes the parent hold or show without end.

What a driver gives stays far below; what is beyond is counted by the caller.
"""

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import msgspec

from exporter.fleet.links import MOST_LINKS
from exporter.metrics import REASONS
from exporter.model import Sample

MOST_LISTED = 1024
"""Devices of one enumeration that are looked at."""
MOST_PROCESSES = 10_000
"""Of one device."""
MOST_PARTITIONS = 64
"""Of one device."""
MOST_NAMES = 64
"""Of one group of readings by name, such as temperatures by sensor."""

_NOTHING: Mapping[str, int] = MappingProxyType({})
_REASONS = frozenset(REASONS)
_BY_NAME = tuple(
    field.name
    for field in msgspec.structs.fields(Sample)
    if field.default_factory is dict and field.name not in ("taken_at", "read_seconds")
)
_BY_REASON = ("throttled", "throttle_seconds")
"""Their seconds are counted for ever by reason, so that only known reasons count."""
_ROWS = {
    "processes": (MOST_PROCESSES, "too_many_processes"),
    "partitions": (MOST_PARTITIONS, "too_many_partitions"),
    "links": (MOST_LINKS, "too_many_links"),
}
_named = attrgetter(*_BY_NAME)


def bounded(sample: Sample) -> tuple[Sample, Mapping[str, int]]:
    """Return what is kept of the sample, and how much was left out, by name for `gpu_exporter_read_failures_total`."""
    changes: dict[str, Any] = {}
    left_out: dict[str, int] = {}
    for name, (most, failure) in _ROWS.items():
        rows = getattr(sample, name)
        if rows is not None and len(rows) > most:
            changes[name] = rows[:most]
            left_out[failure] = len(rows) - most
    if max(map(len, _named(sample))) > MOST_NAMES:
        for name, readings in zip(_BY_NAME, _named(sample), strict=True):
            if len(readings) > MOST_NAMES:
                changes[name] = dict(sorted(readings.items())[:MOST_NAMES])
                left_out["too_many_names"] = left_out.get("too_many_names", 0) + len(readings) - MOST_NAMES
    for name in _BY_REASON:
        reasons = changes.get(name, getattr(sample, name))
        if not reasons.keys() <= _REASONS:
            changes[name] = {reason: value for reason, value in reasons.items() if reason in _REASONS}
            left_out["unknown_reason"] = left_out.get("unknown_reason", 0) + len(reasons) - len(changes[name])
    if not changes:
        return sample, _NOTHING
    return msgspec.structs.replace(sample, **changes), left_out
