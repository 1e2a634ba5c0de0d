"""The fake has the shape of the real library, and the provider's constants are NVML's."""

import ctypes
import inspect
from collections.abc import Callable

import pynvml
import pytest

from exporter.providers.nvidia import energy, events, fabric, fields, library, links, load, pcie, profiling, state
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
        pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
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


def test_fields_of_links_and_bytes_are_those_of_the_binding() -> None:
    prefix = "NVML_FI_DEV_NVLINK_"
    named = {
        "LINK_COUNT": links.COUNT_OF_LINKS[0],
        "GET_STATE": links._STATE,
        "THROUGHPUT_DATA_TX": links._TRANSMIT[0],
        "THROUGHPUT_DATA_RX": links._RECEIVE[0],
        "COUNT_XMIT_BYTES": links._TRANSMIT[1],
        "COUNT_RCV_BYTES": links._RECEIVE[1],
        "ERROR_DL_CRC": links._ERRORS["crc"][0],
        "ERROR_DL_RECOVERY": links._ERRORS["recovery"][0],
        "COUNT_LINK_RECOVERY_EVENTS": links._ERRORS["recovery"][1],
        "ERROR_DL_REPLAY": links._ERRORS["replay"][0],
        "COUNT_SYMBOL_ERRORS": links._ERRORS["symbol"][0],
    }
    assert {name: getattr(pynvml, prefix + name) for name in named} == named
    words = {"crc": "CRC_FLIT", "recovery": "RECOVERY", "replay": "REPLAY"}
    for number in range(12):
        for error, field in links._single(number).items():
            assert field == (getattr(pynvml, f"{prefix}{words[error]}_ERROR_COUNT_L{number}"), 0)
    assert links._single(12) == {}
    assert state._RECOVERY[0] == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    assert [pcie._BYTES[f"pcie_{way}_bytes"][0] for way in ("transmit", "receive")] == [
        pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
        pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    ]


def test_numbers_of_actions_states_events_and_metrics_are_those_of_the_binding() -> None:
    prefix = "NVML_GPU_RECOVERY_ACTION_"
    actions = {value: name.removeprefix(prefix).lower() for name, value in vars(pynvml).items() if prefix in name}
    assert actions == state._RECOVERY_ACTIONS
    for number, name in fabric._STATES.items():
        assert getattr(pynvml, f"NVML_GPU_FABRIC_STATE_{name.upper()}") == number
    assert pynvml.nvmlEventTypeXidCriticalError == events._XID
    assert {
        pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_active_ratio",
        pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "sm_occupancy_ratio",
        pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active_ratio",
        pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_active_ratio",
    } == profiling._METRICS
    assert pynvml.NVML_GPM_METRICS_GET_VERSION == profiling._VERSION
    assert pynvml.NVML_ERROR_TIMEOUT == library.TIMEOUT


def test_a_field_is_laid_out_as_the_binding_has_it() -> None:
    value = pynvml.c_nvmlFieldValue_t
    places = (value.fieldId, value.scopeId, value.timestamp, value.latencyUsec, value.valueType, value.nvmlReturn)
    assert [place.offset for place in (*places, value.value)] == [0, 4, 8, 16, 24, 28, 32]
    assert ctypes.sizeof(value) == fields._ASKED.size == fields._ANSWERED.size


def test_an_event_is_laid_out_as_the_binding_has_it() -> None:
    data = pynvml.c_nvmlEventData_t
    assert [place.offset for place in (data.eventType, data.eventData, data.gpuInstanceId)] == [8, 16, 24]
    assert ctypes.sizeof(data) == library._EVENT.size == ctypes.sizeof(library._EVENT_ROOM)


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
