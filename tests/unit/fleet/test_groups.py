"""Each reading belongs to one group, and each group to the blocks that show it."""

from collections import Counter

import pytest

from exporter.config import SamplingConfig
from exporter.fleet import groups
from exporter.metrics import DEVICE_METRICS, Block, MetricSpec
from exporter.model import (
    Device,
    DeviceSnapshot,
    EnergyAccount,
    Fabric,
    GpuState,
    Group,
    LinkSample,
    PartitionSample,
    ProcessSample,
    Sample,
)

DEVICE = Device(vendor="nvidia", key="GPU-0")

VALUES = {
    "power_kind": "average",
    "power_scope": "package",
    "energy_counter_scope": "package",
    "engine_utilization_ratio": {"encoder": 0.5},
    "temperature_celsius": {"gpu": 50.0},
    "temperature_limit_celsius": {"shutdown": 95.0},
    "clock_hertz": {"sm": 1e9},
    "throttled": {"sw_thermal": True},
    "throttle_seconds": {"sw_thermal": 7.0},
    "ecc_errors": {"corrected": 1.0},
    "ecc_lifetime_errors": {"corrected": 2.0},
    "memory_remap_failed": True,
    "memory_remap_pending": True,
    "retired_pages": {"single_bit": 1.0},
    "links": (LinkSample(kind="nvlink", link="0", up=True),),
    "recovery_action": "none",
    "fabric": Fabric(state="completed", cluster_uuid="c", clique=1),
    "partition_sm_active_ratio": {"gi1": 0.5},
    "partitions": (PartitionSample(partition="gi1"),),
    "processes": (ProcessSample(pid=1),),
    "process_counts": {"holding": 1},
}


def full() -> Sample:
    """Return a sample with every reading."""
    names = [name for names in groups.FIELDS.values() for name in names]
    return Sample(device=DEVICE, **{name: VALUES.get(name, 0.25) for name in names})


def shown(given: Sample) -> DeviceSnapshot:
    return DeviceSnapshot(gpu="nvidia0", provider="nvidia", device=DEVICE, state=GpuState.OK, sample=given)


def test_every_field_of_a_sample_belongs_to_one_group_or_is_about_the_read() -> None:
    named = Counter(name for names in (*groups.FIELDS.values(), groups.ABOUT_THE_READ) for name in names)
    assert named == Counter(Sample.__struct_fields__)
    assert set(groups.FIELDS) == set(groups.BLOCKS) == set(Group)


def test_readings_of_a_group_without_a_sample_are_the_values_that_mean_none() -> None:
    bare = Sample(device=DEVICE)
    for group in Group:
        assert groups.readings(group, None) == groups.readings(group, bare)


@pytest.mark.parametrize("spec", DEVICE_METRICS, ids=lambda spec: spec.name)
def test_a_metric_reads_only_what_its_block_is_said_to_show(spec: MetricSpec[DeviceSnapshot]) -> None:
    elsewhere = [
        name
        for group, names in groups.FIELDS.items()
        for name in names
        if spec.block not in groups.BLOCKS[group] or (name == "partitions") is not (spec.block is Block.PARTITIONS)
    ]
    without = {name: groups.readings(group, None)[name] for group in Group for name in groups.FIELDS[group]}
    kept = {name: getattr(full(), name) for name in Sample.__struct_fields__ if name not in groups.ABOUT_THE_READ}
    reduced = Sample(device=DEVICE, **{**kept, **{name: without[name] for name in elsewhere}})
    assert spec.read(shown(reduced)) == spec.read(shown(full()))


def test_every_other_field_of_a_snapshot_shows_in_the_block_of_its_metrics() -> None:
    account = EnergyAccount(
        total_joules=1.0,
        by_source_joules={"hardware": 1.0, "integrated": 0.0},
        hardware_joules=1.0,
        integrated_joules=1.0,
        qualified=True,
        divergence_ratio=0.0,
        covered_seconds=1.0,
        gap_seconds=0.0,
        faults={},
        start_timestamp=1.0,
    )
    bare = shown(Sample(device=DEVICE))
    others = {
        "state": GpuState.LOST,
        "last_sample_timestamp": 1.0,
        "energy": account,
        "module_energy_joules": 1.0,
        "busy_seconds": 1.0,
        "throttle_seconds": {"sw_thermal": 1.0},
    }
    for name, value in others.items():
        kept = {field: getattr(bare, field) for field in DeviceSnapshot.__struct_fields__}
        after = DeviceSnapshot(**{**kept, name: value})
        different = {spec.block for spec in DEVICE_METRICS if spec.read(after) != spec.read(bare)}
        assert different, name
        assert groups.changed(bare, after, groups.DEVICE_BLOCKS) == different


def test_readings_live_for_three_periods_and_at_least_fifteen_seconds() -> None:
    lives = groups.lifetimes(SamplingConfig(energy_seconds=20.0))
    assert [lives[group] for group in (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)] == [60, 15, 15, 30]
