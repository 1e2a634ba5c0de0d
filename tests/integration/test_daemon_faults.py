"""The daemon when its worker or the vendor's library misbehaves: the page stays quick, the right devices are down, and
all comes back by itself."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.native.plan import standin_environment, write_plan

SCRAPE_SECONDS = 0.060
CONFIG = """
sampling:
  deadline_seconds: 0.5
"""
TWO = """
devices:
  - {model: H100-SXM, load: {pattern: constant, watts: 500}}
  - {model: H100-SXM, load: {pattern: constant, watts: 400}%s}
%s
"""

Start = Callable[..., Daemon]


class Host:
    """A daemon over the NVML stand-in, with two GPUs."""

    def __init__(self, start: Start, folder: Path) -> None:
        self.plan = folder / "plan"
        self.epoch = time.monotonic() - 1000
        self.healthy = self.put()
        self.first, self.second = (device.key for device in self.healthy.devices)
        (folder / "config.yaml").write_text(CONFIG)
        environment = standin_environment(self.plan)
        self.daemon = start("--provider", "nvidia", "--config.file", str(folder / "config.yaml"), env=environment)
        self.daemon.scrape_until(lambda page: len(page.all("gpu_power_watts")) == 2)

    def put(self, device_fault: str = "", machine_fault: str = "") -> Machine:
        """Replace the machine by one that has these faults from now on."""
        text = TWO % (
            f", faults: [{device_fault}]" if device_fault else "",
            f"faults: [{machine_fault}]" if machine_fault else "",
        )
        machine = Machine(load_scenario(text, name="two.yaml"), self.epoch)
        write_plan(self.plan, machine)
        return machine

    def worker(self) -> int:
        """Return the process id of the one worker, once there is one."""
        return self.daemon.until(lambda: next(iter(self.daemon.children()), 0))

    def up(self, page: Samples) -> tuple[float, float]:
        return page.value("gpu_up", uuid=self.first), page.value("gpu_up", uuid=self.second)

    def watch(self, seconds: float, until: Callable[[Samples], bool]) -> list[Samples]:
        """Scrape until the page is as wanted, and hold each scrape to its time and each total to never fall."""
        pages: list[Samples] = []
        took: list[float] = []
        deadline = time.monotonic() + seconds
        totals: dict[str, float] = {}
        while not pages or not until(pages[-1]):
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.daemon.log}"
            reply = self.daemon.get()
            took.append(reply.seconds)
            page = Samples(reply.body.decode())
            for labels, value in page.all("gpu_energy_joules_total"):
                assert value >= totals.get(labels["uuid"], 0.0)
                totals[labels["uuid"]] = value
            pages.append(page)
            time.sleep(0.02)
        # One in fifty may be held up by what else runs on the machine, and one of a few.
        assert sum(seconds >= SCRAPE_SECONDS for seconds in took) <= 1 + len(took) // 50, took
        return pages


@pytest.fixture
def host(start_daemon: Start, tmp_path: Path) -> Host:
    return Host(start_daemon, tmp_path)


def both_up(host: Host) -> Callable[[Samples], bool]:
    return lambda page: host.up(page) == (1, 1) and len(page.all("gpu_power_watts")) == 2


def test_a_killed_worker_comes_back(host: Host) -> None:
    killed = host.worker()
    os.kill(killed, signal.SIGKILL)
    host.watch(10, lambda page: page.value("gpu_exporter_worker_restarts_total", cause="crash") == 1)
    host.watch(20, lambda page: both_up(host)(page) and host.worker() != killed)
    assert host.daemon.log.count("provider is down") == 1


def test_a_stopped_worker_comes_back_and_blames_no_device(host: Host) -> None:
    stopped = host.worker()
    os.kill(stopped, signal.SIGSTOP)
    pages = host.watch(20, lambda page: page.value("gpu_exporter_worker_restarts_total", cause="hang") == 1)
    pages += host.watch(20, lambda page: both_up(host)(page) and host.worker() != stopped)
    assert "quarantine" not in host.daemon.log
    # Both belonged to the same worker: neither is down for longer than the other.
    assert all(len(set(host.up(page))) == 1 for page in pages)


def test_a_device_call_that_never_returns_takes_down_its_device_only(host: Host) -> None:
    host.put("{kind: hang, call: nvmlDeviceGetUtilizationRates}")
    host.watch(
        30, lambda page: host.up(page) == (1, 0) and page.value("gpu_state", uuid=host.second, state="hung") == 1
    )
    # For as long as the device hangs, the other one is read at its usual pace.
    pages = host.watch(10, after(3.0))
    assert all(host.up(page)[1] == 0 for page in pages)
    assert host.up(pages[-1]) == (1, 0)
    assert pages[-1].all("gpu_power_watts", uuid=host.second) == []
    assert pages[-1].value("gpu_energy_joules_total", uuid=host.second) > 0
    power = pages[-1].value("gpu_power_watts", uuid=host.first)
    assert power == pytest.approx(500)
    host.put()
    host.watch(60, both_up(host))


def test_a_library_that_crashes_in_a_device_call_recovers_once_it_stops(host: Host) -> None:
    host.put("{kind: crash, call: nvmlDeviceGetUtilizationRates}")
    host.watch(20, lambda page: page.value("gpu_exporter_worker_restarts_total", cause="crash") >= 2)
    page = host.watch(20, lambda page: page.value("gpu_exporter_provider_up", provider="nvidia") == 0)[-1]
    assert page.labels("gpu_exporter_provider_info", provider="nvidia")["reason"]
    host.put()
    host.watch(60, both_up(host))


def test_a_gpu_that_falls_off_the_bus_is_down_and_keeps_its_identity(host: Host) -> None:
    host.put("{kind: lost}")
    page = host.watch(20, lambda page: page.value("gpu_state", uuid=host.second, state="lost") == 1)[-1]
    assert host.up(page) == (1, 0)
    assert page.labels("gpu_info", uuid=host.second)["model"] == "NVIDIA H100 80GB HBM3"
    assert page.all("gpu_power_watts", uuid=host.second) == []
    host.put()
    page = host.watch(90, both_up(host))[-1]
    assert page.labels("gpu_up", uuid=host.second)["gpu"] == "nvidia1"


def test_a_driver_that_is_unloaded_and_loaded_again(host: Host) -> None:
    host.put(machine_fault="{kind: error, call: '*', status: 9}")
    page = host.watch(20, lambda page: page.value("gpu_exporter_provider_up", provider="nvidia") == 0)[-1]
    assert "not loaded" in page.labels("gpu_exporter_provider_info", provider="nvidia")["reason"]
    page = host.watch(10, lambda page: host.up(page) == (0, 0))[-1]
    assert page.all("gpu_power_watts") == []
    host.put()
    host.watch(90, both_up(host))


def test_a_library_that_hangs_while_it_is_closed_does_not_delay_the_end(host: Host) -> None:
    host.put(machine_fault="{kind: hang, call: nvmlShutdown}")
    worker, began = host.worker(), time.monotonic()
    assert host.daemon.stop() == 0
    # The worker is given a second to close the library: it did hang, and was killed for it.
    assert 0.9 < time.monotonic() - began < 5
    assert not Path(f"/proc/{worker}").exists()


def after(seconds: float) -> Callable[[Samples], bool]:
    end = time.monotonic() + seconds
    return lambda _: time.monotonic() >= end
