"""Utilisation, memory, temperatures, clocks, throttling, errors, link and fan."""

from typing import Any

import pytest

from exporter.model import Group, Sample
from exporter.providers.nvidia.load import MEMORY_V2
from tests.unit.nvidia.fake import (
    FakeNvml,
    Status,
    Without,
    gpu,
    memory_v1,
    memory_v2,
    only,
    opened,
    read,
    utilization,
)

MIB = 1 << 20
STATE = frozenset({Group.STATE})


def load(**answers: Any) -> Sample:
    return read(FakeNvml(gpu(**answers)), Group.LOAD)


def state(fields: dict[tuple[int, int], Any] | None = None, **answers: Any) -> Sample:
    card = gpu(**answers)
    card.fields = fields or {}
    return read(FakeNvml(card), Group.STATE)


def test_utilization_is_a_ratio() -> None:
    sample = load(nvmlDeviceGetUtilizationRates=utilization(35, 29))
    assert (sample.utilization_ratio, sample.memory_controller_utilization_ratio) == (0.35, 0.29)


def test_zero_utilization_is_a_reading_and_parents_of_mig_have_none() -> None:
    assert load(nvmlDeviceGetUtilizationRates=utilization(0, 0)).utilization_ratio == 0.0
    assert load(nvmlDeviceGetUtilizationRates=Status(3)).utilization_ratio is None


@pytest.mark.parametrize("garbage", [101, 2619, 0x7FFFFFFF])
def test_utilization_that_cannot_be_is_rejected(garbage: int) -> None:
    sample = load(nvmlDeviceGetUtilizationRates=utilization(garbage, 5))
    assert (sample.utilization_ratio, sample.rejected) == (None, ("utilization_ratio",))
    assert sample.memory_controller_utilization_ratio == 0.05


def test_engines_that_answer_are_there() -> None:
    sample = load(nvmlDeviceGetEncoderUtilization=[12, 166666], nvmlDeviceGetOfaUtilization=[0, 166666])
    assert sample.engine_utilization_ratio == {"encoder": 0.12, "ofa": 0.0}


def test_memory_is_without_what_is_reserved_where_that_is_known() -> None:
    sample = load(
        nvmlDeviceGetMemoryInfo_v2=memory_v2(81559 * MIB, 1000 * MIB, 480 * MIB),
        nvmlDeviceGetMemoryInfo=memory_v1(81559 * MIB, 1480 * MIB),
    )
    assert sample.memory_size_bytes == 81559 * MIB
    assert sample.memory_used_bytes == 1000 * MIB
    assert sample.memory_reserved_bytes == 480 * MIB


@pytest.mark.parametrize("code", [13, 25, 3])
def test_older_memory_call_stands_in(code: int) -> None:
    sample = load(nvmlDeviceGetMemoryInfo_v2=Status(code), nvmlDeviceGetMemoryInfo=memory_v1(100 * MIB, 30 * MIB))
    assert (sample.memory_size_bytes, sample.memory_used_bytes) == (100 * MIB, 30 * MIB)
    assert sample.memory_reserved_bytes is None


def test_memory_of_unified_parts_is_absent() -> None:
    for refused in (Status(3), memory_v2(0, 0, 0)):
        sample = load(nvmlDeviceGetMemoryInfo_v2=refused, nvmlDeviceGetMemoryInfo=Status(3))
        assert (sample.memory_size_bytes, sample.memory_used_bytes, sample.failed) == (None, None, ())


def test_memory_is_asked_for_in_the_version_that_pynvml_knows() -> None:
    assert MEMORY_V2 & 0xFF == 40  # size of the struct


def test_temperatures_by_the_signed_call() -> None:
    assert state({(82, 0): (1, 48)}, nvmlDeviceGetTemperatureV=-5).temperature_celsius == {"gpu": -5.0, "memory": 48.0}


def test_temperature_by_the_older_call() -> None:
    assert state(nvmlDeviceGetTemperatureV=Status(13), nvmlDeviceGetTemperature=41).temperature_celsius == {"gpu": 41.0}
    older = Without(FakeNvml(gpu(nvmlDeviceGetTemperature=41)), "nvmlDeviceGetTemperatureV")
    assert read(older, Group.STATE).temperature_celsius == {"gpu": 41.0}


def test_memory_without_a_sensor_has_no_temperature() -> None:
    assert state({(82, 0): (1, 0)}, nvmlDeviceGetTemperatureV=40).temperature_celsius == {"gpu": 40.0}


def test_thresholds_or_headroom_by_generation() -> None:
    a100 = state(nvmlDeviceGetTemperatureThreshold=lambda t: {0: 92, 1: 89, 2: 95, 5: 85}[t])
    assert a100.temperature_limit_celsius == {"shutdown": 92.0, "slowdown": 89.0, "memory": 95.0, "target": 85.0}
    assert a100.temperature_margin_celsius is None
    h100 = state(nvmlDeviceGetMarginTemperature=-3)
    assert (h100.temperature_limit_celsius, h100.temperature_margin_celsius) == ({}, -3.0)


