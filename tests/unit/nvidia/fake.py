"""An NVML in plain Python, at the boundary where the provider calls pynvml.

Each function has the signature of the real one (a test compares them) and raises the real exceptions. What a GPU has no
answer for is refused as not supported; a function that is not here fails the test.
"""
# ruff: noqa: N802, N803, N815 -- names are those of pynvml

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from exporter.model import Device, Group, Groups, Sample
from exporter.providers.nvidia import open_library
from exporter.providers.procfs import Proc
from exporter.providers.protocol import OpenContext, Provider

NOT_SUPPORTED = 3
TIMEOUT = 10
UUID = "GPU-00000000-0000-0000-0000-{:012x}"


class Status(NamedTuple):
    """An answer that is an NVML status: raised as the real NVMLError of that status."""

    code: int


@dataclass(eq=False)
class FakeGpu:
    """A GPU and a handle to it. `answers` by function name: a value, a Status, an exception, or a function."""

    answers: dict[str, Any] = field(default_factory=dict)
    fields: dict[tuple[int, int], Any] = field(default_factory=dict)
    """Field values by id and scope: an int, a float, a Status, or a pair of value type and value."""
    xids: list[int] = field(default_factory=list)
    """Errors that it reports, to the one event set that is registered for them."""


@dataclass(eq=False)
class FakeEventSet:
    """`registered` is None until a GPU is registered in it."""

    registered: FakeGpu | None = None
    freed: bool = False


@dataclass(frozen=True)
class Row:
    """A row of a process list, as pynvml makes it."""

    pid: int
    usedGpuMemory: int | None
    gpuInstanceId: int = 0xFFFFFFFF
    computeInstanceId: int = 0xFFFFFFFF


def gpu(number: int = 1, **answers: Any) -> FakeGpu:
    """Return a GPU that answers for its identity only, and what is given."""
    identity: dict[str, Any] = {
        "nvmlDeviceGetUUID": UUID.format(number),
        "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
        "nvmlDeviceGetPciInfo": pci_info(bus=number),
        "nvmlDeviceGetArchitecture": 9,
        "nvmlDeviceGetCudaComputeCapability": (9, 0),
    }
    return FakeGpu(identity | answers)


def pci_info(domain: int = 0, bus: int = 0, device: int = 0, device_id: int = 0x233010DE) -> pynvml.nvmlPciInfo_t:
    info = pynvml.nvmlPciInfo_t()
    info.domain, info.bus, info.device, info.pciDeviceId = domain, bus, device, device_id
    return info


def memory_v1(total: int, used: int) -> pynvml.c_nvmlMemory_t:
    info = pynvml.c_nvmlMemory_t()
    info.total, info.used, info.free = total, used, total - used
    return info


def memory_v2(total: int, used: int, reserved: int) -> pynvml.c_nvmlMemory_v2_t:
    info = pynvml.c_nvmlMemory_v2_t()
    info.total, info.used, info.reserved, info.free = total, used, reserved, total - used - reserved
    return info


def utilization(gpu_percent: int, memory_percent: int) -> pynvml.c_nvmlUtilization_t:
    rates = pynvml.c_nvmlUtilization_t()
    rates.gpu, rates.memory = gpu_percent, memory_percent
    return rates


