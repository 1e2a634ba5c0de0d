"""What the kubelet does with a pod of the chart, on this machine: volumes, init containers, containers and probes.

Not done: images, whose command is this checkout's, resource limits, seccomp, and the pod's pid namespace.
"""

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.helm.chart import Object, of_kind, pod
from tests.tools import end, unavailable

ROOT = Path(__file__).parents[2]
NODE = "node-a"
_ENTER = Path(__file__).with_name("enter.py")
_PATH = "image/bin"
_LINKS = {"python3": "", "gpu-exporter": "-m exporter"}
_SECONDS = 30.0

T = TypeVar("T")


class Node:
    """A machine in a directory. What pods leave on it stays."""

    def __init__(self, directory: Path, secrets: Mapping[str, Mapping[str, bytes]] | None = None) -> None:
        """`secrets`: those that the chart does not make, by name and key."""
        if os.geteuid() != 0:
            unavailable("the right to be other users and to make namespaces", "run the tests as root")
        self.directory = directory
        self.host = directory / "host"
        self.secrets = dict(secrets or {})
        self._pods = 0
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)  # pytest's are closed to other users

    @contextmanager
    def started(
        self, rendered: list[Object], *, network: bool = True, changes: Mapping[str, str] | None = None
    ) -> Iterator["Pod"]:
        """Start the pod of the rendered DaemonSet, as the kubelet would, and end it at the end.

        `network`: of its own, with nothing but loopback. `changes`: arguments that are replaced where it has none.
        """
        self._pods += 1
        made = Pod(self, rendered, self.directory / f"pod{self._pods}", network=network, changes=changes or {})
        try:
            made.start()
            yield made
        finally:
            made.stop()

    def place(self, path: str) -> Path:
        """Where a path of the node lies."""
        return self.host / path.lstrip("/")


