"""What processes use of a GPU through DRM."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.providers.fdinfo import DeviceUse, Scan, Scanner
from exporter.providers.procfs import Proc
from tests.kernel import close_files, fdinfo, open_files, process

GPU = "0000:05:00.0"
RENDER = "/dev/dri/renderD128"
KIB = 1024.0


class Bench:
    """A scanner over a tree, with a clock that stands still."""

    def __init__(self, root: Path, **limits: Any) -> None:
        self.root = root
        self.now = 1000.0
        (root / "proc").mkdir(exist_ok=True)
        proc = Proc(root, frozenset(), boottime=lambda: 1e4)
        self.scanner = Scanner(proc, ("gfx", "compute"), lambda: self.now, **limits)

    def client(self, pid: int, *files: str, node: str = RENDER, **more: Any) -> None:
        process(self.root, pid, **more)
        open_files(self.root, pid, *((node, text) for text in files))

    def scan(self, *skip: int) -> Scan:
        found = self.scanner.scan(skip)
        assert found is not None
        return found

    def memory(self) -> dict[int, float]:
        usages = self.scan().usages.get(GPU, {})
        return {pid: usage.memory_bytes["vram"] for pid, usage in usages.items() if usage.memory_bytes}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_duplicated_descriptors_count_once(bench: Bench) -> None:
    text = fdinfo(1, drm_memory_vram="5 KiB")
    bench.client(10, text, text, fdinfo(2, drm_memory_vram="3 KiB"))
    assert bench.memory() == {10: 8 * KIB}


def test_a_client_that_is_shared_counts_for_the_first_process(bench: Bench) -> None:
    text = fdinfo(1, drm_memory_vram="5 KiB")
    bench.client(11, text)
    bench.client(10, text)
    assert bench.memory() == {10: 5 * KIB}


def test_one_id_on_two_gpus_is_two_clients(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_memory_vram="5 KiB"), fdinfo(1, address="0000:2F:00.0", drm_memory_vram="3 KiB"))
    usages = bench.scan().usages
    assert {address: usages[address][10].memory_bytes["vram"] for address in usages} == {
        GPU: 5 * KIB,
        "0000:2f:00.0": 3 * KIB,
    }


def test_clients_without_an_id_are_not_added_up(bench: Bench) -> None:
    bench.client(10, fdinfo(None, drm_memory_vram="5 KiB"), fdinfo(None, drm_memory_vram="7 KiB"))
    bench.client(11, fdinfo(None, drm_memory_vram="2 KiB"))
    assert bench.memory() == {10: 7 * KIB, 11: 2 * KIB}


def test_only_files_of_dri_are_opened(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_memory_vram="5 KiB"), node="/dev/kfd")
    bench.client(11, fdinfo(2, drm_memory_vram="6 KiB"), node="/dev/dri/card0")
    bench.client(12, fdinfo(3, drm_memory_vram="7 KiB"), node="/dev/dri/renderD129 (deleted)")
    assert bench.memory() == {11: 6 * KIB, 12: 7 * KIB}


def test_processes_to_be_skipped_are_not_looked_at(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_memory_vram="5 KiB"))
    assert bench.scan(10).usages == {}


def busy(bench: Bench, pid: int = 10) -> float | None:
    return bench.scan().usages[GPU][pid].busy_ratio


def renewed(bench: Bench, *files: str) -> None:
    close_files(bench.root, 10)
    open_files(bench.root, 10, *((RENDER, text) for text in files))


def test_busy_is_the_time_of_the_engines_that_count_since_the_scan_before(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_engine_gfx="1000000000 ns", drm_engine_dec="5 ns"))
    assert busy(bench) is None
    bench.now += 10
    renewed(bench, fdinfo(1, drm_engine_gfx="3000000000 ns", drm_engine_compute="1000000000 ns", drm_engine_dec="9 ns"))
    assert busy(bench) == pytest.approx(0.3)
    bench.now += 10  # a second client began meanwhile
    renewed(
        bench,
        fdinfo(1, drm_engine_gfx="3000000000 ns", drm_engine_compute="1000000000 ns"),
        fdinfo(2, drm_engine_gfx="1000000000 ns"),
    )
    assert busy(bench) == pytest.approx(0.1)
    bench.now += 10
    assert busy(bench) == 0


def test_a_time_that_goes_backwards_is_no_share(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_engine_gfx="3000000000 ns"))
    bench.scan()
    bench.now += 10
    renewed(bench, fdinfo(1, drm_engine_gfx="1000000000 ns"))
    assert busy(bench) is None
    bench.now += 10
    assert busy(bench) == 0


def test_engines_side_by_side_are_one_gpu(bench: Bench) -> None:
    bench.client(10, fdinfo(1))
    bench.scan()
    bench.now += 1
    renewed(bench, fdinfo(1, drm_engine_gfx="900000000 ns", drm_engine_compute="900000000 ns"))
    assert busy(bench) == 1


def test_a_shared_client_keeps_its_time_when_its_first_process_ends(bench: Bench) -> None:
    text = fdinfo(1, drm_engine_gfx="900000000 ns")
    bench.client(10, text)
    bench.client(11, text)
    bench.scan()
    bench.now += 1
    close_files(bench.root, 10)
    assert busy(bench, 11) == 0


def test_a_recycled_pid_begins_anew(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_engine_gfx="1 ns"), started=100)
    bench.scan()
    bench.now += 1
    process(bench.root, 10, b"other", started=900)
    usage = bench.scan().usages[GPU][10]
    assert (usage.seen.name, usage.busy_ratio) == ("other", None)


def test_a_process_without_a_gpu_is_looked_at_again_later(bench: Bench) -> None:
    bench.client(10, "pos: 0\n", node="/dev/null", started=100)  # old: about 10,000 s
    bench.scan()
    open_files(bench.root, 10, (RENDER, fdinfo(1, drm_memory_vram="5 KiB")))
    bench.now += 59
    assert bench.memory() == {}
    bench.now += 1
    assert bench.memory() == {10: 5 * KIB}


def test_a_young_process_is_looked_at_again_soon(bench: Bench) -> None:
    bench.client(10, "pos: 0\n", node="/dev/null", started=999_000)  # began 10 s before
    bench.scan()
    open_files(bench.root, 10, (RENDER, fdinfo(1, drm_memory_vram="5 KiB")))
    bench.now += 11
    assert bench.memory() == {10: 5 * KIB}


def test_another_process_under_the_same_pid_is_looked_at_at_once(bench: Bench) -> None:
    bench.client(10, "pos: 0\n", node="/dev/null", started=100)
    bench.scan()
    bench.client(10, fdinfo(1, drm_memory_vram="5 KiB"), started=200)
    bench.now += 1
    assert bench.memory() == {10: 5 * KIB}


def test_what_is_not_reached_comes_first_next_time_and_is_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_processes=2)
    for pid in (10, 11, 12, 13, 14):
        bench.client(pid, fdinfo(pid, drm_memory_vram="1 KiB") if pid == 12 else "pos: 0\n", node=RENDER)
    found = [bench.scan() for _ in range(3)]
    assert [scan.unreached for scan in found] == [3, 1, 0]
    assert [12 in scan.usages.get(GPU, {}) for scan in found] == [False, True, True]


def test_a_scan_ends_when_its_time_is_over(tmp_path: Path) -> None:
    ticking: Iterator[float] = itertools.count(0.0, 0.1)
    proc = Proc(tmp_path, frozenset(), boottime=lambda: 1e4)
    for pid in range(10, 30):
        process(tmp_path, pid)
        open_files(tmp_path, pid)
    scan = Scanner(proc, (), lambda: next(ticking), seconds=0.5).scan()
    assert scan is not None
    assert scan.unreached == 15


def test_a_scan_ends_when_it_has_seen_enough_descriptors(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_descriptors=6)
    for pid in range(10, 15):
        bench.client(pid, *(["pos: 0\n"] * 3), node="/dev/null")
    assert bench.scan().unreached == 3


def test_requests_can_be_served_during_a_scan(tmp_path: Path) -> None:
    served: list[None] = []
    bench = Bench(tmp_path, pause=lambda: served.append(None))
    for pid in range(10, 110):
        bench.client(pid, "pos: 0\n", node="/dev/null")
    bench.scan()
    assert len(served) == 4


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert Scanner(Proc(tmp_path, frozenset()), ()).scan() is None


rows = st.lists(st.tuples(st.integers(10, 13), st.integers(1, 4), st.integers(0, 9)), max_size=12)


@settings(max_examples=40, deadline=None)
@given(rows)
def test_the_memory_of_each_client_is_counted_exactly_once(
    tmp_path_factory: pytest.TempPathFactory, opened: list[tuple[int, int, int]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("clients"))
    sizes: dict[int, int] = {}
    for pid, client, size in opened:
        bench.client(pid, fdinfo(client, drm_memory_vram=f"{sizes.setdefault(client, size)} KiB"))
    assert sum(bench.memory().values()) == sum(sizes.values()) * KIB
    assert set(bench.scan().usages.get(GPU, {})) == {pid for pid, _, _ in opened}


XE = "0000:03:00.0"
SECOND = 1_000_000_000


def xe(client: int, rcs: int, total: int, *, ccs: int = 0, vram: int = 0) -> str:
    """Fdinfo of a client of xe, which counts cycles of the device's clock, and has 4 compute engines."""
    return fdinfo(
        client,
        XE,
        drm_driver="xe",
        drm_total_vram0=f"{vram + 1} KiB",
        drm_resident_vram0=f"{vram} KiB",
        drm_cycles_rcs=rcs,
        drm_total_cycles_rcs=total,
        drm_cycles_ccs=ccs,
        drm_total_cycles_ccs=total,
        drm_engine_capacity_ccs=4,
    )


