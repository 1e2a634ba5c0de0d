"""What surrounds the daemon gives way: few descriptors, and a log that nobody reads."""

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.daemon import ROOT, Daemon

SPARE = 8


def open_descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_peers_that_take_all_descriptors_give_way_to_a_scrape_and_cost_one_line(
    start_daemon: Callable[..., Daemon],
) -> None:
    daemon = start_daemon("--provider", "simulated")
    pid = daemon.process.pid
    limit = open_descriptors(pid) + SPARE
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, limit))
    where = ("127.0.0.1", int(daemon.url.rpartition(":")[2]))
    peers = [socket.create_connection(where, timeout=5) for _ in range(6 * SPARE)]
    try:
        assert daemon.get(timeout=5).status == 200
        assert daemon.get("/-/ready", timeout=5).status == 200
    finally:
        for peer in peers:
            peer.close()
    told = [line for line in daemon.log.splitlines() if "cannot be taken" in line]
    assert len(told) == 1
    assert "Too many open files" in told[0]
    assert "level=error" not in daemon.log
    assert daemon.get().status == 200


def test_the_daemon_is_one_thread(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--provider", "simulated", "--web.listen-address=localhost:0")
    assert len(list(Path(f"/proc/{daemon.process.pid}/task").iterdir())) == 1


def test_a_log_that_nobody_reads_stops_neither_the_page_nor_the_end() -> None:
    """The port has to be known before, as the log is where it would be said."""
    reader, writer = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        where = chosen.getsockname()
    command = [sys.executable, "-m", "exporter", "--provider", "simulated", "--log.level", "debug"]
    process = subprocess.Popen(
        [*command, f"--web.listen-address=127.0.0.1:{where[1]}"], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=writer
    )
    try:
        answers = 0
        deadline = time.monotonic() + 20
        while answers < 10 and time.monotonic() < deadline:
            fill(writer)
            try:
                with socket.create_connection(where, timeout=2) as client:
                    client.sendall(b"no request\r\n\r\n")  # costs a line
                    answers += client.recv(1024).startswith(b"HTTP/1.1 400")
            except ConnectionRefusedError:
                time.sleep(0.1)
        assert answers == 10
        process.terminate()
        assert process.wait(5) == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(reader)
        os.close(writer)


def fill(pipe: int) -> None:
    # Opened anew: whether a write waits is the same for all who share a descriptor.
    own = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        while True:
            os.write(own, bytes(4096))
    except BlockingIOError:
        os.close(own)