class Pod:
    """Made by `Node.started`."""

    def __init__(
        self, node: Node, rendered: list[Object], directory: Path, *, network: bool, changes: Mapping[str, str]
    ) -> None:
        self.spec = pod(rendered)
        self.container: Object = next(each for each in self.spec["containers"] if each["name"] == "gpu-exporter")
        self.process: subprocess.Popen[bytes] | None = None
        self._node = node
        self._rendered = rendered
        self._directory = directory
        self._network = network
        self._changes = changes

    @property
    def log_file(self) -> Path:
        return self._directory / "log"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def start(self) -> None:
        self._directory.mkdir()
        volumes = {volume["name"]: self._volume(volume) for volume in self.spec["volumes"]}
        for container in self.spec.get("initContainers", []):
            process = self._run(container, volumes, container["command"])
            assert process.wait(30) == 0, self.log
        command = [*self.container["command"], *(self._changes.get(word, word) for word in self.container["args"])]
        self.process = self._run(self.container, volumes, command)

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)

    def until(self, look: Callable[[], T | None]) -> T:
        """Return what `look` gives once it is neither None nor False, while the container runs."""
        deadline = time.monotonic() + _SECONDS
        while True:
            if found := look():
                return found
            assert self.process is not None
            assert self.process.poll() is None, f"it ended with {self.process.returncode}; the log says:\n{self.log}"
            assert time.monotonic() < deadline, f"not within {_SECONDS} s; the log says:\n{self.log}"
            time.sleep(0.1)

    def probe(self, name: str) -> bool:
        """Make one of the container's probes."""
        probe = self.container[name]
        if "exec" in probe:
            return self.inside(probe["exec"]["command"]).returncode == 0
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        if "tcpSocket" in probe:
            port = ports[probe["tcpSocket"]["port"]]
            connect = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
            return self.inside(["python3", "-c", connect]).returncode == 0
        asked = probe["httpGet"]
        url = f"{asked['scheme'].lower()}://127.0.0.1:{ports[asked['port']]}{asked['path']}"
        return self.get(url) is not None

    def get(self, url: str) -> str | None:
        """Return a page as it is asked for from within; None: the answer is not a 200."""
        code = "import ssl, sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=5, "
        code += "context=ssl._create_unverified_context()).read().decode())"
        done = self.inside(["python3", "-c", code, url])
        return done.stdout if done.returncode == 0 else None

    def status(self) -> dict[str, str]:
        """What the kernel says of the process: user, capabilities, and so on."""
        assert self.process is not None
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    def inside(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as the container's user."""
        assert self.process is not None
        enter = ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root", "--wd"]
        return subprocess.run(
            [*enter, *_become(self.container["securityContext"], self.spec["securityContext"]), *command],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=_environment(self.container),
        )

    def _run(self, container: Object, volumes: Mapping[str, Path], command: Sequence[str]) -> subprocess.Popen[bytes]:
        home = self._directory / container["name"]
        (home / "root").mkdir(parents=True)
        binaries = home / "bin"
        binaries.mkdir()
        for name, words in _LINKS.items():
            (binaries / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
            (binaries / name).chmod(0o755)
        mounts = [
            (str(volumes[mount["name"]]), mount["mountPath"], mount.get("readOnly", False))
            for mount in container["volumeMounts"]
        ]
        plan = {
            "root": str(home / "root"),
            "network": self._network,
            # The interpreter and the checkout may lie in somebody's home.
            "needed": sorted({str(ROOT / "exporter"), sys.prefix, sys.base_prefix}),
            "mounts": [*mounts, (str(binaries), _PATH, True)],
            "readOnlyRoot": container["securityContext"]["readOnlyRootFilesystem"],
            "become": _become(container["securityContext"], self.spec["securityContext"]),
            "command": list(command),
            "environment": _environment(container),
        }
        (home / "plan.json").write_text(json.dumps(plan))
        namespaces = ["--mount", *(["--net"] if self._network else [])]
        with (self._directory / "log").open("ab") as out:
            return subprocess.Popen(
                ["unshare", *namespaces, sys.executable, str(_ENTER), str(home / "plan.json")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            )

    def _volume(self, volume: Object) -> Path:
        place = self._directory / "volumes" / volume["name"]
        match volume:
            case {"configMap": {"name": name}}:
                (found,) = [each for each in of_kind(self._rendered, "ConfigMap") if each["metadata"]["name"] == name]
                _write(place, {key: text.encode() for key, text in found["data"].items()}, 0o644, self._fs_group)
            case {"secret": {"secretName": name, "defaultMode": mode, **rest}}:
                data = self._secret(name)
                keys = [item["key"] for item in rest.get("items", [])] or list(data)
                _write(place, {key: data[key] for key in keys}, mode, self._fs_group)
            case {"emptyDir": _}:
                place.mkdir(parents=True)
                os.chown(place, 0, self._fs_group)
                place.chmod(0o2777)
            case {"hostPath": {"path": "/proc" | "/etc/passwd" as path}}:
                return Path(path)
            case {"hostPath": {"path": path, "type": kind}}:
                place = self._node.place(path)
                if kind == "DirectoryOrCreate" and not place.exists():
                    place.mkdir(parents=True)
                    place.chmod(0o755)
                assert place.is_file() if kind == "File" else place.is_dir(), f"{path} is not on the node"
        return place

    @property
    def _fs_group(self) -> int:
        return int(self.spec["securityContext"]["fsGroup"])

    def _secret(self, name: str) -> Mapping[str, bytes]:
        for each in of_kind(self._rendered, "Secret"):
            if each["metadata"]["name"] == name:
                return {key: base64.b64decode(value) for key, value in each["data"].items()}
        return self._node.secrets[name]


def _write(place: Path, files: Mapping[str, bytes], mode: int, group: int) -> None:
    """Files as the kubelet has them: behind links, so that all change at once; of the group, which may read them."""
    data = place / "..2026_01_01"
    data.mkdir(parents=True)
    for each in (place, data):
        each.chmod(0o755)
    (place / "..data").symlink_to(data.name)
    for name, content in files.items():
        (data / name).write_bytes(content)
        os.chown(data / name, 0, group)
        (data / name).chmod(mode | 0o040)
        (place / name).symlink_to(f"..data/{name}")


def _become(context: Mapping[str, Any], pod_context: Mapping[str, Any]) -> list[str]:
    """The command that takes user, groups and capabilities of a container."""
    added = ",".join(f"+{name.lower()}" for name in context["capabilities"].get("add", []))
    assert context["capabilities"]["drop"] == ["ALL"]
    groups = [pod_context["fsGroup"], *pod_context.get("supplementalGroups", [])]
    become = ["setpriv", f"--regid={context['runAsGroup']}", f"--groups={','.join(map(str, groups))}"]
    become += [f"--reuid={context['runAsUser']}", "--inh-caps=-all"]
    become += [f"--bounding-set=-all{',' if added else ''}{added}"]
    assert context["runAsNonRoot"] == (context["runAsUser"] != 0)
    if not context["allowPrivilegeEscalation"]:
        become.append("--no-new-privs")
    return become


def _environment(container: Object) -> dict[str, str]:
    fields = {"spec.nodeName": NODE}
    found = {
        each["name"]: each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container.get("env", [])
    }
    # Of the image: where its commands are.
    return {
        "PATH": f"/{_PATH}:/usr/sbin:/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        **found,
    }
