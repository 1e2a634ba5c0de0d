"""MIG instances: holes, sharing, destruction under way."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Group, PartitionSample, Sample
from tests.unit.nvidia.fake import FakeGpu, FakeNvml, Status, gpu, memory_v2, only, opened, read

GIB = 1 << 30


def instance(gi: int, ci: int = 0, used: int = GIB, size: int = 10 * GIB, profile: str = "1g.10gb") -> FakeGpu:
    return FakeGpu(
        {
            "nvmlDeviceGetUUID": f"MIG-{gi}-{ci}",
            "nvmlDeviceGetName": f"NVIDIA A100-SXM4-80GB MIG {profile}",
            "nvmlDeviceGetGpuInstanceId": gi,
            "nvmlDeviceGetComputeInstanceId": ci,
            "nvmlDeviceGetMemoryInfo_v2": memory_v2(size, used, 0),
        }
    )


def parent(*instances: FakeGpu | Status, **answers: Any) -> FakeGpu:
    mig = {
        "nvmlDeviceGetMigMode": [1, 1],
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda i: instances[i] if i < len(instances) else Status(6),
    }
    return gpu(**mig | answers)


def partitions(card: FakeGpu) -> tuple[PartitionSample, ...] | None:
    return read(FakeNvml(card), Group.STATE).partitions


def test_gpu_without_mig_has_none_and_with_mig_off_has_no_partition() -> None:
    assert partitions(gpu()) is None
    assert partitions(gpu(nvmlDeviceGetMigMode=[0, 1])) == ()


def test_instances_with_holes_in_their_numbering() -> None:
    found = partitions(parent(Status(6), instance(1), Status(6), instance(2, profile="2g.20gb", size=20 * GIB)))
    assert found == (
        PartitionSample(
            partition="gi1", uuid="MIG-1-0", profile="1g.10gb", memory_used_bytes=GIB, memory_size_bytes=10 * GIB
        ),
        PartitionSample(
            partition="gi2", uuid="MIG-2-0", profile="2g.20gb", memory_used_bytes=GIB, memory_size_bytes=20 * GIB
        ),
    )


def test_memory_of_a_gpu_instance_is_given_once() -> None:
    found = partitions(parent(instance(1, 0), instance(1, 1), instance(2)))
    assert found is not None
    assert [p.partition for p in found] == ["gi1ci0", "gi1ci1", "gi2"]
    assert [p.memory_used_bytes for p in found] == [GIB, None, GIB]


def test_instance_that_is_destroyed_meanwhile_is_left_out() -> None:
    dying = instance(1)
    dying.answers = dict.fromkeys(dying.answers, Status(2))
    sample = read(FakeNvml(parent(dying, instance(2))), Group.STATE)
    assert sample.partitions is not None
    assert [p.partition for p in sample.partitions] == ["gi2"]
    assert sample.failed == ()


def test_instances_are_listed_anew_at_each_read() -> None:
    instances: list[FakeGpu | Status] = [instance(1)]
    card = parent()
    card.answers["nvmlDeviceGetMigDeviceHandleByIndex"] = lambda i: instances[i] if i < len(instances) else Status(6)
    provider = opened(FakeNvml(card))
    device = only(provider)

    def names() -> list[str]:
        found = provider.read(device, frozenset({Group.STATE})).partitions
        return [p.partition for p in found or ()]

    assert names() == ["gi1"]
    instances[:] = [instance(3), instance(5)]
    assert names() == ["gi3", "gi5"]
    card.answers["nvmlDeviceGetMigMode"] = [0, 0]
    assert provider.read(device, frozenset({Group.STATE})).partitions == ()


def test_instances_have_no_power_and_the_parent_keeps_its_own() -> None:
    card = parent(instance(1), nvmlDeviceGetPowerUsage=300_000, nvmlDeviceGetTotalEnergyConsumption=9_000)
    library = FakeNvml(card)
    sample = read(library, Group.ENERGY, Group.LOAD, Group.STATE)
    assert (sample.power_watts, sample.energy_counter_joules, sample.utilization_ratio) == (300.0, 9.0, None)
    assert library.calls.count("nvmlDeviceGetTotalEnergyConsumption") == 1
    assert library.calls.count("nvmlDeviceGetPowerUsage") == 1


def test_absurd_count_of_instances_ends() -> None:
    assert partitions(parent(instance(1), nvmlDeviceGetMaxMigDeviceCount=0xFFFFFFFE)) is not None


def test_lost_gpu_is_lost_while_its_instances_are_listed() -> None:
    assert read(FakeNvml(parent(Status(15))), Group.STATE) == Sample(device=only(opened(FakeNvml(parent()))), lost=True)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=7, unique=True))
def test_partitions_are_unique_and_memory_adds_up_per_gpu_instance(ids: list[tuple[int, int]]) -> None:
    found = partitions(parent(*(instance(gi, ci) for gi, ci in ids)))
    assert found is not None
    assert len({p.partition for p in found}) == len(ids)
    assert sum(p.memory_used_bytes or 0 for p in found) == GIB * len({gi for gi, _ in ids})
