"""Becomes a container: mounts of its own, a root that is read-only, a network of its own, its user and capabilities.

Started in new namespaces, with a file that says what is wanted: see tests.helm.kubelet.
"""

import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

OWN = ("etc", "host", "run", "var")
"""Of these directories of the machine the container sees nothing."""


def main() -> None:
    plan = json.loads(Path(sys.argv[1]).read_text())
    root = Path(plan["root"])
    if plan["network"]:
        loopback_up()
    mount("--make-rprivate", "/")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", root)
    machine(root, [Path(path) for path in plan["needed"]])
    for source, place, read_only in plan["mounts"]:
        put(Path(source), root / place.lstrip("/"), read_only=read_only)
    if plan["readOnlyRoot"]:
        mount("-o", "remount,ro", root)
    os.chroot(root)
    os.chdir("/")
    os.execvpe("setpriv", [*plan["become"], *plan["command"]], plan["environment"])  # noqa: S606 -- no shell


def machine(root: Path, needed: list[Path]) -> None:
    """Show what the machine has, and of directories that are closed to other users what is needed below them alone."""
    behind = {path for path in needed if any(not parent.stat().st_mode & 0o001 for parent in path.parents)}
    closed = {path.parts[1] for path in behind}
    for entry in Path("/").iterdir():
        place = root / entry.name
        if entry.is_symlink():
            place.symlink_to(entry.readlink())
        elif entry.is_dir() and entry.name not in (*OWN, *closed):
            place.mkdir()
            mount("--rbind", entry, place)
    for path in needed:
        if path.parts[1] in closed:
            put(path, root / path.relative_to("/"), read_only=False)


def put(source: Path, place: Path, *, read_only: bool) -> None:
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    mount("--rbind", source, place)
    if read_only:
        mount("-o", "remount,bind,ro", place)


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def loopback_up() -> None:
    """A network namespace begins with its loopback interface down."""
    up, set_flags = 0x1, 0x8914  # IFF_UP, SIOCSIFFLAGS
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sh14x", b"lo", up))


main()
