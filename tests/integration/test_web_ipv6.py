"""Addresses on hosts with both kinds of IP, with IPv6 switched off in two ways, and with IPv6 alone."""

import ast
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT
from tests.tools import unavailable

pytestmark = pytest.mark.integration

EVERYWHERE = "0.0.0.0"  # noqa: S104 - in a network namespace of its own
SOCKET_CALL = {"x86_64": 41, "aarch64": 198}
SCRIPT = """
import ctypes, errno, fcntl, pathlib, socket, struct, subprocess, sys
from exporter.web.listen import ListenError, open_sockets

kind, call, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3]
subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
with socket.socket() as any_socket:
    # SIOCSIFFLAGS: IFF_UP | IFF_LOOPBACK | IFF_RUNNING
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x8 | 0x40))
    if kind == "IPv6 alone":
        # SIOCSIFADDR: none
        fcntl.ioctl(any_socket, 0x8916, struct.pack("16sHHI8x", b"lo", socket.AF_INET, 0, 0))
if kind == "no address of IPv6":
    for each in ("all", "default", "lo"):
        pathlib.Path(f"/proc/sys/net/ipv6/conf/{each}/disable_ipv6").write_text("1")
if kind == "a kernel without IPv6":
    # A filter in the kernel's BPF: socket(AF_INET6, ...) is refused, everything else goes through.
    words = [
        (0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_INET6),
        (0x06, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (0x06, 0, 0, 0x7FFF0000),
    ]
    filter_ = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in words))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(words), ctypes.addressof(filter_)))
    libc = ctypes.CDLL(None, use_errno=True)
    # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")

told = []
for address in sys.argv[4:]:
    try:
        (listening,) = open_sockets((address,))
    except ListenError as error:
        told.append(str(error))
        continue
    host, port = listening.getsockname()[:2]
    reached = []
    for target in ("127.0.0.1", "::1"):
        try:
            socket.create_connection((target, port), timeout=5).close()
        except OSError:
            continue
        reached.append(target)
    listening.close()
    told.append((host, *reached))
print(told)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n::1 localhost\n")
    return path


def listened(kind: str, hosts: Path, *addresses: str) -> list[object]:
    """Return for each address where it listens with what reaches it, or the words in which it is refused."""
    if os.geteuid() != 0:
        unavailable("the right to make namespaces", "run the tests as root")
    call = str(SOCKET_CALL[platform.machine()])
    command = ["unshare", "--net", "--mount", sys.executable, "-c", SCRIPT, kind, call, str(hosts), *addresses]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=30)
    if made.stderr.startswith("unshare:"):
        unavailable(f"a network namespace ({made.stderr.strip()})", "run the tests where namespaces may be made")
    assert made.returncode == 0, made.stderr
    told = ast.literal_eval(made.stdout)
    assert isinstance(told, list)
    return told


def refused(address: str) -> str:
    return f"cannot listen on {address}: this host does not have the address"


def test_all_interfaces_are_those_of_both_kinds(hosts: Path) -> None:
    assert listened("both", hosts, ":0", "localhost:0", "[::1]:0", "[::]:0", f"{EVERYWHERE}:0") == [
        ("::", "127.0.0.1", "::1"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("::", "::1"),
        (EVERYWHERE, "127.0.0.1"),
    ]


def test_without_an_address_of_ipv6_clients_of_ipv4_are_served(hosts: Path) -> None:
    everywhere, localhost, own = listened("no address of IPv6", hosts, ":0", "localhost:0", "[::1]:0")
    # A socket of both kinds may still be had.
    assert everywhere in (("::", "127.0.0.1"), (EVERYWHERE, "127.0.0.1"))
    assert localhost == ("127.0.0.1", "127.0.0.1")
    assert own == refused("[::1]:0")


def test_a_kernel_without_ipv6_gets_sockets_of_ipv4(hosts: Path) -> None:
    everywhere, localhost, own = listened("a kernel without IPv6", hosts, ":0", "localhost:0", "[::1]:0")
    assert everywhere == (EVERYWHERE, "127.0.0.1")
    assert localhost == ("127.0.0.1", "127.0.0.1")
    assert own == "cannot listen on [::1]:0: this host does not speak that kind of address"


def test_a_name_of_both_kinds_is_served_on_the_kind_that_there_is(hosts: Path) -> None:
    everywhere, ipv4, localhost = listened("IPv6 alone", hosts, ":0", "127.0.0.1:0", "localhost:0")
    assert everywhere == ("::", "::1")
    assert ipv4 == refused("127.0.0.1:0")
    assert localhost == ("::1", "::1")
