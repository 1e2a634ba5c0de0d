"""What probes are told, and the end that an orchestrator may want when nothing else helps."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.integration.fault_rows import NVIDIA_READINGS
from tests.native.plan import standin_environment, write_plan

Start = Callable[..., Daemon]
ONE = "devices: [{model: H100-SXM, load: {pattern: constant, watts: 400}}]\n"
DENIED = ONE + "faults: [{kind: error, call: 'nvml*', status: 999}]\n"
"""As after a reload of systemd that took the permissions on the device nodes from a container."""

BROKEN = {
    "readings": NVIDIA_READINGS,
    "identity as well": [*NVIDIA_READINGS, "nvmlDeviceGetP*", "nvmlDeviceGetU*"],
}
"""What is asked of a GPU that has a handle, for answers that do not tell that it is gone."""

EXIT = "workers: {exit_after_seconds: 10}\n"


class Host:
    """A daemon over the stand-in for NVML with one GPU."""

    def __init__(
        self, start: Start, folder: Path, config: str = "", *arguments: str, load_seconds: float = 1.0
    ) -> None:
        self.plan = folder / "plan"
        self.epoch = time.monotonic() - 1000
        self.put(ONE)
        sampling = f"{{deadline_seconds: 0.5, open_deadline_seconds: 1, load_seconds: {load_seconds}}}"
        (folder / "c.yaml").write_text(f"sampling: {sampling}\n{config}")
        self.daemon = start(
            "--provider",
            "nvidia",
            "--config.file",
            str(folder / "c.yaml"),
            *arguments,
            env=standin_environment(self.plan),
        )
        self.daemon.scrape_until(lambda page: "gpu_power_watts" in page)

    def put(self, text: str) -> None:
        write_plan(self.plan, Machine(load_scenario(text, name="one.yaml"), self.epoch))

    def ready(self) -> tuple[int, str]:
        reply = self.daemon.get("/-/ready")
        return reply.status, reply.body.decode()


def is_down(page: Samples) -> bool:
    return page.value("gpu_exporter_provider_up", provider="nvidia") == 0


def test_readiness_is_that_of_the_readings_and_says_how_old_they_are(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    status, text = host.ready()
    assert status == 200
    assert re.fullmatch(r"ready\nnvidia: 1 of 1 GPUs deliver readings; last reading: [012]\.\d s ago\n", text)
    host.put(DENIED)
    page = host.daemon.scrape_until(is_down)
    assert host.daemon.get("/-/healthy").status == 200
    reason = page.labels("gpu_exporter_provider_info", provider="nvidia")["reason"]
    assert "unknown error" in reason
    status, text = host.daemon.until(lambda: found if (found := host.ready())[0] == 503 else None, seconds=25)
    assert text.splitlines()[0] == "not ready: no GPU delivers readings"
    assert reason in text
    ages = []
    for _ in range(2):
        time.sleep(0.7)
        ages.append(float(re.findall(r"last reading: ([\d.]+) s ago", host.ready()[1])[0]))
    assert ages[1] > ages[0] > 0.5
    assert "gpu_power_watts" not in host.daemon.scrape()
    assert b"Last reading" in host.daemon.get("/").body
    host.put(ONE)
    host.daemon.until(lambda: host.ready()[0] == 200, seconds=40)


@pytest.mark.parametrize("calls", BROKEN.values(), ids=BROKEN)
def test_a_gpu_that_gives_nothing_but_errors_is_not_ready_and_not_up(
    start_daemon: Start, tmp_path: Path, calls: list[str]
) -> None:
    # Broken reads of load have the library opened anew, which here fails: not before all of this is seen.
    host = Host(start_daemon, tmp_path, load_seconds=4.0)
    faults = ", ".join(f"{{kind: error, call: '{call}', status: 17}}" for call in calls)
    host.put(ONE.replace("load:", f"faults: [{faults}], load:"))
    broken = host.daemon.scrape_until(lambda page: "gpu_power_watts" not in page and page.value("gpu_up") == 1)
    page = host.daemon.scrape_until(lambda page: page.value("gpu_up") == 0, 40)
    assert page.value("gpu_state", state="stale") == 1
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 1
    for name in ("gpu_last_sample_timestamp_seconds", "gpu_exporter_last_sample_timestamp_seconds"):
        assert page.value(name) == pytest.approx(broken.value(name), abs=1.1), (
            "the provider's is taken over each second"
        )
    assert page.value("gpu_energy_joules_total") == broken.value("gpu_energy_joules_total")
    assert page.value("gpu_energy_covered_seconds_total") == broken.value("gpu_energy_covered_seconds_total")
    failures = page.all("gpu_exporter_read_failures_total", provider="nvidia")
    assert max(count for _, count in failures) > 10
    status, text = host.ready()
    assert status == 503
    assert re.fullmatch(
        r"not ready: no GPU delivers readings\n"
        r"nvidia: 0 of 1 GPUs deliver readings, 1 stale; last reading: [1-9]\d\.\d s ago\n",
        text,
    )
    assert host.daemon.get("/-/healthy").status == 200
    host.put(ONE)
    host.daemon.until(lambda: host.ready()[0] == 200)
    assert host.daemon.scrape().value("gpu_up") == 1


def test_a_worker_that_is_replaced_at_once_costs_no_readiness(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    (worker,) = host.daemon.children()
    os.kill(worker, signal.SIGKILL)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert host.ready()[0] == 200
        time.sleep(0.05)
    assert host.daemon.children() != [worker]


def test_it_ends_after_a_failure_that_lasts_when_it_is_told_to_and_keeps_its_totals(
    start_daemon: Start, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    journal.mkdir()
    arguments = (EXIT, "--journal.directory", str(journal))
    host = Host(start_daemon, tmp_path, *arguments)
    before = host.daemon.scrape_until(lambda page: page.value("gpu_energy_joules_total") > 0)
    host.put(DENIED)
    began = time.monotonic()
    assert host.daemon.process.wait(40) == 3
    assert time.monotonic() - began > 9
    last = host.daemon.log.splitlines()[-1]
    assert "level=error" in last
    assert "code=3" in last
    assert "provider nvidia has been down for" in last
    assert "unknown error" in last
    host.put(ONE)
    again = Host(start_daemon, tmp_path, *arguments)
    assert again.daemon.scrape().value("gpu_energy_joules_total") >= before.value("gpu_energy_joules_total")


def test_it_goes_on_by_default_and_while_released_and_where_there_is_no_gpu(
    start_daemon: Start, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("default", "released", "none")]
    for folder in folders:
        folder.mkdir()
    default = Host(start_daemon, folders[0])
    released = Host(start_daemon, folders[1], EXIT)
    config = folders[2] / "c.yaml"
    config.write_text(EXIT)
    none = start_daemon("--provider", "nvidia", "--config.file", str(config), ready=False)
    default.put(DENIED)
    released.daemon.process.send_signal(signal.SIGUSR1)
    released.put(DENIED)
    time.sleep(12)
    assert [daemon.process.poll() for daemon in (default.daemon, released.daemon, none)] == [None] * 3
    # Once for each reason: a machine with much to do finds a worker too slow as well.
    told = re.findall(r'msg="provider is down" .*reason=(.*)', default.daemon.log)
    assert any("unknown error" in reason for reason in told)
    assert len(told) == len(set(told))
    default.put(ONE)
    released.put(ONE)
    released.daemon.process.send_signal(signal.SIGUSR2)
    for host in (released, default):
        host.daemon.scrape_until(lambda page: not is_down(page) and host.ready()[0] == 200, seconds=40)  # noqa: B023 -- used at once
    assert [daemon.stop() for daemon in (default.daemon, released.daemon, none)] == [0, 0, 0]


@pytest.mark.skipif(
    Path("/proc/driver/nvidia").exists() or Path("/dev/kfd").exists(), reason="this machine has a GPU driver"
)
def test_a_host_that_has_no_gpu_is_ready(start_daemon: Start) -> None:
    daemon = start_daemon()
    text = daemon.get("/-/ready").body.decode()
    assert text.splitlines()[0] == "ready"
    assert text.count("this host has no such GPU") == 3
