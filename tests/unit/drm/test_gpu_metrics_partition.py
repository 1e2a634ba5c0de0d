"""The table of one partition tells how busy it is, where that of the package leaves it out."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model import Group, Groups
from exporter.providers.drm.gpu_metrics import RefusedError, decode_partition
from tests.drm import card, platform_card
from tests.kernel import node
from tests.unit.drm.bench import Bench, radeon
from tests.unit.drm.tables import (
    PARTITION,
    PERCENT,
    U32,
    attribute,
    described,
    partition_table,
    table,
    table_1_9,
)

NA = 0xFFFFFFFF


def test_the_layout_is_that_of_the_c_structure() -> None:
    assert ctypes.sizeof(PARTITION) == 488
    assert PARTITION.gfx_busy_inst.offset == 48


@pytest.mark.parametrize(
    ("busy", "expected"),
    [([50, 100, NA], (0.75, False)), ([0, 1], (0.005, False)), ([], (None, False)), ([101, 50], (0.5, True))],
)
def test_load_of_a_partition(busy: list[int], expected: tuple[float | None, bool]) -> None:
    assert decode_partition(partition_table(gfx_busy_inst=busy, current_uclk=900)) == expected
    assert decode_partition(described(attribute(40, PERCENT, U32, *busy), content=1)) == expected


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "xcp_metrics is cut short: 0 bytes"),
        (partition_table(current_uclk=900)[:-1], "xcp_metrics v1_0 is cut short: 487 of 488 bytes"),
        (partition_table(), "xcp_metrics v1_0 is empty"),
        (table(1, 3, average_socket_power=20), "xcp_metrics has the unknown version 1.3"),
        (described(attribute(40, PERCENT, U32, 5), count=2, content=1), "xcp_metrics v1_1 has fewer attributes"),
        (table_1_9(curr_socket_power=5), "unknown version 1.9"),
    ],
)
def test_what_is_no_table_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        decode_partition(raw)


@settings(deadline=None)
@given(st.binary(max_size=488).map(lambda body: bytes((0xE8, 1, 1, 0)) + body + bytes(484)))
def test_any_bytes_are_a_share_or_nothing(raw: bytes) -> None:
    try:
        busy, _ = decode_partition(raw)
    except RefusedError:
        return
    assert busy is None or 0 <= busy <= 1


def mi300(root: Path, tables: list[bytes | None]) -> Bench:
    """An MI300X in DPX under a driver whose table describes itself."""
    node(root, 0, 0)
    for number, own in enumerate(tables):
        node(root, number + 1, 51000 + number, bus=5, partition=number, units=152)
        files: dict[str, Any] = {} if own is None else {"xcp/xcp_metrics": own}
        if number:
            platform_card(root, 1 + number, f"amdgpu_xcp.{number - 1}", "amdgpu_xcp", files, minor=128 + number)
        else:
            whole = {"current_compute_partition": "DPX", "gpu_metrics": table_1_9(curr_socket_power=136)}
            card(root, 1, radeon(**whole) | files, ids=(0x1002, 0x74A1), address="0000:05:00.0")
    return Bench(root)


def busy(load: int) -> bytes:
    return partition_table(gfx_busy_inst=[load] * 4)


@pytest.mark.parametrize(
    ("tables", "loads", "rejected"),
    [
        ([busy(20), busy(60)], [0.2, 0.6], ()),
        ([busy(20), None], [0.2, None], ()),
        ([None, None], [None, None], ()),
        ([busy(20), busy(60)[:100]], [0.2, None], ("partitions",)),
        ([busy(20), busy(200)], [0.2, None], ("partitions",)),
    ],
)
def test_partitions_are_asked_themselves(
    tmp_path: Path, tables: list[bytes | None], loads: list[float | None], rejected: tuple[str, ...]
) -> None:
    sample = mi300(tmp_path, tables).read(Groups({Group.STATE}))
    assert sample.partitions is not None
    assert [part.utilization_ratio for part in sample.partitions] == loads
    assert (sample.rejected, sample.failed) == (rejected, ())
