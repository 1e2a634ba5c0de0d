"""`gpu-exporter measure` on a terminal: the live line, the table, and what the keyboard sends."""

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT
from tests.integration.measuring import SECONDS, Bench

ROWS, COLUMNS = 24, 100


class Terminal:
    """A terminal with a keyboard, and all that was shown on it."""

    def __init__(self, master: int, process: "subprocess.Popen[bytes]") -> None:
        self.master = master
        self.process = process
        self.shown = ""

    def until(self, pattern: str) -> "re.Match[str]":
        """Read what is shown until the pattern is found."""
        deadline = time.monotonic() + SECONDS
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < deadline, self.shown
            assert self._read(), f"it ended: {self.shown!r}"
        return found

    def end(self) -> int:
        """Read to the end and return the exit status."""
        deadline = time.monotonic() + SECONDS
        while self._read():
            assert time.monotonic() < deadline, self.shown
        return self.process.wait(SECONDS)

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def _read(self) -> bool:
        if not select.select([self.master], [], [], 0.2)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO  # noqa: PT017 -- what Linux says when nobody has it open any more
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(bench: Bench, *options: str, term: str = "xterm") -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    # A session of its own whose terminal this is, with the process in front, as a shell starts a job.
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *bench.command(*options)],
        cwd=bench.folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": term},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    try:
        yield Terminal(master, process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(master)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_live_line_is_kept_below_the_output_and_a_table_follows(bench: Bench) -> None:
    with terminal(bench, "--", "sh", "-c", "echo first; sleep 2; echo last") as seen:
        seen.until(r"gpu-exporter  running  1 s  2 GPUs  [0-9.]+ W  [0-9.]+ J")
        assert seen.end() == 0
    screen = seen.shown
    assert f"\x1b[1;{ROWS - 1}r" in screen, "the last row is taken out of what scrolls"
    lines = [line for line in screen.replace("\r", "").split("\n") if "running" in line]
    assert lines
    assert all(f"\x1b[{ROWS};1H" in line for line in lines)
    table = screen[screen.rindex("\x1b[r") :]
    assert "last" not in table, "the row was given back after the end of the command, and nothing is drawn after it"
    assert re.search(r"command, 2\.\d\d s: power valid\r\n", table)
    assert re.search(r"sim0 +[0-9.]+ +[0-9.]+", table)
    assert "\x1b[1;" not in table
    assert f"Results: {bench.out}" in table


def test_ctrl_c_reaches_the_command_once_and_is_no_end_of_ours(bench: Bench) -> None:
    script = (
        "import signal, sys, time\n"
        "def got(number, frame):\n"
        "    global count; count += 1\n"
        "count = 0; signal.signal(signal.SIGINT, got); print('ready', flush=True)\n"
        "end = time.monotonic() + 2\n"
        "while (left := end - time.monotonic()) > 0: time.sleep(left)\n"
        "print('interrupted', count, 'time(s)', flush=True)\n"
    )
    with terminal(bench, "--repeat", "2", "--", "python3", "-c", script) as seen:
        seen.until("ready\r\n")
        seen.type(b"\x03")
        seen.until(r"interrupted 1 time\(s\)")
        assert seen.end() == 0
    assert len(bench.report().runs) == 1, "whoever interrupts does not want another run"
    assert bench.report().power_valid


def test_the_command_reads_from_the_terminal(bench: Bench) -> None:
    with terminal(bench, "--", "sh", "-c", 'echo name; read -r name; echo "hello $name"') as seen:
        seen.until("name\r\n")
        seen.type(b"you\n")
        seen.until("hello you")
        assert seen.end() == 0


def test_a_terminal_that_obeys_no_sequences_gets_none(bench: Bench) -> None:
    with terminal(bench, "--", "true", term="dumb") as seen:
        assert seen.end() == 0
    assert "\x1b" not in seen.shown
    assert "power valid" in seen.shown


def test_a_command_that_is_suspended_and_goes_on_is_measured_with_the_pause(bench: Bench) -> None:
    with terminal(bench, "--", "sh", "-c", "echo ready; sleep 1; echo done") as seen:
        seen.until("ready\r\n")
        group = os.tcgetpgrp(seen.master)
        os.killpg(group, signal.SIGSTOP)
        time.sleep(1.5)
        os.killpg(group, signal.SIGCONT)
        assert seen.end() == 0
    window = bench.window()
    assert window.seconds is not None
    assert window.seconds > 1.4
    assert window.power_valid, "the worker went on reading meanwhile"
