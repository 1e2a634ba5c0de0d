"""The daemon over the real vendor packages and the C stand-ins: the page shows what the machine's physics say."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.metrics import METRIC_NAMES
from exporter.providers.simulated.device import SimulatedDevice
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree
from tests.native.plan import standin_environment, write_plan

MIB = 2.0**20

NVIDIA_FLEET = """
devices:
  - model: H100-SXM
    load: {pattern: constant, watts: 500.125}
    values:
      utilization_ratio: 0.87
      memory_controller_utilization_ratio: 0.35
      encoder_utilization_ratio: 0.01
      decoder_utilization_ratio: 0.02
      memory_used_bytes: 41943040000
      memory_power_watts: 61.5
      power_limit_watts: 650
      temperature_gpu_celsius: 61
      temperature_memory_celsius: 70
      temperature_margin_celsius: 26
      clock_graphics_hertz: 1.755e+9
      clock_sm_hertz: 1.74e+9
      clock_memory_hertz: 2.619e+9
      clock_video_hertz: 1.29e+9
      performance_state: 0
      throttle_sw_power_cap: 1
      throttle_hw_thermal: 0
      ecc_corrected: 3
      ecc_uncorrected: 0
      ecc_lifetime_corrected: 11
      ecc_lifetime_uncorrected: 1
      remap_pending: 1
      remap_failed: 0
      pcie_generation: 5
      pcie_width: 8
      pcie_width_max: 16
      pcie_replays: 7
    texts: {serial: "1652922001234", pci_address: "0000:db:00.0"}
    processes:
      - {pid: 4000001, memory_used_bytes: 41900048384}
      - {pid: 4000002, kind: graphics}
  - model: T4
    load: {pattern: constant, watts: 70}
    values: {retired_pages_single_bit: 2, retired_pages_double_bit: 1, memory_used_bytes: 0, utilization_ratio: 0}
  - model: A100-SXM
    load: {pattern: constant, watts: 300}
    partitions:
      - {profile: 3g.40gb, gi: 1, ci: 0, uuid: MIG-a, memory_used_bytes: 31457280000}
      - {profile: 2g.20gb, gi: 5, ci: 0, uuid: MIG-b, memory_used_bytes: 104857600}
  - model: GH200
    load: {pattern: constant, watts: 400}
"""

PROFILED = """
  - {model: GB200, faults: [{kind: event, code: 31, from_seconds: 1000, every_seconds: 1, lasting_seconds: 0.5}]}
  - {model: H100-SXM, partitions: [{profile: 1g.10gb}]}
"""

AMD_FLEET = """
driver_version: 6.12.12
devices:
  - model: MI300X
    load: {pattern: constant, watts: 717}
    values: {ecc_corrected: 7, ecc_uncorrected: 2, ecc_deferred: 1, pcie_replays: 3, pcie_width: 8}
    processes:
      - {pid: 4000001, name: train, memory_used_bytes: 8589934592, queues: 2}
      - {pid: 4000002, name: launcher, memory_used_bytes: 0, queues: 0}
  - {model: MI210, load: {pattern: constant, watts: 211}}
  - {model: RX-9070, load: {pattern: constant, watts: 174}}
"""
PARTITIONED = """
  - {model: MI300X, load: {pattern: constant, watts: 600}, texts: {compute_partition: CPX}}
"""
WITH_ERRORS = """
  - model: MI300X
    faults: [{kind: event, event: afid, code: 17, from_seconds: 1000, every_seconds: 1, lasting_seconds: 0.5}]
