"""A daemon that is started again meets the devices that it left: what happened while it was down has happened."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.native.plan import standin_environment, write_plan

EVENT_SECONDS = 10.0
"""When, in the life of the machine, an error is counted; the first daemon is gone by then."""
SCENARIO = f"""
epoch_seconds: %s
devices:
  - model: H100-SXM
    count: 2
    load: {{pattern: constant, watts: 500}}
    faults: [{{kind: stuck, from_seconds: {EVENT_SECONDS}, values: {{ecc_uncorrected: 1}}}}]
"""


def identities(page: Samples) -> list[dict[str, str]]:
    return [labels for labels, _ in page.all("gpu_info")]


@pytest.mark.parametrize("provider", ["simulated", "nvidia"])
def test_a_restart_meets_the_same_devices_some_time_later(
    start_daemon: Callable[..., Daemon], tmp_path: Path, provider: str
) -> None:
    epoch = time.monotonic()
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(SCENARIO % epoch)
    machine = Machine(load_scenario(scenario.read_text()), epoch)
    write_plan(tmp_path / "plan", machine)
    arguments = ("--simulate", str(scenario)) if provider == "simulated" else ("--provider", "nvidia")
    environment = standin_environment(tmp_path / "plan")

    def page(daemon: Daemon) -> Samples:
        return daemon.scrape_until(
            lambda page: len(page.all("gpu_ecc_errors_total", **{"class": "uncorrected"})) == len(machine.devices)
        )

    first = start_daemon(*arguments, env=environment)
    before = page(first)
    assert {value for _, value in before.all("gpu_ecc_errors_total", **{"class": "uncorrected"})} == {0}
    assert first.stop() == 0
    assert time.monotonic() < epoch + EVENT_SECONDS, "the machine is too slow for this test"
    time.sleep(max(0.0, epoch + EVENT_SECONDS - time.monotonic()))

    after = page(start_daemon(*arguments, env=environment))
    assert {value for _, value in after.all("gpu_ecc_errors_total", **{"class": "uncorrected"})} == {1}
    assert identities(after) == identities(before)
    # Totals begin anew, with a start time of their own.
    for device in machine.devices:
        started = [page.value("gpu_energy_start_timestamp_seconds", uuid=device.key) for page in (before, after)]
        assert started[1] > started[0]
        assert after.value("gpu_energy_joules_total", uuid=device.key) < 500 * (time.time() - started[1] + 1)
