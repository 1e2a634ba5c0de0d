"""Each shipped alert fires for a simulated fault, for nothing else, and ends with it; a healthy day raises none."""

from collections.abc import Iterable
from pathlib import Path

from exporter.model import Attribution, SourceStatus
from tests.integration.simulated_site import PROVIDER, Expected, Site
from tests.integration.test_rules import ROOT, rules

ALERTS = ROOT / "config/prometheus/alerts.yaml"
HEALTHY, LATE, END = 1200, 5100, 9600
"""Seconds: nothing is wrong yet; all that is wrong has been for long enough; all alerts have ended."""
LONG = "from_seconds: 1500, to_seconds: 5400"
WRONG = "from_seconds: 3000, to_seconds: 5400"
REPLAYS = ", ".join(
    f"{{kind: stuck, from_seconds: {at}, to_seconds: {at + 300}, values: {{link_replay_errors: {at // 300}}}}}"
    for at in range(1500, 5400, 300)
)
BUSY = "model: H100-SXM, values: {link_count: 2}, load: {pattern: constant, level: 0.8}"
TROUBLE = {
    "GpuDown": f"faults: [{{kind: lost, {WRONG}}}]",
    "GpuEnergyFaults": f"accumulator: {{events: [{{kind: frozen, {WRONG}}}]}}",
    # Without a counter of its own for this reason, seconds are counted by the flag.
    "GpuThermalThrottling": "absent: [throttle_hw_thermal_seconds], "
    f"faults: [{{kind: stuck, {WRONG}, values: {{throttle_hw_thermal: 1}}}}]",
    "GpuPowerThrottling": "absent: [throttle_hw_power_brake_seconds], "
    f"faults: [{{kind: stuck, {WRONG}, values: {{throttle_hw_power_brake: 1}}}}]",
    "GpuEccErrors": f"faults: [{{kind: stuck, {WRONG}, values: {{ecc_uncorrected: 3}}}}]",
    "GpuMemoryRemapFailed": f"faults: [{{kind: stuck, {WRONG}, values: {{remap_failed: 1}}}}]",
    "GpuMemoryRemapPending": f"faults: [{{kind: stuck, {WRONG}, values: {{remap_pending: 1}}}}]",
    "GpuFatalError": "faults: [{kind: event, code: 79, from_seconds: 4800}]",
    "GpuError": "faults: [{kind: event, code: 94, from_seconds: 3000}]",
    "GpuRecoveryNeeded": f"faults: [{{kind: stuck, {WRONG}, values: {{recovery_action: 1}}}}]",
    "GpuPcieLinkNarrow": f"faults: [{{kind: stuck, {WRONG}, values: {{pcie_width: 8}}}}]",
    "GpuInterconnectLinkDown": f"faults: [{{kind: stuck, {WRONG}, values: {{links_down: 1}}}}]",
    "GpuInterconnectErrors": f"faults: [{REPLAYS}]",
    "GpuMemoryFull": f"processes: [{{memory_used_bytes: 84.5e+9, {WRONG}}}]",
    "GpuHeldIdle": f"load: {{pattern: idle}}, processes: [{{memory_used_bytes: 1.0e+9, {LONG}}}]",
}
"""What befalls one GPU, by the alert that it should raise."""
OTHERS = {"GpuEnergyDiverges", "GpuProviderDown", "GpuExporterDown", "GpuReadingsOld", "GpuExporterSeriesDropped"}
OTHERS |= {"GpuExporterJournalDown", "GpuAttributionDown", "GpuMissing"}
"""Alerts with tests of their own below."""
DAY = """
devices:
  - model: H100-SXM
    values: {link_count: 2}
    load: {pattern: square, level: 0.9, low_level: 0.2, period_seconds: 7200}
    processes: [{memory_used_bytes: 60.0e+9}]
    # What applications do to themselves.
    faults: [{kind: event, code: 31, from_seconds: 7000, every_seconds: 3600, lasting_seconds: 1}]
  - model: MI300X
    load: {pattern: square, level: 1.0, period_seconds: 18000, duty: 0.7}
    processes: [{memory_used_bytes: 90.0e+9, queues: 8, every_seconds: 18000, lasting_seconds: 12600}]
  # Nobody uses it, its accumulator stands at 0, and it sleeps half the day.
  - model: RX-9070
    faults: [{kind: asleep, from_seconds: 10000, to_seconds: 50000}]
"""
Firing = set[tuple[str, str]]
"""Alert and GPU, which is empty where the alert is about more than one."""


def gpu(number: int, trouble: str) -> str:
    load = BUSY.partition(", load")[0] if "load:" in trouble else BUSY
    return f"  - {{{load}, texts: {{pci_address: '0000:{number:02x}:00.0'}}, {trouble}}}\n"


def selector(alert: str, gpu: str) -> str:
    return f'{{alertname="{alert}", gpu="{gpu}"}}' if gpu else f'{{alertname="{alert}"}}'