def shares(bench: Bench, address: str = XE) -> tuple[dict[int, float | None], dict[str, float]]:
    found = bench.scan()
    ratios = {pid: usage.busy_ratio for pid, usage in found.usages[address].items()}
    return ratios, found.devices[address].engine_ratio


def test_cycles_are_a_share_of_the_cycles_of_the_device(bench: Bench) -> None:
    bench.scanner = Scanner(Proc(bench.root, frozenset(), boottime=lambda: 1e4), ("rcs", "ccs"), lambda: bench.now)
    bench.client(10, xe(1, 5_000, 100_000))
    bench.client(11, xe(2, 70_000, 100_000))
    assert shares(bench) == ({10: None, 11: None}, {})
    bench.now += 10
    renewed(bench, xe(1, 7_500, 110_000, ccs=20_000))
    close_files(bench.root, 11)
    open_files(bench.root, 11, (RENDER, xe(2, 71_000, 110_000)))
    ratios, engines = shares(bench)
    assert ratios == {10: pytest.approx(0.75), 11: pytest.approx(0.1)}
    assert engines == {"rcs": pytest.approx(0.35), "ccs": pytest.approx(0.5)}


def test_a_client_that_began_since_the_scan_before_is_measured_by_the_device_s_cycles(bench: Bench) -> None:
    bench.client(10, xe(1, 0, 100_000))
    bench.scan()
    bench.now += 10
    renewed(bench, xe(1, 0, 110_000), xe(2, 4_000, 110_000))
    assert shares(bench)[1] == {"rcs": pytest.approx(0.4), "ccs": 0.0}


