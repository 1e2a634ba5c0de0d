"""A replay answers as the capture says, and refuses the rest as the vendor's package would."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from exporter.captures.answers import Handle
from exporter.captures.format import load_capture
from tests.captures.replay import Replay, ReplayedError, materialise
from tests.unit.amd.vendor import EXCEPTIONS

NVIDIA = """
model: NVIDIA T4
source: a test
seen: documented
library: {package: pynvml, version: 13.595.91.07}
moments:
- at: 0
  calls:
    system:
      nvmlDeviceGetCount: 1
      nvmlDeviceGetHandleByIndex(0): {$handle: gpu0}
      nvmlSystemGetDriverVersion: {$error: 999}
    gpu0:
      nvmlDeviceGetMemoryInfo(33554472): {version: 33554472, total: 16106127360, reserved: 469762048, used: 0}
      nvmlDeviceGetName: {$undecodable: VGVzbGEg/w==}
      nvmlDeviceGetPciInfo: {$raises: KeyError}
      nvmlDeviceGetProcessUtilization(*): [{pid: 7, smUtil: 40}]
      nvmlDeviceGetFieldValues: {186: 33510, 194: -2, 82: {$error: 3}, 185/1: 33.5}
  files:
    sys/class/drm/card0: {$link: ../../devices/a}
    sys/devices/a: {vendor: "0x10de", locked: {$unreadable: EPERM}}
- at: 1
  calls:
    gpu0: {nvmlDeviceGetFieldValues: {186: 34000}, nvmlDeviceGetName: Tesla T4}
  files:
    sys/devices/a: {vendor: "0x1002", locked: null}
"""
AMD = """
model: MI300X
source: a test
seen: documented
library: {package: amdsmi, version: 26.0.2, constants: {AMDSMI_VRAM_TYPE_HBM3: 4}}
moments:
- at: 0
  calls:
    system: {amdsmi_get_processor_handles: [{$handle: gpu0}]}
    gpu0:
      amdsmi_get_power_info: {current_socket_power: 136, average_socket_power: N/A}
      amdsmi_get_temp_metric(HOTSPOT, CURRENT): 48
      amdsmi_get_gpu_vram_usage: {$error: 14}
