"""SIGUSR1 lets go of the devices and keeps the endpoint, SIGUSR2 or time takes them up again, and no joule is lost."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.native.plan import standin_environment, write_plan

Start = Callable[..., Daemon]
WATTS = 400.0
TWO = """
devices:
  - {model: H100-SXM, load: {pattern: constant, watts: 400}}
  - {model: H100-SXM, load: {pattern: constant, watts: 400}%s}
"""
HANG = ", faults: [{kind: hang, call: nvmlDeviceGetUtilizationRates}]"


class Host:
    """A daemon over the stand-in for NVML with two GPUs, whose library holds device files open."""

    def __init__(self, start: Start, folder: Path, config: str = "") -> None:
        self.plan = folder / "plan"
        self.epoch = time.monotonic() - 1000
        self.machine = self.put()
        self.files = [folder / name for name in ("nvidiactl", "nvidia0", "nvidia1")]
        for file in self.files:
            file.touch()
        (folder / "c.yaml").write_text(config)
        held = {"GPU_EXPORTER_DEVICE_FILES": ":".join(map(str, self.files))}
        self.daemon = start(
            "--provider",
            "nvidia",
            "--config.file",
            str(folder / "c.yaml"),
            env={**standin_environment(self.plan), **held},
        )
        self.daemon.scrape_until(is_whole)

    def put(self, fault: str = "") -> Machine:
        machine = Machine(load_scenario(TWO % fault, name="two.yaml"), self.epoch)
        write_plan(self.plan, machine)
        return machine

    def send(self, number: signal.Signals) -> None:
        self.daemon.process.send_signal(number)

    def holders(self) -> set[int]:
        """Return which processes on the whole host have one of the device files open."""
        wanted = {str(file) for file in self.files}
        found = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                if str(link.readlink()) in wanted:
                    found.add(int(link.parts[2]))
            except OSError:  # ended, or closed, meanwhile
                continue
        return found

    def released(self) -> Samples:
        return self.daemon.scrape_until(lambda page: page.value("gpu_exporter_released") == 1, seconds=5)

    def until_let_go(self, seconds: float = 5.0) -> float:
        """Wait until no process holds a device file, and no worker is left; return how long that took."""
        began = time.monotonic()
        self.daemon.until(lambda: not self.holders() and not self.daemon.children(), seconds)
        return time.monotonic() - began

    def until_taken_up(self) -> Samples:
        """Wait for new readings, from a worker that holds the files, and return them."""
        began = time.time()
        self.daemon.until(lambda: self.holders() and self.holders() == set(self.daemon.children()))
        return self.daemon.scrape_until(
            lambda page: is_whole(page) and all(at > began for _, at in page.all("gpu_last_sample_timestamp_seconds"))
        )


def is_whole(page: Samples) -> bool:
    return (
        len(page.all("gpu_power_watts")) == 2
        and len(page.all("gpu_energy_hardware_joules_total")) == 2
        and {value for _, value in page.all("gpu_up")} == {1}
        and page.value("gpu_exporter_released") == 0
    )


def totals(page: Samples) -> dict[str, float]:
    return {labels["uuid"]: value for labels, value in page.all("gpu_energy_joules_total")}


def hardware(page: Samples) -> dict[str, float]:
    return {labels["uuid"]: value for labels, value in page.all("gpu_energy_hardware_joules_total")}


def test_nothing_is_held_while_the_devices_are_released_and_the_endpoint_goes_on(
    start_daemon: Start, tmp_path: Path
) -> None:
    host = Host(start_daemon, tmp_path)
    assert host.holders() == set(host.daemon.children())
    began, before = time.monotonic(), host.daemon.scrape()
    host.send(signal.SIGUSR1)
    page = host.released()
    host.until_let_go()
    assert {labels["uuid"]: value for labels, value in page.all("gpu_state", state="released")} == dict.fromkeys(
        totals(before), 1
    )
    assert {value for _, value in page.all("gpu_up")} == {0}
    assert len(page.all("gpu_info")) == 2
    assert "gpu_power_watts" not in page
    assert all(value >= totals(before)[uuid] for uuid, value in totals(page).items())
    ready = host.daemon.get("/-/ready")
    assert (ready.status, ready.body.splitlines()[0]) == (503, b"not ready: the devices are released on request")
    assert host.daemon.get("/-/healthy").status == 200
    assert b"released on request" in host.daemon.get("/").body
    for _ in range(20):  # it stays like that, whoever scrapes
        assert host.holders() == set()
        assert totals(host.daemon.scrape()) == totals(page)
        time.sleep(0.05)

    host.send(signal.SIGUSR2)
    after = host.until_taken_up()
    ended = time.monotonic()
    assert host.daemon.get("/-/ready").status == 200
    # The accumulators of the hardware went on counting, and so nothing is missing.
    spent = WATTS * (ended - began)
    assert spent > WATTS * 1.0
    for series in (hardware, totals):
        for uuid, joules in series(after).items():
            assert joules - series(before)[uuid] == pytest.approx(spent, abs=WATTS * 0.4)
    assert host.daemon.log.count('msg="the devices are released"') == 1
    assert host.daemon.log.count("the devices are taken up again") == 1
    assert "GPU is" not in host.daemon.log


def test_no_page_shows_what_was_read_before_the_release(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    host.send(signal.SIGUSR1)
    host.released()
    host.until_let_go()
    released = time.time()
    host.send(signal.SIGUSR2)
    states = set()

    def is_whole_and_no_part_is_older(page: Samples) -> bool:
        states.update(labels["state"] for labels, value in page.all("gpu_state") if value == 1)
        for labels, _ in page.all("gpu_power_watts"):
            assert page.value("gpu_last_sample_timestamp_seconds", uuid=labels["uuid"]) > released
        return is_whole(page)

    host.daemon.scrape_until(is_whole_and_no_part_is_older)
    assert states <= {"released", "ok"}
    assert "GPU is" not in host.daemon.log


def test_both_signals_may_be_repeated(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    host.send(signal.SIGUSR2)
    host.send(signal.SIGUSR2)
    time.sleep(0.3)
    assert is_whole(host.daemon.scrape())
    for _ in range(3):
        host.send(signal.SIGUSR1)
        time.sleep(0.1)
    host.released()
    host.until_let_go()
    for _ in range(3):
        host.send(signal.SIGUSR2)
    host.until_taken_up()
    assert len(host.daemon.children()) == 1


def test_a_call_that_never_returns_holds_nothing_up(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path, "sampling: {deadline_seconds: 60}\n")
    host.put(HANG)
    time.sleep(1.5)  # the load is read once a second
    host.send(signal.SIGUSR1)
    host.released()
    assert host.until_let_go(8) < 4.0
    host.put()
    host.send(signal.SIGUSR2)
    host.until_taken_up()


def test_the_devices_are_taken_up_again_when_nobody_asks_for_it(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path, "workers: {release_seconds: 2}\n")
    host.send(signal.SIGUSR1)
    host.released()
    host.until_let_go()
    host.until_taken_up()


def test_a_reload_takes_up_nothing(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    host.send(signal.SIGUSR1)
    host.send(signal.SIGHUP)
    host.daemon.until(lambda: "the configuration is reloaded" in host.daemon.log)
    host.released()
    host.until_let_go()
    time.sleep(1.0)
    assert host.daemon.children() == []
    assert host.daemon.scrape().value("gpu_exporter_released") == 1


def test_a_driver_that_was_replaced_meanwhile_is_taken_up_as_it_is(start_daemon: Start, tmp_path: Path) -> None:
    host = Host(start_daemon, tmp_path)
    before = host.daemon.scrape()
    host.send(signal.SIGUSR1)
    host.released()
    host.until_let_go()
    scenario = "driver_version: '999.9'\n" + TWO % ""
    # Its accumulators begin anew, as they do when the driver is loaded.
    write_plan(host.plan, Machine(load_scenario(scenario, name="two.yaml"), time.monotonic()))
    host.send(signal.SIGUSR2)
    after = host.until_taken_up()
    assert {labels["driver_version"] for labels, _ in after.all("gpu_info")} == {"999.9"}
    for uuid, joules in totals(after).items():
        assert joules >= totals(before)[uuid]
        assert joules - totals(before)[uuid] < WATTS * 60
