"""What the daemon says to systemd while it starts, serves, reloads, stands still and ends, and what it is given."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT, Daemon
from tests.notify import Manager, listening
from tests.tools import end

Start = Callable[..., Daemon]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with listening(str(tmp_path / "notify")) as made:
        yield made


def started(start: Start, manager: Manager, *arguments: str, **variables: str) -> Daemon:
    return start("--provider", "simulated", *arguments, env={"NOTIFY_SOCKET": manager.name, **variables}, ready=False)


def test_it_is_ready_when_it_serves_says_how_the_gpus_are_and_that_it_ends(
    start_daemon: Start, manager: Manager
) -> None:
    daemon = started(start_daemon, manager)
    assert manager.hear("READY=1") == ["READY=1"]
    assert daemon.get("/-/healthy").status == 200
    manager.hear("STATUS=8 of 8 GPUs deliver readings")
    daemon.process.send_signal(signal.SIGUSR1)
    manager.hear("STATUS=the devices are released")
    daemon.process.send_signal(signal.SIGUSR2)
    manager.hear("STATUS=8 of 8 GPUs")
    assert daemon.stop() == 0
    manager.hear("STOPPING=1")
    assert manager.heard(0.1) is None


def test_an_abstract_socket_will_do_and_nobody_else_is_told_of_it(start_daemon: Start, tmp_path: Path) -> None:
    with listening(f"@gpu-exporter{tmp_path}") as manager:
        daemon = started(start_daemon, manager)
        manager.hear("READY=1")
        (worker,) = daemon.until(daemon.children)
        # The variable would make a library that speaks the protocol take itself for the service.
        environment = daemon.until(Path(f"/proc/{worker}/environ").read_bytes)
        assert b"NOTIFY_SOCKET" not in environment


def test_a_reload_is_told_from_its_begin_to_its_end_whether_it_succeeds_or_not(
    start_daemon: Start, manager: Manager, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text("")
    daemon = started(start_daemon, manager, "--config.file", str(config))
    manager.hear("STATUS=8 of 8")
    for text in ("log: {level: debug}", "log: {level: loud}"):
        config.write_text(text)
        began = time.clock_gettime(time.CLOCK_MONOTONIC)
        daemon.process.send_signal(signal.SIGHUP)
        told = manager.hear("READY=1")
        reloading = re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=(\d+)", told[0])
        assert reloading is not None, told
        assert began <= int(reloading[1]) / 1e6 <= time.clock_gettime(time.CLOCK_MONOTONIC)
        assert told[1:] == ["READY=1"]
        time.sleep(0.6)  # reloads that follow each other closer than that are one


def test_the_watchdog_hears_of_it_while_it_works_and_nothing_while_it_stands_still(
    start_daemon: Start, manager: Manager
) -> None:
    seconds = 1.0
    daemon = started(start_daemon, manager, WATCHDOG_USEC=str(int(seconds * 1e6)))
    manager.hear("WATCHDOG=1")
    for _ in range(2):
        assert "WATCHDOG=1" in manager.heard_within(seconds)
    daemon.process.send_signal(signal.SIGSTOP)
    manager.heard_within(0.2)  # what was said before
    assert manager.heard_within(2 * seconds) == []
    daemon.process.send_signal(signal.SIGCONT)
    assert "WATCHDOG=1" in manager.heard_within(seconds)
    assert daemon.stop() == 0


def test_a_watchdog_that_is_meant_for_another_process_is_left_to_it(start_daemon: Start, manager: Manager) -> None:
    daemon = started(start_daemon, manager, WATCHDOG_USEC="300000", WATCHDOG_PID="1")
    manager.hear("STATUS=8 of 8")
    assert "WATCHDOG=1" not in manager.heard_within(0.6)
    assert daemon.stop() == 0


def test_a_manager_that_went_away_is_no_reason_to_end(start_daemon: Start, tmp_path: Path) -> None:
    with listening(str(tmp_path / "notify")) as manager:
        daemon = started(start_daemon, manager, WATCHDOG_USEC="300000")
        manager.hear("STATUS=8 of 8")
    (tmp_path / "notify").unlink()
    daemon.until(lambda: "systemd cannot be told" in daemon.log)
    time.sleep(0.5)
    assert daemon.log.count("systemd cannot be told") == 1
    assert daemon.get("/-/ready").status == 200


# As systemd does it: the socket is descriptor 3 of the process whose pid is in the variable.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, *"-m exporter --provider simulated --web.systemd-socket".split()])
"""


def test_it_serves_on_the_socket_that_it_is_given_and_on_no_other(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as given, listening(str(tmp_path / "notify")) as manager:
        port = given.getsockname()[1]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", HAND_OVER, str(given.fileno())],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": manager.name, "LISTEN_FDS": "1"},
                pass_fds=(given.fileno(),),
                stderr=log,
            )
        try:
            manager.hear("READY=1")
            given.close()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/healthy", timeout=5) as response:
                assert response.status == 200
            said = (tmp_path / "log").read_text()
            assert re.findall(r"url=http://(\S+)/metrics", said) == [f"127.0.0.1:{port}"]
        finally:
            end(process)
        assert process.returncode == 0
