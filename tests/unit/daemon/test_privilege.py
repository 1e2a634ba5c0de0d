"""Who runs as root is told that nothing needs it only where that is true."""

from pathlib import Path

import pytest

from exporter.config import AttributionConfig
from exporter.daemon.privilege import needs_root

PLAIN = AttributionConfig(kubelet_socket=None)


def mounts(directory: Path, *options: str) -> str:
    path = directory / "mounts"
    lines = ["sysfs /sys sysfs ro,relatime 0 0", *(f"proc /proc proc {each} 0 0" for each in options)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_readings_need_no_root(tmp_path: Path) -> None:
    assert not needs_root(PLAIN, mounts(tmp_path, "rw,nosuid,relatime"))
    assert not needs_root(PLAIN, str(tmp_path / "none"))


def test_the_kubelets_socket_is_roots(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    config = AttributionConfig(kubelet_socket=str(socket))
    quiet = mounts(tmp_path, "rw")
    assert not needs_root(config, quiet)
    socket.touch()
    assert needs_root(config, quiet)
    assert not needs_root(AttributionConfig(enabled=False, kubelet_socket=str(socket)), quiet)


def test_the_environment_of_jobs_is_their_users() -> None:
    assert needs_root(AttributionConfig(kubelet_socket=None, slurm_environment=True))


@pytest.mark.parametrize(
    ("options", "hides"),
    [
        (("rw,hidepid=invisible",), True),
        (("rw,gid=4,hidepid=2",), True),
        (("rw,hidepid=0",), False),
        (("rw,hidepid=off",), False),
        (("rw,hidepid=invisible", "rw"), False),
        (("rw", "rw,hidepid=noaccess"), True),
    ],
)
def test_root_sees_what_proc_hides(tmp_path: Path, options: tuple[str, ...], *, hides: bool) -> None:
    assert needs_root(PLAIN, mounts(tmp_path, *options)) is hides
    other = AttributionConfig(kubelet_socket=None, proc="/host/proc")
    assert not needs_root(other, mounts(tmp_path, *options))
