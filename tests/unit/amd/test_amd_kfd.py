"""KFD's files: what each process holds on each GPU."""

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kfd import Node, read_topology
from exporter.providers.kfd_tree import Entry, Tree, TreeReader
from tests.kernel import context, kfd, kfd_process, node


def tree(root: Path) -> Tree | None:
    return TreeReader(root, lambda: 0.0).read()


def entries(root: Path) -> dict[int, Entry]:
    found = tree(root)
    assert found is not None
    return dict(found.entries)


def entry(memory: dict[int, float], **more: Any) -> Entry:
    return Entry(memory_bytes=memory, **more)


def test_without_kfd_nothing_is_known(tmp_path: Path) -> None:
    assert (tree(tmp_path), read_topology(tmp_path)) == (None, [])
    kfd(tmp_path)
    assert tree(tmp_path) == Tree({}, 0)


def test_memory_queues_and_compute_units_are_read_by_gpu(tmp_path: Path) -> None:
    kfd_process(tmp_path, 10, {1: 5, 2: 0}, queues=(1, 1, 3), units={1: 40, 2: 9})
    assert entries(tmp_path) == {10: entry({1: 5.0, 2: 0.0}, queues={1, 3}, compute_units={1: 40.0})}
    found = entries(tmp_path)[10]
    assert [found.is_on(gpu_id) for gpu_id in (1, 2, 3, 4)] == [True, True, True, False]


def test_second_contexts_belong_to_their_process(tmp_path: Path) -> None:
    folder = kfd_process(tmp_path, 10, {1: 5}, queues=(1,), units={1: 40})
    context(folder / "context_1", {1: 7, 2: 1}, queues=(1, 2), units={1: 3})
    kfd_process(tmp_path, "pid:10-id:2", {1: 100})
    kfd_process(tmp_path, "pid:11-id:1", {1: 1000})
    assert entries(tmp_path) == {
        10: entry({1: 112.0, 2: 1.0}, queues={1, 2}, compute_units={1: 43.0}),
        11: entry({1: 1000.0}),
    }


def test_a_context_that_is_shown_in_two_places_counts_once(tmp_path: Path) -> None:
    folder = kfd_process(tmp_path, 10, {1: 5})
    context(folder / "context_1", {1: 7})
    kfd_process(tmp_path, "pid:10-id:1", {1: 7})
    assert entries(tmp_path)[10].memory_bytes == {1: 12.0}


@pytest.mark.parametrize("name", ["new-thing", "x10", "pid:", "-id:3"])
def test_an_entry_of_another_shape_is_no_process(tmp_path: Path, name: str) -> None:
    kfd_process(tmp_path, name, {1: 5})
    assert entries(tmp_path) == {}


@pytest.mark.parametrize("raw", ["", "N/A", "-5", "18446744073709551615", "1 2"])
def test_memory_that_makes_no_sense_is_not_known(tmp_path: Path, raw: str) -> None:
    kfd_process(tmp_path, 10, {1: raw, 2: 7})
    assert entries(tmp_path) == {10: entry({2: 7.0}, unreadable={1})}


def test_files_that_vanish_and_names_that_are_unknown_cost_nothing_else(tmp_path: Path) -> None:
    folder = kfd_process(tmp_path, 10, {1: 5}, queues=(1,))
    (folder / "vram_2").symlink_to(tmp_path / "gone")
    (folder / "vram_x").write_text("5\n")
    (folder / "queues/7").mkdir()
    (folder / "stats_1").mkdir()
    kfd_process(tmp_path, 11, {1: 6})
    assert entries(tmp_path) == {10: entry({1: 5.0}, queues={1}), 11: entry({1: 6.0})}


def test_whom_there_was_no_time_for_comes_first_in_the_next_read(tmp_path: Path) -> None:
    for pid in range(10, 15):
        kfd_process(tmp_path, pid, {1: pid})
    times = itertools.count(0.0)
    paused: list[None] = []
    reader = TreeReader(
        tmp_path,
        lambda: next(times),
        clock=lambda: next(times),
        pause=lambda: paused.append(None),
        seconds=2,
    )
    reads = [reader.read() for _ in range(4)]
    assert [(len(read.entries), read.unreached) for read in reads if read] == [(2, 3), (4, 1), (5, 0), (5, 0)]
    last, before = reads[3], reads[2]
    assert last is not None
    assert before is not None
    # All are known, and no one was read again before those that were read longer ago.
    assert len({found.began for found in last.entries.values()}) == 3
    assert len(paused) == 4
    shutil.rmtree(kfd(tmp_path) / "proc/12")
    after = reader.read()
    assert after is not None
    assert set(after.entries) == {10, 11, 13, 14}


def test_nodes_are_told_by_address_and_partition(tmp_path: Path) -> None:
    node(tmp_path, 0, 0)
    node(tmp_path, 1, 51234, bus=0xDB, units=38, partition=7, domain=2)
    (kfd(tmp_path) / "topology/nodes/2").mkdir()
    (kfd(tmp_path) / "topology/nodes/2/gpu_id").write_text("9\n")
    assert read_topology(tmp_path) == [Node(51234, "0002:db:00", 7, 38, 135, "gfx942")]
    properties = kfd(tmp_path) / "topology/nodes/1/properties"
    on_top, as_function = (f"location_id {0xDB << 8 | partition}" for partition in (7 << 28, 7))
    properties.write_text(properties.read_text().replace(on_top, as_function))
    assert as_function in properties.read_text()
    assert read_topology(tmp_path) == [Node(51234, "0002:db:00", 7, 38, 135, "gfx942")]


names = st.sampled_from(["10", "pid:10-id:1", "pid:10-id:2", "11", "pid:12-id:9"])


@given(st.dictionaries(names, st.integers(0, 1 << 40), max_size=5))
def test_nothing_that_is_held_is_lost_or_counted_twice(
    tmp_path_factory: pytest.TempPathFactory, held: dict[str, int]
) -> None:
    root = tmp_path_factory.mktemp("kfd")
    kfd(root)
    for name, size in held.items():
        kfd_process(root, name, {1: size})
    assert sum(found.memory_bytes[1] for found in entries(root).values()) == sum(held.values())
