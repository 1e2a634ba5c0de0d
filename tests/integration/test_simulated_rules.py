"""What the shipped rules record of simulated GPUs: the joules that were drawn, and what old dashboards ask for."""

from pathlib import Path

from tests.integration.simulated_site import Expected, Site
from tests.integration.test_rules import ROOT, rules

RULES = ROOT / "config/prometheus"
SECONDS = 2400
SCENARIO = """
devices:
  - model: H100-SXM
    values: {link_count: 2}
    load: {pattern: square, level: 0.9, low_level: 0.1, period_seconds: 97}
  - {model: MI300X, load: {pattern: training}}
  - {model: RX-9070, load: {pattern: constant, level: 0.5}}
"""
NOT_SIMULATED = {
    # Off by default.
    *("DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_PROF_SM_ACTIVE"),
    *("DCGM_FI_PROF_SM_OCCUPANCY", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"),
    # Of passively cooled GPUs that remap rows.
    *("DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE"),
    # Of AMD's older and newer releases.
    *("gpu_total_visible_vram", "gpu_used_visible_vram", "gpu_free_visible_vram"),
}
"""Names that nothing is recorded under here, and why."""


def test_the_joules_of_the_fleet_are_those_that_were_drawn(tmp_path: Path) -> None:
    site = Site(SCENARIO, scrape_seconds=15.0, read_seconds=2.0)
    site.run(SECONDS + 1)
    drawn = sum(
        site.machine.energy_joules(device.key, SECONDS - 300) - site.machine.energy_joules(device.key, 300)
        for device in site.machine.devices
    )
    # Each sample is the mean of the five minutes before, so those of a window lag by half of that.
    window = f"{SECONDS - 600 - 1}s"
    joules = f"sum_over_time(fleet:gpu_energy_joules:minute[{window}])"
    asked = [
        Expected(SECONDS - 150, f"abs({joules} / {drawn} - 1) < bool 0.01", {"{}": 1}),
        Expected(SECONDS, 'sum(fleet:gpu_state:count{state="ok"})', {"{}": 3}),
    ]
    site.check(tmp_path / "test.yaml", [RULES / "fleet.yaml"], asked, every_seconds=60.0)


def test_old_names_are_recorded_of_pages_as_they_are(tmp_path: Path) -> None:
    files = [RULES / "compatibility-dcgm.yaml", RULES / "compatibility-amd.yaml"]
    names = {rule["record"] for file in files for rule in rules(file)}
    names = {name for name in names if ":" not in name} - NOT_SIMULATED
    site = Site(SCENARIO, scrape_seconds=30.0, read_seconds=30.0)
    site.run(900)
    alike = "|".join(sorted(name for name in names if name.startswith("gpu_")))
    every = f'group by (__name__) ({{__name__=~"DCGM_FI_.+|pcie_.+|{alike}"}})'
    site.check(tmp_path / "test.yaml", files, [Expected(870, every, dict.fromkeys(sorted(names), 1.0))])
