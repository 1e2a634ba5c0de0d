import os
import subprocess
import time
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution.cgroup import Level
from exporter.attribution.proc import MOST_PROCESSES, REREAD_SECONDS, Proc, Sights
from exporter.attribution.processes import Missing, Seen, look_at
from exporter.attribution.source import Held, Process, Question
from exporter.attribution.users import Users
from exporter.attribution.vantage import FOREIGN_MOUNT, HIDDEN, vantage
from exporter.kernel import INITIAL_PID_NAMESPACE
from exporter.model import Device
from tests.kernel import own
from tests.unit.attribution.hosts import USER, write_host, write_process

PID = 77
SERVICE = "0::/system.slice/ollama.service\n"


def ask(*processes: Process) -> Question:
    return Question(held=(Held(device=Device(vendor="nvidia", key="GPU-1"), processes=processes),))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    return write_host(tmp_path)


def test_name_may_hold_anything(proc: Path) -> None:
    write_process(proc, PID, SERVICE, name="a) S (b 1 2")
    seen = look_at(str(proc), PID, None)
    assert isinstance(seen, Seen)
    assert (seen.name, seen.started) == ("a) S (b 1 2", 5000)


def test_process_without_a_name(proc: Path) -> None:
    write_process(proc, PID, SERVICE, name="")
    seen = look_at(str(proc), PID, None)
    assert isinstance(seen, Seen)
    assert seen.name == "pid 77"


def test_name_that_is_cut_within_a_character(proc: Path) -> None:
    write_process(proc, PID, SERVICE)
    stat = proc / str(PID) / "stat"
    stat.write_bytes(stat.read_bytes().replace(b"python3", "trainé".encode()[:-1]))
    seen = look_at(str(proc), PID, None)
    assert isinstance(seen, Seen)
    assert seen.name == "train\N{REPLACEMENT CHARACTER}"


def test_process_of_this_test() -> None:
    seen = look_at("/proc", os.getpid(), None)
    assert isinstance(seen, Seen)
    assert seen.uid == os.getuid()
    assert seen.started * 1.0 / os.sysconf("SC_CLK_TCK") <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_recycled_pid_is_another_process(proc: Path) -> None:
    write_process(proc, PID, SERVICE, started=6000)
    assert look_at(str(proc), PID, 5000) is Missing.RECYCLED


def test_ended_process(proc: Path) -> None:
    assert look_at(str(proc), PID, 5000) is Missing.ENDED


def test_zombie_has_ended(proc: Path) -> None:
    write_process(proc, PID, "0::/\n", state="Z")
    assert look_at(str(proc), PID, 5000) is Missing.ENDED


def test_something_else_than_a_stat(proc: Path) -> None:
    write_process(proc, PID, SERVICE)
    (proc / str(PID) / "stat").write_text("garbage")
    assert look_at(str(proc), PID, 5000) is Missing.DENIED


def test_kernel_without_control_groups(proc: Path) -> None:
    write_process(proc, PID, None, uid=USER)
    seen = look_at(str(proc), PID, 5000)
    assert isinstance(seen, Seen)
    assert seen.place is not None
    assert seen.place.level is Level.ROOT


def test_owner_is_never_that_of_a_recycled_pid(proc: Path, tmp_path: Path) -> None:
    source = Proc(str(proc), str(tmp_path))
    first, second = Process(PID, 5000), Process(PID, 6000)
    write_process(proc, PID, SERVICE, started=5000)
    assert set(source.look(ask(first)).seen) == {first}

    write_process(proc, PID, "0::/user.slice/user-1000.slice/session-1.scope\n", uid=USER, started=6000)

    assert set(source.look(ask(second)).seen) == {second}
    assert source.look(ask(first)).ended == {first}