"""


@pytest.fixture
def nvml() -> Replay:
    return Replay(load_capture(NVIDIA), errors=pynvml.NVMLError, rest=pynvml)


@pytest.fixture
def amdsmi() -> Replay:
    return Replay(load_capture(AMD), errors=EXCEPTIONS.AmdSmiLibraryException)


def status(call: Any, *arguments: Any) -> int:
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*arguments)
    return int(caught.value.value)


def test_nvml_gives_handles_and_structs(nvml: Replay) -> None:
    nvml.nvmlInitWithFlags(1)
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetCount() == 1
    assert nvml.nvmlDeviceGetMemoryInfo(handle, version=33554472).reserved == 469762048
    assert nvml.nvmlDeviceGetProcessUtilization(handle, 123456)[0].smUtil == 40
    nvml.nvmlShutdown()


def test_nvml_refuses_as_recorded(nvml: Replay) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert status(nvml.nvmlSystemGetDriverVersion) == 999
    with pytest.raises(UnicodeDecodeError) as caught:
        nvml.nvmlDeviceGetName(handle)
    assert caught.value.object == b"Tesla \xff"
    with pytest.raises(KeyError):
        nvml.nvmlDeviceGetPciInfo(handle)


def test_nvml_refuses_what_was_not_recorded_as_the_driver_does(nvml: Replay) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert status(nvml.nvmlDeviceGetFanSpeed, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert status(nvml.nvmlDeviceGetMemoryInfo, handle) == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert status(nvml.nvmlDeviceGetHandleByIndex, 1) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    assert status(nvml.nvmlDeviceGetHandleByUUID, "GPU-1") == pynvml.NVML_ERROR_NOT_FOUND
    assert status(nvml.nvmlDeviceGetName, Handle("gpu9")) == pynvml.NVML_ERROR_INVALID_ARGUMENT
    with pytest.raises(AttributeError):
        nvml.nvmlDeviceGetWhatNobodyHas  # noqa: B018 -- the look-up is what fails


def test_nvml_has_the_constants_of_the_package(nvml: Replay) -> None:
    assert nvml.NVML_TEMPERATURE_GPU == 0
    assert nvml.NVMLError is pynvml.NVMLError
    assert nvml.NVMLLibraryMismatchError is pynvml.NVMLLibraryMismatchError


def test_field_values_have_each_its_own_status_and_type(nvml: Replay) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    instant, margin, memory, module, other = nvml.nvmlDeviceGetFieldValues(handle, [186, 194, (82, 0), (185, 1), 5])
    assert (instant.nvmlReturn, instant.valueType, instant.value.ullVal) == (0, 3, 33510)
    assert (margin.valueType, margin.value.sllVal) == (4, -2)
    assert (module.fieldId, module.scopeId, module.valueType, module.value.dVal) == (185, 1, 0, 33.5)
    assert (memory.nvmlReturn, other.nvmlReturn) == (3, 3)
    assert status(nvml.nvmlDeviceGetFieldValues, handle, [1, 2]) == pynvml.NVML_ERROR_NOT_SUPPORTED


def test_the_next_moment_answers_what_changed(nvml: Replay) -> None:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.number = 1
    (instant,) = nvml.nvmlDeviceGetFieldValues(handle, [186])
    assert instant.value.ullVal == 34000
    assert nvml.nvmlDeviceGetName(handle) == "Tesla T4"


def test_amdsmi_answers_and_refuses_in_its_way(amdsmi: Replay) -> None:
    (handle,) = amdsmi.amdsmi_get_processor_handles()
    kinds, metrics = amdsmi.AmdSmiTemperatureType, amdsmi.AmdSmiTemperatureMetric
    assert amdsmi.amdsmi_get_power_info(handle) == {"current_socket_power": 136, "average_socket_power": "N/A"}
    assert amdsmi.amdsmi_get_temp_metric(handle, kinds.HOTSPOT, metrics.CURRENT) == 48
    assert vars(amdsmi.amdsmi_wrapper) == {"AMDSMI_VRAM_TYPE_HBM3": 4}
    for code, call in (
        (14, lambda: amdsmi.amdsmi_get_gpu_vram_usage(handle)),
        (2, lambda: amdsmi.amdsmi_get_temp_metric(handle, kinds.EDGE, metrics.CURRENT)),
        (31, lambda: amdsmi.amdsmi_get_power_info(Handle("gpu1"))),
    ):
        with pytest.raises(EXCEPTIONS.AmdSmiLibraryException) as caught:
            call()
        assert caught.value.get_error_code() == code


def test_without_the_vendors_classes_refusals_have_their_shape() -> None:
    replay = Replay(load_capture(NVIDIA))
    with pytest.raises(replay.NVMLError) as caught:
        replay.nvmlDeviceGetHandleByIndex(5)
    assert isinstance(caught.value, ReplayedError)
    assert caught.value.value == 2


def test_files_are_put_below_a_root_and_follow_the_moments(tmp_path: Path) -> None:
    capture = load_capture(NVIDIA)
    materialise(capture, tmp_path)
    assert (tmp_path / "sys/class/drm/card0/vendor").read_text() == "0x10de\n"
    with pytest.raises(OSError, match="locked"):
        (tmp_path / "sys/devices/a/locked").read_text()
    materialise(capture, tmp_path, 1)
    assert (tmp_path / "sys/class/drm/card0/vendor").read_text() == "0x1002\n"
    assert sorted(path.name for path in (tmp_path / "sys/devices/a").iterdir()) == ["vendor"]


def test_what_was_asked_is_known(nvml: Replay) -> None:
    status(nvml.nvmlDeviceGetClockInfo, Handle("gpu0"), 1)
    assert nvml.asked == {"gpu0 nvmlDeviceGetClockInfo(1)"}
