"""A small Debian of a test's own: laid over the one that .ci/fetch-root makes, changed, run commands in, and booted."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.native.plan import cache_directory
from tests.tools import unavailable

SUITE = "trixie"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""What this machine trusts, which may be more than a fresh Debian does: packages are fetched from inside."""
BOOT_SECONDS = 240.0


def debian() -> Path:
    """Return the root that $DEBIAN_ROOT names, else the one in the cache, or end the test. It must not be changed."""
    root = Path(os.environ.get("DEBIAN_ROOT") or cache_directory(f"debian-{SUITE}"))
    if not (root / "usr/lib/systemd/systemd").exists():
        unavailable("a root of Debian", f"apt-get install debootstrap && .ci/fetch-root {SUITE} {root}")
    return root


def needs(*tools: str) -> None:
    """End the test where one of the tools is missing, which are named as "command: package", or root's rights."""
    for tool in tools:
        command, _, package = tool.partition(": ")
        if not shutil.which(command):
            unavailable(command, f"apt-get install {package}")
    if os.geteuid() != 0:
        unavailable("the right to mount and to boot", "run the tests as root")


@contextmanager
def overlaid(directory: Path, *below: Path) -> Iterator[Path]:
    """Mount a root over those `below`, the uppermost first. What is changed in it is kept in `directory`/upper."""
    upper, work, root = (directory / name for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        path.mkdir()
    upper.chmod(0o755)
    layers = f"lowerdir={':'.join(map(str, below))},upperdir={upper},workdir={work}"
    subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", root], check=True, timeout=30)
    try:
        yield root
    finally:
        subprocess.run(["umount", root], check=True, timeout=30)


def run_in(root: Path, script: str, *binds: str, timeout: float = 300.0) -> str:
    """Run a script of the shell in the root, with this machine's network, and return what it printed."""
    (root / "etc/pip.conf").write_text(pip_configuration())
    done = subprocess.run(
        [*_nspawn(root, *binds, f"--bind-ro={CERTIFICATES}"), "/bin/sh", "-euc", script],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip_configuration() -> str:
    """Return a pip.conf that says where this machine fetches packages, for a root that has `CERTIFICATES`."""
    listed = subprocess.run(["pip", "config", "list"], capture_output=True, text=True, timeout=60, check=False).stdout
    settings = dict(line.partition("=")[::2] for line in listed.splitlines())
    lines = ["[global]", f"cert = {CERTIFICATES}", "disable-pip-version-check = true"]
    kept = ("index-url", "extra-index-url", "trusted-host", "proxy")
    places = [(name, at) for name in kept for at in (f"global.{name}", f":env:.{name}") if at in settings]
    lines += [f"{name} = {settings[at].strip(chr(39))}" for name, at in places]
    return "\n".join(lines) + "\n"


def boot(root: Path, out: Path, script: Path, argument: str, *options: str) -> dict[str, Any]:
    """Boot the root and return what `script`, which runs in it and has a network of its own, wrote to /out/record.json.

    `script` is Python and gets the argument; the machine is powered off when it ends.
    """
    out.mkdir()
    shutil.copy(script, root / "probe.py")
    unit = root / "etc/systemd/system/probe.service"
    # After the boot, and out of the way of `systemctl isolate`, reload and whatever else the script asks for.
    unit.write_text(
        "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\n"
        f"ExecStart=/usr/bin/python3 /probe.py {argument}\nExecStopPost=/bin/systemctl --no-block poweroff\n"
        "StandardOutput=append:/out/printed\nStandardError=append:/out/printed\n"
    )
    wants = root / "etc/systemd/system/default.target.wants"
    wants.mkdir(exist_ok=True)
    (wants / unit.name).symlink_to(f"../{unit.name}")
    command = _nspawn(root, "--boot", "--private-network", f"--bind={out}:/out", *options)
    # Where the host has control groups of the first version, newer releases of systemd want to be told to take them.
    command.append("SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1")
    console = out / "console"
    with console.open("wb") as log:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=BOOT_SECONDS, check=False)
    record = out / "record.json"
    said = "\n".join(path.read_text(errors="replace") for path in (out / "printed", console) if path.exists())
    assert record.exists(), said
    found: dict[str, Any] = json.loads(record.read_text())
    assert found.get("finished"), said
    return found


def _nspawn(root: Path, *options: str) -> Sequence[str]:
    fixed = ("--quiet", "--register=no", "--keep-unit", "--console=pipe", f"--directory={root}")
    return ["systemd-nspawn", *fixed, *options]
