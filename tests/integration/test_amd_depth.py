"""Each amdsmi wheel over the C stand-in of its release: links, records of errors, firmware, dies, throttling."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.providers.simulated.device import Row, SimulatedDevice
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.physics import Window
from tests.integration.amd import Look, bare, machine
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree
from tests.native.plan import write_plan

ALWAYS = Window(0.0, float("inf"), 0.0, 0.0)
KEEPS_RECORDS = ("6.4.3", "7.0.2")
TELLS_LINK_STATES = ("6.4.3", "7.0.2")


def mi300x(*rows: Row, texts: dict[str, str] | None = None, **numbers: float) -> SimulatedDevice:
    (device,) = machine("- {model: MI300X}").devices
    return dataclasses.replace(
        device,
        rows=rows,
        texts={**device.texts, **(texts or {})},
        numbers={**device.numbers, **numbers},
    )


def event(kind: str, code: int, at: float) -> Row:
    numbers = {"code": float(code), "at": at, "every": 0.0, "until": float("inf")}
    return Row("event", ALWAYS, {"kind": kind}, numbers)


@pytest.mark.parametrize("version", WHEELS)
def test_links_have_their_number_and_count_bytes(look: Look, version: str) -> None:
    card = mi300x(link_count=3, links_down=1)
    counted = {"link_receive_bytes": 5 * 1024.0, "link_transmit_bytes": 2.0**50}
    card = dataclasses.replace(
        card,
        numbers={**card.numbers, **counted},
        readings={name: reading for name, reading in card.readings.items() if name not in counted},
    )
    (sample,) = look(version, bare(card)).samples
    told = version in TELLS_LINK_STATES
    assert [(link["kind"], link["link"], link.get("up")) for link in sample["links"]] == [
        ("xgmi", "0", True if told else None),
        ("xgmi", "1", True if told else None),
        ("xgmi", "2", False if told else None),
    ]
    assert {(link["receive_bytes"], link["transmit_bytes"]) for link in sample["links"]} == {(5 * 1024, 2.0**50)}
    assert sample.get("failed", []) == sample.get("rejected", []) == []


@pytest.mark.parametrize("version", KEEPS_RECORDS)
def test_what_the_driver_recorded_since_the_start_is_told_once(look: Look, version: str) -> None:
    old = event("afid", 1, 10)
    before = bare(mi300x(old))
    new = [event("afid", number, 900 + number) for number in range(2, 27)]
    graded = [event("ras", severity, 950 + severity) for severity in range(3)]
    after = dataclasses.replace(bare(mi300x(old, *new, *graded)), epoch=before.epoch)
    (sample,) = look(version, before, then=after).samples
    events = sample["error_events"]
    assert [event["code"] for event in events if event["kind"] == "afid"] == [str(n) for n in range(2, 27)]
    severities = ["non_fatal_corrected"] * 25 + ["non_fatal_uncorrected", "fatal", "non_fatal_corrected"]
    assert [event["code"] for event in events if event["kind"] == "ras"] == severities
    assert all(-120 < event["at"] - time.time() < 0 for event in events)
    assert sample["error_event_kinds"] == ["afid", "ras"]


@pytest.mark.parametrize("readable", [False, True])
@pytest.mark.parametrize("version", KEEPS_RECORDS)
def test_an_empty_ring_and_one_that_may_not_be_read_are_no_failure(look: Look, version: str, *, readable: bool) -> None:
    (sample,) = look(version, bare(mi300x(event_types=readable))).samples
    assert "error_events" not in sample
    assert "failed" not in sample


@pytest.mark.parametrize("version", ["6.0.2", "6.1.2", "6.3.3", "7.0.2"])
def test_firmware_that_matters_is_named_alike_in_all_releases(look: Look, version: str) -> None:
    card = mi300x(firmware_pm=0x55413D10, firmware_ta_ras=0x1B36020D, firmware_rlc=150, firmware_sdma1=9)
    (device,) = look(version, bare(card)).devices
    assert device["firmware"] == {
        "vbios": card.texts["vbios_version"],
        "power_management": "85.65.61.16",
        "ras": "1B.36.02.0D",
        "rlc": "150",
    }


@pytest.mark.parametrize("version", ["6.0.2", "7.0.2"])
def test_the_link_between_two_dies_tells_their_package(look: Look, version: str) -> None:
    dies = []
    for number, package in enumerate(("left", "right", "right", "left")):
        texts = {"name": "AMD Instinct MI250X", "unique_id": f"a32343daf897{number + 1:04x}", "package": package}
        texts |= {"pci_address": f"0000:{0xC1 + 5 * number:02x}:00.0", "serial": ""}
        dies.append(mi300x(texts=texts, pci_bus=0xC1 + 5 * number, pci_domain=0, pci_device=0, pci_function=0))
    seen = look(version, bare(*(dataclasses.replace(die, key=die.texts["unique_id"]) for die in dies)))
    keys = [device["key"] for device in seen.devices]
    assert [device["package"] for device in seen.devices] == [keys[0], keys[1], keys[1], keys[0]]


@pytest.mark.parametrize("version", ["6.3.3", *KEEPS_RECORDS])
def test_time_held_down_is_the_share_of_cycles_of_the_time_between_two_reads(look: Look, version: str) -> None:
    fleet = machine("- {model: MI300X, load: {pattern: constant, level: 1.0}, values: {power_limit_watts: 600}}")
    later = Machine(fleet.scenario, fleet.epoch - 20)  # the same, 20 seconds on
    (sample,) = look(version, fleet, then=later).samples
    assert 20 <= sample["throttle_seconds"]["sw_power_cap"] <= 30
    assert sample["throttle_seconds"]["hw_thermal"] == 0


def test_the_stand_in_ends_who_asks_for_the_vram_in_use_in_the_way_that_opens_kfd(tmp_path: Path) -> None:
    """What all other tests over it prove of the provider: it does not ask."""
    environment = {**amdsmi_tree("7.0.2", tmp_path), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    write_plan(tmp_path / "plan", machine("- {model: MI300X}"))
    script = (
        "import amdsmi; amdsmi.amdsmi_init(); handle = amdsmi.amdsmi_get_processor_handles()[0]; "
        "amdsmi.amdsmi_get_gpu_memory_usage(handle, amdsmi.AmdSmiMemoryType.GTT); "
        "amdsmi.amdsmi_get_gpu_memory_usage(handle, amdsmi.AmdSmiMemoryType.VRAM)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment, "PYTHONPATH": f"{environment['ROCM_PATH']}/share/amd_smi"},
    )
    assert done.returncode == -signal.SIGABRT, done.stderr


MODES = [
    ("7.0.2", "SPX", "NPS1", 1),
    ("6.2.4", "DPX", "NPS1", 2),
    ("7.0.2", "DPX", "NPS1", 2),
    ("7.0.2", "QPX", "NPS4", 4),
    ("6.2.4", "CPX", "NPS4", 8),
    ("7.0.2", "CPX", "NPS4", 8),
]


@pytest.mark.parametrize(("version", "compute", "memory", "count"), MODES)
def test_in_each_mode_a_card_is_one_package_and_is_counted_once(
    look: Look, version: str, compute: str, memory: str, count: int
) -> None:
    """On a release that repeats the readings of the card for each partition, and on one that does not."""
    parts = f"[{', '.join(['{}'] * count)}]" if count > 1 else "[]"
    texts = f"{{compute_partition: {compute}, memory_partition: {memory}}}"
    card = f"{{model: MI300X, load: {{pattern: constant, watts: 500}}, texts: {texts}, partitions: {parts}}}"
    seen = look(version, machine(f"- {card}\n- {card}"))
    assert [device["partition_mode"] for device in seen.devices] == [f"{compute}/{memory}"] * 2
    assert sum(sample["power_watts"] for sample in seen.samples) == 1000
    for sample in seen.samples:
        assert sample["power_limit_watts"] == 750
        assert sample["energy_counter_joules"] > 0
        assert sample["temperature_celsius"].keys() == {"hotspot", "memory"}
        partitions = sample["partitions"]
        assert [part["partition"] for part in partitions] == [str(n) for n in range(count if count > 1 else 0)]
        assert sum(part.get("memory_size_bytes", 0) for part in partitions) <= sample["memory_size_bytes"]
        assert "failed" not in sample
