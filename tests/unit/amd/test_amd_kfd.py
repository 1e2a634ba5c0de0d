"""KFD's files: what each process holds on each GPU."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.amd.kfd import Entry, Node, Tree, read_topology, read_tree
from tests.kernel import context, kfd, kfd_process, node


def entries(root: Path) -> dict[int, Entry]:
    tree = read_tree(root)
    assert tree is not None
    return dict(tree.entries)


def test_without_kfd_nothing_is_known(tmp_path: Path) -> None:
    assert (read_tree(tmp_path), read_topology(tmp_path)) == (None, [])
    kfd(tmp_path)
    assert read_tree(tmp_path) == Tree({}, 0)


def test_memory_queues_and_compute_units_are_read_by_gpu(tmp_path: Path) -> None:
    kfd_process(tmp_path, 10, {1: 5, 2: 0}, queues=(1, 1, 3), units={1: 40, 2: 9})
    assert entries(tmp_path) == {10: Entry({1: 5.0, 2: 0.0}, set(), {1, 3}, {1: 40.0})}
    entry = entries(tmp_path)[10]
    assert [entry.is_on(gpu_id) for gpu_id in (1, 2, 3, 4)] == [True, True, True, False]


def test_second_contexts_belong_to_their_process(tmp_path: Path) -> None:
    folder = kfd_process(tmp_path, 10, {1: 5}, queues=(1,), units={1: 40})
    context(folder / "context_1", {1: 7, 2: 1}, queues=(1, 2), units={1: 3})
    kfd_process(tmp_path, "pid:10-id:2", {1: 100})
    kfd_process(tmp_path, "pid:11-id:1", {1: 1000})
    assert entries(tmp_path) == {
        10: Entry({1: 112.0, 2: 1.0}, set(), {1, 2}, {1: 43.0}),
        11: Entry({1: 1000.0}),
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
    assert entries(tmp_path) == {10: Entry({2: 7.0}, {1})}


def test_files_that_vanish_and_names_that_are_unknown_cost_nothing_else(tmp_path: Path) -> None:
    folder = kfd_process(tmp_path, 10, {1: 5}, queues=(1,))
    (folder / "vram_2").symlink_to(tmp_path / "gone")
    (folder / "vram_x").write_text("5\n")
    (folder / "queues/7").mkdir()
    (folder / "stats_1").mkdir()
    with pytest.raises(KeyError):
        _ = entries(tmp_path)[11]
    kfd_process(tmp_path, 11, {1: 6})
    assert entries(tmp_path)[11] == Entry({1: 6.0})


def test_nodes_are_told_by_address_and_partition(tmp_path: Path) -> None:
    node(tmp_path, 0, 0)
    node(tmp_path, 1, 51234, bus=0xDB, units=38, partition=7, domain=2)
    (kfd(tmp_path) / "topology/nodes/2").mkdir()
    (kfd(tmp_path) / "topology/nodes/2/gpu_id").write_text("9\n")
    assert read_topology(tmp_path) == [Node(51234, "0002:db:00", 7, 38)]


names = st.sampled_from(["10", "pid:10-id:1", "pid:10-id:2", "11", "pid:12-id:9"])


@given(st.dictionaries(names, st.integers(0, 1 << 40), max_size=5))
def test_nothing_that_is_held_is_lost_or_counted_twice(
    tmp_path_factory: pytest.TempPathFactory, held: dict[str, int]
) -> None:
    root = tmp_path_factory.mktemp("kfd")
    kfd(root)
    for name, size in held.items():
        kfd_process(root, name, {1: size})
    assert sum(entry.memory_bytes[1] for entry in entries(root).values()) == sum(held.values())