"""

Start = Callable[..., Daemon]


def machine(text: str) -> Machine:
    return Machine(load_scenario(text, name="fleet.yaml"), time.monotonic() - 1000)


def settled(daemon: Daemon, count: int) -> Samples:
    """Return a page after every group of every device was read twice in the energy group."""
    return daemon.scrape_until(
        lambda page: (
            len(page.all("gpu_energy_joules_total")) == count
            and all(value > 0 for _, value in page.all("gpu_energy_covered_seconds_total"))
        )
    )


def assert_joules(daemon: Daemon, fleet: Machine, device: SimulatedDevice, watts: float) -> None:
    """Over the time between two pages, joules are watts times seconds."""
    first, began = daemon.scrape(), time.monotonic()
    time.sleep(1.5)
    last, ended = daemon.scrape(), time.monotonic()
    used = last.value("gpu_energy_joules_total", uuid=device.key) - first.value(
        "gpu_energy_joules_total", uuid=device.key
    )
    # Each page holds a reading made for it, not older than 50 ms, by sensors that update every 0.1 s.
    assert used == pytest.approx(watts * (ended - began), abs=watts * 0.4)
    hardware = [page.get("gpu_energy_hardware_joules_total", uuid=device.key) for page in (first, last)]
    if fleet.counter_joules(device.key, ended):
        assert hardware[0] is not None
        assert hardware[1] is not None
        assert hardware[1] - hardware[0] == pytest.approx(watts * (ended - began), abs=watts * 0.4)


def test_every_reading_of_nvidia_gpus_reaches_the_page(start_daemon: Start, tmp_path: Path) -> None:
    fleet = machine(NVIDIA_FLEET)
    h100, t4, a100, gh200 = fleet.devices
    write_plan(tmp_path / "plan", fleet)
    daemon = start_daemon("--provider", "nvidia", env=standin_environment(tmp_path / "plan"))
    page = settled(daemon, 4)

    uuid = h100.key
    info = page.labels("gpu_info", uuid=uuid)
    assert info["vendor"] == "nvidia"
    assert info["model"] == "NVIDIA H100 80GB HBM3"
    assert info["serial"] == "1652922001234"
    assert info["pci_address"] == "0000:db:00.0"
    assert info["vendor_uuid"] == uuid
    assert info["index"] == info["minor"] == "0"
    assert info["driver_version"] == h100.texts["driver_version"]
    assert info["architecture"] == "Hopper"
    assert info["memory_kind"] == "dedicated"
    assert info["provider"] == "nvidia"
    assert page.labels("gpu_firmware_info", uuid=uuid, component="vbios")["version"] == h100.texts["vbios_version"]
    assert page.value("gpu_up", uuid=uuid) == 1
    assert page.value("gpu_state", uuid=uuid, state="ok") == 1
    expected = {
        "gpu_power_watts": 500.125,
        "gpu_memory_power_watts": 61.5,
        "gpu_power_limit_watts": 650,
        "gpu_power_limit_default_watts": 700,
        "gpu_utilization_ratio": 0.87,
        "gpu_memory_controller_utilization_ratio": 0.35,
        "gpu_memory_used_bytes": 41943040000,
        "gpu_memory_size_bytes": 81559 * MIB,
        "gpu_memory_reserved_bytes": 480 * MIB,
        "gpu_temperature_margin_celsius": 26,
        "gpu_performance_state": 0,
        "gpu_memory_remap_pending": 1,
        "gpu_memory_remap_failed": 0,
        "gpu_pcie_link_generation": 5,
        "gpu_pcie_link_width": 8,
        "gpu_pcie_link_width_max": 16,
        "gpu_pcie_replays_total": 7,
        "gpu_energy_qualified": 0,
    }
    assert {name: page.value(name, uuid=uuid) for name in expected} == pytest.approx(expected)
    labelled = {
        ("gpu_engine_utilization_ratio", "engine", "encoder"): 0.01,
        ("gpu_engine_utilization_ratio", "engine", "decoder"): 0.02,
        ("gpu_temperature_celsius", "sensor", "gpu"): 61,
        ("gpu_temperature_celsius", "sensor", "memory"): 70,
        ("gpu_clock_hertz", "domain", "graphics"): 1.755e9,
        ("gpu_clock_hertz", "domain", "sm"): 1.74e9,
        ("gpu_clock_hertz", "domain", "memory"): 2.619e9,
        ("gpu_clock_hertz", "domain", "video"): 1.29e9,
        ("gpu_throttled", "reason", "sw_power_cap"): 1,
        ("gpu_throttled", "reason", "hw_thermal"): 0,
        ("gpu_ecc_errors_total", "class", "corrected"): 3,
        ("gpu_ecc_errors_total", "class", "uncorrected"): 0,
        ("gpu_ecc_lifetime_errors_total", "class", "corrected"): 11,
        ("gpu_ecc_lifetime_errors_total", "class", "uncorrected"): 1,
        ("gpu_process_memory_used_bytes", "pid", "4000001"): 41900048384,
        ("gpu_processes", "state", "unnamed"): 1,
        ("gpu_processes", "state", "uninspectable"): 1,
        ("gpu_power_reading_info", "kind", "average"): 1,
    }
    assert {key: page.value(key[0], uuid=uuid, **{key[1]: key[2]}) for key in labelled} == pytest.approx(labelled)
    assert page.labels("gpu_power_reading_info", uuid=uuid)["window"] == "1s"
    # The driver does not know what the second one holds.
    assert page.all("gpu_process_memory_used_bytes", pid="4000002") == []
    assert_joules(daemon, fleet, h100, 500.125)

    assert page.value("gpu_power_watts", uuid=t4.key) == 70
    assert page.labels("gpu_power_reading_info", uuid=t4.key)["kind"] == "instant"
    assert page.value("gpu_retired_pages", uuid=t4.key, cause="single_bit") == 2
    assert (
        page.value("gpu_temperature_limit_celsius", uuid=t4.key, sensor="shutdown")
        == t4.numbers["temperature_limit_shutdown_celsius"]
    )
    assert page.value("gpu_memory_used_bytes", uuid=t4.key) == 0
    assert page.value("gpu_utilization_ratio", uuid=t4.key) == 0
    assert page.all("gpu_memory_power_watts", uuid=t4.key) == []
    assert page.all("gpu_fan_speed_ratio", uuid=t4.key) == []

    assert page.labels("gpu_info", uuid=a100.key)["partition_mode"] == "mig"
    assert page.all("gpu_utilization_ratio", uuid=a100.key) == []
    assert page.value("gpu_power_watts", uuid=a100.key) == 300
    assert page.labels("gpu_partition_info", uuid=a100.key, partition="gi1")["partition_uuid"] == "MIG-a"
    assert page.value("gpu_partition_memory_used_bytes", uuid=a100.key, partition="gi1") == 31457280000
    assert page.value("gpu_partition_memory_used_bytes", uuid=a100.key, partition="gi5") == 104857600
    # Instances own no sensor: the sum over all series of power and energy is that of the boards.
    assert len(page.all("gpu_power_watts")) == 4
    assert len(page.all("gpu_energy_joules_total")) == 4

    assert page.value("gpu_module_power_watts", uuid=gh200.key) == 540
    # The accumulator counts the module: it is no evidence for the GPU, whose energy is integrated.
    assert page.all("gpu_energy_hardware_joules_total", uuid=gh200.key) == []
    # It is renewed ten times a second: two reads may find the same value.
    daemon.scrape_until(lambda page: page.value("gpu_module_energy_joules_total", uuid=gh200.key) > 0)
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 1
    assert page.labels("gpu_exporter_provider_info", provider="nvidia")["reason"] == ""
    assert page.all("gpu_exporter_read_failures_total") == []
    assert page.all("gpu_exporter_rejected_readings_total") == []


@pytest.mark.parametrize("version", WHEELS)
def test_every_reading_of_amd_gpus_reaches_the_page(start_daemon: Start, tmp_path: Path, version: str) -> None:
    fleet = machine(AMD_FLEET)
    mi300x, mi210, radeon = fleet.devices
    write_plan(tmp_path / "plan", fleet)
    environment = {**amdsmi_tree(version, tmp_path), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    daemon = start_daemon("--provider", "amd", env=environment)
    page = settled(daemon, 3)
    for device, watts, kind in ((mi300x, 717, "instant"), (mi210, 211, "average"), (radeon, 174, "average")):
        info = page.labels("gpu_info", uuid=device.key)
        assert info["vendor"] == "amd"
        assert info["model"] == device.texts["name"]
        assert info["pci_address"] == device.texts["pci_address"]
        assert info["serial"] == device.texts["serial"]
        assert info["vendor_uuid"] == device.texts["uuid"]
        assert info["driver_version"] == "6.12.12"
        assert info["memory_kind"] == "dedicated"
        assert info["provider"] == "amd"
        assert page.labels("gpu_firmware_info", uuid=device.key)["version"] == device.texts["vbios_version"]
        assert page.value("gpu_up", uuid=device.key) == 1
        assert page.value("gpu_state", uuid=device.key, state="ok") == 1
        assert page.value("gpu_power_watts", uuid=device.key) == watts
        assert page.labels("gpu_power_reading_info", uuid=device.key) == {
            **{name: info[name] for name in ("gpu", "uuid")},
            "kind": kind,
            "window": "unknown",
            "scope": "gpu",
        }
        assert_amd_readings(page, fleet, device, version)
    assert page.labels("gpu_info", uuid=mi300x.key)["partition_mode"] == "SPX/NPS1"
    assert page.value("gpu_process_memory_used_bytes", uuid=mi300x.key, pid="4000001", name="train") == 8589934592
    assert page.all("gpu_process_memory_used_bytes", pid="4000002") == []
    assert page.value("gpu_processes", uuid=mi300x.key, state="holding") == 1
    assert page.value("gpu_processes", uuid=mi300x.key, state="bystander") == 1
    # Its accumulator stands at 0, which is none.
    assert page.all("gpu_energy_hardware_joules_total", uuid=radeon.key) == []
    assert page.all("gpu_exporter_read_failures_total") == []
    assert page.all("gpu_exporter_rejected_readings_total") == []
    for device, watts in ((mi300x, 717), (mi210, 211), (radeon, 174)):
        used = page.value("gpu_energy_joules_total", uuid=device.key)
        covered = page.value("gpu_energy_covered_seconds_total", uuid=device.key)
        assert used == pytest.approx(watts * covered, rel=0.01)
    assert_joules(daemon, fleet, mi300x, 717)
    frozen_for_ever = daemon.scrape().value("gpu_energy_qualified", uuid=radeon.key)
    assert frozen_for_ever == 0


def assert_amd_readings(page: Samples, fleet: Machine, device: SimulatedDevice, version: str) -> None:
    """Compare with the machine, whose load is constant; AMD counts in whole percent, degrees, MHz and 1/255."""
    now = time.monotonic() - fleet.epoch

    def family(name: str, label: str) -> dict[str, float]:
        return {labels[label]: value for labels, value in page.all(name, uuid=device.key)}

    def truth(form: str, names: str) -> dict[str, float]:
        found = {name: device.signal(form.format(name), now) for name in names.split()}
        return {name: value for name, value in found.items() if value is not None}

    plain = {
        "gpu_power_limit_watts": "power_limit_watts",
        "gpu_power_limit_default_watts": "power_limit_default_watts",
        "gpu_memory_used_bytes": "memory_used_bytes",
        "gpu_memory_size_bytes": "memory_size_bytes",
        "gpu_system_memory_used_bytes": "gtt_used_bytes",
        "gpu_system_memory_size_bytes": "gtt_size_bytes",
        "gpu_pcie_link_generation": "pcie_generation",
        "gpu_pcie_link_width": "pcie_width",
        "gpu_pcie_link_width_max": "pcie_width_max",
        "gpu_pcie_replays_total": "pcie_replays",
    }
    if version == "6.0.2":  # does not count replays
        del plain["gpu_pcie_replays_total"]
    shown = {name: page.get(name, uuid=device.key) for name in plain}
    assert shown == {name: device.signal(signal, now) for name, signal in plain.items()}
    for name in ("utilization_ratio", "memory_controller_utilization_ratio"):
        assert page.value(f"gpu_{name}", uuid=device.key) == pytest.approx(device.signal(name, now), abs=0.0051)
    assert family("gpu_engine_utilization_ratio", "engine") == truth("{}_utilization_ratio", "media")
    assert page.get("gpu_fan_speed_ratio", uuid=device.key) == pytest.approx(
        device.signal("fan_ratio", now), abs=0.5 / 255
    )
    sensors = "edge hotspot memory hbm0 hbm1 hbm2 hbm3"
    temperatures = truth("temperature_{}_celsius", sensors)
    assert temperatures
    assert family("gpu_temperature_celsius", "sensor") == pytest.approx(temperatures, abs=1)
    limits = truth("temperature_limit_{}_celsius", "shutdown slowdown memory")
    assert family("gpu_temperature_limit_celsius", "sensor") == limits
    clocks = truth("clock_{}_hertz", "graphics memory soc fabric video")
    assert clocks
    assert family("gpu_clock_hertz", "domain") == pytest.approx(clocks, abs=0.5e6)
    classes = "corrected uncorrected" + (" deferred" if version not in {"6.0.2", "6.1.0"} else "")
    assert family("gpu_ecc_errors_total", "class") == truth("ecc_{}", classes)


AMD_ALONE = {
    "gpu_fan_speed_ratio",  # no model of NVIDIA's here has a fan
    "gpu_memory_visible_size_bytes",
    "gpu_memory_visible_used_bytes",
    "gpu_partition_utilization_ratio",  # NVML does not tell it of MIG instances
    "gpu_system_memory_size_bytes",
    "gpu_system_memory_used_bytes",
}
NVIDIA_ALONE = {
    "gpu_dram_active_ratio",
    "gpu_ecc_lifetime_errors_total",
    "gpu_fabric_info",
    "gpu_fabric_state",
    "gpu_interconnect_errors_total",
    "gpu_memory_power_watts",
    "gpu_memory_remap_failed",
    "gpu_memory_remap_pending",
    "gpu_memory_reserved_bytes",
    "gpu_module_energy_joules_total",
    "gpu_module_power_watts",
    "gpu_partition_sm_active_ratio",
    "gpu_pcie_receive_bytes_total",
    "gpu_pcie_transmit_bytes_total",
    "gpu_performance_state",
    "gpu_recovery_action",
    "gpu_retired_pages",
    "gpu_sm_active_ratio",
    "gpu_sm_occupancy_ratio",
    "gpu_temperature_margin_celsius",
    "gpu_tensor_active_ratio",
}
WHERE_SOMETHING_IS_WRONG = {
    "gpu_exporter_read_failures_total",
    "gpu_exporter_rejected_readings_total",
    "gpu_exporter_series_dropped",
}
AFTER_MINUTES = {"gpu_energy_divergence_ratio"}


@pytest.mark.parametrize("vendor", ["nvidia", "amd"])
def test_every_metric_of_the_table_is_filled_by_each_vendor_that_can(
    start_daemon: Start, tmp_path: Path, vendor: str
) -> None:
    fleet = machine(NVIDIA_FLEET + PROFILED if vendor == "nvidia" else AMD_FLEET + PARTITIONED + WITH_ERRORS)
    write_plan(tmp_path / "plan", fleet)
    environment = standin_environment(tmp_path / "plan")
    if vendor == "amd":
        environment |= amdsmi_tree("7.0.2", tmp_path)
    (tmp_path / "jobs").mkdir()
    for number in range(len(fleet.devices)):
        (tmp_path / "jobs" / str(number)).write_text("17\n")
    config = tmp_path / "config.yaml"
    on_request = "sampling: {profiling_seconds: 1, pcie_bytes: true}\n"
    config.write_text(f"{on_request}metrics: {{links: each}}\nattribution: {{job_files: {tmp_path}/jobs}}\n")
    arguments = ("--provider", vendor, "--config.file", str(config), "--journal.directory", str(tmp_path / "journal"))
    daemon = start_daemon(*arguments, env=environment)
    absent = (NVIDIA_ALONE if vendor == "amd" else AMD_ALONE) | WHERE_SOMETHING_IS_WRONG | AFTER_MINUTES
    # AMD's throttling is told from two reads, which are 5 s apart, and figures of a pass come when it is over.
    deadline = time.monotonic() + 40
    page = daemon.scrape()
    while set(page.series) != METRIC_NAMES - absent and time.monotonic() < deadline:
        time.sleep(0.2)
        page = daemon.scrape()
    assert set(page.series) == METRIC_NAMES - absent
