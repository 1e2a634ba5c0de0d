"""Cards of NVIDIA, AMD and Intel in one host: all of them are served while either vendor's library crashes."""

import time
from collections.abc import Callable
from pathlib import Path

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.drm import card, hwmon
from tests.integration.daemon import Daemon, Samples
from tests.integration.kernel_host import KernelHost
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan

Start = Callable[..., Daemon]

SECONDS = 30.0
KERNEL_WATTS = 280
INTEL = "0000:4a:00.0"
CRASH = "{{kind: crash, call: {}}}"


def machine(nvidia: str = "", amd: str = "") -> Machine:
    text = f"""
devices:
  - {{model: H100-SXM, load: {{pattern: constant, watts: 500}}, faults: [{nvidia}]}}
  - {{model: MI300X, load: {{pattern: constant, watts: 300}}, faults: [{amd}]}}
"""
    return Machine(load_scenario(text), time.monotonic() - 1000)


def test_each_is_served_with_either_library_crashing(start_daemon: Start, tmp_path: Path) -> None:
    fleet = machine()
    nvidia, amd = (device.key for device in fleet.devices)
    host = KernelHost(tmp_path, fleet, KERNEL_WATTS)
    card(host.root, 7, driver="nvidia", ids=(0x10DE, 0x2330), address=fleet.devices[0].texts["pci_address"], minor=160)
    sensors = hwmon("xe", number=8, power2_max="300000000", energy2_input="5000000", energy2_label="card")
    intel = card(host.root, 8, sensors, driver="xe", address=INTEL, minor=168)
    write_plan(host.plan, fleet)
    environment = {**standin_environment(host.plan), **amdsmi_tree("7.0.2", tmp_path)}
    daemon = start_daemon(*host.arguments, **host.options(environment))
    providers = {nvidia: "nvidia", amd: "amd", INTEL: "drm"}
    totals: dict[str, float] = {}

    def shows(page: Samples, expected: dict[str, str], *but: str) -> bool:
        counter = int((intel / "hwmon/hwmon8/energy2_input").read_text()) + 1_000_000
        (intel / "hwmon/hwmon8/energy2_input").write_text(f"{counter}\n")
        for labels, total in page.all("gpu_energy_joules_total"):
            assert total >= totals.get(labels["uuid"], 0.0), labels
            totals[labels["uuid"]] = total
        shown = {labels["uuid"]: labels["provider"] for labels, _ in page.all("gpu_info")}
        assert len(page.all("gpu_info")) == len(shown)
        up = {labels["uuid"] for labels, value in page.all("gpu_up") if value == 1}
        return shown == expected and up == expected.keys() - set(but)

    page = daemon.scrape_until(lambda page: shows(page, providers), SECONDS)
    assert {labels["gpu"] for labels, _ in page.all("gpu_info")} == {"nvidia0", "amd0", "intel0"}
    devices = {name: page.value("gpu_exporter_devices", provider=name) for name in ("nvidia", "amd", "drm")}
    assert devices == {"nvidia": 1, "amd": 1, "drm": 1}

    write_plan(host.plan, machine(amd=CRASH.format("amdsmi_get_gpu_activity")))
    daemon.scrape_until(
        lambda page: shows(page, {**providers, amd: "drm"}) and page.get("gpu_power_watts", uuid=amd) == KERNEL_WATTS,
        SECONDS,
    )
    write_plan(host.plan, machine(nvidia=CRASH.format("nvmlDeviceGetUtilizationRates")))
    daemon.scrape_until(
        lambda page: shows(page, providers, nvidia) and page.get("gpu_power_watts", uuid=amd) == 300, SECONDS
    )
    write_plan(host.plan, fleet)
    daemon.scrape_until(lambda page: shows(page, providers), SECONDS)
    assert daemon.scrape().value("gpu_energy_joules_total", uuid=INTEL) > 0
    assert "Traceback" not in daemon.log
