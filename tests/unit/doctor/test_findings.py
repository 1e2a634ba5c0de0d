"""What the command `doctor` makes of a host: every kind of trouble is found, named and graded."""

import msgspec
import pytest

from exporter.attribution.vantage import FOREIGN, HIDDEN
from exporter.doctor.findings import Finding, Severity, findings, severity
from exporter.doctor.look import Broken, Examination
from exporter.doctor.page import page
from exporter.doctor.readings import FAILED, NOT_TOLD, REJECTED, rows
from exporter.doctor.surroundings import Fact
from exporter.model import Attribution, DeviceSnapshot, Group, SourceStatus, World
from tests.unit.fleet.hosts import ALL, Host, card

GIVEN = {
    "power_watts": 300.0,
    "power_kind": "average",
    "power_window_seconds": 1.0,
    "energy_counter_joules": 1e6,
    "utilization_ratio": 0.5,
    "memory_used_bytes": 3 * 2.0**30,
    "temperature_celsius": {"gpu": 60.0},
    "throttled": {"sw_thermal": True},
    "processes": (),
}


def running(seconds: int = 4, watts: float = 300.0, step: float = 300.0, **values: object) -> Host:
    """Return a host whose GPU has been read once a second; `step`: joules that its accumulator adds each time."""
    host = Host(card(1, model="H100", driver_version="580"))
    host.fleet.provider_status("nvidia", up=True, reason="", library_version="580.1")
    for second in range(seconds):
        given = {**GIVEN, "power_watts": watts, "energy_counter_joules": 1e6 + step * second, **values}
        host.read(card(1, model="H100", driver_version="580"), *ALL, **given)
        host.wait(1)
    return host


def examined(world: World, **broken: Broken) -> Examination:
    return Examination(world=world, broken={key.replace("_", "-"): value for key, value in broken.items()}, seconds=4.0)


def found(world: World, *facts: Fact, **broken: Broken) -> tuple[Finding, ...]:
    return findings(examined(world, **broken), facts)


def only(host: Host) -> DeviceSnapshot:
    return host.cards["nvidia0"]


def test_a_host_that_is_well_has_no_finding() -> None:
    host = running()
    assert found(host.world) == ()
    assert severity(()) is Severity.FINE


def test_a_host_without_a_gpu_is_of_no_use() -> None:
    world = Host().world
    assert [finding.text for finding in found(world) if finding.severity is Severity.UNUSABLE] == ["no GPU was found"]
    assert severity(found(world)) is Severity.UNUSABLE


def test_a_host_whose_only_gpu_is_lost_is_of_no_use_and_says_which() -> None:
    host = running()
    host.read(card(1), lost=True)
    first, second = found(host.world)
    assert (first.severity, first.text) == (Severity.UNUSABLE, "no GPU answers")
    assert (second.subject, second.text) == ("nvidia0", "lost")
    assert "dmesg" in second.advice


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("the Python package nvidia-ml-py is not installed", "install"),
        ("the amdsmi package 6.3.3 does not fit libamd_smi.so 26.0.0", "same ROCm release"),
        ("no permission", "groups video and render"),
    ],
)
def test_a_provider_that_is_down_says_why_and_what_to_do(reason: str, advice: str) -> None:
    host = running()
    host.fleet.expected("amd", 1)
    host.fleet.provider_status("amd", up=False, reason=reason, library_version=None)
    (finding,) = found(host.world)
    assert (finding.severity, finding.subject, finding.text) == (Severity.DEGRADED, "amd", reason)
    assert advice in finding.advice


def test_a_provider_that_nobody_misses_is_no_finding() -> None:
    host = running()
    host.fleet.provider_status("amd", up=False, reason="no ROCm was found", library_version=None)
    assert found(host.world) == ()


def test_fewer_gpus_than_pci_shows_are_a_finding() -> None:
    host = running()
    host.fleet.expected("nvidia", 2)
    (finding,) = found(host.world)
    assert finding.text == "PCI shows 2 GPUs and the library lists 1"


