"""The container image as a test has it: built over a small Debian by buildah, and run with few rights by runc."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.integration.debian import CERTIFICATES, debian, needs, pip_configuration
from tests.tools import end

ROOT = Path(__file__).parents[2]
START_SECONDS = 30.0
_SEARCHED = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_name() -> str:
    """Return the image that the Dockerfile begins with."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("FROM "))


class Storage:
    """Images and containers of buildah in a directory of their own; no registry is asked."""

    def __init__(self, directory: Path) -> None:
        needs("buildah: buildah", "runc: runc")
        self._debian = debian()
        self._places = ["--root", str(directory / "images"), "--runroot", str(directory / "run")]
        # As root on an ordinary file system; on another overlay STORAGE_DRIVER=vfs does, with a copy for each layer.
        self._environment = {"STORAGE_DRIVER": "overlay", **os.environ, "BUILDAH_ISOLATION": "chroot"}
        self._directory = directory

    def buildah(self, *words: str | Path) -> str:
        done = subprocess.run(
            ["buildah", *self._places, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def commit_base(self) -> None:
        """Give the root of Debian the name of the base image, which cannot be fetched everywhere."""
        container = self.buildah("from", "scratch")
        root = self.buildah("mount", container)
        subprocess.run(["cp", "-a", f"{self._debian}/.", root], check=True, timeout=120)
        self.buildah("umount", container)
        self.buildah("config", "--env", _SEARCHED, container)
        self.buildah("commit", "--rm", "--quiet", container, base_name())

    def build(self, tag: str, *arguments: str) -> None:
        pip = self._directory / "pip.conf"
        pip.write_text(pip_configuration())
        volumes = (f"--volume={CERTIFICATES}:{CERTIFICATES}:ro", f"--volume={pip}:/etc/pip.conf:ro")
        options = ("--pull-never", "--format=docker", f"--tag={tag}", *volumes)
        self.buildah("build", *options, *(f"--build-arg={argument}" for argument in arguments), ROOT)

    def configuration(self, tag: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.buildah("inspect", "--type=image", tag))["Docker"]["config"]
        return found

    def size(self, tag: str) -> int:
        """Return the bytes of all its layers, as they lie on a disk."""
        manifest = json.loads(json.loads(self.buildah("inspect", "--type=image", tag))["Manifest"])
        return sum(layer["size"] for layer in manifest["layers"])

    @contextmanager
    def mounted(self, tag: str) -> Iterator[Path]:
        container = self.buildah("from", "--pull-never", tag)
        try:
            yield Path(self.buildah("mount", container))
        finally:
            self.buildah("rm", container)

    def remove(self) -> None:
        self.buildah("rm", "--all")  # unmounts them, too
        self.buildah("rmi", "--all", "--force")
        shutil.rmtree(self._directory)


class Container:
    """Made by `running`."""

    def __init__(self, process: subprocess.Popen[bytes], runtime: Sequence[str], log: Path) -> None:
        self.process = process
        self._runtime = runtime
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in it, as its user."""
        command = [*self._runtime, "exec", self._log.stem, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def get(self, path: str) -> str:
        """Return a page, or an empty one: it has a network of its own, and no other Python than its own to ask with."""
        ask = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:10042{path}', timeout=5).read().decode())"
        return self.run("python3", "-c", ask).stdout

    def get_until(self, path: str, text: str) -> str:
        deadline = time.monotonic() + START_SECONDS
        while text not in (page := self.get(path)):
            assert time.monotonic() < deadline, f"in vain: {text} on {path}\n{page}\n{self.log}"
            time.sleep(0.1)
        return page

    def stop(self) -> tuple[int, float]:
        """Send SIGTERM, and return its exit code and how many seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)  # runc hands it on
        return self.process.wait(30), time.monotonic() - began


@contextmanager
def running(
    root: Path,
    configuration: Mapping[str, Any],
    directory: Path,
    *arguments: str,
    mounts: Mapping[str, Path] | None = None,
) -> Iterator[Container]:
    """Run what the image's configuration says, with `arguments` instead of its command if there are any.

    Its root is read-only, it has no capability, no way to get one, and no network but its own loopback. `mounts`: what
    of ours is where in it.
    """
    mounted: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
    ]
    mounted += [
        {"destination": place, "type": "bind", "source": str(source), "options": ["bind", "rw"]}
        for place, source in (mounts or {}).items()
    ]
    user, group = map(int, configuration["User"].split(":"))
    kinds = ("bounding", "effective", "inheritable", "permitted", "ambient")
    bundle = {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": True},
        "process": {
            "args": [*configuration["Entrypoint"], *(arguments or configuration["Cmd"])],
            "env": configuration["Env"],
            "cwd": configuration["WorkingDir"],
            "user": {"uid": user, "gid": group},
            "capabilities": {kind: [] for kind in kinds},
            "noNewPrivileges": True,
        },
        "mounts": mounted,
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")]},
    }
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(bundle))
    name = f"gpu-exporter-{os.getpid()}-{directory.name}"
    runtime = ("runc", "--root", str(directory / "runc"))
    log = directory / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*runtime, "run", "--bundle", str(directory), name], stdin=subprocess.DEVNULL, stdout=out, stderr=out
        )
    try:
        yield Container(process, runtime, log)
    finally:
        end(process)
        subprocess.run([*runtime, "delete", "--force", name], capture_output=True, timeout=30, check=False)
