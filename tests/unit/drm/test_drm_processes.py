"""Who holds a card's memory, without any vendor's library?"""

from pathlib import Path
from typing import Any

import pytest

from exporter.model import Group, ProcessSample, Sample
from tests.drm import card
from tests.kernel import fdinfo, kfd_process, node, open_files, process
from tests.unit.drm.bench import Bench, radeon
from tests.unit.drm.test_drm_packages import apu, partitioned

ONLY = frozenset({Group.PROCESSES})
RENDER = "/dev/dri/renderD128"
NOBODY = {"holding": 0, "unnamed": 0, "bystander": 0, "uninspectable": 0, "self": 0}
GPU_ID = 51234


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one card on bus 5 that KFD knows."""
    card(tmp_path, 0, radeon(), address="0000:05:00.0")
    node(tmp_path, 0, 0)
    node(tmp_path, 1, GPU_ID)
    (tmp_path / "proc").mkdir()
    return tmp_path


def look(root: Path) -> Sample:
    return Bench(root).read(ONLY)


def counts(**known: int) -> dict[str, int]:
    return {**NOBODY, **known}


def draws(root: Path, pid: int, name: bytes = b"game", address: str = "0000:05:00.0", **memory: Any) -> None:
    process(root, pid, name)
    open_files(root, pid, (RENDER, fdinfo(address=address, **memory)))


def test_kfd_tells_what_computes_and_drm_what_draws(root: Path) -> None:
    process(root, 10, b"train", started=77)
    kfd_process(root, 10, {GPU_ID: 5 << 30}, queues=[GPU_ID])
    process(root, 11, b"monitor")
    kfd_process(root, 11, {GPU_ID: 0})
    draws(root, 12, drm_memory_vram="2 MiB")
    sample = look(root)
    assert sample.processes == (
        ProcessSample(pid=10, started=77, name="train", memory_used_bytes=5 << 30),
        ProcessSample(pid=12, started=100, name="game", memory_used_bytes=2 << 20),
    )
    assert sample.process_counts == counts(holding=2, bystander=1)
    assert sample.sources["processes"] == "kfd"


def test_what_a_process_has_through_both_is_not_added(root: Path) -> None:
    draws(root, 10, b"train", drm_memory_vram="1 GiB")
    kfd_process(root, 10, {GPU_ID: 5 << 30})
    assert [held.memory_used_bytes for held in look(root).processes or ()] == [5 << 30]


def test_of_an_apu_the_larger_of_both_counts_with_the_memory_of_the_host(tmp_path: Path) -> None:
    card(tmp_path, 0, apu(), address="0000:05:00.0")
    node(tmp_path, 1, GPU_ID)
    draws(tmp_path, 10, b"llama", drm_memory_vram="1 GiB", drm_memory_gtt="20 GiB")
    kfd_process(tmp_path, 10, {GPU_ID: 3 << 30})
    assert [held.memory_used_bytes for held in look(tmp_path).processes or ()] == [21 << 30]


def test_a_process_is_on_the_card_that_it_has_open(root: Path) -> None:
    card(root, 1, radeon(unique_id="1"), address="0000:83:00.0", minor=129)
    node(root, 2, 99, bus=0x83)
    draws(root, 20, address="0000:83:00.0", drm_memory_vram="3 MiB")
    bench = Bench(root)
    first, second = (bench.provider.read(device, ONLY) for device in bench.provider.devices())
    assert first.processes == ()
    assert [held.pid for held in second.processes or ()] == [20]


def test_without_kfd_drm_tells_what_it_knows(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(), address="0000:05:00.0")
    draws(tmp_path, 12, drm_resident_vram="2 MiB", drm_memory_vram="1 MiB")
    sample = look(tmp_path)
    assert [held.memory_used_bytes for held in sample.processes or ()] == [2 << 20]
    assert sample.sources["processes"] == "fdinfo"


def test_without_proc_and_kfd_nobody_could_look(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    sample = look(tmp_path)
    assert sample.processes is None
    assert sample.process_counts == {}


def test_the_exporter_itself_is_left_out(root: Path) -> None:
    process(root, 50, b"gpu-exporter")
    kfd_process(root, 50, {GPU_ID: 1 << 20})
    sample = look(root)
    assert sample.processes == ()
    assert sample.process_counts == counts(self=1)


def test_a_process_is_in_the_partition_that_it_computes_on(tmp_path: Path) -> None:
    partitioned(tmp_path, "CPX", 8)
    process(tmp_path, 10)
    kfd_process(tmp_path, 10, {51000 + number: 0 for number in range(8)} | {51003: 7 << 30})
    sample = look(tmp_path)
    assert [(held.partition, held.memory_used_bytes) for held in sample.processes or ()] == [("3", 7 << 30)]


def test_nouveau_tells_what_draws(tmp_path: Path) -> None:
    card(tmp_path, 0, {}, driver="nouveau", address="0000:05:00.0")
    draws(tmp_path, 12, drm_resident_vram="2 MiB")
    assert [held.memory_used_bytes for held in look(tmp_path).processes or ()] == [2 << 20]


def test_one_look_serves_all_cards_of_a_pass(root: Path) -> None:
    card(root, 1, radeon(unique_id="1"), address="0000:83:00.0", minor=129)
    draws(root, 12, drm_memory_vram="2 MiB")
    bench = Bench(root)
    first, second = bench.provider.devices()
    assert bench.provider.read(first, ONLY).process_counts == counts(holding=1)
    draws(root, 13, address="0000:83:00.0", drm_memory_vram="2 MiB")
    assert bench.provider.read(second, ONLY).processes == ()
    bench.now += 10
    assert [held.pid for held in bench.provider.read(second, ONLY).processes or ()] == [13]
