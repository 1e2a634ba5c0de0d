"""Each amdsmi wheel over the C stand-in of its release: every way to fail, and which package is used."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.amd import Look, bare, machine, parse, run_script
from tests.integration.sweep import swept
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree, unpacked_wheel
from tests.native.plan import write_plan


@pytest.mark.parametrize("version", WHEELS)
def test_a_broken_process_list_costs_the_processes_alone(look: Look, version: str) -> None:
    rows = '[{pid: 10, name: "bad\\uDCFFname", memory_used_bytes: 5}, {pid: 11, name: fine, memory_used_bytes: 6}]'
    fleet = machine("- {model: MI300X}\n- {model: MI300X}")
    broken = dataclasses.replace(
        fleet.devices[0],
        rows=machine("- {model: MI300X, processes: " + rows.replace("\\uDCFF", "X") + "}").devices[0].rows,
    )
    broken = dataclasses.replace(
        broken, rows=(dataclasses.replace(broken.rows[0], texts={"name": "bad\udcffname"}), broken.rows[1])
    )
    first, second = look(version, bare(broken, fleet.devices[1])).samples
    assert second["processes"] == []
    assert first["power_watts"] == second["power_watts"]
    if version in {"6.0.2", "6.1.0"}:  # asked one by one there, so the others are told
        assert [process["pid"] for process in first["processes"]] == [11]
        assert first["process_counts"] == {"holding": 1, "unnamed": 0, "bystander": 0, "uninspectable": 1, "self": 0}
    else:
        assert "processes" not in first
        assert first["failed"] == ["processes"]


def test_more_processes_than_the_library_has_room_for_are_a_failed_reading(look: Look) -> None:
    fleet = machine("- {model: MI300X, processes: [{count: 1025, memory_used_bytes: 1}]}")
    (sample,) = look("7.0.2", fleet).samples
    assert "processes" not in sample
    assert sample["failed"] == ["processes"]
    assert sample["utilization_ratio"] is not None


@pytest.mark.parametrize("version", WHEELS)
@pytest.mark.parametrize("kind", ["lost", "removed"])
def test_a_gpu_that_is_gone_keeps_its_identity_and_the_others_go_on(look: Look, version: str, kind: str) -> None:
    other = "- {model: MI300X, load: {pattern: constant, watts: 500}}"
    before = machine(f"- {{model: MI300X}}\n{other}")
    after = Machine(machine(f"- {{model: MI300X, faults: [{{kind: {kind}}}]}}\n{other}").scenario, before.epoch)
    seen = look(version, before, then=after)
    gone, alive = seen.samples
    assert gone == {"device": seen.devices[0], "lost": True}
    assert seen.devices[0]["key"] == before.devices[0].key
    assert alive["power_watts"] == 500


def test_partitions_that_change_are_met_by_the_next_read(look: Look) -> None:
    card = "model: MI300X, load: {pattern: constant, watts: 300}"
    before = machine(f"- {{{card}, texts: {{compute_partition: CPX}}, partitions: [{{}}, {{}}, {{}}, {{}}]}}")
    two = machine(f"- {{{card}, texts: {{compute_partition: DPX}}, partitions: [{{}}, {{}}]}}")
    (sample,) = look("7.0.2", before, then=Machine(two.scenario, before.epoch)).samples
    assert [partition["partition"] for partition in sample["partitions"]] == ["0", "1"]
    assert sample["power_watts"] == 300


@pytest.mark.parametrize("version", WHEELS)
def test_without_the_library_the_reason_says_so(look: Look, version: str) -> None:
    assert look(version, machine("- {model: MI300X}"), library="").error == (
        "amdsmi does not find libamd_smi.so: is ROCm installed?"
    )


@pytest.mark.parametrize("version", WHEELS)
def test_without_devices_the_provider_is_open_and_lists_none(look: Look, version: str) -> None:
    seen = look(version, Machine(load_scenario("devices: []"), time.monotonic()))
    assert seen.error is None
    assert seen.devices == []
    assert seen.version is not None


@pytest.mark.parametrize("version", WHEELS)
def test_without_the_driver_the_reason_says_so(look: Look, version: str) -> None:
    seen = look(version, machine("- {model: MI300X}", "driver_loaded: 0"))
    assert seen.error == "AMD SMI: the amdgpu driver is not loaded"


def test_a_driver_that_goes_away_ends_the_pass(look: Look) -> None:
    before = machine("- {model: MI300X}")
    after = Machine(machine("- {model: MI300X}", "driver_loaded: 0").scenario, before.epoch)
    assert look("7.0.2", before, then=after).error == "AMD SMI: the amdgpu driver is not loaded"


@pytest.mark.parametrize(
    ("package", "library"), [(package, library) for package in WHEELS for library in WHEELS if package != library]
)
def test_a_package_and_a_library_of_different_releases_are_refused(look: Look, package: str, library: str) -> None:
    seen = look(package, machine("- {model: MI300X}"), library=library)
    assert seen.error is not None
    assert "does not fit libamd_smi.so" in seen.error
    assert seen.samples == []


def test_what_the_version_check_is_for(tmp_path: Path) -> None:
    """Without it the package of 6.3.3 imports on the library of 7.0 and gives wrong figures, or ends the process."""
    environment = {**amdsmi_tree("6.3.3", tmp_path, library="7.0.2"), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    write_plan(tmp_path / "plan", machine("- {model: MI300X, processes: [{pid: 4242}, {pid: 4243}]}"))
    script = (
        "import amdsmi; amdsmi.amdsmi_init(); handle = amdsmi.amdsmi_get_processor_handles()[0]; "
        "seen = [row['pid'] for row in amdsmi.amdsmi_get_gpu_process_list(handle)]; "
        "assert seen == [4242, 4243], seen"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment, "PYTHONPATH": f"{environment['ROCM_PATH']}/share/amd_smi"},
    )
    assert done.returncode < 0 or "AssertionError: [" in done.stderr, done.stderr


def test_a_copy_on_the_import_path_is_used_where_that_of_rocm_does_not_fit(tmp_path: Path) -> None:
    environment = {**amdsmi_tree("6.3.3", tmp_path, library="7.0.2"), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    write_plan(tmp_path / "plan", machine("- {model: MI300X, load: {pattern: constant, watts: 200}}"))
    seen = parse(run_script(tmp_path, environment, package=unpacked_wheel("7.0.2")))
    assert seen.error is None
    assert seen.version == "26.0.2"
    assert seen.samples[0]["power_watts"] == 200


def test_the_copy_of_rocm_is_found_without_any_variable(tmp_path: Path) -> None:
    amdsmi_tree("6.1.0", tmp_path)
    write_plan(tmp_path / "plan", machine("- {model: MI300X}"))
    environment = {"GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    assert parse(run_script(tmp_path, environment)).version == "24.4.1"


def test_without_any_amdsmi_package_the_reason_says_so(tmp_path: Path) -> None:
    def reason(host: Path) -> str | None:
        return parse(run_script(host, {})).error

    (tmp_path / "bare").mkdir()
    (tmp_path / "rocm/opt/rocm-6.4.1").mkdir(parents=True)
    assert reason(tmp_path / "bare") == "no ROCm was found, and the Python package amdsmi is not installed"
    assert reason(tmp_path / "rocm") == "the Python package amdsmi is not installed, and ROCm brings none"


def test_each_call_that_fails_costs_what_it_would_have_told_and_nothing_else(tmp_path: Path) -> None:
    outcomes = swept("amd", "errors", tmp_path, amdsmi_tree("7.0.2", tmp_path))
    assert min(outcomes[kind] for kind in ("absent", "fails", "provider down")) > 10, outcomes


def test_garbage_in_any_number_is_no_reading(tmp_path: Path) -> None:
    outcomes = swept("amd", "garbage", tmp_path, amdsmi_tree("7.0.2", tmp_path))
    assert outcomes["rejected"] > 100, outcomes


@pytest.mark.parametrize("version", ["6.0.2", "7.0.2"])
def test_a_card_that_sleeps_at_the_start_is_listed_unasked(look: Look, tmp_path: Path, version: str) -> None:
    both = machine(
        "- {model: RX-9070, load: {pattern: constant, watts: 90}}\n- {model: RX-9070, faults: [{kind: asleep}]}"
    )
    for device, status in zip(both.devices, ("active", "suspended"), strict=True):
        pci = tmp_path / "sys/bus/pci/devices" / device.texts["pci_address"]
        (pci / "power").mkdir(parents=True)
        (pci / "power/runtime_status").write_text(f"{status}\n")
        (pci / "unique_id").write_text(f"{device.key}\n")
    awake, asleep = look(version, both).samples
    assert awake["power_watts"] == 90
    assert asleep["asleep"] is True
    assert asleep["device"]["key"] == both.devices[1].key
