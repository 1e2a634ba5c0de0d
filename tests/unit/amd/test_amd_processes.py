"""Who holds a package: KFD first, AMD SMI where there is no KFD, DRM for graphics."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Device, Group, ProcessSample, Sample
from exporter.providers.amd.provider import AmdProvider
from tests.kernel import KERNEL_THREAD, context, fdinfo, kfd_process, node, open_files, process
from tests.unit.amd.vendor import FakeAmdsmi, Handle, error, gpu, provider, read

GPU_ID = 51234
RENDER = "/dev/dri/renderD128"
ONLY = frozenset({Group.PROCESSES})
NOBODY = {"holding": 0, "unnamed": 0, "bystander": 0, "uninspectable": 0, "self": 0}


def card(**answers: Any) -> Handle:
    return gpu(gpu_process_list=error(15), **answers)


def look(root: Path, handle: Handle | None = None) -> Sample:
    return read(handle or card(), root=root)


def counts(**known: int) -> dict[str, int]:
    return {**NOBODY, **known}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    node(tmp_path, 0, 0)
    node(tmp_path, 1, GPU_ID)
    return tmp_path


def test_the_sample_of_one_holder_and_seven_bystanders(root: Path) -> None:
    for pid in range(100, 107):
        process(root, pid)
        kfd_process(root, pid, {GPU_ID: 0})
    process(root, 4242, b"vllm", started=77)
    kfd_process(root, 4242, {GPU_ID: 177386942464})
    sample = look(root)
    assert sample.processes == (
        ProcessSample(pid=4242, started=77, name="vllm", memory_used_bytes=177386942464, busy_ratio=0.0),
    )
    assert sample.process_counts == counts(holding=1, bystander=7)
    assert sample.failed == ()


def test_kfd_is_asked_and_the_library_is_not(root: Path) -> None:
    kfd_process(root, 10, {GPU_ID: 5})
    module = FakeAmdsmi(card())
    opened = provider(module, root)
    (device,) = opened.devices()
    assert [p.pid for p in opened.read(device, ONLY).processes or ()] == [10]
    assert "amdsmi_get_gpu_process_list" not in module.calls


def test_a_queue_without_memory_is_work(root: Path) -> None:
    process(root, 10)
    kfd_process(root, 10, {GPU_ID: 0}, queues=(GPU_ID,), units={GPU_ID: 152})
    kfd_process(root, 11, {GPU_ID: 0}, queues=(999,))
    sample = look(root)
    assert [(p.pid, p.memory_used_bytes, p.busy_ratio) for p in sample.processes or ()] == [(10, 0, 0.5)]
    assert sample.process_counts == counts(holding=1, bystander=1)


def test_a_process_that_may_use_other_gpus_only_is_not_of_this_one(root: Path) -> None:
    kfd_process(root, 10, {999: 5}, queues=(999,))
    sample = look(root)
    assert (sample.processes, sample.process_counts) == ((), NOBODY)


def test_more_compute_units_than_there_are_are_all_of_them(root: Path) -> None:
    kfd_process(root, 10, {GPU_ID: 1}, queues=(GPU_ID,), units={GPU_ID: 9999})
    assert [p.busy_ratio for p in look(root).processes or ()] == [1.0]


def test_without_the_file_the_share_is_not_known(root: Path) -> None:
    kfd_process(root, 10, {GPU_ID: 1}, queues=(GPU_ID,))
    assert [p.busy_ratio for p in look(root).processes or ()] == [None]


def test_holder_of_unknown_memory_is_shown_without_it_and_counted(root: Path) -> None:
    process(root, 10)
    kfd_process(root, 10, {GPU_ID: "N/A"}, queues=(GPU_ID,))
    kfd_process(root, 11, {GPU_ID: "N/A"})
    sample = look(root)
    assert sample.processes == (ProcessSample(pid=10, started=100, name="python3"),)
    assert sample.process_counts == counts(uninspectable=2)


def test_ourselves_are_left_out_and_counted(root: Path) -> None:
    process(root, 777)
    process(root, 60, parent=778)
    for pid in (777, 60, 778):
        kfd_process(root, pid, {GPU_ID: 5})
    sample = look(root)
    assert (sample.processes, sample.process_counts) == ((), counts(self=3))


def test_a_pid_that_proc_does_not_show_is_unnamed(root: Path) -> None:
    kfd_process(root, 10, {GPU_ID: 5})
    sample = look(root)
    assert sample.processes == (ProcessSample(pid=10, name="pid 10", memory_used_bytes=5, busy_ratio=0.0),)
    assert sample.process_counts == counts(unnamed=1)


def test_a_process_that_began_after_the_list_is_not_given_what_is_listed(root: Path) -> None:
    process(root, 10, b"newcomer", started=10**15)
    kfd_process(root, 10, {GPU_ID: 5})
    (found,) = look(root).processes or ()
    assert (found.started, found.name) == (None, "pid 10")


def test_second_contexts_are_part_of_the_process(root: Path) -> None:
    folder = kfd_process(root, 10, {GPU_ID: 5})
    context(folder / "context_1", {GPU_ID: 7})
    kfd_process(root, "pid:10-id:2", {GPU_ID: 9})
    assert [(p.pid, p.memory_used_bytes) for p in look(root).processes or ()] == [(10, 21)]


def partitioned(*, told: bool) -> FakeAmdsmi:
    handles = []
    for number in range(2):
        answers: dict[str, Any] = {"gpu_device_bdf": f"0000:05:00.{number}"}
        if told:
            answers["gpu_kfd_info"] = {"kfd_id": 100 + number, "node_id": 1 + number, "current_partition_id": number}
        handles.append(gpu(**answers))
    return FakeAmdsmi(*handles)


@pytest.mark.parametrize("told", [True, False])
def test_each_partition_has_its_own_processes(tmp_path: Path, *, told: bool) -> None:
    node(tmp_path, 1, 100, units=38)
    node(tmp_path, 2, 101, units=38, partition=1)
    kfd_process(tmp_path, 10, {100: 5, 101: 0}, queues=(100,), units={100: 38})
    kfd_process(tmp_path, 11, {100: 0, 101: 6})
    kfd_process(tmp_path, 12, {100: 1, 101: 2}, queues=(100, 101), units={100: 0, 101: 19})
    kfd_process(tmp_path, 13, {100: 0, 101: 0})
    opened = provider(partitioned(told=told), tmp_path)
    (device,) = opened.devices()
    sample = opened.read(device, ONLY)
    assert [(p.pid, p.partition, p.memory_used_bytes, p.busy_ratio) for p in sample.processes or ()] == [
        (10, "0", 5, 0.5),
        (11, "1", 6, 0.0),
        (12, None, 3, 0.25),
    ]
    assert sample.process_counts == counts(unnamed=3, bystander=1)


def test_where_kfd_does_not_tell_which_gpu_is_which_the_library_is_asked(tmp_path: Path) -> None:
    kfd_process(tmp_path, 10, {GPU_ID: 5})
    rows = [{"name": "train", "pid": 11, "memory_usage": {"vram_mem": 9}}]
    sample = look(tmp_path, gpu(gpu_process_list=rows))
    assert [(p.pid, p.name, p.memory_used_bytes) for p in sample.processes or ()] == [(11, "train", 9)]


def graphics(root: Path, pid: int, client: int, **fields: Any) -> None:
    process(root, pid, b"game")
    open_files(root, pid, (RENDER, fdinfo(client, **fields)))


def test_graphics_are_known_through_drm(root: Path) -> None:
    graphics(root, 20, 1, drm_resident_vram="4 KiB", drm_resident_gtt="1 KiB")
    graphics(root, 21, 2, drm_resident_vram="0")
    kfd_process(root, 10, {GPU_ID: 5})
    sample = look(root)
    assert [(p.pid, p.memory_used_bytes) for p in sample.processes or ()] == [(10, 5), (20, 4096)]
    assert sample.process_counts == counts(holding=1, unnamed=1, bystander=1)


def test_what_a_process_has_through_kfd_and_drm_is_not_added_up(root: Path) -> None:
    graphics(root, 10, 1, drm_resident_vram="8 KiB")
    kfd_process(root, 10, {GPU_ID: 5})
    assert [(p.pid, p.memory_used_bytes) for p in look(root).processes or ()] == [(10, 5)]


def test_host_memory_counts_where_it_is_the_gpus(root: Path) -> None:
    graphics(root, 10, 1, drm_memory_vram="1 KiB", drm_memory_gtt="8 KiB")
    graphics(root, 11, 2, drm_memory_vram="1 KiB", drm_memory_gtt="0")
    graphics(root, 12, 3, drm_memory_vram="0", drm_memory_gtt="2 KiB")
    kfd_process(root, 10, {GPU_ID: 5})
    kfd_process(root, 11, {GPU_ID: 4096})
    asic = {"asic_serial": "0x1", "market_name": "AMD Instinct MI300A"}
    sample = look(root, card(gpu_asic_info=asic))
    assert [(p.pid, p.memory_used_bytes) for p in sample.processes or ()] == [(10, 9216), (11, 4096), (12, 2048)]


def test_graphics_of_another_card_are_not_of_this_one(root: Path) -> None:
    process(root, 20)
    open_files(root, 20, (RENDER, fdinfo(1, address="0000:99:00.0", drm_memory_vram="4 KiB")))
    assert look(root).processes == ()


def test_without_kfd_and_list_drm_alone_tells(tmp_path: Path) -> None:
    graphics(tmp_path, 20, 1, drm_memory_vram="4 KiB")
    sample = look(tmp_path, gpu())
    assert [(p.pid, p.memory_used_bytes) for p in sample.processes or ()] == [(20, 4096)]
    assert look(tmp_path / "nothing", gpu()).processes is None


def test_one_look_at_the_host_serves_all_cards_once(root: Path) -> None:
    node(root, 2, 999, bus=6)
    kfd_process(root, 10, {GPU_ID: 5, 999: 7})
    second = gpu(gpu_device_bdf="0000:06:00.0", gpu_asic_info={"asic_serial": "0x2"})
    opened = provider(FakeAmdsmi(gpu(), second), root)
    devices = opened.devices()

    def seen(opened: AmdProvider, device: Device) -> list[tuple[int, float | None]]:
        return [(p.pid, p.memory_used_bytes) for p in opened.read(device, ONLY).processes or ()]

    assert [seen(opened, device) for device in devices] == [[(10, 5)], [(10, 7)]]
    kfd_process(root, 11, {GPU_ID: 6})
    assert seen(opened, devices[0]) == [(10, 5), (11, 6)]


def test_threads_of_the_kernel_are_nobody(root: Path) -> None:
    process(root, 2, b"kthreadd", flags=KERNEL_THREAD)
    (root / "proc/2/fd").mkdir()
    assert look(root).process_counts == NOBODY


held = st.dictionaries(st.integers(10, 14), st.tuples(st.integers(0, 9), st.booleans()), max_size=5)
drawn = st.dictionaries(st.integers(12, 16), st.integers(0, 9), max_size=5)


@given(held, drawn, st.booleans())
def test_no_holder_is_lost_and_nothing_is_added_up(
    tmp_path_factory: pytest.TempPathFactory,
    held: dict[int, tuple[int, bool]],
    drawn: dict[int, int],
    unified: bool,
) -> None:
    root = tmp_path_factory.mktemp("holders")
    node(root, 1, GPU_ID)
    for pid, (size, queue) in held.items():
        kfd_process(root, pid, {GPU_ID: size * 1024}, queues=(GPU_ID,) if queue else ())
    for client, (pid, size) in enumerate(drawn.items()):
        graphics(root, pid, client, drm_resident_vram=f"{size} KiB")
    asic = {"asic_serial": "0x1", "market_name": "AMD Instinct MI300A" if unified else "AMD Instinct MI300X"}
    sample = look(root, card(gpu_asic_info=asic))
    found = {p.pid: p.memory_used_bytes for p in sample.processes or ()}
    expected = {pid: size for pid, (size, _) in held.items()}
    for pid, size in drawn.items():
        if pid not in held or unified:
            expected[pid] = max(size, expected.get(pid, 0))
    working = {pid for pid, (_, queue) in held.items() if queue}
    assert found == {pid: size * 1024 for pid, size in expected.items() if size or pid in working}
    assert sum(sample.process_counts.values()) == len(expected)
