"""The real pynvml over the C stand-in: every reading of each kind of GPU."""

import math

import pytest

from exporter.model import Device, Fabric, Group, Sample
from exporter.providers.simulated.properties import NUMBERS
from exporter.providers.simulated.schema import (
    Counter,
    DeviceSpec,
    FaultSpec,
    Load,
    Texts,
    Values,
)
from tests.integration.nvidia import MIB, Start, constant, first, machine

H100 = Values(
    power_watts=500.123,
    memory_power_watts=61.5,
    power_limit_watts=650.0,
    utilization_ratio=0.87,
    memory_controller_utilization_ratio=0.35,
    encoder_utilization_ratio=0.01,
    decoder_utilization_ratio=0.02,
    jpeg_utilization_ratio=0.03,
    ofa_utilization_ratio=0.04,
    memory_used_bytes=40_000 * MIB,
    temperature_gpu_celsius=61.0,
    temperature_memory_celsius=70.0,
    temperature_margin_celsius=26.0,
    clock_graphics_hertz=1.755e9,
    clock_sm_hertz=1.74e9,
    clock_memory_hertz=2.619e9,
    clock_video_hertz=1.29e9,
    performance_state=0,
    throttle_sw_power_cap=1,
    throttle_sw_power_cap_seconds=12.5,
    throttle_hw_thermal_seconds=0.25,
    ecc_corrected=3,
    ecc_uncorrected=0,
    ecc_lifetime_corrected=65_535,
    ecc_lifetime_uncorrected=1,
    remapped_corrected=1,
    remap_pending=1,
    pcie_generation=5,
    pcie_width=8,
    pcie_width_max=16,
    pcie_replays=7,
    pci_subsystem_id=0x16C1,
)


def test_every_reading_of_an_h100(start: Start) -> None:
    texts = Texts(serial="1652922001234", pci_address="0000:db:00.0", vbios_version="96.00.74.00.01")
    truth = machine(constant("H100-SXM", values=H100, texts=texts), library_version="13.580.95.05")
    with start(truth) as served:
        assert served.open() == "13.580.95.05"
        (device,) = served.devices()
        sample = served.read(device)
    assert device == Device(
        vendor="nvidia",
        key=truth.devices[0].texts["uuid"],
        model="NVIDIA H100 80GB HBM3",
        pci_address="0000:db:00.0",
        serial="1652922001234",
        vendor_uuid=truth.devices[0].texts["uuid"],
        index=0,
        minor=0,
        architecture="Hopper",
        driver_version="580.95.05",
        memory_kind="dedicated",
        firmware={"vbios": "96.00.74.00.01"},
    )
    links = sample.links
    assert links is not None
    assert (len(links), {link.up for link in links}) == (18, {True})
    joules = sample.energy_counter_joules
    at = sample.taken_at[Group.ENERGY]
    assert joules == pytest.approx(truth.energy_joules(device.key, at), abs=500.123 * 0.15)
    assert sample == Sample(
        device=device,
        taken_at=sample.taken_at,
        read_seconds=sample.read_seconds,
        power_watts=500.123,
        power_kind="average",
        power_window_seconds=1.0,
        power_limit_watts=650.0,
        power_limit_default_watts=700.0,
        memory_power_watts=61.5,
        energy_counter_joules=joules,
        utilization_ratio=0.87,
        memory_controller_utilization_ratio=0.35,
        engine_utilization_ratio={"encoder": 0.01, "decoder": 0.02, "jpeg": 0.03, "ofa": 0.04},
        memory_used_bytes=40_000.0 * MIB,
        memory_size_bytes=81_559.0 * MIB,
        memory_reserved_bytes=480.0 * MIB,
        temperature_celsius={"gpu": 61.0, "memory": 70.0},
        temperature_margin_celsius=26.0,
        clock_hertz={"graphics": 1.755e9, "sm": 1.74e9, "memory": 2.619e9, "video": 1.29e9},
        performance_state=0.0,
        throttled={
            "application_clocks": False,
            "display_clocks": False,
            "hw_power_brake": False,
            "hw_slowdown": False,
            "hw_thermal": False,
            "idle": False,
            "sw_power_cap": True,
            "sw_thermal": False,
            "sync_boost": False,
        },
        throttle_seconds={
            "sw_power_cap": 12.5,
            "sync_boost": 0.0,
            "sw_thermal": 0.0,
            "hw_thermal": 0.25,
            "hw_power_brake": 0.0,
        },
        ecc_errors={"corrected": 3.0, "uncorrected": 0.0},
        ecc_lifetime_errors={"corrected": 65_535.0, "uncorrected": 1.0},
        memory_remap_failed=False,
        memory_remap_pending=True,
        pcie_link_generation=5.0,
        pcie_link_width=8.0,
        pcie_link_width_max=16.0,
        pcie_replays=7.0,
        links=links,
        fabric=Fabric(state="completed"),
        recovery_action="none",
        error_event_kinds=("xid",),
        partitions=(),
        processes=(),
        process_counts={"holding": 0, "unnamed": 0, "uninspectable": 0, "self": 0},
    )


