"""What every provider owes, whatever its vendor: run with a provider's name by test_provider_contract.py."""

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from exporter.config import SamplingConfig
from exporter.exposition.subjects import TABLES
from exporter.fleet import Fleet, groups
from exporter.model import Device, Group, Sample
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext, Provider
from exporter.reference import CLOSED_LABELS
from exporter.supervision import frames
from exporter.supervision.schedule import ENERGY, EVERYTHING

IDENTITY = msgspec.structs.fields(Device)


class Between:
    """What the worker does between two calls into a library: here it counts, and once serves an urgent request."""

    def __init__(self) -> None:
        self.calls = 0
        self.urgent: Callable[[], None] | None = None

    def __call__(self) -> None:
        self.calls += 1
        urgent, self.urgent = self.urgent, None
        if urgent is not None:
            urgent()


def main(name: str, scenario: str, sound: str, root: str) -> None:
    """`sound`: whether the machine is; else some of its readings are beyond all bounds, and some calls fail."""
    if sound == "sound":
        whole(name, scenario, Path(root))
    else:
        broken(name, scenario)


def broken(name: str, scenario: str) -> None:
    """What breaks or is rejected is named by its field, the same for every vendor."""
    # A root without /sys: on this host's PCI bus a card that fails is not there, and would be lost.
    context = OpenContext(between_calls=Between(), scenario=scenario, root=Path(scenario).parent)
    provider, _ = PROVIDERS[name].open(context)
    samples = [provider.read(device, EVERYTHING) for device in provider.devices()]
    provider.close()
    rejected = {reading for sample in samples for reading in sample.rejected}
    failed = {reading for sample in samples for reading in sample.failed}
    assert rejected | failed <= set(Sample.__struct_fields__)
    assert {"power_watts", "utilization_ratio", "temperature_celsius", "engine_utilization_ratio"} <= rejected, rejected
    assert {"ecc_errors", "memory_used_bytes"} <= failed, failed


def whole(name: str, scenario: str, root: Path) -> None:
    between = Between()
    provider, version = PROVIDERS[name].open(OpenContext(between_calls=between, scenario=scenario, root=root))
    assert version is None or version.isprintable()
    devices = provider.devices()
    assert devices
    assert provider.devices() == devices
    assert len({device.key for device in devices}) == len(devices)
    for device in devices:
        identified(device)
        for group in sorted(EVERYTHING):
            only_what_was_asked_for(provider, device, group, between)
        sample = provider.read(device, EVERYTHING)
        assert sample.failed == sample.rejected == ()
        assert list(frames.reports().feed(frames.encode(frames.Sampled(sample)))) == [frames.Sampled(sample)]
        finite(sample)
        urgent_requests_are_served(provider, device, between)
    labels_are_from_closed_lists(name, devices, [provider.read(device, EVERYTHING) for device in devices])
    stranger = provider.read(Device(vendor=devices[0].vendor, key="0000:ff:1f.0", pci_address="0000:ff:1f.0"), ENERGY)
    assert stranger.lost
    assert stranger.device.key == "0000:ff:1f.0"
    provider.close()
    provider.close()


def identified(device: Device) -> None:
    assert device.key.isprintable()
    assert device.vendor == device.vendor.lower()
    for field in IDENTITY:
        value = getattr(device, field.name)
        assert value != "", field.name
        assert not isinstance(value, str) or value.isprintable(), field.name


def only_what_was_asked_for(provider: Provider, device: Device, group: Group, between: Between) -> None:
    before, began = between.calls, time.monotonic()
    sample = provider.read(device, frozenset({group}))
    ended = time.monotonic()
    assert between.calls > before
    assert set(sample.taken_at) == set(sample.read_seconds) == {group}
    assert began <= sample.taken_at[group] <= ended
    assert 0 <= sample.read_seconds[group] <= ended - began
    for other in EVERYTHING - {group}:
        assert groups.readings(other, sample) == groups.readings(other, None), other
    assert groups.readings(group, sample) != groups.readings(group, None), group


def finite(sample: Sample) -> None:
    for field in sample.__struct_fields__:
        value = getattr(sample, field)
        for number in value.values() if isinstance(value, Mapping) else (value,):
            assert not isinstance(number, float) or math.isfinite(number), field


def urgent_requests_are_served(provider: Provider, device: Device, between: Between) -> None:
    served: list[Sample] = []
    between.urgent = lambda: served.append(provider.read(device, ENERGY))
    around = provider.read(device, EVERYTHING)
    assert [set(sample.taken_at) for sample in served] == [{Group.ENERGY}]
    assert set(around.taken_at) == set(EVERYTHING)
    assert around.power_watts is not None
    assert served[0].power_watts is not None


def labels_are_from_closed_lists(name: str, devices: tuple[Device, ...], samples: list[Sample]) -> None:
    now = time.monotonic()
    fleet = Fleet([(name, True)], SamplingConfig())
    fleet.enumerated(name, devices, now)
    fleet.provider_status(name, up=True, reason="", library_version=None)
    for sample in samples:
        fleet.observed(name, sample, now, time.time())
    world = fleet.world(now)
    for table in TABLES:
        for _, subject in table.subjects(world):
            for spec in table.specs:
                reading: Any = spec.read(subject)
                allowed = CLOSED_LABELS.get((spec.name, spec.labels[0])) if len(spec.labels) == 1 else None
                if allowed is not None and reading:
                    assert set(reading) <= set(allowed), spec.name


if __name__ == "__main__":
    main(*sys.argv[1:])
