"""What is done to the unit inside a machine that tests/integration/test_unit_boot.py boots; it has no other Python.

It only does and records, in /out/record.json: what is right is said outside.
"""

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

UNIT = "gpu-exporter.service"
DROP_INS = Path("/etc/systemd/system/gpu-exporter.service.d")
EXAMPLES = Path("/src/systemd/drop-ins")
WAIT_SECONDS = 40.0
"""For whatever comes on an idle machine within a second."""
record: dict[str, Any] = {}


def note(name: str, value: object) -> None:
    record[name] = value
    Path("/out/record.json").write_text(json.dumps(record, indent=1))


def command(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    return (done.stdout + done.stderr).strip()


def shown(*properties: str, unit: str = UNIT) -> dict[str, str]:
    lines = command("systemctl", "show", f"--property={','.join(properties)}", unit).splitlines()
    return dict(line.partition("=")[::2] for line in lines)


def main_pid() -> int:
    return int(shown("MainPID")["MainPID"])


def wait(what: str, condition: Callable[[], Any]) -> Any:
    """Return the first answer that is true, or end here, with the log of the unit in the record."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        if answer := condition():
            return answer
        time.sleep(0.05)
    log = command("journalctl", "--no-pager", "--boot", "--unit", UNIT)
    note("log", log)
    sys.exit(f"in vain: {what}\n{command('systemctl', 'status', '--no-pager', UNIT)}\n{log}")


def page(url: str = "http://127.0.0.1:10042/metrics", login: str = "") -> str:
    """Return a page, or an empty one."""
    request = urllib.request.Request(url, headers={"Authorization": login} if login else {})  # noqa: S310 -- to this machine
    trusting = ssl._create_unverified_context()  # noqa: S323 -- its certificate was made for a moment
    try:
        with urllib.request.urlopen(request, timeout=5, context=trusting) as response:  # noqa: S310 -- as above
            return str(response.read().decode())
    except OSError:
        return ""


def page_with(pattern: str, url: str = "http://127.0.0.1:10042/metrics", login: str = "") -> str:
    """Return the first page that has it: readings come after the start."""
    expression = re.compile(pattern, re.MULTILINE)

    def found() -> str:
        body = page(url, login)
        return body if expression.search(body) else ""

    return str(wait(f"{pattern} on {url}", found))


def drop_in(name: str, text: str | None) -> None:
    """Add a drop-in, or take one away, and start anew."""
    DROP_INS.mkdir(parents=True, exist_ok=True)
    path = DROP_INS / f"{name}.conf"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    command("systemctl", "daemon-reload")
    command("systemctl", "restart", UNIT)


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.conf").read_text()


def processes() -> dict[str, Mapping[str, str]]:
    """Return, for the exporter and each of its children, the lines of /proc/PID/status."""
    main = main_pid()
    children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
    found = {}
    for pid in [str(main), *children]:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:  # a worker that found no driver has ended
            continue
        found[pid] = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return found


def files(*directories: str) -> dict[str, tuple[int, str]]:
    """Return owner and mode of what lies in directories, by path."""
    found = {}
    for directory in directories:
        for path in (Path(directory), *Path(directory).rglob("*")):
            try:
                status = path.lstat()
            except FileNotFoundError:  # a journal on its way into place
                continue
            found[str(path)] = (status.st_uid, oct(status.st_mode & 0o7777))
    return found


def active() -> None:
    wait("the unit is active", lambda: shown("ActiveState")["ActiveState"] == "active")


READINGS = r"^gpu_energy_joules_total\{.*\} [1-9]"


def life() -> None:
    """A machine without the groups and without sysusers.d: the unit starts, is killed, stopped and started again."""
    active()
    note("version", command("systemctl", "--version").splitlines()[0])
    note("groups", command("getent", "group", "video", "render"))
    note("started", shown("Type", "DynamicUser", "StatusText", "NRestarts", "NotifyAccess", "WatchdogUSec"))
    note("page", page_with(READINGS))
    note(
        "status",
        wait("a status of all GPUs", lambda: "down" not in (text := shown("StatusText")["StatusText"]) and text),
    )
    note("processes", wait("a worker and an agent", lambda: len(found := processes()) == 3 and found))
    note("files", files("/run/private/gpu-exporter"))
    note("security", command("systemd-analyze", "security", "--no-pager", UNIT).splitlines()[-1])
    note("verify", command("systemd-analyze", "verify", f"/etc/systemd/system/{UNIT}"))

    drop_in("watchdog", "[Service]\nWatchdogSec=4\nRestartSec=1\n")
    active()
    before = page_with(READINGS)
    stopped = wait("a process", main_pid)
    os.kill(stopped, signal.SIGSTOP)
    wait("another process", lambda: main_pid() not in (0, stopped))
    active()
    note("before_watchdog", before)
    note("after_watchdog", page_with(READINGS))
    note("watchdog", shown("NRestarts", "Result"))
    drop_in("watchdog", None)

    active()
    pid = main_pid()
    note("reload", command("systemctl", "reload", UNIT))
    # It has been told to; it says itself when it has.
    wait("the reload", lambda: "is reloaded" in command("journalctl", "--no-pager", "--boot", "--unit", UNIT))
    active()
    note("reloaded", [pid, main_pid(), shown("ActiveState")["ActiveState"]])
    page_with(READINGS)
    note("before_stop", page())
    began = time.monotonic()
    command("systemctl", "stop", UNIT)
    note("stop_seconds", time.monotonic() - began)
    note("stopped", shown("ActiveState", "Result", "ExecMainStatus"))
    note("files_stopped", files("/run/private/gpu-exporter", "/var/lib/private/gpu-exporter"))
    command("systemctl", "start", UNIT)
    note("after_stop", page_with(READINGS))
    note("log", command("journalctl", "--no-pager", "--boot", "--unit", UNIT))


def rights() -> None:
    """A machine that was installed as the documentation says, with a GPU of NVIDIA: each drop-in is tried."""
    active()
    note("page", page_with(READINGS))
    note("groups", command("getent", "group", "video", "render"))
    note("processes", processes())

    note("kubelet_before", page_with(source_is("kubelet", 0)))
    drop_in("kubelet", example("kubelet"))
    note("kubelet", page_with(r"^gpu_workload_allocation_ratio"))
    drop_in("kubelet", None)

    # What Slurm leaves of a job in systemd's hierarchy, around a process of another user.
    of_job = {"SLURM_JOB_ID": "4711", "SLURM_JOB_GPUS": "0"}
    job = subprocess.Popen(["sleep", "1000"], user=1, group=1, extra_groups=(), env=of_job)
    command("mount", "-o", "remount,rw", "/sys/fs/cgroup")
    step = Path("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_4711/step_0")
    step.mkdir(parents=True)
    (step / "cgroup.procs").write_text(f"{job.pid}\n")
    # No GPU of AMD is here, so a command with the exporter's rights does what it would do.
    looks = f"cd /proc/{job.pid} && cat comm && readlink -v fd/0 && cat fdinfo/0"
    drop_in(
        "slurm",
        '[Service]\nEnvironment="ARGS=--config.file=/etc/gpu-exporter/slurm.yaml"\n'
        f"ExecStartPre=-/bin/sh -c '{{ {looks}; }} >/run/gpu-exporter/looks 2>&1'\n",
    )
    seen = Path("/run/private/gpu-exporter/looks")
    note("looks_before", seen.read_text())
    note("slurm_before", page_with(source_is("slurm", 0)))
    drop_in("other-users", example("other-users"))
    note("looks", seen.read_text())
    note("slurm", page_with(source_is("slurm", 1)))
    drop_in("other-users", None)
    drop_in("slurm", None)
    job.kill()

    url, login = "https://127.0.0.1:10042/metrics", "Basic " + base64.b64encode(b"prometheus:change me").decode()
    drop_in("tls", example("tls"))
    note("tls", page_with(READINGS, url, login))
    note("credentials", files("/run/credentials/gpu-exporter.service"))
    note("without_login", page(url))

    note("socket_enabled", command("systemctl", "--quiet", "enable", "gpu-exporter.socket"))
    drop_in("socket", example("socket"))
    note("socket", page_with(READINGS, url, login))
    note("namespaces", [str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in (1, main_pid())])
    note("socket_unit", shown("ActiveState", "Listen", unit="gpu-exporter.socket"))
    note("log", command("journalctl", "--no-pager", "--boot", "--unit", UNIT))


def source_is(name: str, value: int) -> str:
    return rf'^gpu_exporter_attribution_up\{{source="{name}"\}} {value}'


if __name__ == "__main__":
    {"life": life, "rights": rights}[sys.argv[1]]()
    note("finished", True)