def test_readings_that_break_are_named() -> None:
    host = running()
    broken = Broken(failed=frozenset({"ecc_errors"}), rejected=frozenset({"power_watts"}))
    texts = [finding.text for finding in found(host.world, GPU_1=broken)]
    assert texts == [
        "the driver answered errors for ecc_errors",
        "impossible values were turned away of power_watts",
    ]


@pytest.mark.parametrize(
    ("step", "said"),
    [(300.0, None), (330.0, None), (0.3, "moved -100 % against"), (300_000.0, "another unit"), (0.0, "stands still")],
)
def test_an_accumulator_in_another_unit_is_found_by_its_power(step: float, said: str | None) -> None:
    texts = [finding.text for finding in found(running(seconds=8, step=step).world)]
    if said is None:
        assert texts == []
    else:
        assert said in texts[0]


def test_a_gpu_without_power_and_energy_is_degraded() -> None:
    host = running(power_watts=None, power_kind=None, energy_counter_joules=None)
    assert [finding.text for finding in found(host.world)] == ["it tells neither power nor energy"]


def test_sources_of_attribution_that_are_down_are_findings() -> None:
    host = running()
    sources = (
        SourceStatus(source="proc", up=True),
        SourceStatus(source="kubelet", up=False, reason="permission denied"),
    )
    host.fleet.attributed(Attribution(sources=sources), host.now)
    (finding,) = found(host.world)
    assert (finding.subject, finding.text) == ("attribution by kubelet", "permission denied")


@pytest.mark.parametrize(
    ("source", "reason", "advice"),
    [
        ("proc", FOREIGN, "hostPID: true"),
        ("proc", HIDDEN, "gid="),
        ("kubelet", "gRPC is not installed (No module named 'grpc')", "gpu-exporter[kubernetes]"),
        ("kubelet", "/run/kubelet.sock is not there: no kubelet runs here", "mount the directory"),
        ("job_files", "/run/jobs: Permission denied", "docs/attribution.md"),
    ],
)
def test_a_source_that_is_down_says_what_to_do(source: str, reason: str, advice: str) -> None:
    host = running()
    host.fleet.attributed(Attribution(sources=(SourceStatus(source=source, up=False, reason=reason),)), host.now)
    (finding,) = found(host.world)
    assert advice in finding.advice


def test_facts_are_findings_only_where_something_is_wrong() -> None:
    host = running()
    fine = Fact("journal", "none", "name a directory")
    wrong = Fact("device nodes", "1 of 2 may not be opened", "join the groups", is_wrong=True)
    assert [finding.subject for finding in found(host.world, fine, wrong)] == ["device nodes"]


def test_each_reading_has_a_source_or_a_reason() -> None:
    host = running(fan_speed_ratio=None)
    broken = Broken(failed=frozenset({"ecc_errors"}), rejected=frozenset({"pcie_replays"}))
    by_name = {row.reading: row for row in rows(only(host), broken)}
    assert by_name["power_watts"][2:] == ("300 W", "nvidia", "")
    assert by_name["memory_used_bytes"].value == "3.00 GiB"
    assert by_name["utilization_ratio"].value == "50.0 %"
    assert by_name["temperature_celsius"].value == "gpu 60 °C"
    assert by_name["throttled"].value == "sw_thermal yes"
    assert by_name["fan_speed_ratio"].reason == NOT_TOLD
    assert by_name["ecc_errors"].reason == FAILED
    assert by_name["pcie_replays"].reason == REJECTED
    assert all(row.source if row.value else row.reason for row in by_name.values())


def test_groups_that_were_not_read_have_no_rows() -> None:
    assert Group.PROFILING not in {row.group for row in rows(only(running()), Broken())}


def test_the_report_names_everything_and_hostile_names_cannot_steer_a_terminal() -> None:
    host = running()
    device = msgspec.structs.replace(only(host).device, model="H100 \x1b[2J")
    host.read(device, *ALL, **GIVEN)
    examination = examined(host.world)
    text = page(examination, (Fact("user", "uid 1"),), found(host.world), Severity.FINE)
    assert "\x1b" not in text
    assert "nvidia: usable, library 580.1; 1 GPUs" in text
    assert "power_watts" in text
    assert "has an accumulator, " in text
    assert text.endswith("All is well.\n")