def test_a100_has_no_average_and_absolute_thresholds(start: Start) -> None:
    with start(machine(constant("A100-SXM", watts=300.0))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (300.0, "instant", 0.0)
    assert sample.temperature_limit_celsius == {"shutdown": 92.0, "slowdown": 89.0, "memory": 95.0, "target": 85.0}
    assert (sample.temperature_margin_celsius, sample.memory_power_watts, sample.module_power_watts) == (None,) * 3
    assert sample.device.architecture == "Ampere"
    assert sample.energy_counter_joules is not None
    assert sample.failed == sample.rejected == ()


def test_a100_of_a_driver_without_power_fields_reads_the_plain_power(start: Start) -> None:
    no_fields = FaultSpec(kind="error", call="nvmlDeviceGetFieldValues", status=13)
    with start(machine(constant("A100-SXM", watts=300.0, faults=(no_fields,)))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (300.0, "instant", 0.0)
    assert sample.failed == ()


def test_t4(start: Start) -> None:
    values = Values(retired_pages_single_bit=2, retired_pages_double_bit=1, memory_used_bytes=0)
    with start(machine(constant("T4", watts=70.0, values=values))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (70.0, "instant", 0.0)
    assert sample.retired_pages == {"single_bit": 2.0, "double_bit": 1.0}
    assert sample.memory_remap_failed is None
    assert set(sample.temperature_celsius) == {"gpu"}
    assert set(sample.engine_utilization_ratio) == {"encoder", "decoder"}
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (0.0, 15_360.0 * MIB)
    assert sample.fan_speed_ratio is None
    assert sample.partitions is None
    assert sample.device.architecture == "Turing"
    assert sample.failed == sample.rejected == ()


def test_accumulator_of_gh200_is_that_of_the_module(start: Start) -> None:
    truth = machine(constant("GH200", watts=400.0))
    with start(truth) as served:
        sample = first(served)
    assert (sample.power_watts, sample.module_power_watts, sample.power_kind) == (400.0, 540.0, "average")
    assert sample.energy_counter_joules is None
    assert sample.module_energy_counter_joules == pytest.approx(540.0 * 1000.0, rel=0.02)
    assert sample.power_scope == "gpu"


def test_gb200_has_an_accumulator_of_its_own_beside_that_of_the_module(start: Start) -> None:
    with start(machine(constant("GB200", watts=900.0))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.module_power_watts) == (900.0, 1201.3)
    assert sample.energy_counter_joules == pytest.approx(900.0 * 1000.0, rel=0.02)
    assert sample.module_energy_counter_joules == pytest.approx(1201.3 * 1000.0, rel=0.02)


def test_jetson_is_a_device_of_which_nothing_can_be_read(start: Start) -> None:
    jetson = DeviceSpec(
        model="T4",
        texts=Texts(name="Orin (nvgpu)"),
        absent=(*NUMBERS, "power_usage_kind", "vbios_version", "serial"),
        accumulator=Counter(kind="absent"),
    )
    with start(machine(jetson)) as served:
        served.open()
        (device,) = served.devices()
        sample = served.read(device)
    assert (device.model, device.pci_address, device.memory_kind) == ("Orin (nvgpu)", None, "unified")
    assert sample == Sample(
        device=device,
        taken_at=sample.taken_at,
        read_seconds=sample.read_seconds,
        processes=(),
        process_counts={"holding": 0, "unnamed": 0, "uninspectable": 0, "self": 0},
    )


def test_memory_of_a_driver_before_510_counts_what_is_reserved(start: Start) -> None:
    older = FaultSpec(kind="error", call="nvmlDeviceGetMemoryInfo_v2", status=13)
    values = Values(memory_used_bytes=1_000.0 * MIB)
    with start(machine(constant("H100-SXM", values=values, faults=(older,)))) as served:
        sample = first(served)
    assert (sample.memory_used_bytes, sample.memory_reserved_bytes) == (1_480.0 * MIB, None)


def test_older_names_and_calls_stand_in(start: Start) -> None:
    missing = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    faults = tuple(FaultSpec(kind="error", call=call, status=13) for call in missing)
    values = Values(temperature_gpu_celsius=55, throttle_hw_thermal=1)
    with start(machine(constant("H100-SXM", values=values, faults=faults))) as served:
        sample = first(served)
    assert sample.temperature_celsius["gpu"] == 55.0
    assert sample.throttled["hw_thermal"]
    assert sample.failed == ()


def test_bytes_that_are_not_utf8_survive_in_a_name(start: Start) -> None:
    with start(machine(constant("H100-SXM", texts=Texts(name="NVIDIA \udcff100")))) as served:
        served.open()
        (device,) = served.devices()
    assert device.model == "NVIDIA \ufffd100"


def test_sentinels_are_absent_and_garbage_is_rejected(start: Start) -> None:
    ones = FaultSpec(kind="ones", readings=("power_watts", "memory_used_bytes", "clock_sm_hertz", "ecc_corrected"))
    garbage = FaultSpec(kind="garbage", values=Values(utilization_ratio=42.0, temperature_gpu_celsius=9_999.0))
    silent = Counter(kind="ones")
    with start(machine(constant("H100-SXM", faults=(ones, garbage), accumulator=silent))) as served:
        sample = first(served)
    assert (sample.power_watts, sample.energy_counter_joules, sample.memory_used_bytes) == (None, None, None)
    assert "sm" not in sample.clock_hertz
    assert sample.ecc_errors == {"uncorrected": 0.0}
    assert sample.utilization_ratio is None
    assert "gpu" not in sample.temperature_celsius
    assert set(sample.rejected) == {"utilization_ratio", "temperature_celsius"}
    assert sample.failed == ()


def test_accumulator_grows_as_the_truth_does(start: Start) -> None:
    load = Load(pattern="square", low_watts=100.0, watts=650.0, period_seconds=0.7)
    truth = machine(DeviceSpec(model="H100-SXM", load=load, accumulator=Counter(start_joules=1e9)))
    with start(truth) as served:
        served.open()
        (device,) = served.devices()
        samples = [served.read(device, Group.ENERGY) for _ in range(40)]
    joules = [s.energy_counter_joules or math.nan for s in samples]
    assert joules == sorted(joules)
    for s, value in zip(samples, joules, strict=True):
        true = 1e9 + truth.energy_joules(device.key, s.taken_at[Group.ENERGY])
        assert true - 650.0 * 0.12 <= value <= true + 650.0 * 0.02
