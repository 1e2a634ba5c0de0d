"""One reading out of what several providers read: that of the first that has it, in order of preference."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from exporter.fleet import groups
from exporter.model import Device, Group, Sample

_TOGETHER = (
    ("power_watts", "power_kind", "power_window_seconds", "power_scope"),
    (
        *("energy_counter_joules", "energy_counter_scope", "energy_counter_range_joules"),
        "energy_counter_at",
    ),
    ("memory_used_bytes", "memory_size_bytes", "memory_reserved_bytes"),
    ("system_memory_used_bytes", "system_memory_size_bytes"),
    ("memory_visible_used_bytes", "memory_visible_size_bytes"),
    ("throttled", "throttle_seconds"),
    ("processes", "process_counts"),
)
"""Readings that mean something beside each other only, so that one provider gives all of them: the first that has the
one that is named first, else the first that has any."""
_BY_NAME = frozenset({"engine_utilization_ratio", "temperature_celsius", "temperature_limit_celsius", "clock_hertz"})
"""Readings each name of which stands for itself. Counters by name are taken from one provider as a whole."""


class _Unit(NamedTuple):
    places: tuple[int, ...]
    """Of its fields among those of the group."""
    by_name: bool


def _units(names: tuple[str, ...]) -> tuple[_Unit, ...]:
    together = [unit for unit in _TOGETHER if unit[0] in names]
    alone = [(name,) for name in names if not any(name in unit for unit in together)]
    return tuple(_Unit(tuple(map(names.index, unit)), unit[0] in _BY_NAME) for unit in (*together, *alone))


_UNITS: Mapping[Group, tuple[_Unit, ...]] = MappingProxyType(
    {group: _units(names) for group, names in groups.FIELDS.items()}
)
_VALUES: Mapping[Group, Any] = MappingProxyType({group: attrgetter(*names) for group, names in groups.FIELDS.items()})
_IDENTITY = tuple(name for name in Device.__struct_fields__ if name not in ("vendor", "key"))

Chosen = tuple[tuple[int, ...], ...]
"""For each unit of a group, the parts that it is from: one, or several of a reading by name."""


class Part(NamedTuple):
    """What one provider read of a group."""

    provider: str
    sample: Sample

    def source(self, name: str) -> str:
        """Return where it has a reading from: its own name, and which of its sources if it has several."""
        source = self.sample.sources.get(name)
        return self.provider if source is None else f"{self.provider}/{source}"


def merge(group: Group, parts: Sequence[Part]) -> tuple[dict[str, Any], Chosen]:
    """Return the fields of a group and where they are from; `parts` in order of preference, at least one."""
    names = groups.FIELDS[group]
    rows = [_VALUES[group](part.sample) for part in parts]
    preferred = rows[0]
    fields = dict(zip(names, preferred, strict=True))
    chosen = []
    for places, by_name in _UNITS[group]:
        place = places[0]
        if by_name:
            name = names[place]
            fields[name], needed = _by_name([row[place] for row in rows])
            chosen.append(needed)
            continue
        value = preferred[place]
        index = 0 if value is not None and value != {} else _first(rows, places)
        if index:
            fields |= {names[each]: rows[index][each] for each in places}
        chosen.append((index,))
    return fields, tuple(chosen)


def sources(group: Group, parts: Sequence[Part], chosen: Chosen) -> Mapping[str, str]:
    """Return where each field is from; of readings by name that several give all of them, with a plus between."""
    names = groups.FIELDS[group]
    return {
        names[place]: "+".join(parts[index].source(names[place]) for index in indices)
        for (places, _), indices in zip(_UNITS[group], chosen, strict=True)
        for place in places
    }


def one_of_all(group: Group) -> Chosen:
    """Return what is chosen of a group that one provider has read."""
    return ((0,),) * len(_UNITS[group])


def has(value: object) -> bool:
    """Tell whether it is a reading: zero is one, and so is an empty list, which says that there are none."""
    return value is not None and value != {}


def identity(key: str, devices: Sequence[Device]) -> Device:
    """Return the identity of the card with this key out of what providers say of it, in order of preference."""
    first, *others = devices
    filled: dict[str, Any] = {} if first.key == key else {"key": key}
    for name in _IDENTITY:
        if has(getattr(first, name)):
            continue
        value = next((value for device in others if has(value := getattr(device, name))), None)
        if value is not None:
            filled[name] = value
    return msgspec.structs.replace(first, **filled) if filled else first


def _first(rows: Sequence[tuple[Any, ...]], places: tuple[int, ...]) -> int:
    wanted = places[0]
    for index, row in enumerate(rows):
        value = row[wanted]
        if value is not None and value != {}:
            return index
    others = places[1:]
    return (
        next((index for index, row in enumerate(rows) if any(has(row[place]) for place in others)), 0) if others else 0
    )


def _by_name(given: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], tuple[int, ...]]:
    """Return the readings of all names, and the positions of those that give a name which none before gives."""
    values, needed = given[0], [0] if given[0] else []
    for index, others in enumerate(given[1:], 1):
        if not others.keys() <= values.keys():
            values = {**others, **values}
            needed.append(index)
    return values, tuple(needed) or (0,)
