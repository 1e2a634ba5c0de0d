"""Which process is behind a pid."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.kernel import INITIAL_PID_NAMESPACE, Stat
from exporter.providers.procfs import Proc, listed_pids, name_of, proc_of, read_stat
from tests.kernel import KERNEL_THREAD, own, process

TICKS = os.sysconf("SC_CLK_TCK")


def proc(root: Path, *, foreign: bool = False, now: float = 1e6) -> Proc:
    return Proc(root, frozenset({50, 51}), foreign=foreign, boottime=lambda: now)


@pytest.mark.parametrize(
    ("comm", "name"),
    [
        (b"train job", "train job"),
        (b"a) R 1 (b", "a) R 1 (b"),
        (b"new\nline", "new\nline"),
        ("训练任务训".encode()[:14], "训练任务\ufffd"),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_a_name_may_hold_anything(tmp_path: Path, comm: bytes, name: str) -> None:
    process(tmp_path, 7, comm, started=123, parent=4)
    assert read_stat(tmp_path, 7) == Stat(name, 123, 4, kernel=False, state="S")


def test_a_process_without_a_name_has_its_pid_for_one(tmp_path: Path) -> None:
    process(tmp_path, 7, b"")
    assert name_of(7, read_stat(tmp_path, 7)) == "pid 7"
    assert name_of(8, read_stat(tmp_path, 8)) == "pid 8"


@pytest.mark.parametrize(
    "text",
    ["", "7 (x)", "7 (x) S one", "garbage", "7 (x) S 1 2 3 4 5 6 7 8", " ".join(map(str, range(30)))],
)
def test_what_is_no_stat_file_is_no_process(tmp_path: Path, text: str) -> None:
    (process(tmp_path, 7) / "stat").write_text(text)
    assert read_stat(tmp_path, 7) is None


def test_our_own_start_is_not_before_boot_nor_in_the_future() -> None:
    here = proc_of(Path("/"))
    seen = here.look(os.getpid())
    assert seen is not None
    assert 0 < seen.started / TICKS <= here.boottime()
    assert 0 <= here.age(seen) < here.boottime()
    assert seen.parent == os.getppid()
    assert {os.getpid(), os.getppid()} == here.own


@given(started=st.integers(0, 10**6), asked=st.floats(0, 10**4))
def test_a_process_that_began_after_the_driver_was_asked_is_another_one(
    tmp_path_factory: pytest.TempPathFactory, started: int, asked: float
) -> None:
    root = tmp_path_factory.mktemp("recycled")
    process(root, 7, started=started)
    seen = proc(root).look(7, asked)
    assert (seen is not None) == (started < int(asked * TICKS))


def test_in_a_foreign_namespace_nobody_is_looked_up(tmp_path: Path) -> None:
    process(tmp_path, 7)
    assert proc(tmp_path).look(7) is not None
    assert proc(tmp_path, foreign=True).look(7) is None
    assert not proc(tmp_path, foreign=True).is_own(50, None)


def test_ourselves_are_the_worker_its_parent_and_their_children(tmp_path: Path) -> None:
    process(tmp_path, 60, parent=51)
    process(tmp_path, 61, parent=60)
    here = proc(tmp_path)
    assert [here.is_own(pid, here.look(pid)) for pid in (50, 51, 60, 61, 1)] == [True, True, True, False, False]


def ourselves(root: Path, *numbers: int) -> None:
    """Be a process with these numbers in nested namespaces, that of the mount first."""
    folder = process(root, numbers[0], parent=9)
    (folder / "status").write_text(f"Name:\tpython3\nPPid:\t9\nNSpid:\t{chr(9).join(map(str, numbers))}\n")
    (root / "proc/self").symlink_to(str(numbers[0]))


def test_we_are_found_in_a_proc_that_counts_otherwise(tmp_path: Path) -> None:
    ourselves(tmp_path, 30328, 3)
    assert proc_of(tmp_path).own == {30328, 9}


@pytest.mark.parametrize("numbers", [(100,), (30328, 3)], ids=["our own", "around ours"])
@pytest.mark.parametrize("namespace", [INITIAL_PID_NAMESPACE, "pid:[4026532178]"])
def test_without_a_sign_of_the_host_proc_is_the_hosts_only_where_we_are_its(
    tmp_path: Path, numbers: tuple[int, ...], namespace: str
) -> None:
    # With hidepid, and in a node that is itself a container, the second process is not there to be seen.
    ourselves(tmp_path, *numbers)
    is_ours = numbers == (100,) and namespace == INITIAL_PID_NAMESPACE
    assert proc_of(tmp_path, own=own(tmp_path, namespace)).foreign is not is_ours


@pytest.mark.parametrize(
    ("comm", "parent", "flags", "foreign"),
    [
        (b"kthreadd", 0, KERNEL_THREAD, False),
        (b"kthreadd", 0, 0, True),  # a process may call itself what it likes
        (b"kthreadd", 1, KERNEL_THREAD, True),
        (b"bash", 1, 0, True),
    ],
)
def test_the_host_is_recognised_by_its_kernel_threads(
    tmp_path: Path, comm: bytes, parent: int, flags: int, *, foreign: bool
) -> None:
    ourselves(tmp_path, 30328, 3)
    process(tmp_path, 2, comm, parent=parent, flags=flags)
    assert proc_of(tmp_path, own=own(tmp_path, "pid:[4026532178]")).foreign is foreign


def test_the_host_is_recognised_by_the_namespace_of_its_first_process(tmp_path: Path) -> None:
    ourselves(tmp_path, 30328, 3)
    here = own(tmp_path, "pid:[4026532178]")
    namespaces = tmp_path / "proc/1/ns"
    namespaces.mkdir(parents=True)
    (namespaces / "pid").symlink_to(INITIAL_PID_NAMESPACE)
    assert not proc_of(tmp_path, own=here).foreign


def test_pids_are_listed_in_order(tmp_path: Path) -> None:
    for pid in (20, 3, 100):
        process(tmp_path, pid)
    (tmp_path / "proc/sys").mkdir()
    (tmp_path / "proc/uptime").write_text("1 1\n")
    assert listed_pids(tmp_path) == ([3, 20, 100], 0)
    with pytest.raises(OSError, match="proc"):
        listed_pids(tmp_path / "none")


def test_threads_of_the_kernel_are_told(tmp_path: Path) -> None:
    process(tmp_path, 2, b"kthreadd", flags=KERNEL_THREAD | 0x40)
    seen = read_stat(tmp_path, 2)
    assert seen is not None
    assert seen.kernel