def test_recycled_pid_is_noticed_where_nobody_could_tell_when_it_started(proc: Path, tmp_path: Path) -> None:
    source = Proc(str(proc), str(tmp_path))
    asked = Process(PID)
    write_process(proc, PID, SERVICE, name="before", started=5000)
    assert source.look(ask(asked)).seen[asked].name == "before"

    write_process(proc, PID, SERVICE, name="after", started=6000)

    assert source.look(ask(asked)).seen[asked].name == "after"


def test_process_is_read_once_and_again_after_a_while(proc: Path, tmp_path: Path) -> None:
    clock = Clock()
    source = Proc(str(proc), str(tmp_path), clock)
    asked = Process(PID, 5000)
    write_process(proc, PID, SERVICE, name="before")
    source.look(ask(asked))

    write_process(proc, PID, SERVICE, name="after")

    assert source.look(ask(asked)).seen[asked].name == "before"
    clock.now += REREAD_SECONDS
    assert source.look(ask(asked)).seen[asked].name == "after"


def test_what_is_not_asked_for_is_forgotten(proc: Path, tmp_path: Path) -> None:
    source = Proc(str(proc), str(tmp_path))
    asked = Process(PID, 5000)
    write_process(proc, PID, SERVICE, name="before")
    source.look(ask(asked))
    source.look(ask())
    write_process(proc, PID, SERVICE, name="after")
    assert source.look(ask(asked)).seen[asked].name == "after"


