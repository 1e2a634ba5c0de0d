"""Signals at every moment of the daemon's life, from the first one that Python gives it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT, Daemon, Samples, running
from tests.tools import end

Start = Callable[..., Daemon]
HUP, USR1, USR2, TERM = signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM


def catches(pid: int, number: int) -> bool:
    """Whether the process has a handler for the signal."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def taken(pid: int, number: int) -> None:
    """Wait until Python has called its handler: the signal is not pending any more, and the process has run since."""
    while _pending(pid) >> (number - 1) & 1:
        time.sleep(0.001)
    _, ran = _state(pid)
    while (state := _state(pid)) and state[0] != "S" and state[1] < ran + 2:
        time.sleep(0.001)


def _state(pid: int) -> tuple[str, int]:
    """Return the state of a process and its processor time in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[11]) + int(fields[12])


def _pending(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))


@contextmanager
def hardly_begun(log: Path) -> Iterator[Daemon]:
    """A daemon as soon as it holds signals, long before it has imported what it needs to serve."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "exporter", "--provider", "simulated", "--web.listen-address=127.0.0.1:0"],
            cwd=log.parent,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=out,
        )
    daemon = Daemon(process, log)
    try:
        while not catches(process.pid, USR2):  # the last of those that it begins to hold
            assert process.poll() is None
        assert daemon.log == ""
        yield daemon
    finally:
        end(process)


def serves(daemon: Daemon) -> None:
    daemon.url = daemon.until(lambda: _url(daemon))


def _url(daemon: Daemon) -> str | None:
    assert daemon.process.poll() is None, daemon.log
    _, _, rest = daemon.log.partition("url=")
    return rest.partition("/metrics")[0] if "/metrics" in rest else None


@pytest.mark.parametrize(
    ("sent", "released"),
    [((USR1,), 1), ((USR2,), 0), ((USR1, USR2), 0), ((USR2, USR1), 1), ((USR1, HUP, USR1), 1)],
)
def test_what_is_asked_of_a_daemon_that_has_hardly_begun_is_done_when_it_serves(
    sent: tuple[signal.Signals, ...], released: int, tmp_path: Path
) -> None:
    with hardly_begun(tmp_path / "log") as daemon:
        for number in sent:
            daemon.process.send_signal(number)
            taken(daemon.process.pid, number)  # signals that are pending together have no order
        serves(daemon)
        assert daemon.scrape().value("gpu_exporter_released") == released
        assert ("the configuration is reloaded" in daemon.log) == (HUP in sent)
        if released:
            time.sleep(0.5)
            assert daemon.children() == []
            daemon.process.send_signal(USR2)
        daemon.until(lambda: daemon.get("/-/ready").status == 200)
        assert daemon.stop() == 0
        assert "Traceback" not in daemon.log


def test_a_daemon_that_has_hardly_begun_ends_when_it_is_told_to(tmp_path: Path) -> None:
    for before in ((), (USR1, HUP)):
        with hardly_begun(tmp_path / "log") as daemon:
            for number in before:
                daemon.process.send_signal(number)
            assert daemon.stop(TERM, timeout=2) == 0
            assert daemon.log == ""


def test_a_hang_up_ends_the_commands_that_are_no_daemon(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen([sys.executable, "-m", "exporter", "check-config", pipe], cwd=ROOT)
    with pipe.open("w"):  # waits until it is read
        process.send_signal(HUP)
        assert process.wait(10) == -HUP


def is_whole(page: Samples) -> bool:
    return len(page.all("gpu_power_watts")) == 8 and page.value("gpu_exporter_released") == 0


def descriptors(daemon: Daemon) -> int:
    return sum(1 for _ in Path(f"/proc/{daemon.process.pid}/fd").iterdir())


def test_a_storm_of_signals_is_weathered(start_daemon: Start) -> None:
    daemon = start_daemon("--provider", "simulated")
    daemon.scrape_until(is_whole)
    before = descriptors(daemon)
    until = time.monotonic() + 2.0
    sent, slowest = 0, 0.0
    while time.monotonic() < until:
        for number in (USR1, HUP, USR1, USR2, USR2, HUP):
            daemon.process.send_signal(number)
            sent += 1
        slowest = max(slowest, daemon.get().seconds)
    assert sent > 100
    assert slowest < 1.0
    daemon.process.send_signal(USR2)
    daemon.scrape_until(is_whole, seconds=40)
    daemon.until(lambda: len(daemon.children()) == 1)
    assert descriptors(daemon) <= before + 3
    assert "Traceback" not in daemon.log
    assert daemon.stop() == 0


HANGING = "devices: [{model: H100-SXM, faults: [{kind: hang, from_seconds: 0}]}]\n"


@pytest.mark.parametrize("before", [(), (USR1,), (USR1, USR2), (USR1, HUP), (HUP,)], ids=str)
@pytest.mark.parametrize("hangs", [False, True], ids=["well", "hung"])
def test_it_ends_in_time_whatever_was_asked_of_it_just_before(
    hangs: bool, before: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    scenario = tmp_path / "s.yaml"
    scenario.write_text(HANGING if hangs else HANGING.partition(", faults")[0] + "}]\n")
    with running("--simulate", str(scenario), log=tmp_path / "log", ready=not hangs) as daemon:
        workers = daemon.until(daemon.children)
        time.sleep(0.5 if hangs else 0)
        for number in before:
            daemon.process.send_signal(number)
        began = time.monotonic()
        assert daemon.stop(TERM) == 0
        assert time.monotonic() - began < 5.0
        assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []
        assert "Traceback" not in daemon.log


@pytest.mark.parametrize("number", [HUP, USR1, USR2, signal.SIGINT, TERM], ids=lambda number: number.name)
def test_no_signal_that_comes_while_it_ends_changes_how(number: signal.Signals, start_daemon: Start) -> None:
    daemon = start_daemon("--provider", "simulated")
    daemon.process.send_signal(TERM)
    while daemon.process.poll() is None:
        daemon.process.send_signal(number)
        time.sleep(0.001)
    assert daemon.process.returncode == 0
    assert "Traceback" not in daemon.log
