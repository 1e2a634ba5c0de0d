"""Whatever numbers the driver answers, what leaves the provider is within physical bounds or absent."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Sample
from tests.unit.nvidia.fake import FakeNvml, Row, all_groups, gpu, memory_v1, memory_v2, only, opened, utilization

edges = st.sampled_from([0, 1, 100, 101, 2619, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**47, 2**63 - 1, 2**63 - 16, 2**64 - 1])
u32 = st.integers(0, 2**32 - 1) | edges.map(lambda n: min(n, 2**32 - 1))
u64 = st.integers(0, 2**64 - 1) | edges
i32 = st.integers(-(2**31), 2**31 - 1)

ONE_NUMBER = {
    "nvmlDeviceGetPowerUsage": u32,
    "nvmlDeviceGetTotalEnergyConsumption": u64,
    "nvmlDeviceGetEnforcedPowerLimit": u32,
    "nvmlDeviceGetPowerManagementDefaultLimit": u32,
    "nvmlDeviceGetTemperatureV": i32,
    "nvmlDeviceGetTemperatureThreshold": u32,
    "nvmlDeviceGetMarginTemperature": i32,
    "nvmlDeviceGetClockInfo": u32,
    "nvmlDeviceGetPerformanceState": u32,
    "nvmlDeviceGetFanSpeed": u32,
    "nvmlDeviceGetCurrentClocksEventReasons": u64,
    "nvmlDeviceGetSupportedClocksEventReasons": u64,
    "nvmlDeviceGetTotalEccErrors": u64,
    "nvmlDeviceGetCurrPcieLinkGeneration": u32,
    "nvmlDeviceGetCurrPcieLinkWidth": u32,
    "nvmlDeviceGetMaxPcieLinkWidth": u32,
    "nvmlDeviceGetPcieReplayCounter": u32,
    "nvmlDeviceGetArchitecture": u32,
    "nvmlDeviceGetMinorNumber": u32,
}
FIELDS = [(185, 0), (186, 0), (185, 1), (186, 1), (185, 2), (191, 1), (82, 0), (74, 0), (269, 0)]
answers = st.fixed_dictionaries(
    {},
    optional={
        **ONE_NUMBER,
        "nvmlDeviceGetUtilizationRates": st.builds(utilization, u32, u32),
        "nvmlDeviceGetEncoderUtilization": st.lists(u32, min_size=2, max_size=2),
        "nvmlDeviceGetMemoryInfo": st.builds(memory_v1, u64, u64),
        "nvmlDeviceGetMemoryInfo_v2": st.builds(memory_v2, u64, u64, u64),
        "nvmlDeviceGetRemappedRows": st.tuples(u32, u32, u32, u32),
        "nvmlDeviceGetComputeRunningProcesses": st.lists(st.builds(Row, u32, st.none() | u64, u32, u32), max_size=4),
    },
)
values = st.dictionaries(st.sampled_from(FIELDS), st.tuples(st.sampled_from([1, 2, 3]), u32) | st.floats())

HIGHEST: Mapping[str, float] = {
    "_ratio": 2.0,
    "_watts": 5_000.0,
    "_joules": 1e14,
    "_celsius": 200.0,
    "_hertz": 2e10,
    "_bytes": 2.0**50,
}


def numbers(sample: Sample) -> Iterator[tuple[str, float]]:
    for name, value in msgspec.structs.asdict(sample).items():
        for number in value.values() if isinstance(value, dict) else (value,):
            if isinstance(number, float):
                yield name, number
    for process in sample.processes or ():
        if process.memory_used_bytes is not None:
            yield "process_memory_used_bytes", process.memory_used_bytes


@given(answers, values)
def test_no_number_leaves_that_is_not_physical(given_answers: dict[str, Any], fields: dict[Any, Any]) -> None:
    card = gpu(**given_answers)
    card.fields = fields
    provider = opened(FakeNvml(card))
    sample = provider.read(only(provider), all_groups())
    assert not sample.lost
    for name, number in numbers(sample):
        assert math.isfinite(number), name
        for suffix, highest in HIGHEST.items():
            assert not name.endswith(suffix) or -60.0 <= number <= highest, (name, number)
    assert not {p.pid for p in sample.processes or ()} & {0, 0xFFFFFFFF}
    assert msgspec.convert(msgspec.msgpack.decode(msgspec.msgpack.encode(sample)), Sample) == sample
