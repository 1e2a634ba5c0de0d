"""Of several providers' readings each is that of the first that has it; some go together from one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet import groups
from exporter.fleet.merge import Part, has, identity, merge, one_of_all, sources
from exporter.model import Device, Group, LinkSample, PartitionSample, ProcessSample, Sample
from tests.unit.fleet.test_groups import VALUES

CARD = Device(vendor="amd", key="a1")
UNITS = (
    ("power_watts", "power_kind", "power_window_seconds", "power_scope"),
    ("energy_counter_joules", "energy_counter_scope", "energy_counter_range_joules", "energy_counter_at"),
    ("memory_used_bytes", "memory_size_bytes", "memory_reserved_bytes"),
    ("system_memory_used_bytes", "system_memory_size_bytes"),
    ("memory_visible_used_bytes", "memory_visible_size_bytes"),
    ("throttled", "throttle_seconds"),
    ("processes", "process_counts"),
)
BY_NAME = ("engine_utilization_ratio", "temperature_celsius", "temperature_limit_celsius", "clock_hertz")
NONE = {group: groups.readings(group, None) for group in Group}


def sample(**values: Any) -> Sample:
    return Sample(device=CARD, **values)


def merged(group: Group, *given: Sample) -> tuple[dict[str, Any], dict[str, str]]:
    parts = [Part(provider, one) for provider, one in zip(("amd", "drm", "third"), given, strict=False)]
    fields, chosen = merge(group, parts)
    return fields, dict(sources(group, parts, chosen))


def test_what_the_preferred_provider_has_not_is_that_of_the_next() -> None:
    fields, named = merged(
        Group.LOAD,
        sample(utilization_ratio=0.0, memory_controller_utilization_ratio=None),
        sample(
            utilization_ratio=0.9,
            memory_controller_utilization_ratio=0.4,
            sources={"memory_controller_utilization_ratio": "gpu_metrics"},
        ),
    )
    assert fields["utilization_ratio"] == 0.0, "zero is a reading"
    assert fields["memory_controller_utilization_ratio"] == 0.4
    assert named["utilization_ratio"] == "amd"
    assert named["memory_controller_utilization_ratio"] == "drm/gpu_metrics"


def test_power_is_what_one_provider_says_it_is() -> None:
    fields, named = merged(
        Group.ENERGY,
        sample(power_kind="instant", power_scope="package", power_limit_watts=750.0),
        sample(power_watts=300.0, power_kind="average", sources={"power_watts": "hwmon"}),
    )
    assert [fields[name] for name in UNITS[0]] == [300.0, "average", None, "gpu"]
    assert fields["power_limit_watts"] == 750.0
    assert (named["power_watts"], named["power_limit_watts"]) == ("drm/hwmon", "amd")


def test_memory_used_and_its_size_are_of_one_provider() -> None:
    fields, _ = merged(
        Group.LOAD, sample(memory_size_bytes=64e9), sample(memory_used_bytes=1e9, memory_size_bytes=63e9)
    )
    assert (fields["memory_used_bytes"], fields["memory_size_bytes"]) == (1e9, 63e9)
    fields, _ = merged(Group.LOAD, sample(), sample(memory_size_bytes=63e9))
    assert (fields["memory_used_bytes"], fields["memory_size_bytes"]) == (None, 63e9)


def test_temperatures_are_filled_sensor_by_sensor_and_counters_are_not() -> None:
    fields, named = merged(
        Group.STATE,
        sample(temperature_celsius={"hotspot": 61.0}, ecc_errors={"corrected": 4.0}),
        sample(
            temperature_celsius={"hotspot": 60.0, "edge": 50.0},
            ecc_errors={"corrected": 9.0, "deferred": 1.0},
            sources={"temperature_celsius": "hwmon"},
        ),
        sample(temperature_celsius={"edge": 1.0}),
    )
    assert fields["temperature_celsius"] == {"hotspot": 61.0, "edge": 50.0}
    assert fields["ecc_errors"] == {"corrected": 4.0}
    assert (named["temperature_celsius"], named["ecc_errors"]) == ("amd+drm/hwmon", "amd")


@pytest.mark.parametrize("name", ["partitions", "links"])
def test_an_empty_list_says_that_there_are_none(name: str) -> None:
    others = {"partitions": (PartitionSample(partition="0"),), "links": (LinkSample(kind="xgmi", link="0"),)}
    fields, _ = merged(Group.STATE, sample(**{name: ()}), sample(**{name: others[name]}))
    assert fields[name] == ()
    fields, _ = merged(Group.STATE, sample(), sample(**{name: others[name]}))
    assert fields[name] == others[name]


def test_processes_go_with_their_counts() -> None:
    fields, _ = merged(
        Group.PROCESSES,
        sample(process_counts={"uninspectable": 3}),
        sample(processes=(ProcessSample(pid=1),), process_counts={"holding": 1}),
    )
    assert fields == {"processes": (ProcessSample(pid=1),), "process_counts": {"holding": 1}}


READINGS = {
    group: st.fixed_dictionaries(
        {}, optional={name: st.just(VALUES.get(name, 0.25)) for name in names if name not in UNITS[0][1:]}
    )
    for group, names in groups.FIELDS.items()
}
"""Any readings of a group."""


@given(st.data())
def test_each_field_is_from_the_first_that_has_it_or_has_what_it_belongs_to(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(list(Group)))
    given_ = [sample(**data.draw(READINGS[group])) for _ in range(data.draw(st.integers(1, 3)))]
    fields, named = merged(group, *given_)
    assert fields.keys() == NONE[group].keys()
    for name, value in fields.items():
        unit = next((unit for unit in UNITS if name in unit), (name,))
        having = [one for one in given_ if has(getattr(one, unit[0]))]
        having = having or [one for one in given_ if any(has(getattr(one, other)) for other in unit)]
        if name in BY_NAME:
            assert value == {k: v for one in reversed(having) for k, v in getattr(one, name).items()}
        else:
            assert value == (getattr(having[0], name) if having else NONE[group][name])
        if having and name not in BY_NAME:
            assert named[name] == ("amd", "drm", "third")[given_.index(having[0])] or having.count(having[0]) > 1


@given(st.data())
def test_readings_of_one_provider_are_not_changed(data: st.DataObject) -> None:
    group = data.draw(st.sampled_from(list(Group)))
    alone = sample(**data.draw(READINGS[group]))
    fields, chosen = merge(group, [Part("amd", alone)])
    assert fields == groups.readings(group, alone)
    assert sources(group, [Part("amd", alone)], chosen) == sources(group, [Part("amd", alone)], one_of_all(group))


def test_an_identity_is_filled_field_by_field() -> None:
    whole = identity(
        "a1",
        [
            Device(vendor="amd", key="a1", model="MI300X", index=0, firmware={"smc": "1"}),
            Device(vendor="amd", key="a1", model="0x74a1", minor=128, firmware={"smc": "2", "vbios": "3"}),
        ],
    )
    assert whole == Device(vendor="amd", key="a1", model="MI300X", index=0, minor=128, firmware={"smc": "1"})
    assert identity("a1", [Device(vendor="amd", key="a1", index=0)]).index == 0