class FakeNvml:
    """The functions of pynvml that the provider calls."""

    NVMLError = pynvml.NVMLError
    NVMLLibraryMismatchError = pynvml.NVMLLibraryMismatchError

    def __init__(self, *gpus: FakeGpu, system: Mapping[str, Any] | None = None) -> None:
        self.gpus = list(gpus)
        self.system: dict[str, Any] = {
            "nvmlInitWithFlags": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "580.95.05",
            "nvmlSystemGetNVMLVersion": "13.580.95.05",
            **(system or {}),
        }
        self.started = 0
        """Initialisations less shutdowns."""
        self.calls: list[str] = []
        self.event_sets: list[FakeEventSet] = []
        self.gpm_samples: dict[int, Any] = {}
        """What was sampled of whom, by address; a sample that is freed is gone."""
        self._addresses = 0

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the provider uses pynvml.{name}, which the fake does not have")

    def nvmlInitWithFlags(self, flags: int) -> None:
        self._system("nvmlInitWithFlags", flags)
        self.started += 1

    def nvmlShutdown(self) -> None:
        self._system("nvmlShutdown")
        self.started -= 1

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self._system("nvmlSystemGetDriverVersion")

    def nvmlSystemGetNVMLVersion(self) -> Any:
        return self._system("nvmlSystemGetNVMLVersion")

    def nvmlDeviceGetCount(self) -> Any:
        self.system.setdefault("nvmlDeviceGetCount", lambda: len(self.gpus))
        return self._system("nvmlDeviceGetCount")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        if not 0 <= index < len(self.gpus):
            raise pynvml.NVMLError(2)
        return self._handle(self.gpus[index], "nvmlDeviceGetHandleByIndex")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return self._handle(self._where("nvmlDeviceGetUUID", uuid), "nvmlDeviceGetHandleByUUID")

    def nvmlDeviceGetHandleByPciBusId(self, pciBusId: str) -> Any:
        wanted = next((g for g in self.gpus if self._address(g) == pciBusId), None)
        return self._handle(wanted, "nvmlDeviceGetHandleByPciBusId")

    def nvmlDeviceGetUUID(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetUUID")

    def nvmlDeviceGetName(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetName")

    def nvmlDeviceGetPciInfo(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetPciInfo")

    def nvmlDeviceGetSerial(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetSerial")

    def nvmlDeviceGetVbiosVersion(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetVbiosVersion")

    def nvmlDeviceGetInforomImageVersion(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetInforomImageVersion")

    def nvmlDeviceGetIndex(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetIndex")

    def nvmlDeviceGetMinorNumber(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMinorNumber")

    def nvmlDeviceGetBoardId(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetBoardId")

    def nvmlDeviceGetMultiGpuBoard(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMultiGpuBoard")

    def nvmlDeviceGetArchitecture(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetArchitecture")

    def nvmlDeviceGetCudaComputeCapability(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetCudaComputeCapability")

    def nvmlDeviceGetFieldValues(self, handle: FakeGpu, fieldIds: list[tuple[int, int]]) -> Any:
        if "nvmlDeviceGetFieldValues" in handle.answers:
            return self._ask(handle, "nvmlDeviceGetFieldValues", fieldIds)
        self.calls.append("nvmlDeviceGetFieldValues")
        assert fieldIds
        values = (pynvml.c_nvmlFieldValue_t * len(fieldIds))()
        for place, asked in enumerate(fieldIds):
            values[place] = _field(handle.fields.get(asked, Status(NOT_SUPPORTED)))
        if all(value.nvmlReturn for value in values):
            raise pynvml.NVMLError(NOT_SUPPORTED)
        return values

    def nvmlDeviceGetPowerUsage(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetPowerUsage")

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetTotalEnergyConsumption")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetEnforcedPowerLimit")

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetPowerManagementDefaultLimit")

    def nvmlDeviceGetUtilizationRates(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetUtilizationRates")

    def nvmlDeviceGetEncoderUtilization(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetEncoderUtilization")

    def nvmlDeviceGetDecoderUtilization(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetDecoderUtilization")

    def nvmlDeviceGetJpgUtilization(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetJpgUtilization")

    def nvmlDeviceGetOfaUtilization(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetOfaUtilization")

    def nvmlDeviceGetMemoryInfo(self, handle: FakeGpu, version: int | None = None) -> Any:
        return self._ask(handle, "nvmlDeviceGetMemoryInfo" if version is None else "nvmlDeviceGetMemoryInfo_v2")

    def nvmlDeviceGetTemperatureV(self, handle: FakeGpu, sensor: int, version: int = 0x100000C) -> Any:
        return self._ask(handle, "nvmlDeviceGetTemperatureV", sensor, version)

    def nvmlDeviceGetTemperature(self, handle: FakeGpu, sensor: int) -> Any:
        return self._ask(handle, "nvmlDeviceGetTemperature", sensor)

    def nvmlDeviceGetTemperatureThreshold(self, handle: FakeGpu, threshold: int) -> Any:
        return self._ask(handle, "nvmlDeviceGetTemperatureThreshold", threshold)

    def nvmlDeviceGetMarginTemperature(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMarginTemperature")

    def nvmlDeviceGetClockInfo(self, handle: FakeGpu, type: int) -> Any:  # noqa: A002 -- pynvml's name
        return self._ask(handle, "nvmlDeviceGetClockInfo", type)

    def nvmlDeviceGetPerformanceState(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetPerformanceState")

    def nvmlDeviceGetFanSpeed(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetFanSpeed")

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetCurrentClocksEventReasons")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetCurrentClocksThrottleReasons")

    def nvmlDeviceGetSupportedClocksEventReasons(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetSupportedClocksEventReasons")

    def nvmlDeviceGetSupportedClocksThrottleReasons(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetSupportedClocksThrottleReasons")

    def nvmlDeviceGetTotalEccErrors(self, handle: FakeGpu, errorType: int, counterType: int) -> Any:
        return self._ask(handle, "nvmlDeviceGetTotalEccErrors", errorType, counterType)

    def nvmlDeviceGetRemappedRows(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetRemappedRows")

    def nvmlDeviceGetRetiredPages(self, device: FakeGpu, sourceFilter: int) -> Any:
        return self._ask(device, "nvmlDeviceGetRetiredPages", sourceFilter)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetCurrPcieLinkGeneration")

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetCurrPcieLinkWidth")

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMaxPcieLinkWidth")

    def nvmlDeviceGetPcieReplayCounter(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetPcieReplayCounter")

    def nvmlDeviceGetMigMode(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetMigMode")

    def nvmlDeviceGetMaxMigDeviceCount(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetMaxMigDeviceCount")

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: FakeGpu, index: int) -> Any:
        return self._ask(device, "nvmlDeviceGetMigDeviceHandleByIndex", index)

    def nvmlDeviceGetGpuInstanceId(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetGpuInstanceId")

    def nvmlDeviceGetComputeInstanceId(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlDeviceGetComputeInstanceId")

    def nvmlDeviceGetComputeRunningProcesses(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetComputeRunningProcesses")

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetGraphicsRunningProcesses")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMPSComputeRunningProcesses")

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetComputeRunningProcesses_v2")

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetGraphicsRunningProcesses_v2")

    def nvmlDeviceGetMPSComputeRunningProcesses_v2(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetMPSComputeRunningProcesses_v2")

    def nvmlDeviceGetGspFirmwareVersion(self, handle: FakeGpu, version: Any = None) -> Any:
        assert version is None
        return self._ask(handle, "nvmlDeviceGetGspFirmwareVersion")

    def nvmlDeviceGetNvLinkState(self, device: FakeGpu, link: int) -> Any:
        return self._ask(device, "nvmlDeviceGetNvLinkState", link)

    def nvmlDeviceGetGpuFabricInfoV(self, device: FakeGpu, gpuFabricInfo: Any) -> Any:
        assert gpuFabricInfo.contents.version == pynvml.nvmlGpuFabricInfo_v2
        return self._filled(gpuFabricInfo.contents, self._ask(device, "nvmlDeviceGetGpuFabricInfoV"))

    def nvmlDeviceGetGpuFabricInfo(self, device: FakeGpu, gpuFabricInfo: Any) -> Any:
        return self._filled(gpuFabricInfo.contents, self._ask(device, "nvmlDeviceGetGpuFabricInfo"))

    def nvmlDeviceGetSupportedEventTypes(self, handle: FakeGpu) -> Any:
        return self._ask(handle, "nvmlDeviceGetSupportedEventTypes")

    def nvmlEventSetCreate(self) -> Any:
        self.calls.append("nvmlEventSetCreate")
        self.event_sets.append(FakeEventSet())
        return self.event_sets[-1]

    def nvmlDeviceRegisterEvents(self, handle: FakeGpu, eventTypes: int, eventSet: FakeEventSet) -> None:
        assert eventTypes == pynvml.nvmlEventTypeXidCriticalError
        handle.answers.setdefault("nvmlDeviceRegisterEvents", None)
        self._ask(handle, "nvmlDeviceRegisterEvents")
        assert eventSet.registered is None
        eventSet.registered = handle

    def nvmlEventSetWait_v2(self, eventSet: FakeEventSet, timeoutms: int) -> Any:
        assert timeoutms > 0
        assert not eventSet.freed
        assert eventSet.registered is not None
        self.calls.append("nvmlEventSetWait_v2")
        gpu = eventSet.registered
        if not gpu.xids:
            return _given(gpu.answers.get("nvmlEventSetWait_v2", Status(TIMEOUT)))
        data = pynvml.c_nvmlEventData_t()
        data.eventType, data.eventData = pynvml.nvmlEventTypeXidCriticalError, gpu.xids.pop(0)
        return data

    def nvmlEventSetFree(self, eventSet: FakeEventSet) -> None:
        self.calls.append("nvmlEventSetFree")
        assert not eventSet.freed
        eventSet.freed = True

    def nvmlGpmQueryDeviceSupport(self, device: FakeGpu) -> Any:
        return self._ask(device, "nvmlGpmQueryDeviceSupport")

    def nvmlGpmSampleAlloc(self) -> Any:
        self.calls.append("nvmlGpmSampleAlloc")
        self._addresses += 64
        self.gpm_samples[self._addresses] = None
        return ctypes.cast(self._addresses, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, gpmSample: Any) -> None:
        self.calls.append("nvmlGpmSampleFree")
        del self.gpm_samples[_address(gpmSample)]

    def nvmlGpmSampleGet(self, device: FakeGpu, gpmSample: Any) -> Any:
        assert _address(gpmSample) in self.gpm_samples
        self.gpm_samples[_address(gpmSample)] = self._ask(device, "nvmlGpmSampleGet")
        return gpmSample

    def nvmlGpmMigSampleGet(self, device: FakeGpu, gpuInstanceId: int, gpmSample: Any) -> Any:
        assert _address(gpmSample) in self.gpm_samples
        self.gpm_samples[_address(gpmSample)] = self._ask(device, "nvmlGpmMigSampleGet", gpuInstanceId)
        return gpmSample

    def nvmlGpmMetricsGet(self, metricsGet: Any) -> Any:
        """Give the difference of two samples, which map metrics to counts of percent."""
        self.calls.append("nvmlGpmMetricsGet")
        assert metricsGet.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        first, second = (self.gpm_samples[_address(s)] for s in (metricsGet.sample1, metricsGet.sample2))
        for metric in metricsGet.metrics[: metricsGet.numMetrics]:
            if metric.metricId in second:
                metric.nvmlReturn, metric.value = 0, second[metric.metricId] - first[metric.metricId]
            else:
                metric.nvmlReturn = NOT_SUPPORTED
        return metricsGet

    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t
    c_nvmlGpuFabricInfo_t = pynvml.c_nvmlGpuFabricInfo_t
    c_nvmlGpuFabricInfo_v2_t = pynvml.c_nvmlGpuFabricInfo_v2_t

    def nvmlDeviceGetProcessUtilization(self, handle: FakeGpu, timeStamp: int) -> Any:
        return self._ask(handle, "nvmlDeviceGetProcessUtilization", timeStamp)

    def _system(self, function: str, *arguments: Any) -> Any:
        self.calls.append(function)
        return _given(self.system[function], *arguments)

    def _ask(self, handle: FakeGpu, function: str, *arguments: Any) -> Any:
        self.calls.append(function)
        assert isinstance(handle, FakeGpu), f"{function} was given {handle!r} for a handle"
        return _given(handle.answers.get(function, Status(NOT_SUPPORTED)), *arguments)

    def _filled(self, structure: Any, members: Mapping[str, Any]) -> int:
        for name, value in members.items():
            setattr(structure, name, value)
        return 0

    def _handle(self, wanted: FakeGpu | None, function: str) -> Any:
        self.calls.append(function)
        if wanted is None:
            raise pynvml.NVMLError(6)
        return _given(wanted.answers.get(function, wanted))

    def _where(self, function: str, value: str) -> FakeGpu | None:
        return next((g for g in self.gpus if g.answers.get(function) == value), None)

    def _address(self, wanted: FakeGpu) -> str | None:
        info = wanted.answers.get("nvmlDeviceGetPciInfo")
        known = isinstance(info, pynvml.nvmlPciInfo_t)
        return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0" if known else None


class Without:
    """The library as an older pynvml gives it: some functions raise AttributeError."""

    def __init__(self, library: FakeNvml, *missing: str) -> None:
        self._library = library
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(name)
        return getattr(self._library, name)


def every_call(code: int) -> dict[str, Any]:
    """Return answers for a GPU whose handle is good while every call about it gives `code`, except for its identity."""
    about_one = ("nvmlDeviceGet", "nvmlDeviceRegister", "nvmlGpmQuery", "nvmlGpmSampleGet")
    readings = [name for name in vars(FakeNvml) if name.startswith(about_one) and "HandleBy" not in name]
    identity = {"nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetPciInfo", "nvmlDeviceGetCount"}
    return {name: Status(code) for name in readings if name not in identity}


def opened(
    library: Any,
    *,
    root: Path = Path("/nonexistent"),
    clock: Callable[[], float] = lambda: 0.0,
    wall_clock: Callable[[], float] = lambda: 1_700_000_000.0,
    own_pid: int = 4242,
    foreign: bool = False,
    pcie_bytes: bool = False,
) -> Provider:
    context = OpenContext(between_calls=lambda: None, root=root, pcie_bytes=pcie_bytes)
    proc = Proc(root, frozenset({own_pid}), foreign=foreign)
    return open_library(library, context, clock=clock, wall_clock=wall_clock, proc=proc).provider


def read(library: Any, *groups: Group, root: Path = Path("/nonexistent")) -> Sample:
    """Open `library`, enumerate, and read its first GPU once."""
    provider = opened(library, root=root)
    return provider.read(provider.devices()[0], frozenset(groups))


def only(provider: Provider) -> Device:
    (device,) = provider.devices()
    return device


def all_groups() -> Groups:
    return frozenset(Group)


def _given(answer: Any, *arguments: Any) -> Any:
    if callable(answer):
        answer = answer(*arguments)
    if isinstance(answer, Status):
        raise pynvml.NVMLError(answer.code)
    if isinstance(answer, Exception):
        raise answer
    return answer


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0


def _field(answer: Any) -> pynvml.c_nvmlFieldValue_t:
    field_value = pynvml.c_nvmlFieldValue_t()
    if isinstance(answer, Status):
        field_value.nvmlReturn = answer.code
        return field_value
    kind, value = answer if isinstance(answer, tuple) else (0 if isinstance(answer, float) else 3, answer)
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    field_value.valueType = kind
    if kind < len(members):
        setattr(field_value.value, members[kind], value)
    return field_value
