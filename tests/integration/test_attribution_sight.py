"""What the page says of what could not be seen: as a plain user, with hidepid, and in a pid namespace of its own.

The processes are real; each daemon runs in namespaces that its test makes.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.attribution.cgroup import parse
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples, running
from tests.native.plan import standin_environment, write_plan
from tests.tools import end, unavailable

NOBODY = 65534
OTHER = 1
"""`daemon` in every passwd file."""
HIDDEN = "proc hides the processes of other users (hidepid)"
READS = "+dac_read_search"
"""The tree and its interpreter may lie where only root can look. The capability for that opens no process."""
FOREIGN = "this process is in a pid namespace of its own, where the pids of the driver mean other processes"


@pytest.fixture(autouse=True)
def may_make_namespaces() -> None:
    if os.geteuid() != 0:
        unavailable("the right to make namespaces", "run the tests as root")
    made = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False)
    if made.returncode:
        unavailable(f"unshare ({made.stderr.decode().strip()})", "run the tests where namespaces may be made")


@contextmanager
def tenant(user: int) -> Iterator[int]:
    """A process of another user, which is the one that the GPU's driver tells."""
    process = subprocess.Popen(["sleep", "600"], user=user, group=user, extra_groups=())
    try:
        yield process.pid
    finally:
        end(process)


@contextmanager
def daemon(
    directory: Path,
    pids: list[int],
    *enter: str,
    user: int | None = None,
    capabilities: str = READS,
    driver: bool = False,
    attribution: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Daemon]:
    """A daemon over a GPU with these processes.

    `enter`: the command that its interpreter is started with. `driver`: NVML tells the pids, and nothing else of them.
    """
    scenario = json.dumps({"devices": [{"model": "H100-SXM", "processes": [*map(_row, pids), *rows]}]})
    options: dict[str, Any] = {"attribution": {"kubelet_socket": None, **(attribution or {})}}
    environment = {}
    if driver:
        write_plan(directory / "plan", Machine(load_scenario(scenario), time.monotonic()))
        environment = standin_environment(directory / "plan")
        options["providers"] = ["nvidia"]
    else:
        (directory / "scenario.yaml").write_text(scenario)
        options["simulate"] = "scenario.yaml"
    (directory / "config.yaml").write_text(json.dumps(options))
    python = directory / "python"
    keep = (f"--inh-caps={capabilities}", f"--ambient-caps={capabilities}")
    become = [] if user is None else ["setpriv", "--clear-groups", *keep, f"--reuid={user}", f"--regid={user}"]
    words = " ".join([*enter, *become, sys.executable])
    python.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    python.chmod(0o755)
    with running(
        "--config.file", str(directory / "config.yaml"), log=directory / "log", python=str(python), env=environment
    ) as made:
        yield made
        made.process.kill()  # unshare lets nobody ask what it started to end, but takes it along


def _row(pid: int) -> dict[str, Any]:
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return {"pid": pid, "started": int(stat[19]), "memory_used_bytes": 1e9}


def page(daemon: Daemon) -> Samples:
    return daemon.scrape_until(
        lambda page: "gpu_exporter_attribution_up" in page and "gpu_process_memory_used_bytes" in page
    )


def seen(page: Samples) -> tuple[float, str, float]:
    """What the page says of /proc: whether it tells all, why not, and how many processes are nobody's."""
    return (
        page.value("gpu_exporter_attribution_up", source="proc"),
        page.labels("gpu_exporter_attribution_info", source="proc")["reason"],
        page.value("gpu_exporter_attribution_unplaced_processes"),
    )


def users(page: Samples) -> dict[int, str]:
    return {int(labels["pid"]): labels["user"] for labels, _ in page.all("gpu_process_info")}


def test_as_root(tmp_path: Path) -> None:
    with tenant(NOBODY) as pid, daemon(tmp_path, [pid]) as made:
        found = page(made)
        assert seen(found) == (1, "", unknown(pid))
        assert users(found)[pid] == "nobody"
        assert "running as root" not in made.log, "no device nodes are there whose groups would do"


def test_as_a_plain_user(tmp_path: Path) -> None:
    with tenant(OTHER) as pid, daemon(tmp_path, [pid], user=NOBODY) as made:
        found = page(made)
        assert seen(found) == (1, "", unknown(pid))
        assert users(found)[pid] == "daemon"


