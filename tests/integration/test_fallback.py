"""A library that is missing, misfit, crashing or hanging: the files of the kernel serve its cards until it is back."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import Daemon, Samples
from tests.integration.kernel_host import KernelHost
from tests.native.amdsmi_layout import amdsmi_tree, build_amdsmi
from tests.native.plan import write_plan

Start = Callable[..., Daemon]

LIBRARY_WATTS, KERNEL_WATTS = 500, 480
RELEASE = "7.0.2"
START_SECONDS = 20.0
BACK_OFF_SECONDS = 6.0
"""The first of a library that cannot be opened: 5 s, with jitter."""
GRACE_SECONDS = 5.0
"""Within which a worker may be replaced."""
SLOW = 3
"""How much slower a busy machine may be."""


def machine(*faults: str, of_all: str = "") -> Machine:
    card = f"model: MI300X, load: {{pattern: constant, watts: {LIBRARY_WATTS}}}"
    text = f"faults: [{of_all}]\ndevices:\n  - {{{card}, faults: [{', '.join(faults)}]}}\n  - {{{card}}}\n"
    return Machine(load_scenario(text), time.monotonic() - 1000)


class Watched:
    """Scrapes of one daemon, none of which may show a total that fell, or a card twice."""

    def __init__(self, daemon: Daemon, keys: tuple[str, ...]) -> None:
        self.daemon = daemon
        self.keys = keys
        self._totals: dict[str, float] = {}

    def until(self, wanted: Callable[[Samples], bool], seconds: float) -> Samples:
        """Scrape until the page is as wanted."""

        def judged(page: Samples) -> bool:
            assert sorted(labels["uuid"] for labels, _ in page.all("gpu_info")) in ([], sorted(self.keys))
            for labels, total in page.all("gpu_energy_joules_total"):
                assert total >= self._totals.get(labels["uuid"], 0.0), labels
                self._totals[labels["uuid"]] = total
            return wanted(page)

        return self.daemon.scrape_until(judged, seconds)

    def served(self, provider: str, seconds: float, *numbers: int) -> Samples:
        """Scrape until these cards, or all, are well and show what this provider reads, and their energy goes on."""
        keys = [self.keys[number] for number in numbers or range(len(self.keys))]
        watts = LIBRARY_WATTS if provider == "amd" else KERNEL_WATTS

        def well(page: Samples) -> bool:
            return all(
                page.get("gpu_up", uuid=key) == 1
                and page.labels("gpu_info", uuid=key)["provider"] == provider
                and page.get("gpu_power_watts", uuid=key) == watts
                for key in keys
            )

        page = self.until(well, seconds)
        before = {key: page.get("gpu_energy_covered_seconds_total", uuid=key) or 0.0 for key in keys}
        # A worker that is started again may serve for a moment before it crashes.
        return self.until(
            lambda page: (
                well(page)
                and all((page.get("gpu_energy_covered_seconds_total", uuid=key) or 0.0) > before[key] for key in keys)
            ),
            START_SECONDS,
        )


def keys(fleet: Machine) -> tuple[str, ...]:
    return tuple(device.key for device in fleet.devices)


@pytest.mark.parametrize("library", ["", "6.4.3"], ids=["missing", "of another release"])
def test_cards_of_a_library_that_cannot_be_used_are_read_by_drm_until_it_can(
    start_daemon: Start, tmp_path: Path, library: str
) -> None:
    fleet = machine()
    host = KernelHost(tmp_path, fleet, KERNEL_WATTS)
    write_plan(host.plan, fleet)
    environment = amdsmi_tree(RELEASE, tmp_path, library=library)
    watched = Watched(start_daemon(*host.arguments, **host.options(environment)), keys(fleet))
    page = watched.served("drm", START_SECONDS)
    assert page.value("gpu_exporter_provider_up", provider="amd") == 0
    assert page.value("gpu_exporter_provider_up", provider="drm") == 1
    assert page.value("gpu_exporter_devices", provider="drm") == 2
    path = Path(environment["ROCM_PATH"]) / "lib/libamd_smi.so"
    path.unlink(missing_ok=True)
    path.symlink_to(build_amdsmi(RELEASE))
    page = watched.served("amd", SLOW * BACK_OFF_SECONDS + START_SECONDS)
    assert page.value("gpu_exporter_devices", provider="amd") == 2
    assert page.value("gpu_exporter_devices", provider="drm") == 0
    assert watched.daemon.log.count("GPUs found") == 1, "no card was lost and found"


def test_a_library_that_crashes_hangs_or_loses_its_driver_while_it_runs(start_daemon: Start, tmp_path: Path) -> None:
    fleet = machine()
    host = KernelHost(tmp_path, fleet, KERNEL_WATTS)
    # What the library does not tell of the cards, the kernel does.
    untold = "{kind: error, call: amdsmi_get_temp_metric, status: 2}"
    write_plan(host.plan, machine(of_all=untold))
    environment = amdsmi_tree(RELEASE, tmp_path)
    watched = Watched(start_daemon(*host.arguments, **host.options(environment)), keys(fleet))
    watched.served("amd", START_SECONDS)
    page = watched.until(
        lambda page: all(page.all("gpu_temperature_celsius", uuid=key, sensor="hotspot") for key in watched.keys),
        START_SECONDS,
    )
    assert [labels["provider"] for labels, _ in page.all("gpu_info")] == ["amd", "amd"]
    assert page.value("gpu_exporter_devices", provider="amd") == 2
    assert page.value("gpu_exporter_devices", provider="drm") == 0

    write_plan(host.plan, machine(of_all="{kind: crash, call: amdsmi_get_gpu_activity}"))
    page = watched.served("drm", SLOW * GRACE_SECONDS)
    assert page.value("gpu_exporter_devices", provider="amd") == 0
    assert page.value("gpu_exporter_devices", provider="drm") == 2
    write_plan(host.plan, fleet)
    watched.served("amd", SLOW * 2 * GRACE_SECONDS)

    write_plan(host.plan, machine("{kind: hang, call: amdsmi_get_gpu_activity}"))
    watched.served("drm", SLOW * 2 * GRACE_SECONDS, 0)
    write_plan(host.plan, fleet)
    watched.served("amd", SLOW * 4 * GRACE_SECONDS)
    assert "Traceback" not in watched.daemon.log