def check(site: Site, path: Path, expected: dict[float, Firing]) -> None:
    """Have promtool evaluate the shipped alerts on what was scraped; `expected`: what fires at each of these times."""
    firing = 'group by (alertname, gpu) (ALERTS{alertstate="firing"})'
    checks = [Expected(at, firing, {selector(*one): 1 for one in alerts}) for at, alerts in expected.items()]
    site.check(path, [ALERTS], checks)


def alone(alerts: Iterable[str]) -> Firing:
    return {(alert, "") for alert in alerts}


def test_each_alert_has_a_simulated_fault() -> None:
    assert {rule["alert"] for rule in rules(ALERTS)} == TROUBLE.keys() | OTHERS


def test_what_befalls_a_gpu_raises_its_alert_there_and_no_other(tmp_path: Path) -> None:
    site = Site(
        "devices:\n" + "".join(gpu(number, trouble) for number, trouble in enumerate(TROUBLE.values())),
        scrape_seconds=60.0,
        read_seconds=60.0,
    )
    site.run(END)
    wrong = {(alert, f"sim{number}") for number, alert in enumerate(TROUBLE)}
    check(site, tmp_path / "test.yaml", {HEALTHY: set(), LATE: wrong, END - 60: set()})


def test_an_accumulator_that_strays_raises_doubt_about_joules_until_it_does_not(tmp_path: Path) -> None:
    # Read as often as power is averaged: else the two are not compared.
    events = "accumulator: {events: [{kind: scaled, factor: 0.88, from_seconds: 900, to_seconds: 2400}]}"
    site = Site("devices:\n" + gpu(0, events), read_seconds=1.0)
    site.run(3600)
    diverges = {("GpuEnergyDiverges", "sim0")}
    check(site, tmp_path / "test.yaml", {900: set(), 2400: diverges, 3570: set()})


def test_a_provider_that_fails_raises_its_alert_and_those_of_its_gpus(tmp_path: Path) -> None:
    scenario = "faults: [{kind: error, call: enumerate, status: 9, from_seconds: 600, to_seconds: 1800}]\ndevices:\n"
    site = Site(scenario + gpu(0, "count: 1") + gpu(1, "count: 1"))
    site.run(2400)
    down: Firing = {("GpuProviderDown", ""), ("GpuDown", "sim0"), ("GpuDown", "sim1")}
    check(site, tmp_path / "test.yaml", {600: set(), 1770: down, 2370: set()})


def test_a_gpu_that_only_pci_shows_raises_an_alert(tmp_path: Path) -> None:
    site = Site("devices:\n" + gpu(0, "count: 1"))
    site.fleet.expected(PROVIDER, 1)
    site.run(600)
    site.fleet.expected(PROVIDER, 2)
    site.run(1800)
    site.fleet.expected(PROVIDER, 1)
    site.run(300)
    check(site, tmp_path / "test.yaml", {570: set(), 2370: alone(("GpuMissing",)), 2670: set()})


def test_what_befalls_the_exporter_raises_its_alerts_and_no_others(tmp_path: Path) -> None:
    # Two MIG instances with the same numbers have the same labels.
    instance = "profile: 1g.10gb, gi: 1, ci: 0"
    twice = f"{{{instance}}}, {{{instance}, from_seconds: 600, to_seconds: 2400}}"
    site = Site("devices:\n" + gpu(0, f"partitions: [{twice}]"))
    site.fleet.journaled(True)
    site.fleet.attributed(Attribution(sources=(SourceStatus(source="kubelet", up=True),)), site.now)
    site.run(600)
    site.fleet.journaled(False)
    silent = SourceStatus(source="kubelet", up=False, reason="no such file")
    site.fleet.attributed(Attribution(sources=(silent,)), site.now)
    site.run(1800)
    site.fleet.journaled(True)
    site.fleet.attributed(Attribution(sources=(SourceStatus(source="kubelet", up=True),)), site.now)
    site.run(600)
    site.answers = False
    site.run(600)
    site.answers = True
    site.run(300)
    site.clock_error_seconds = -600.0
    site.run(600)
    site.clock_error_seconds = 0.0
    site.run(300)
    check(
        site,
        tmp_path / "test.yaml",
        {
            570: set(),
            2370: alone(("GpuExporterJournalDown", "GpuAttributionDown", "GpuExporterSeriesDropped")),
            2970: set(),
            3570: alone(("GpuExporterDown",)),
            3870: set(),
            4470: alone(("GpuReadingsOld",)),
            4770: set(),
        },
    )


def test_a_healthy_day_raises_nothing(tmp_path: Path) -> None:
    site = Site(DAY, scrape_seconds=120.0, read_seconds=60.0)
    site.fleet.expected(PROVIDER, len(site.machine.devices))
    site.run(86_400)
    check(site, tmp_path / "test.yaml", {float(at): set() for at in range(0, 86_400, 120)})