Lives = list[tuple[int, int, int]]
"""Who lives one after the other: pid, start, and the number of the service that it is of."""


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(70, 73), st.integers(1, 4), st.integers(0, 9)), max_size=12), st.data())
def test_whatever_lives_and_dies_nobody_has_the_owner_of_another(lives: Lives, data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        proc = write_host(Path(directory))
        clock = Clock()
        source = Proc(str(proc), directory, clock)
        services: dict[Process, set[str]] = {}
        now: dict[int, Process] = {}
        for pid, started, service in lives:
            process = Process(pid, started)
            if process in services:
                continue  # a pid and a start name one process for the life of the boot
            write_process(proc, pid, f"0::/system.slice/{service}.service\n", started=started)
            services[process] = {f"{service}.service"}
            now[pid] = process
            asked = data.draw(st.sets(st.sampled_from(list(services))))
            clock.now += data.draw(st.sampled_from([1.0, REREAD_SECONDS]))
            sights = source.look(ask(*asked))
            for seen_as, seen in sights.seen.items():
                assert (seen.pid, seen.started) == (seen_as.pid, seen_as.started)
                assert seen.place is not None
                assert seen.place.unit in services[seen_as]
            # Whoever is there and is asked for is seen.
            assert asked & set(now.values()) <= sights.seen.keys()


def test_permission_is_an_outcome_of_its_own(proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to read as somebody else; run as root")
    allowed, denied = Process(PID, 5000), Process(PID + 1, 5000)
    write_process(proc, allowed.pid, SERVICE)
    write_process(proc, denied.pid, SERVICE)
    (proc / str(denied.pid) / "cgroup").chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    source = Proc("proc", ".")
    os.seteuid(65534)
    try:
        sights = source.look(ask(allowed, denied))
    finally:
        os.seteuid(0)
    assert set(sights.seen) == {allowed}
    assert sights.ended == frozenset()
    assert sights.trouble == "some processes may not be looked at: permission denied"


def test_too_many_processes_are_left_out_and_said(proc: Path, tmp_path: Path) -> None:
    write_process(proc, PID, SERVICE)
    absent = [Process(10_000 + number, 1) for number in range(MOST_PROCESSES)]
    sights = Proc(str(proc), str(tmp_path)).look(ask(*absent, Process(PID, 5000)))
    assert sights.seen == {}
    assert len(sights.ended) == MOST_PROCESSES
    assert sights.trouble == f"there are more than {MOST_PROCESSES} processes"


# Where we look from.


def test_host_is_recognised_by_its_kernel_threads(proc: Path) -> None:
    assert vantage(str(proc)).foreign == ""


def test_host_with_hidden_processes_is_recognised_by_our_own(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write_process(proc, 300, SERVICE)
    (proc / "self").symlink_to("300")
    view = vantage(str(proc), own(tmp_path, INITIAL_PID_NAMESPACE))
    assert (view.foreign, view.hiding) == ("", True)


def test_nothing_is_looked_up_in_a_foreign_namespace(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    write_process(proc, PID, SERVICE)
    sights = Proc(str(proc), str(tmp_path)).look(ask(Process(PID, 5000)))
    assert sights == Sights(trouble=FOREIGN_MOUNT)


@pytest.fixture
def hiding(tmp_path: Path) -> Path:
    """A proc that does not show the first process."""
    proc = write_host(tmp_path)
    rmtree(proc / "1")
    return proc


def test_hidden_processes_have_not_ended(hiding: Path, tmp_path: Path) -> None:
    write_process(hiding, PID, SERVICE, uid=os.geteuid())

    sights = Proc(str(hiding), str(tmp_path)).look(ask(Process(PID, 5000), Process(78, 1)))

    assert set(sights.seen) == {Process(PID, 5000)}
    assert sights.ended == frozenset()
    assert sights.trouble == HIDDEN


def test_nothing_is_hidden_from_who_sees_processes_of_others(hiding: Path, tmp_path: Path) -> None:
    write_process(hiding, PID, SERVICE, uid=os.geteuid() + 1)
    sights = Proc(str(hiding), str(tmp_path)).look(ask(Process(PID, 5000), Process(2**40, 1)))
    assert set(sights.seen) == {Process(PID, 5000)}
    assert sights.ended == frozenset()
    assert sights.trouble == ""


def test_process_of_another_user_that_lives_and_is_not_shown_is_hidden(
    hiding: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to look as somebody else; run as root")
    write_process(hiding, PID, SERVICE, uid=1)
    with subprocess.Popen(["sleep", "60"], user=1) as other:
        source = Proc("proc", ".")
        tmp_path.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        os.seteuid(65534)
        try:
            trouble = source.look(ask(Process(PID, 5000), Process(other.pid, 1))).trouble
        finally:
            os.seteuid(0)
            other.kill()
    assert trouble == HIDDEN


def test_service_is_not_taken_from_below_our_own_group(proc: Path) -> None:
    # In a private namespace `/system.slice/x` is a service of the container that we are in, and `/` is that container.
    write_process(proc, PID, SERVICE)
    seen = look_at(str(proc), PID, 5000, private=True)
    assert isinstance(seen, Seen)
    assert seen.place is None


# Names of users.


def test_user_without_a_name(tmp_path: Path) -> None:
    users = Users(str(tmp_path / "passwd"))
    users.refresh()
    assert users.name(42) == "uid 42"


def test_names_follow_the_file(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("ada:x:1000:1000::/:/bin/sh\n")
    users = Users(str(tmp_path / "none"), str(passwd))
    users.refresh()
    assert users.name(1000) == "ada"
    (tmp_path / "next").write_text("grace:x:1000:1000::/:/bin/sh\n")
    (tmp_path / "next").rename(passwd)
    users.refresh()
    assert users.name(1000) == "grace"
    passwd.unlink()
    users.refresh()
    assert users.name(1000) == "uid 1000"


def test_lines_that_are_no_users_are_left_out(tmp_path: Path) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_bytes(
        b"\n# comment\nhalf:x\n:x:5:5::/:\nbig:x:99999999999999999999:1::/:\nword:x:ten:1::/:\n"
        b"first:x:7:7::/:\nsecond:x:7:7::/:\n\xff:x:8:8::/:\n" + b"l" * 500 + b":x:9:9::/:\n"
    )
    users = Users(str(passwd))
    users.refresh()
    assert [users.name(uid) for uid in (5, 7, 8)] == ["uid 5", "first", "\N{REPLACEMENT CHARACTER}"]
    assert users.name(9) == "l" * 64
