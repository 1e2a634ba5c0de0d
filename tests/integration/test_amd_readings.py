"""Each amdsmi wheel over the C stand-in of its release: every reading of each kind of GPU."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from exporter.providers.simulated.device import Accumulator, SimulatedDevice, Stretch
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.physics import Track
from tests.integration.amd import Look, bare, machine
from tests.native.amdsmi_layout import LIBRARY_VERSIONS, WHEELS

MIB = 2.0**20


SHARED = ("6.0.2", "6.1.0", "6.1.2", "6.2.4", "6.3.3")
"""Releases on which each partition repeats the readings of the whole card."""


FLEET = """
- {model: MI300X, load: {pattern: constant, watts: 717}, values: {ecc_corrected: 7, ecc_deferred: 2, pcie_replays: 3}}
- {model: MI210, load: {pattern: constant, watts: 211}}
- {model: RX-9070, load: {pattern: constant, watts: 174}}
- {model: MI355X, load: {pattern: constant, watts: 1255}}
- {model: MI300X, load: {pattern: constant, watts: 255}}
"""


@pytest.mark.parametrize("version", WHEELS)
def test_every_reading_of_every_model_is_right(look: Look, version: str) -> None:
    fleet = machine(FLEET, "driver_version: 6.12.12")
    seen = look(version, fleet)
    assert seen.error is None
    assert seen.version == ".".join(map(str, LIBRARY_VERSIONS[version][1 if version == "6.4.3" else 0 :][:3]))
    assert [device["key"] for device in seen.devices] == [device.key for device in fleet.devices]
    assert [sample["power_watts"] for sample in seen.samples] == [717, 211, 174, 1255, 255]
    assert [sample["power_kind"] for sample in seen.samples] == ["instant", "average", "average", "instant", "instant"]
    for index, (truth, device, sample) in enumerate(zip(fleet.devices, seen.devices, seen.samples, strict=True)):
        assert_identity(truth, device, index, version)
        assert_readings(fleet, truth, sample, version)


def assert_identity(truth: SimulatedDevice, device: Mapping[str, Any], index: int, version: str) -> None:
    release = tuple(map(int, version.split(".")))
    assert device["vendor"] == "amd"
    assert device["model"] == truth.texts["name"]
    assert device["pci_address"] == truth.texts["pci_address"]
    assert device["serial"] == truth.texts["serial"]
    assert device["vendor_uuid"] == truth.texts["uuid"]
    assert device["index"] == index
    assert device["driver_version"] == "6.12.12"
    assert device["firmware"] == {"vbios": truth.texts["vbios_version"]}
    assert device["memory_kind"] == "dedicated"
    assert device.get("minor") == (truth.numbers["render_minor"] if release >= (6, 4) else None)
    architecture = truth.texts["architecture"]
    if release < (6, 3) or (release < (6, 4) and architecture.endswith("a")):  # 6.3 misspells gfx90a
        architecture = None
    assert device.get("architecture") == architecture
    mode = "SPX/NPS1" if "compute_partition" in truth.texts else None
    assert device.get("partition_mode") == mode


def assert_readings(fleet: Machine, truth: SimulatedDevice, sample: Mapping[str, Any], version: str) -> None:
    def expected(name: str) -> float | None:
        return truth.signal(name, sample["taken_at"]["state"] - fleet.epoch)

    def each(form: str, names: str, digits: int) -> dict[str, float]:
        found = {name: expected(form.format(name)) for name in names.split()}
        return {name: round(value, digits) for name, value in found.items() if value is not None}

    assert sample.get("failed", []) == []
    assert sample.get("rejected", []) == []
    assert sample["power_limit_watts"] == expected("power_limit_watts")
    assert sample["power_limit_default_watts"] == expected("power_limit_default_watts")
    assert "power_window_seconds" not in sample
    at = sample["taken_at"]["energy"]
    counter = fleet.counter_joules(truth.key, at)
    assert counter is not None
    power = truth.power(at - fleet.epoch, 0.0, 0.0)
    if counter:
        assert sample["energy_counter_joules"] == pytest.approx(counter, abs=power * 0.1 + 0.001)
        assert sample["energy_counter_at"] == pytest.approx(at - fleet.epoch, abs=0.2)
    else:  # a Radeon's stands at 0, which is none
        assert "energy_counter_joules" not in sample
    assert sample["utilization_ratio"] == pytest.approx(expected("utilization_ratio"), abs=0.005)
    assert sample["memory_controller_utilization_ratio"] == pytest.approx(
        expected("memory_controller_utilization_ratio"), abs=0.005
    )
    media = expected("media_utilization_ratio")
    assert sample.get("engine_utilization_ratio", {}) == ({} if media is None else {"media": media})
    assert sample["memory_size_bytes"] == expected("memory_size_bytes")
    assert sample["memory_used_bytes"] == expected("memory_used_bytes")
    assert sample["system_memory_size_bytes"] == expected("gtt_size_bytes")
    assert sample["system_memory_used_bytes"] == expected("gtt_used_bytes")
    sensors = "edge hotspot memory hbm0 hbm1 hbm2 hbm3"
    assert sample["temperature_celsius"] == pytest.approx(each("temperature_{}_celsius", sensors, 0), abs=1)
    assert sample["temperature_limit_celsius"] == each("temperature_limit_{}_celsius", "shutdown slowdown memory", 0)
    assert sample["clock_hertz"] == each("clock_{}_hertz", "graphics memory soc fabric video", -6)
    assert sample.get("fan_speed_ratio") == pytest.approx(expected("fan_ratio"), abs=0.5 / 255)
    classes = "corrected uncorrected" + (" deferred" if version not in {"6.0.2", "6.1.0"} else "")
    assert sample.get("ecc_errors", {}) == each("ecc_{}", classes, 0)
    assert sample["pcie_link_generation"] == expected("pcie_generation")
    assert sample["pcie_link_width"] == expected("pcie_width")
    assert sample["pcie_link_width_max"] == expected("pcie_width_max")
    assert sample.get("pcie_replays") == (None if version == "6.0.2" else expected("pcie_replays"))
    assert sample["partitions"] == []
    assert sample["processes"] == []
    assert len(sample.get("links", ())) == (expected("link_count") or 0)
    assert sample["memory_visible_size_bytes"] == expected("visible_memory_size_bytes")
    assert sample["memory_visible_used_bytes"] == expected("visible_memory_used_bytes")


@pytest.mark.parametrize("version", WHEELS)
def test_the_memory_kind_is_known_whatever_numbers_a_release_has_for_it(look: Look, version: str) -> None:
    seen = look(
        version, machine("- {model: MI300X}\n- {model: RX-9070}\n- {model: MI300X, texts: {memory_type: ddr5}}")
    )
    assert [device["memory_kind"] for device in seen.devices] == ["dedicated", "dedicated", "unified"]


@pytest.mark.parametrize("version", WHEELS)
def test_partitions_share_one_device_and_its_sensors_are_read_once(look: Look, version: str) -> None:
    resident = (
        "partitions: [{}, {}, {}, {}, {}, {}, {}, {}], "
        "processes: [{pid: 4242, name: train, memory_used_bytes: 1073741824, queues: 1, partition: 3}]"
    )
    fleet = machine(
        f"- {{model: MI300X, load: {{watts: 717, pattern: constant}}, texts: {{compute_partition: CPX}}, {resident}}}"
    )
    seen = look(version, fleet)
    assert [device["key"] for device in seen.devices] == [fleet.devices[0].key]
    assert seen.devices[0]["partition_mode"] == "CPX/NPS1"
    (sample,) = seen.samples
    assert sample["power_watts"] == 717
    assert sample["power_limit_watts"] == 750
    assert sample["energy_counter_joules"] > 717 * 999
    assert sample["memory_size_bytes"] == 196592 * MIB
    assert sample["temperature_celsius"].keys() == {"hotspot", "memory"}
    partitions = sample["partitions"]
    assert [partition["partition"] for partition in partitions] == [str(number) for number in range(8)]
    assert {partition["profile"] for partition in partitions} == {"CPX"}
    uuids = {partition.get("uuid") for partition in partitions}
    assert len(uuids) == 8 if version.startswith("7") else uuids == {None}
    if version in SHARED:  # each shows the whole card: whose share it is cannot be told
        assert {partition.get("memory_size_bytes") for partition in partitions} == {None}
    else:
        assert {partition["memory_size_bytes"] for partition in partitions} == {196592 * MIB / 8}
        assert partitions[3]["memory_used_bytes"] == 1073741824 + 12 * MIB
        assert "memory_used_bytes" not in partitions[0]  # shows that of the whole card
    loads = [partition.get("utilization_ratio") for partition in partitions]
    assert loads == [1.0] * 8 if version in {"6.3.3", "6.4.3", "7.0.2"} else [None] * 8
    (process,) = sample["processes"]
    assert process == {"pid": 4242, "name": "train", "memory_used_bytes": 1073741824, "partition": "3"}


def die(number: int, watts: float, accumulators: Mapping[str, Any]) -> SimulatedDevice:
    return SimulatedDevice(
        key=f"a32343daf897{number:04x}",
        vendor="amd",
        texts={
            "unique_id": f"a32343daf897{number:04x}",
            "pci_address": f"0000:{0xC1 + 5 * number:02x}:00.0",
            "name": "AMD Instinct MI250X",
        },
        numbers={
            "pci_domain": 0,
            "pci_bus": 0xC1 + 5 * number,
            "pci_device": 0,
            "pci_function": 0,
            "pci_device_id": 0x7408,
            "power_average_window_seconds": 0.0,
            "power_average_period_seconds": 0.0,
            "memory_size_bytes": 65520 * MIB,
            "utilization_ratio": 0.5,
        },
        tracks={"power_watts": Track.constant(watts)},
        accumulators=accumulators,
    )


@pytest.mark.parametrize("version", ["6.2.4", "7.0.2"])
def test_the_first_die_of_an_mi250_carries_the_power_of_both(look: Look, version: str) -> None:
    stretch = Stretch(start=0.0, base=1e6, energy=0.0, factor=1.0)
    counter = {"gpu": Accumulator(track="power_watts", period=0.01, resolution=2.0**-16, stretches=(stretch,))}
    dies = [die(0, 89, counter), die(1, 0, counter), die(2, 93, counter), die(3, 0, counter)]
    seen = look(version, bare(*dies))
    keys = [device["key"] for device in seen.devices]
    assert [device["package"] for device in seen.devices] == [keys[0], keys[0], keys[2], keys[2]]
    assert [sample.get("power_watts") for sample in seen.samples] == [89, None, 93, None]
    assert [sample["power_scope"] for sample in seen.samples] == ["package"] * 4
    assert ["energy_counter_joules" in sample for sample in seen.samples] == [True, False, True, False]
    assert [sample["utilization_ratio"] for sample in seen.samples] == [0.5] * 4


def test_cards_with_one_serial_number_are_known_by_their_addresses(look: Look) -> None:
    cards = [
        dataclasses.replace(die(n, 40, {}), texts={**die(n, 40, {}).texts, **extra})
        for n, extra in enumerate(
            [{"unique_id": "0000000000000000"}, {"unique_id": "67c63ac3c3c637f9"}, {"unique_id": "67c63ac3c3c637f9"}]
        )
    ]
    assert [device["key"] for device in look("7.0.2", bare(*cards)).devices] == [
        "0000:c1:00.0",
        "0000:c6:00.0",
        "0000:cb:00.0",
    ]


@pytest.mark.parametrize("version", WHEELS)
def test_an_accumulator_of_all_ones_or_at_zero_is_no_value(look: Look, version: str) -> None:
    fleet = machine("- {model: MI300X, accumulator: {kind: ones}}\n- {model: MI300X, accumulator: {kind: zero}}")
    for sample in look(version, fleet).samples:
        assert "energy_counter_joules" not in sample
        assert "energy_counter_at" not in sample
        assert sample.get("failed", []) == sample.get("rejected", []) == []


@pytest.mark.parametrize("version", WHEELS)
def test_power_comes_through_where_there_is_no_limit(look: Look, version: str) -> None:
    fleet = machine("- {model: MI300X, load: {pattern: constant, watts: 141}, absent: [power_limit_watts]}")
    (sample,) = look(version, fleet).samples
    assert sample["power_watts"] == 141
    assert "power_limit_watts" not in sample
    assert sample.get("failed", []) == []


@pytest.mark.parametrize("version", WHEELS)
def test_values_out_of_range_are_rejected_by_name(look: Look, version: str) -> None:
    stuck = "{kind: garbage, values: {utilization_ratio: 1.4, temperature_hotspot_celsius: 300, power_watts: 60000}}"
    (sample,) = look(version, machine(f"- {{model: MI300X, faults: [{stuck}]}}")).samples
    assert sample["rejected"] == ["power_watts", "utilization_ratio", "temperature_celsius"]
    assert "power_watts" not in sample
    assert "utilization_ratio" not in sample
    assert sample["temperature_celsius"].keys() == {"memory"}


def test_throttling_is_told_from_the_accumulators_of_two_reads(look: Look) -> None:
    fleet = machine("- {model: MI300X, load: {pattern: constant, level: 1.0}, values: {power_limit_watts: 600}}")
    later = Machine(fleet.scenario, fleet.epoch - 1)  # the same, a second on
    (sample,) = look("7.0.2", fleet, then=later).samples
    assert sample["throttled"] == {
        "processor_hot": False,
        "sw_power_cap": True,
        "hw_thermal": False,
        "voltage_regulator_thermal": False,
        "memory_thermal": False,
    }


TRAINING = """
- model: MI350X
  count: 4
  load: {pattern: constant, watts: 356}
  values: {utilization_ratio: 0.9, memory_used_bytes: 196812472320}
"""


@pytest.mark.parametrize("version", WHEELS)
def test_a_node_of_four_mi350x_in_training(look: Look, version: str) -> None:
    seen = look(version, machine(TRAINING))
    assert len({device["key"] for device in seen.devices}) == 4
    assert {device["model"] for device in seen.devices} == {"AMD Instinct MI350X"}
    for sample in seen.samples:
        assert sample["utilization_ratio"] == pytest.approx(0.9)
        assert sample["memory_used_bytes"] == 187695 * MIB
        assert sample["power_watts"] == 356
        assert "failed" not in sample
        assert "rejected" not in sample
