"""The real amdsmi packages, over the C stand-in of the same ROCm release: every reading, and every way to fail."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exporter.providers.simulated.device import Accumulator, SimulatedDevice, Stretch
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.physics import Track
from exporter.providers.simulated.scenario import load_scenario
from tests.native.amdsmi_layout import LIBRARY_VERSIONS, WHEELS, amdsmi_tree, unpacked_wheel
from tests.native.plan import write_plan

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 2.0**20
SHARED = ("6.0.2", "6.1.0", "6.1.2", "6.2.4", "6.3.3")
"""Releases on which each partition repeats the readings of the whole card."""

# Opens the provider as a worker does and prints what it saw. Standard output must hold this and nothing else.
SCRIPT = """
import os, sys
from pathlib import Path
import msgspec
from exporter.model import Group
from exporter.providers.amd import open_amd
from exporter.providers.protocol import OpenContext, ProviderError

os.chdir("/")
calls = 0
def between_calls():
    global calls
    calls += 1

seen = {"devices": [], "samples": [], "version": None, "error": None}
try:
    provider, seen["version"] = open_amd(OpenContext(between_calls=between_calls, root=Path(sys.argv[1])))
    seen["devices"] = provider.devices()
    for command in sys.argv[2].split():
        if command == "swap":
            os.replace(os.environ["GPU_EXPORTER_PLAN"] + ".next", os.environ["GPU_EXPORTER_PLAN"])
        else:
            seen["samples"] = [provider.read(device, frozenset(Group)) for device in seen["devices"]]
    provider.close()
except ProviderError as error:
    seen["error"] = str(error)
seen["calls"] = calls
sys.stdout.write(msgspec.json.encode(seen).decode())
"""


@dataclasses.dataclass
class Seen:
    devices: list[dict[str, Any]]
    samples: list[dict[str, Any]]
    version: str | None
    error: str | None
    calls: int


Look = Callable[..., Seen]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """Return a function that runs the provider of one wheel over a machine in a process of its own."""

    def run(version: str, machine: Any, *, library: str | None = None, then: Any = None) -> Seen:
        environment = {**amdsmi_tree(version, tmp_path, library=library), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
        write_plan(tmp_path / "plan", machine)
        if then is not None:
            write_plan(tmp_path / "plan.next", then)
        return parse(run_script(tmp_path, environment, "read" if then is None else "read swap read"))

    return run


def run_script(
    root: Path, environment: Mapping[str, str], commands: str = "read", *, package: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run SCRIPT with no other amdsmi on the import path than `package`: -S leaves out what is installed here."""
    needed = root / "needed"
    needed.mkdir(exist_ok=True)
    (needed / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    path = [str(place) for place in (needed, REPOSITORY, package) if place]
    return subprocess.run(
        [sys.executable, "-S", "-c", SCRIPT, str(root), commands],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **environment},
    )


def parse(done: subprocess.CompletedProcess[str]) -> Seen:
    assert done.returncode == 0, (done.returncode, done.stderr)
    return Seen(**json.loads(done.stdout))


def machine(devices: str, head: str = "") -> Machine:
    return Machine(load_scenario(f"{head}\ndevices:\n{devices}"), time.monotonic() - 1000)


def bare(*devices: SimulatedDevice) -> Any:
    """Return a machine of devices made by hand, in the form that write_plan takes."""

    @dataclasses.dataclass
    class Bench:
        devices: tuple[SimulatedDevice, ...]
        epoch: float = dataclasses.field(default_factory=lambda: time.monotonic() - 1000)
        texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
        numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)
        faults: tuple[()] = ()

    return Bench(devices)


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
    assert sample["energy_counter_joules"] == pytest.approx(counter, abs=power * 0.1 + 0.001)
    assert sample["energy_counter_at"] == pytest.approx(at - fleet.epoch, abs=0.2)
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


@pytest.mark.parametrize("version", WHEELS)
def test_bystanders_are_left_out_and_counted(look: Look, version: str, tmp_path: Path) -> None:
    rows = [f"{{pid: {100 + n}, name: python3, memory_used_bytes: 0, queues: 0}}" for n in range(7)]
    rows.append("{pid: 4242, name: /opt/bin/vllm, memory_used_bytes: 177386942464}")
    rows.append("{pid: 5000000, name: '', memory_used_bytes: 5}")
    rows.append("{pid: 300, name: '', memory_used_bytes: 1048576}")
    rows.append("{pid: 301, name: '', memory_used_bytes: 1048576}")
    fleet = machine(f"- model: MI300X\n  values: {{kfd_gpu_id: 51234}}\n  processes: [{', '.join(rows)}]")
    # pid 106 has a queue on this GPU and no memory of it; pid 105 has one on another GPU.
    for pid, gpu_id in ((106, 51234), (105, 999)):
        queue = tmp_path / f"sys/class/kfd/kfd/proc/{pid}/queues/0"
        queue.mkdir(parents=True)
        (queue / "gpuid").write_text(f"{gpu_id}\n")
    node = tmp_path / "sys/class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    pci = fleet.devices[0].numbers
    location = int(pci["pci_bus"]) << 8 | int(pci["pci_device"]) << 3
    (node / "properties").write_text(f"simd_count 1216\ndomain {pci['pci_domain']:.0f}\nlocation_id {location}\n")
    (node / "gpu_id").write_text("51234\n")
    (tmp_path / "proc/300").mkdir(parents=True)
    (tmp_path / "proc/300/comm").write_text("ollama\n")
    (sample,) = look(version, fleet).samples
    assert sample["processes"] == [
        {"pid": 106, "name": "python3", "memory_used_bytes": 0},
        {"pid": 300, "name": "ollama", "memory_used_bytes": 1048576},
        {"pid": 301, "name": "pid 301", "memory_used_bytes": 1048576},
        {"pid": 4242, "name": "vllm", "memory_used_bytes": 177386942464},
    ]
    assert sample["process_counts"] == {"holding": 4, "bystander": 6, "uninspectable": 1}
    assert sample["rejected"] == ["processes"]


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
def test_an_accumulator_of_all_ones_is_no_value_and_zero_is_one(look: Look, version: str) -> None:
    fleet = machine("- {model: MI300X, accumulator: {kind: ones}}\n- {model: MI300X, accumulator: {kind: zero}}")
    ones, zero = look(version, fleet).samples
    assert "energy_counter_joules" not in ones
    assert "energy_counter_at" not in ones
    assert zero["energy_counter_joules"] == 0
    assert ones.get("failed", []) == ones.get("rejected", []) == []


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
        assert first["process_counts"] == {"holding": 1, "bystander": 0, "uninspectable": 1}
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
