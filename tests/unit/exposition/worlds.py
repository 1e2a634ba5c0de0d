"""Worlds for tests of the page: a plain one to change by hand, and strategies for any that the types allow."""

import enum
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from exporter.metrics import FAULTS
from exporter.model import Device, DeviceSnapshot, EnergyAccount, GpuState, ProcessSeries, Sample, Snapshot, World


def device(index: int = 0, series: tuple[ProcessSeries, ...] = (), **readings: Any) -> DeviceSnapshot:
    """A healthy GPU with a power reading and a total; `readings` replace or add fields of its sample."""
    identity = Device(vendor="nvidia", key=f"GPU-{index}", model="H100", index=index)
    return DeviceSnapshot(
        gpu=f"nvidia{index}",
        provider="nvidia",
        device=identity,
        state=GpuState.OK,
        sample=Sample(device=identity, **{"power_watts": 500.5, **readings}),
        energy=account(),
        process_series=series,
    )


def account(**fields: Any) -> EnergyAccount:
    defaults: dict[str, Any] = {
        "total_joules": 1500.25,
        "by_source_joules": {"integrated": 500.0, "hardware": 1000.25},
        "hardware_joules": 1000.25,
        "integrated_joules": 1499.0,
        "qualified": True,
        "divergence_ratio": -0.01,
        "covered_seconds": 3.0,
        "gap_seconds": 0.0,
        "faults": dict.fromkeys(FAULTS, 0),
        "start_timestamp": 1_000.5,
    }
    return EnergyAccount(**{**defaults, **fields})


def world(*devices: DeviceSnapshot, versions: Mapping[str, int] = types.MappingProxyType({}), **fields: Any) -> World:
    """One provider with these devices; without versions every block is rendered at each page."""
    snapshot = Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=devices)
    return World(snapshots=(snapshot,), versions=versions, **fields)


# Surrogates included: that is how Python hands over bytes that are not UTF-8. Few letters, so that series collide.
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12), st.sampled_from(["", "a", "a\0", '\\"\n'])
)
numbers = st.one_of(st.floats(), st.integers(), st.sampled_from([0.0, 1.0, 10**400, True, None, "N/A", b"1"]))

_VALUES: Mapping[type, st.SearchStrategy[Any]] = {
    str: texts,
    float: numbers,
    int: st.integers(),
    bool: st.booleans(),
    type(None): st.none(),
}


@cache
def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field of the model, and where it is a number also what is none."""
    if kind in _VALUES:
        return _VALUES[kind]
    if isinstance(kind, type):
        return st.sampled_from(kind) if issubclass(kind, enum.Enum) else struct(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is Mapping:
        return st.dictionaries(anything(arguments[0]), anything(arguments[1]), max_size=2)
    if origin is tuple:
        any_number = arguments[-1] is Ellipsis
        items = st.lists(anything(arguments[0]), max_size=2).map(tuple)
        return items if any_number else st.tuples(*map(anything, arguments))
    assert origin in (types.UnionType, Union), kind
    return st.one_of(*map(anything, arguments))


def struct(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    required: dict[str, Any] = {}
    optional: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        has_default = field.default is not msgspec.NODEFAULT or field.default_factory is not msgspec.NODEFAULT
        values = _FIELDS[field.name] if field.name in _FIELDS else anything(hints[field.name])
        (optional if has_default else required)[field.name] = values
    return st.fixed_dictionaries(required, optional=optional).map(lambda values: kind(**values))


_FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "versions": st.just({}),
    "power_window_seconds": st.none() | st.floats(),  # becomes a label, so it is a number by its type
}

worlds: st.SearchStrategy[World] = struct(World)