@pytest.mark.parametrize("total", [100_000, 90_000])
def test_cycles_of_a_device_that_stand_still_or_fall_are_no_measure(bench: Bench, total: int) -> None:
    bench.client(10, xe(1, 10, 100_000))
    bench.scan()
    bench.now += 10
    renewed(bench, xe(1, 20, total))
    assert shares(bench) == ({10: None}, {})


def test_a_device_is_as_busy_as_all_of_its_clients(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_engine_gfx="0 ns", drm_memory_vram="5 KiB"))
    bench.client(11, fdinfo(2, drm_engine_gfx="0 ns", drm_engine_enc="0 ns", drm_memory_vram="7 KiB"))
    found = bench.scan()
    assert found.devices == {GPU: DeviceUse({"vram": 12 * KIB}, {})}
    assert (found.seconds, found.whole) == (None, True)
    bench.now += 10
    renewed(bench, fdinfo(1, drm_engine_gfx=f"{2 * SECOND} ns", drm_memory_vram="5 KiB"))
    close_files(bench.root, 11)
    shared = fdinfo(2, drm_engine_gfx=f"{3 * SECOND} ns", drm_engine_enc=f"{9 * SECOND} ns", drm_memory_vram="6 KiB")
    open_files(bench.root, 11, (RENDER, shared), (RENDER, shared))
    bench.client(12, shared)
    found = bench.scan()
    assert found.devices[GPU].memory_bytes == {"vram": 11 * KIB}
    assert found.devices[GPU].engine_ratio == {"gfx": pytest.approx(0.5), "enc": pytest.approx(0.9)}
    assert (found.seconds, found.whole) == (10.0, True)


