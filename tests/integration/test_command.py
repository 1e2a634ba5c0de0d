"""What a person meets at the command line: the README's commands, messages, exit codes, and a prompt end."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT, Daemon

END_SECONDS = 5.0
FULL_PAGE_SECONDS = 3.0

without_gpus = pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists() or Path("/dev/kfd").exists(), reason="this machine has a GPU driver"
)

HANGING = """
devices:
  - model: H100-SXM
    faults:
      - {kind: hang, from_seconds: 0}
"""


def command(*arguments: str, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exporter", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def shell_blocks(document: str) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)


def test_the_first_command_of_the_readme_serves_simulated_gpus(tmp_path: Path) -> None:
    """Installs from a copy of this directory into a fresh environment, as the README says to; needs a package index."""
    tree = tmp_path / "gpu-exporter"
    shutil.copytree(
        ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", ".hypothesis")
    )
    line = shell_blocks("README.md")[0].strip()
    log = tmp_path / "log"
    with log.open("wb") as out:
        # On a port of the kernel's choice, as tests may run beside a daemon; `exec` so that the signal reaches it.
        script = line.replace("&& .venv/bin/gpu-exporter", "&& exec .venv/bin/gpu-exporter")
        process = subprocess.Popen(
            ["sh", "-c", f"{script} --web.listen-address 127.0.0.1:0"], cwd=tree, stdout=out, stderr=out
        )
    daemon = Daemon(process, log)
    try:
        found = daemon.until(lambda: re.search(r"\burl=\"?(http://[0-9.:]+)", daemon.log), seconds=240)
        daemon.url = found[1]
        samples = daemon.scrape_until(lambda page: "gpu_energy_joules_total" in page)
        vendors = {labels["vendor"] for labels, _ in samples.all("gpu_info")}
        assert len(vendors) > 1
        assert daemon.stop() == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def test_the_first_full_page_is_there_within_seconds(start_daemon: Callable[..., Daemon]) -> None:
    wanted = ("gpu_info", "gpu_energy_joules_total", "gpu_temperature_celsius")
    took = []
    for _ in range(5):  # what else runs on the machine may hold some of them up
        daemon = start_daemon("--provider", "simulated", ready=False)
        daemon.scrape_until(lambda page: all(name in page for name in wanted))
        took.append(time.monotonic() - daemon.started)
        assert daemon.stop() == 0
        if took[-1] < FULL_PAGE_SECONDS:
            break
    assert min(took) < FULL_PAGE_SECONDS


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_and_its_workers_with_it(
    start_daemon: Callable[..., Daemon], number: signal.Signals
) -> None:
    daemon = start_daemon("--provider", "simulated")
    workers = daemon.children()
    assert workers
    start = time.monotonic()
    assert daemon.stop(number) == 0
    assert time.monotonic() - start < END_SECONDS
    assert [pid for pid in workers if is_running(pid)] == []
    assert "Traceback" not in daemon.log


def test_ctrl_c_before_the_daemon_runs_is_no_traceback(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "exporter", "--config.file", pipe], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    with pipe.open("w"):  # waits until it is read
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=10)[1]
    assert (process.returncode, error) == (130, "")


def test_sigterm_ends_it_during_a_call_that_never_returns(start_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    scenario = tmp_path / "hanging.yaml"
    scenario.write_text(HANGING)
    daemon = start_daemon("--simulate", str(scenario), ready=False)
    workers = daemon.until(daemon.children)
    time.sleep(1.0)  # the call hangs by then
    start = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - start < END_SECONDS
    assert [pid for pid in workers if is_running(pid)] == []


def test_workers_die_with_a_daemon_that_is_killed(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--provider", "simulated")
    workers = daemon.children()
    assert workers
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
    daemon.until(lambda: not any(is_running(pid) for pid in workers), seconds=5)


def test_it_says_where_it_serves_and_what_it_found(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--provider", "simulated", "--web.listen-address=localhost:0", "--web.telemetry-path=/gpus")
    daemon.until(lambda: "GPUs found" in daemon.log)
    assert len(re.findall(r"msg=serving url=http://127\.0\.0\.1:[0-9]+/gpus\n", daemon.log)) == 2
    assert daemon.get("/gpus").status == 200
    assert daemon.get("/metrics").status == 404


def test_a_configuration_file_does_what_it_says(start_daemon: Callable[..., Daemon], tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "providers: [simulated]\nweb: {telemetry_path: /gpus}\nmetrics: {disable: [gpu_pcie_*, gpu_clock_hertz]}\n"
        "sampling: {energy_seconds: 0.5}\nlog: {format: json, level: debug}\n"
    )
    daemon = start_daemon("--config.file", str(file))
    page = daemon.scrape("/gpus")
    assert "gpu_temperature_celsius" in page
    assert [name for name in page.series if name.startswith(("gpu_pcie", "gpu_clock"))] == []
    records = [json.loads(line) for line in daemon.log.splitlines()]
    assert {"time", "level", "logger", "msg"} <= set(records[0])


@without_gpus
def test_without_gpus_and_libraries_it_serves_and_says_why(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon(ready=False)
    page = daemon.scrape_until(
        lambda page: all(labels["reason"] for labels, _ in page.all("gpu_exporter_provider_info"))
    )
    assert {labels["provider"] for labels, _ in page.all("gpu_exporter_provider_info")} == {"nvidia", "amd", "drm"}
    assert "gpu_info" not in page
    assert "simulated" not in page.page
    daemon.until(lambda: daemon.log.count("provider is down") == 3)
    assert re.findall(r'level=(\w+) logger=\S+ msg="provider is down"', daemon.log) == ["info"] * 3


@without_gpus
def test_a_provider_that_was_asked_for_and_cannot_be_opened_is_down(start_daemon: Callable[..., Daemon]) -> None:
    daemon = start_daemon("--provider", "nvidia", ready=False)
    page = daemon.scrape_until(lambda page: bool(page.labels("gpu_exporter_provider_info")["reason"]))
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 0
    assert {labels["provider"] for labels, _ in page.all("gpu_exporter_provider_info")} == {"nvidia"}
    daemon.until(lambda: re.search(r'level=warn logger=\S+ msg="provider is down"', daemon.log))


def test_an_address_that_is_taken_is_named_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = command("--provider", "simulated", "--web.listen-address", address, "--log.level", "error")
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert f"cannot listen on {address}: another process listens there" in done.stderr


def test_an_address_that_this_host_does_not_have_is_named() -> None:
    done = command("--web.listen-address", "192.0.2.1:0", "--log.level", "error")
    assert done.returncode == 1
    assert "cannot listen on 192.0.2.1:0" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--config.file", "/none"),
        ("--config.file", "/"),
        ("--config.file", "/bin/sh"),
        ("--simulate", "/none"),
        ("--simulate", "/bin/sh"),
        ("--simulate", "/dev/zero"),
        ("--provider", "intel"),
        ("--web.telemetry-path", "/"),
        ("--log.level", "\x1b[31m"),
        ("check-config", "/none"),
        ("frob",),
    ],
)
def test_what_cannot_work_is_refused_without_a_traceback(arguments: tuple[str, ...]) -> None:
    done = command(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(("gpu-exporter: ", "usage: gpu-exporter"))
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_web_configuration_that_is_no_good_keeps_it_from_serving_and_is_not_shown(tmp_path: Path) -> None:
    web = tmp_path / "web.yaml"
    web.write_text("basic_auth_users: {alice: hunter2}\n")
    (tmp_path / "c.yaml").write_text("web: {config_file: web.yaml}\n")
    for arguments in (("--web.config.file", str(web)), ("--config.file", str(tmp_path / "c.yaml"))):
        done = command("--provider", "simulated", *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(f"gpu-exporter: {web}: basic_auth_users")
        assert "hunter2" not in done.stderr
    done = command("--web.config.file", f"{tmp_path}/none.yaml")
    assert (done.returncode, done.stderr) == (
        2,
        f"gpu-exporter: {tmp_path}/none.yaml: No such file or directory\n",
    )


def test_systemd_that_passes_no_socket_is_told_of() -> None:
    done = command("--provider", "simulated", "--web.systemd-socket", "--log.level", "error")
    assert done.returncode == 1
    assert "cannot listen: systemd passed no socket" in done.stderr


def test_a_pipe_that_never_delivers_is_given_up(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = command("check-config", str(pipe))
    assert done.returncode == 2
    assert done.stderr == f"gpu-exporter: {pipe}: its end did not come within 5 s\n"


def test_a_file_whose_name_is_no_text_can_be_checked(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/n\xff.yaml"
    Path(os.fsdecode(name)).write_text("{}")
    done = subprocess.run(
        [sys.executable, "-m", "exporter", "check-config", name],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"n\\udcff.yaml: valid configuration\n")


def test_mistakes_are_the_exit_code_even_if_they_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("webb: {}")
    for into in ("2>/dev/full", "2>&-"):
        done = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m exporter check-config {tmp_path}/c.yaml {into}"],
            cwd=ROOT,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("into", "said"),
    [
        ("| :", ""),
        ("> /dev/full", "cannot write: No space left on device"),
        (">&-", "cannot write: standard output is closed"),
    ],
)
def test_output_that_nobody_takes_is_no_traceback(into: str, said: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m exporter metrics {into}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == ""
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def is_running(pid: int) -> bool:
    """Whether the process is there and more than a body that nobody has buried."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