HIDING = (
    "unshare",
    "--mount",
    "--",
    "sh",
    "-c",
    "'mount -t proc -o hidepid=invisible proc /proc && exec \"$@\"'",
    "sh",
)
"""A mount of proc that hides processes, which nobody else sees."""


def test_with_hidden_processes_as_a_plain_user(tmp_path: Path) -> None:
    with tenant(OTHER) as other, tenant(NOBODY) as own, daemon(tmp_path, [other, own], *HIDING, user=NOBODY) as made:
        found = page(made)
        assert seen(found) == (0, HIDDEN, 1 + unknown(own))
        assert other not in users(found) or users(found)[other] == ""
        assert users(found)[own] == "nobody"


def test_with_hidden_processes_as_a_plain_user_with_the_capability_to_see_them(tmp_path: Path) -> None:
    # It may not show the first process all the same, which here and there has more capabilities than anyone.
    sees = f"{READS},+sys_ptrace"
    with tenant(OTHER) as pid, daemon(tmp_path, [pid], *HIDING, user=NOBODY, capabilities=sees) as made:
        found = page(made)
        assert seen(found) == (1, "", unknown(pid))
        assert users(found)[pid] == "daemon"


def test_with_hidden_processes_as_root(tmp_path: Path) -> None:
    with tenant(OTHER) as pid, daemon(tmp_path, [pid], *HIDING) as made:
        found = page(made)
        assert seen(found) == (1, "", unknown(pid))
        assert users(found)[pid] == "daemon"


APART = ("unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "--")
"""A pid namespace with its own proc, as in a container that does not share the host's."""


def test_in_another_pid_namespace(tmp_path: Path) -> None:
    # The GPU's driver tells the host's pids; the second one is that of the daemon itself in here.
    with tenant(OTHER) as pid, daemon(tmp_path, [pid], *APART, rows=[{"pid": 1, "memory_used_bytes": 1e9}]) as made:
        found = page(made)
        assert seen(found) == (0, FOREIGN, 2)
        assert set(users(found).values()) <= {""}


@pytest.mark.parametrize("driver", [False, True])
def test_in_another_pid_namespace_with_the_proc_of_the_host(tmp_path: Path, driver: bool) -> None:
    host = tmp_path / "host"
    (host / "proc").mkdir(parents=True)
    (host / "etc").mkdir()
    (host / "etc/passwd").write_text("tenant:x:1:1::/:/bin/sh\n")
    bound = ("unshare", "--mount", "--", "sh", "-c", f"'mount --rbind /proc {host}/proc && exec \"$@\"'", "sh", *APART)
    with (
        tenant(OTHER) as pid,
        daemon(tmp_path, [pid], *bound, driver=driver, attribution={"proc": str(host / "proc")}) as made,
    ):
        found = page(made)
        assert seen(found) == (1, "", unknown(pid))
        assert users(found)[pid] in ("daemon", "tenant")  # of the host itself, for those who may look through its init


def test_in_a_control_group_namespace_of_our_own(tmp_path: Path) -> None:
    # The process is in our own group, which is shown as `/`: it is not taken for one that is in no group at all.
    with tenant(OTHER) as pid, daemon(tmp_path, [pid], "unshare", "--cgroup", "--") as made:
        assert seen(page(made)) == (1, "", 1)


def test_proc_that_is_of_another_namespace(tmp_path: Path) -> None:
    inner = tmp_path / "inner/proc"
    inner.mkdir(parents=True)
    holder = subprocess.Popen(
        [*APART, "sh", "-c", f"mount -t proc proc {inner} && touch {tmp_path}/mounted && exec sleep 600"]
    )
    try:
        with tenant(OTHER) as pid:
            while not (tmp_path / "mounted").exists():
                assert holder.poll() is None
                time.sleep(0.01)
            # Its mount is seen by those who enter its mount namespace, and only that.
            child = next(iter(_children(holder.pid)))
            enter = ("nsenter", f"--mount=/proc/{child}/ns/mnt", "--")
            with daemon(tmp_path, [pid], *enter, attribution={"proc": str(inner)}) as made:
                found = page(made)
                assert seen(found) == (
                    0,
                    "the configured proc is not the host's: the pids of the driver mean other processes there",
                    1,
                )
    finally:
        holder.kill()
        holder.wait(10)


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def unknown(pid: int) -> int:
    """Tell whether the machine that runs the test has control groups of a kind of its own: 1, else 0."""
    return int(parse(Path(f"/proc/{pid}/cgroup").read_text()) is None)