def test_engines_of_which_there_are_several_are_a_share_of_all(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_engine_gfx="0 ns", drm_engine_capacity_gfx=2))
    bench.scan()
    bench.now += 10
    renewed(bench, fdinfo(1, drm_engine_gfx=f"{5 * SECOND} ns", drm_engine_capacity_gfx=2))
    assert busy(bench) == pytest.approx(0.25)


def test_a_young_process_counts_for_its_device_from_its_start(bench: Bench) -> None:
    bench.client(11, fdinfo(9))
    bench.scan()
    bench.now += 10
    bench.client(10, fdinfo(1, drm_engine_gfx=f"{4 * SECOND} ns"), started=999_500)  # began 5 s ago
    found = bench.scan()
    assert found.usages[GPU][10].busy_ratio is None
    assert found.devices[GPU].engine_ratio == {"gfx": pytest.approx(0.4)}


def test_an_old_process_that_is_found_late_does_not_count_for_what_it_had_before(bench: Bench) -> None:
    bench.client(10, "pos: 0\n", node="/dev/null", started=100)
    bench.client(11, fdinfo(9))
    bench.scan()
    open_files(bench.root, 10, (RENDER, fdinfo(1, drm_engine_gfx=f"{40 * SECOND} ns")))
    for _ in range(6):
        bench.now += 10
        assert bench.scan().devices[GPU].engine_ratio == {}
    close_files(bench.root, 10)
    open_files(bench.root, 10, (RENDER, fdinfo(1, drm_engine_gfx=f"{42 * SECOND} ns")))
    bench.now += 10
    assert bench.scan().devices[GPU].engine_ratio == {"gfx": pytest.approx(0.2)}


def test_whether_everybody_was_looked_at_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, most_processes=2)
    for pid in (10, 11, 12):
        bench.client(pid, fdinfo(pid))
    assert not bench.scan().whole
    bench.scanner = Bench(tmp_path).scanner
    assert bench.scan().whole
    assert not bench.scan(10).whole


def suspend(root: Path, node: str, status: str) -> None:
    folder = root / "sys/class/drm" / node / "device/power"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "runtime_status").write_text(status + "\n")


def test_clients_of_a_gpu_that_sleeps_are_left_alone(bench: Bench) -> None:
    bench.client(10, fdinfo(1, drm_memory_vram="5 KiB"))
    bench.client(11, fdinfo(2, address=XE, drm_memory_vram="6 KiB"), node="/dev/dri/renderD129 (deleted)")
    suspend(bench.root, "renderD128", "suspended")
    suspend(bench.root, "renderD129", "active")
    assert bench.memory() == {}
    assert set(bench.scan().usages) == {XE}
    suspend(bench.root, "renderD128", "active")
    bench.now += 1
    assert bench.memory() == {10: 5 * KIB}


engine_steps = st.lists(st.integers(0, 2 * SECOND), min_size=2, max_size=6)


@settings(max_examples=20, deadline=None)
@given(engine_steps, engine_steps)
def test_shares_are_shares(tmp_path_factory: pytest.TempPathFactory, one: list[int], other: list[int]) -> None:
    bench = Bench(tmp_path_factory.mktemp("shares"))
    for mine, yours in zip(one, other, strict=False):
        process(bench.root, 10)
        open_files(bench.root, 10)
        renewed(bench, fdinfo(1, drm_engine_gfx=f"{mine} ns"), fdinfo(2, drm_engine_gfx=f"{yours} ns"))
        found = bench.scan()
        ratio = found.usages[GPU][10].busy_ratio
        assert ratio is None or 0 <= ratio <= 1
        assert all(0 <= value <= 1 for value in found.devices[GPU].engine_ratio.values())
        bench.now += 1
