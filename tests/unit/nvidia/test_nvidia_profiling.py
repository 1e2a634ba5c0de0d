"""Ratios of busy parts between two samples of the profiling counters."""

from typing import Any

import pytest

from exporter.model import Group, Sample
from exporter.providers.protocol import Provider
from tests.unit.nvidia.fake import FakeGpu, FakeNvml, Status, gpu, only, opened

PROFILING = frozenset({Group.PROFILING})


class Support:
    def __init__(self, supported: int) -> None:
        self.isSupportedDevice = supported


class Bench:
    """A GPU whose counters are what `counts` says, and a clock that is set by hand."""

    def __init__(self, counts: dict[int, float] | None = None, **answers: Any) -> None:
        self.counts = counts or {2: 0.0, 3: 0.0, 5: 0.0, 10: 0.0}
        self.now = 100.0
        answers = {
            "nvmlGpmQueryDeviceSupport": Support(1),
            "nvmlGpmSampleGet": lambda: dict(self.counts),
            **answers,
        }
        self.card: FakeGpu = gpu(**answers)
        self.library = FakeNvml(self.card)
        self.provider: Provider = opened(self.library, clock=lambda: self.now)
        self.device = only(self.provider)

    def read(self, seconds: float = 1.0, **more: float) -> Sample:
        self.now += seconds
        for metric, percent in more.items():
            self.counts[int(metric[1:])] += percent
        return self.provider.read(self.device, PROFILING)

    @property
    def held(self) -> int:
        return len(self.library.gpm_samples)


def test_first_read_gives_nothing_and_the_next_the_ratios_since_then() -> None:
    bench = Bench()
    first = bench.read()
    assert first == Sample(device=bench.device, taken_at=first.taken_at, read_seconds=first.read_seconds)
    sample = bench.read(m2=91.5, m3=40.25, m5=55.0, m10=100.0000001)
    assert (sample.sm_active_ratio, sample.sm_occupancy_ratio) == (0.915, 0.4025)
    assert (sample.tensor_active_ratio, sample.dram_active_ratio) == (0.55, 1.0)
    assert (sample.failed, sample.rejected) == ((), ())


def test_samples_are_given_back_but_for_the_newest_and_that_at_the_end() -> None:
    bench = Bench()
    for _ in range(5):
        bench.read()
        assert bench.held == 1
    bench.provider.close()
    assert bench.held == 0


def test_reads_that_are_too_near_keep_the_sample_of_before() -> None:
    bench = Bench()
    bench.read()
    assert bench.read(0.05, m2=3.0).sm_active_ratio is None
    assert bench.read(0.06, m2=4.0).sm_active_ratio == 0.07


def test_metric_that_is_not_known_is_absent_alone() -> None:
    bench = Bench({2: 0.0})
    bench.read()
    sample = bench.read(m2=50.0)
    assert (sample.sm_active_ratio, sample.dram_active_ratio, sample.failed) == (0.5, None, ())


def test_not_a_number_is_absent_and_more_than_all_is_rejected() -> None:
    bench = Bench({2: 0.0, 10: 0.0})
    bench.read()
    sample = bench.read(m2=float("nan"), m10=250.0)
    assert (sample.sm_active_ratio, sample.dram_active_ratio, sample.rejected) == (None, None, ("dram_active_ratio",))


@pytest.mark.parametrize("support", [Support(0), Status(3), Status(13)])
def test_gpu_without_the_counters_is_asked_once(support: Any) -> None:
    bench = Bench(nvmlGpmQueryDeviceSupport=support, nvmlDeviceGetPowerUsage=70_000)
    for _ in range(3):
        sample = bench.provider.read(bench.device, PROFILING | {Group.ENERGY})
        assert (sample.sm_active_ratio, sample.failed) == (None, ())
    assert bench.library.calls.count("nvmlGpmQueryDeviceSupport") == 1
    assert "nvmlGpmSampleAlloc" not in bench.library.calls


def test_sample_that_breaks_fails_by_name_and_is_given_back() -> None:
    bench = Bench()
    bench.read()
    bench.card.answers["nvmlGpmSampleGet"] = Status(17)
    assert bench.read().failed == ("sm_active_ratio",)
    assert bench.held == 1


def test_lost_gpu_gives_its_samples_back() -> None:
    bench = Bench()
    bench.read()
    bench.card.answers["nvmlGpmSampleGet"] = Status(15)
    assert bench.read().lost
    assert bench.held == 0


def mig(instances: dict[int, tuple[int, int]], **answers: Any) -> dict[str, Any]:
    """Return answers of a GPU with MIG devices by index: GPU instance and compute instance."""
    handles = {index: gpu(90 + index) for index in instances}
    for index, (gpu_instance, compute_instance) in instances.items():
        handles[index].answers |= {
            "nvmlDeviceGetGpuInstanceId": gpu_instance,
            "nvmlDeviceGetComputeInstanceId": compute_instance,
        }
    return {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda index: handles.get(index, Status(6)),
        **answers,
    }


def test_instances_have_a_ratio_of_their_own_once_for_each_gpu_instance() -> None:
    counts = {1: 0.0, 2: 0.0}
    bench = Bench(**mig({0: (1, 0), 1: (2, 0), 2: (2, 1)}, nvmlGpmMigSampleGet=lambda instance: {2: counts[instance]}))
    assert bench.read().partition_sm_active_ratio == {}
    counts |= {1: 30.0, 2: 80.0}
    sample = bench.read(m2=25.0)
    assert sample.sm_active_ratio == 0.25
    assert sample.partition_sm_active_ratio == {"gi1": 0.3, "gi2ci0": 0.8}
    assert bench.held == 3


def test_instance_that_is_destroyed_gives_its_sample_back() -> None:
    bench = Bench(**mig({0: (1, 0)}, nvmlGpmMigSampleGet=lambda _: {2: 0.0}))
    bench.read()
    assert bench.held == 2
    bench.card.answers |= mig({})
    assert bench.read().partition_sm_active_ratio == {}
    assert bench.held == 1


def test_parent_that_refuses_does_not_hide_its_instances() -> None:
    bench = Bench(**mig({0: (1, 0)}, nvmlGpmMigSampleGet=lambda _: {2: bench.now}), nvmlGpmSampleGet=Status(3))
    bench.read()
    sample = bench.read()
    assert (sample.sm_active_ratio, sample.failed) == (None, ())
    assert sample.partition_sm_active_ratio == {"gi1": 0.01}