def test_clocks_in_hertz() -> None:
    clocks = {0: 1980, 1: 1980, 2: 2619, 3: Status(3)}
    sample = state(nvmlDeviceGetClockInfo=lambda domain: clocks[domain])
    assert sample.clock_hertz == {"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9}


@pytest.mark.parametrize(("raw", "state_of_it"), [(0, 0.0), (15, 15.0), (32, None)])
def test_performance_state(raw: int, state_of_it: float | None) -> None:
    sample = state(nvmlDeviceGetPerformanceState=raw)
    assert (sample.performance_state, sample.rejected) == (state_of_it, ())


def test_several_reasons_at_once() -> None:
    sample = state(nvmlDeviceGetCurrentClocksEventReasons=0x4 | 0x40, nvmlDeviceGetSupportedClocksEventReasons=0x1FF)
    assert {reason for reason, holds in sample.throttled.items() if holds} == {"sw_power_cap", "hw_thermal"}
    assert len(sample.throttled) == 9


def test_reasons_under_their_older_names_and_only_those_that_the_device_knows() -> None:
    sample = state(
        nvmlDeviceGetCurrentClocksEventReasons=Status(13),
        nvmlDeviceGetCurrentClocksThrottleReasons=0x1,
        nvmlDeviceGetSupportedClocksEventReasons=Status(13),
        nvmlDeviceGetSupportedClocksThrottleReasons=0x5,
    )
    assert sample.throttled == {"idle": True, "sw_power_cap": False}


def test_reasons_without_a_list_of_those_known() -> None:
    sample = state(nvmlDeviceGetCurrentClocksEventReasons=0)
    assert len(sample.throttled) == 9
    assert not any(sample.throttled.values())


def test_throttle_times_are_seconds() -> None:
    sample = state({(74, 0): 12_500_000_000, (269, 0): 0, (271, 0): Status(3)})
    assert sample.throttle_seconds == {"sw_power_cap": 12.5, "sw_thermal": 0.0}


def test_ecc_counts_of_this_driver_load_and_of_the_board() -> None:
    counts = {(0, 0): 4, (1, 0): 0, (0, 1): 65535, (1, 1): 2}
    sample = state(nvmlDeviceGetTotalEccErrors=lambda kind, counter: counts[kind, counter])
    assert sample.ecc_errors == {"corrected": 4.0, "uncorrected": 0.0}
    assert sample.ecc_lifetime_errors == {"corrected": 65535.0, "uncorrected": 2.0}


def test_row_remapping() -> None:
    sample = state(nvmlDeviceGetRemappedRows=(3, 1, 1, 0))
    assert (sample.memory_remap_pending, sample.memory_remap_failed) == (True, False)
    assert state().memory_remap_failed is None


def test_retired_pages_are_counted_and_none_is_zero() -> None:
    pages = {0: [0x1000, 0x2000], 1: []}
    assert state(nvmlDeviceGetRetiredPages=lambda c: pages[c]).retired_pages == {"single_bit": 2.0, "double_bit": 0.0}


def test_link_and_fan() -> None:
    sample = state(
        nvmlDeviceGetCurrPcieLinkGeneration=1,
        nvmlDeviceGetCurrPcieLinkWidth=8,
        nvmlDeviceGetMaxPcieLinkWidth=16,
        nvmlDeviceGetPcieReplayCounter=65535,
        nvmlDeviceGetFanSpeed=103,
    )
    assert (sample.pcie_link_generation, sample.pcie_link_width, sample.pcie_link_width_max) == (1.0, 8.0, 16.0)
    assert (sample.pcie_replays, sample.fan_speed_ratio) == (65535.0, 1.03)


REFUSED_FOR_GOOD = (
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuFabricInfoV",
)


@pytest.mark.parametrize("function", REFUSED_FOR_GOOD)
def test_what_a_gpu_refused_is_asked_again_once_it_is_identified_anew(function: str) -> None:
    library = FakeNvml(gpu(nvmlDeviceGetTemperatureV=40))
    provider = opened(library)
    device = only(provider)
    provider.read(device, STATE)
    library.calls.clear()
    provider.read(device, STATE)
    assert function not in library.calls
    only(provider)
    provider.read(device, STATE)
    assert function in library.calls


def test_what_breaks_is_asked_again() -> None:
    card = gpu(nvmlDeviceGetFanSpeed=Status(17))
    provider = opened(FakeNvml(card))
    device = only(provider)
    assert "fan_speed_ratio" in provider.read(device, STATE).failed
    card.answers["nvmlDeviceGetFanSpeed"] = 50
    assert provider.read(device, STATE).fan_speed_ratio == 0.5
