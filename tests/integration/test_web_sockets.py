"""Sockets that systemd opens for the daemon, and addresses that are in each other's way."""

import asyncio
import fcntl
import http.client
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.web.listen import ListenError, open_sockets
from tests.integration.daemon import ROOT
from tests.integration.web import EXPORTER, PAGE, Client, open_descriptors, run, serving
from tests.tools import end, unavailable

pytestmark = pytest.mark.integration

PATIENCE = 10.0
DAEMON = (sys.executable, "-m", "exporter", "serve", "--provider=simulated", "--web.systemd-socket")


LAUNCHER = """
import ast, os, sys
numbers, variables = ast.literal_eval(sys.argv[1])
for place, number in enumerate(numbers):
    os.dup2(number, 3 + place, inheritable=True)
variables["LISTEN_PID"] = variables["LISTEN_PID"].replace("self", str(os.getpid()))
os.execve(sys.argv[2], sys.argv[2:], {**os.environ, **variables})
"""


class LocalConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def status(connection: http.client.HTTPConnection, path: str = "/-/healthy") -> int:
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def passed(
    sockets: list[socket.socket], log: Path, names: str = "", to: str = "self"
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the daemon with these sockets at descriptor 3 and on, as systemd does, meant for the process `to`."""
    for each in sockets:
        each.set_inheritable(True)
    numbers = [each.fileno() for each in sockets]
    variables = {"LISTEN_PID": to, "LISTEN_FDS": str(len(sockets)), "LISTEN_FDNAMES": names}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, repr((numbers, variables)), *DAEMON],
            cwd=ROOT,
            stdout=out,
            stderr=out,
            pass_fds=numbers,
        )
    try:
        yield process
    finally:
        end(process)


def moved(made: socket.socket) -> socket.socket:
    """The same socket at a descriptor above those that it is to be passed at."""
    number = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD, 50)
    made.close()
    return socket.socket(fileno=number)


def test_the_daemon_serves_on_the_sockets_that_systemd_passes(tmp_path: Path) -> None:
    tcp = moved(socket.create_server(("127.0.0.1", 0)))
    port = tcp.getsockname()[1]
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(tmp_path / "socket"))
    local.listen()
    local = moved(local)
    log = tmp_path / "log"
    with tcp, local, passed([tcp, local], log, "web:local") as process:
        # A client may come before the daemon is there: that is what it is for.
        assert status(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) == 200
        assert status(LocalConnection(tmp_path / "socket"), "/metrics") == 200
        workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert workers
        for worker in workers:
            environment = Path(f"/proc/{worker}/environ").read_bytes()
            assert b"LISTEN_" not in environment
            links = [str(each.readlink()) for each in Path(f"/proc/{worker}/fd").iterdir()]
            assert f"socket:[{os.fstat(tcp.fileno()).st_ino}]" not in links
        process.terminate()
        assert process.wait(10) == 0
        # The socket is systemd's: it outlives the daemon, and the next one serves on it.
        with socket.create_connection(tcp.getsockname(), 5):
            pass
    assert f"http://127.0.0.1:{port}/" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_each_client_is_answered_while_the_daemon_on_a_socket_of_systemd_is_restarted(tmp_path: Path) -> None:
    tcp = moved(socket.create_server(("127.0.0.1", 0)))
    address: tuple[str, int] = tcp.getsockname()
    over = threading.Event()

    def asked() -> list[int]:
        """Ask without a pause, and return what was answered."""
        found = []
        while not over.is_set():
            found.append(status(http.client.HTTPConnection(*address, timeout=PATIENCE)))
        return found

    with tcp, ThreadPoolExecutor(4) as clients:
        with passed([tcp], tmp_path / "first", "web") as first:
            assert status(http.client.HTTPConnection(*address, timeout=PATIENCE)) == 200
            answers = [clients.submit(asked) for _ in range(4)]
            time.sleep(0.2)
            first.terminate()
            assert first.wait(10) == 0
        with passed([tcp], tmp_path / "second", "web"):
            assert status(http.client.HTTPConnection(*address, timeout=PATIENCE)) == 200
            over.set()
            for each in answers:
                assert set(each.result(PATIENCE)) == {200}


def datagrams() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(("127.0.0.1", 0))
    return made


def connected() -> socket.socket:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return socket.create_connection(listening.getsockname())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (datagrams, 'descriptor 3 (\\"web\\") that systemd passed: it is not a stream socket; use ListenStream='),
        (connected, 'descriptor 3 (\\"web\\") that systemd passed: it does not listen; use Accept=no'),
    ],
    ids=["datagrams", "connected"],
)
def test_a_socket_that_cannot_be_served_on_is_told_and_ends_the_daemon(make: object, said: str, tmp_path: Path) -> None:
    assert callable(make)
    log = tmp_path / "log"
    with moved(make()) as made, passed([made], log, "web") as process:
        assert process.wait(PATIENCE) == 1
    assert said in log.read_text()
    assert "Traceback" not in log.read_text()


def test_without_a_socket_for_it_the_daemon_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with moved(socket.create_server(("127.0.0.1", 0))) as made, passed([made], log, to="1") as process:
        assert process.wait(PATIENCE) == 1
    assert "systemd" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_systemd_itself_starts_the_daemon_for_its_first_client(tmp_path: Path) -> None:
    tool = shutil.which("systemd-socket-activate")
    if tool is None:
        unavailable("systemd-socket-activate", "apt-get install systemd")
    where, log = tmp_path / "socket", tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([tool, "-E", "PATH", "-l", str(where), *DAEMON], cwd=ROOT, stdout=out, stderr=out)
    try:
        deadline = time.monotonic() + PATIENCE
        while not where.exists():
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.02)
        connection = LocalConnection(where)
        connection.connect()
        connection.sock.settimeout(PATIENCE)
        assert status(connection, "/metrics") == 200
        assert "unix:" in log.read_text()
    finally:
        end(process)


def test_the_same_address_twice_is_told_as_what_it_is_and_nothing_is_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    before = open_descriptors()
    for first, second in (
        (f"127.0.0.1:{port}", f"127.0.0.1:{port}"),
        (f":{port}", f"127.0.0.1:{port}"),
        (f"127.0.0.1:{port}", f"localhost:{port}"),
    ):
        with pytest.raises(ListenError) as caught:
            open_sockets(("127.0.0.1:0", first, second))
        assert str(caught.value) == f"cannot listen on {second}: this daemon listens on {first} already"
    assert open_descriptors() == before


def test_a_local_client_is_served_like_any_other(tmp_path: Path) -> None:
    async def test() -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        async with serving(EXPORTER, sockets=[listening]) as served:
            assert served.server.addresses == (f"unix:{tmp_path / 'socket'}",)
            client = Client(*await asyncio.open_unix_connection(tmp_path / "socket"))
            served.clients.append(client)
            assert (await client.get()).body == PAGE
            client.send(b"nonsense\r\n\r\n")
            assert (await client.answer()).status == 400

    run(test)
