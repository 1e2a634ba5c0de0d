"""What surrounds the daemon gives way: few descriptors, and a log that nobody reads."""

import resource
import socket
from collections.abc import Callable
from pathlib import Path

from tests.integration.daemon import Daemon

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
