"""The daemon with a vendor's library that is missing, misfit, or without a device: it serves and says why."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree
from tests.native.plan import standin_environment, write_plan

Start = Callable[..., Daemon]


def assert_down(daemon: Daemon, provider: str, reason: str) -> None:
    """It serves, the provider that was asked for is down for this reason, and the log has said so once."""
    page = daemon.scrape_until(lambda page: "not open yet" not in page.page and "being opened" not in page.page)
    assert reason in page.labels("gpu_exporter_provider_info", provider=provider)["reason"]
    assert page.value("gpu_exporter_provider_up", provider=provider) == 0
    assert "gpu_info" not in page
    assert daemon.get("/-/healthy").status == 200
    assert daemon.get("/-/ready").status == 503
    assert daemon.log.count("provider is down") == 1
    assert "Traceback" not in daemon.log


def empty_machine(plan: Path) -> Mapping[str, str]:
    write_plan(plan, Machine(load_scenario("devices: []"), time.monotonic()))
    return {"GPU_EXPORTER_PLAN": str(plan)}


@pytest.mark.parametrize("version", WHEELS)
def test_amdsmi_without_its_library(start_daemon: Start, tmp_path: Path, version: str) -> None:
    environment = amdsmi_tree(version, tmp_path, library="")
    daemon = start_daemon("--provider", "amd", env=environment, ready=False)
    assert_down(daemon, "amd", "amdsmi does not find libamd_smi.so")
    # What the package prints at its import is neither ours to say nor an operator's to read.
    assert "Unable to find" not in daemon.log
    assert "KeyError" not in daemon.log


@pytest.mark.parametrize(
    ("package", "library"),
    [
        pytest.param("7.0.2", "6.4.3", id="symbols are missing"),
        pytest.param("6.3.3", "6.4.3", id="layouts that end the process"),
    ],
)
def test_amdsmi_with_a_library_of_another_release(
    start_daemon: Start, tmp_path: Path, package: str, library: str
) -> None:
    write_plan(tmp_path / "plan", Machine(load_scenario("devices: [{model: MI300X}]"), time.monotonic()))
    environment = {**amdsmi_tree(package, tmp_path, library=library), "GPU_EXPORTER_PLAN": str(tmp_path / "plan")}
    daemon = start_daemon("--provider", "amd", env=environment, ready=False)
    assert_down(daemon, "amd", "does not fit libamd_smi.so")
    assert daemon.scrape().value("gpu_exporter_worker_restarts_total", provider="amd", cause="crash") == 0


@pytest.mark.parametrize("provider", ["nvidia", "amd"])
def test_a_library_that_finds_no_device(start_daemon: Start, tmp_path: Path, provider: str) -> None:
    plan = empty_machine(tmp_path / "plan")
    vendor = standin_environment(tmp_path / "plan") if provider == "nvidia" else amdsmi_tree("7.0.2", tmp_path)
    daemon = start_daemon("--provider", provider, env={**vendor, **plan}, ready=False)
    assert_down(daemon, provider, "no device was found")
    assert daemon.scrape().labels("gpu_exporter_provider_info", provider=provider)["library_version"]


def test_an_nvidia_library_that_cannot_be_loaded(start_daemon: Start, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("no library\n")
    daemon = start_daemon("--provider", "nvidia", env={"LD_LIBRARY_PATH": str(tmp_path)}, ready=False)
    assert_down(daemon, "nvidia", "libnvidia-ml.so.1 was not found")
