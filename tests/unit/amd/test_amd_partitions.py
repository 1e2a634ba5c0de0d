from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.amd.partitions import Memory, own_memories
from tests.unit.amd.vendor import ALL, FakeAmdsmi, error, gpu, provider

MIB = 2**20
CARD = 196592.0


def shown(*sizes: float | None) -> list[Memory]:
    return own_memories([Memory(None if size is None else 1.0, size) for size in sizes])


@pytest.mark.parametrize(
    ("sizes", "own"),
    [
        ((CARD,) * 8, (None,) * 8),  # up to ROCm 6.4.0 each shows the whole card
        ((CARD, *[CARD / 8] * 7), (CARD / 8,) * 8),  # from 6.4.1 the first alone
        ((CARD, CARD / 2), (CARD / 2,) * 2),
        ((CARD, None, CARD / 4, CARD / 4), (None, None, CARD / 4, CARD / 4)),
        ((CARD, 42.0, 21.0), (None, 42.0, 21.0)),  # MI300A: they differ
        ((None, CARD / 2), (CARD / 2,) * 2),
    ],
)
def test_a_partition_has_what_is_its_own(sizes: tuple[float | None, ...], own: tuple[float | None, ...]) -> None:
    assert tuple(memory.size_bytes for memory in shown(*sizes)) == own


@given(st.integers(2, 8), st.booleans(), st.sampled_from([1, 2, 4, 8]))
def test_partitions_never_have_more_than_their_card(count: int, repeats: bool, domains: int) -> None:
    share = CARD if repeats else CARD / max(count, domains)
    assert sum(memory.size_bytes or 0 for memory in shown(CARD, *[share] * (count - 1))) <= CARD * (1 + 1e-9)


def busy(lists: Any, partitions: int = 2) -> list[float | None]:
    """Let the first partition have the table; the others have none, as from ROCm 6.4.1."""
    handles = [
        gpu(
            gpu_device_bdf=f"0000:05:00.{number}",
            gpu_kfd_info={"current_partition_id": number},
            gpu_metrics_info={"num_partition": partitions, "xcp_stats.gfx_busy_inst": lists}
            if not number
            else error(2),
        )
        for number in range(partitions)
    ]
    opened = provider(FakeAmdsmi(*handles))
    (device,) = opened.devices()
    sample = opened.read(device, ALL)
    assert sample.failed == ()
    return [part.utilization_ratio for part in sample.partitions or ()]


@pytest.mark.parametrize(
    ("lists", "ratios"),
    [
        ([[100, 50, *["N/A"] * 6], [0, 4, *["N/A"] * 6], *[["N/A"] * 8] * 6], [0.75, 0.02]),
        ([[2**32 - 1] * 8, [7, *[2**32 - 1] * 7]], [None, 0.07]),
        ([[101, 20], [30]], [0.2, 0.3]),  # more than all is none
        ({"xcp_0": [10, "N/A"], "xcp_1": [30, 50]}, [0.1, 0.4]),  # as the vendor's tool prints it
        ([[10]], [0.1, None]),
        ("N/A", [None, None]),
        (["N/A", "N/A"], [None, None]),
        (None, [None, None]),
    ],
)
def test_the_load_of_a_partition_is_the_mean_over_its_dies(lists: Any, ratios: list[float | None]) -> None:
    assert busy(lists) == [ratio if ratio is None else pytest.approx(ratio) for ratio in ratios]


def test_a_value_beyond_all_is_counted() -> None:
    parts = [gpu(gpu_device_bdf=f"0000:05:00.{n}", gpu_kfd_info={"current_partition_id": n}) for n in range(2)]
    parts[0].answers["amdsmi_get_gpu_metrics_info"] = {"xcp_stats.gfx_busy_inst": [[101], [1]]}
    opened = provider(FakeAmdsmi(*parts))
    (device,) = opened.devices()
    assert opened.read(device, ALL).rejected == ("partitions",)
