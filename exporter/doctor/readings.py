"""Which readings one GPU gives, from where, and why it does not give the others."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from exporter.doctor.look import Broken
from exporter.fleet.groups import FIELDS
from exporter.model import DeviceSnapshot, Group

_GROUPS = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES, Group.PROFILING)
_ABOUT_ANOTHER = frozenset(
    {"power_kind", "power_window_seconds", "power_scope", "energy_counter_scope", "energy_counter_range_joules"}
    | {"energy_counter_at"}
)
"""What other readings are, and no readings themselves."""
_UNITS = {"watts": "W", "joules": "J", "celsius": "°C", "seconds": "s"}
NOT_TOLD = "not told by this device or its driver"
FAILED = "the driver answered with an error"
REJECTED = "the value was outside what is physically possible"
_MOST_SHOWN = 4


class Row(NamedTuple):
    reading: str
    """Field of Sample."""
    group: Group
    value: str
    """In words; empty: there is none."""
    source: str
    reason: str
    """Why there is none, or why it is not to be relied on; empty: all is well."""


def rows(device: DeviceSnapshot, broken: Broken) -> Iterator[Row]:
    """Yield a row for each reading that a GPU may have; of groups that were not read there is none."""
    for group in _GROUPS:
        if group not in device.sample.taken_at:
            continue
        for name in FIELDS[group]:
            if name not in _ABOUT_ANOTHER:
                yield _row(device, group, name, broken)


def _row(device: DeviceSnapshot, group: Group, name: str, broken: Broken) -> Row:
    value = _words(name, getattr(device.sample, name))
    source = getattr(device, "sources", {}).get(name, device.provider) if value else ""
    reason = FAILED if name in broken.failed else REJECTED if name in broken.rejected else ""
    return Row(name, group, value, source, reason or ("" if value else NOT_TOLD))


def _words(name: str, value: Any) -> str:
    if value is None or (isinstance(value, Mapping) and not value):
        return ""
    if isinstance(value, Mapping):
        shown = [f"{key} {_words(name, item)}" for key, item in list(value.items())[:_MOST_SHOWN]]
        return ", ".join(shown) + (f" and {len(value) - _MOST_SHOWN} more" if len(value) > _MOST_SHOWN else "")
    if isinstance(value, tuple):
        return str(len(value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(name, float(value))
    return str(getattr(value, "state", value))


def _number(name: str, value: float) -> str:
    unit = name.rpartition("_")[2]
    if unit == "ratio":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.1f} MiB"
    if unit == "hertz":
        return f"{value / 1e6:.0f} MHz"
    return f"{value:.10g} {_UNITS.get(unit, '')}".rstrip()
