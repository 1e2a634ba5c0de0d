"""The fake has the shape of the real library, and the provider's constants are NVML's."""

import inspect
from collections.abc import Callable

import pynvml
import pytest

from exporter.providers.nvidia import energy, load, state
from tests.unit.nvidia.fake import FakeNvml

FUNCTIONS = sorted(name for name in vars(FakeNvml) if name.startswith("nvml"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_of_the_fake_has_the_signature_of_the_real_one(name: str) -> None:
    def shape(function: Callable[..., object]) -> list[tuple[str, object]]:
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values() if p.name != "self"]

    assert shape(getattr(FakeNvml, name)) == shape(getattr(pynvml, name))


def test_function_that_the_fake_lacks_fails_loudly() -> None:
    with pytest.raises(AssertionError, match="nvmlDeviceGetNothing"):
        FakeNvml().nvmlDeviceGetNothing  # noqa: B018 -- the lookup is what is tested


def test_version_of_the_memory_struct_is_that_of_the_binding() -> None:
    assert pynvml.nvmlMemory_v2 == load.MEMORY_V2


def test_field_ids_are_those_of_the_binding() -> None:
    assert {field for field, _ in energy._FIELDS} == {
        pynvml.NVML_FI_DEV_POWER_AVERAGE,
        pynvml.NVML_FI_DEV_POWER_INSTANT,
        pynvml.NVML_FI_DEV_ENERGY,
    }
    assert {field: reason for (field, _), reason in state._REASON_TIMES.items()} == {
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: "sw_power_cap",
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST: "sync_boost",
        pynvml.NVML_FI_DEV_PERF_POLICY_BOARD_LIMIT: "board_limit",
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: "sw_thermal",
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: "hw_thermal",
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: "hw_power_brake",
    }
    assert state._MEMORY_TEMPERATURE[0] == pynvml.NVML_FI_DEV_MEMORY_TEMP


def test_reason_bits_are_those_of_the_binding() -> None:
    assert {
        "idle": pynvml.nvmlClocksEventReasonGpuIdle,
        "application_clocks": pynvml.nvmlClocksEventReasonApplicationsClocksSetting,
        "sw_power_cap": pynvml.nvmlClocksEventReasonSwPowerCap,
        "hw_slowdown": pynvml.nvmlClocksEventReasonHwSlowdown,
        "sync_boost": pynvml.nvmlClocksEventReasonSyncBoost,
        "sw_thermal": pynvml.nvmlClocksEventReasonSwThermalSlowdown,
        "hw_thermal": pynvml.nvmlClocksEventReasonHwThermalSlowdown,
        "hw_power_brake": pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown,
        "display_clocks": pynvml.nvmlClocksEventReasonDisplayClockSetting,
    } == state._REASON_BITS
