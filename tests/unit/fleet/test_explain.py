"""Why a GPU shows what it shows: each provider's reading with its age and the verdict on it."""

from exporter.fleet.explain import Explanation, Told, Verdict
from exporter.fleet.trail import Why
from exporter.model import Device, Group
from tests.unit.fleet.hosts import ALL, Host, card, sample

OTHER = "amd"
"""A provider that is less preferred."""


def explained(host: Host, gpu: str = "nvidia0") -> Explanation:
    found = host.fleet.explain(gpu, host.now)
    assert found is not None
    return found


def told(host: Host, reading: str) -> list[Told]:
    return [one for one in explained(host).readings if one.reading == reading]


def verdicts(host: Host, reading: str) -> list[tuple[str, Verdict]]:
    return [(one.provider, one.verdict) for one in told(host, reading)]


def test_a_reading_has_its_raw_value_its_age_and_how_long_it_holds() -> None:
    host = Host(card(1))
    host.read(card(1), Group.ENERGY, power_watts=312.25)
    host.wait(3)
    (power,) = told(host, "power_watts")
    assert (power.value, power.age_seconds, power.lifetime_seconds) == (312.25, 3.0, 15.0)
    assert (power.provider, power.source, power.verdict) == ("nvidia", "", Verdict.OK)


def test_what_is_too_old_is_withheld_and_still_told() -> None:
    host = Host(card(1))
    host.read(card(1), Group.ENERGY, power_watts=312.25)
    host.read(card(1), Group.LOAD, utilization_ratio=0.5)
    host.wait(14)
    host.read(card(1), Group.LOAD, utilization_ratio=0.5)
    host.wait(2)
    assert verdicts(host, "power_watts") == [("nvidia", Verdict.WITHHELD)]
    assert told(host, "power_watts")[0].value == 312.25
    assert host.cards["nvidia0"].sample.power_watts is None
    assert verdicts(host, "utilization_ratio") == [("nvidia", Verdict.OK)]


def test_what_broke_what_cannot_be_and_what_is_not_told_are_told_apart() -> None:
    host = Host(card(1))
    host.read(card(1), *ALL, failed=("power_watts",), rejected=("utilization_ratio",), memory_used_bytes=1.0)
    assert verdicts(host, "power_watts") == [("nvidia", Verdict.FAILED)]
    assert verdicts(host, "utilization_ratio") == [("nvidia", Verdict.REJECTED)]
    assert verdicts(host, "memory_used_bytes") == [("nvidia", Verdict.OK)]
    assert verdicts(host, "memory_size_bytes") == [("nvidia", Verdict.NOT_TOLD)]
    assert told(host, "power_kind") == []  # says what power is, and is no reading


def test_of_two_providers_both_are_told_and_which_is_passed_over() -> None:
    same = Device(vendor="amd", key="GPU-1", pci_address="0000:01:00.0", index=1)
    host = Host(card(1))
    host.fleet.enumerated(OTHER, (same,), host.now)
    host.read(card(1), *ALL, power_watts=300.0, failed=("fan_speed_ratio",))
    host.give(
        sample(same, host.now, *ALL, power_watts=310.0, fan_speed_ratio=0.4, sources={"power_watts": "hwmon"}), OTHER
    )
    assert [(one.provider, one.source, one.value, one.verdict) for one in told(host, "power_watts")] == [
        ("nvidia", "", 300.0, Verdict.OK),
        (OTHER, "hwmon", 310.0, Verdict.PASSED_OVER),
    ]
    assert verdicts(host, "fan_speed_ratio") == [("nvidia", Verdict.FAILED), (OTHER, Verdict.OK)]


def test_of_a_gpu_that_is_gone_nothing_is_told_but_what_was_counted() -> None:
    host = Host(card(1))
    host.read(card(1), *ALL, power_watts=300.0)
    host.give(sample(card(1), host.now, lost=True))
    assert explained(host).readings == ()
    assert [decision.why for decision in explained(host).decisions] == [Why.BEGUN]


def test_of_a_gpu_that_hangs_nothing_is_published_and_what_it_said_last_is_told() -> None:
    host = Host(card(1))
    host.read(card(1), *ALL, power_watts=300.0)
    host.hang("GPU-1")
    assert verdicts(host, "power_watts") == [("nvidia", Verdict.WITHHELD)]


def test_only_gpus_that_there_are_are_explained() -> None:
    host = Host(card(1))
    assert host.fleet.explain("nvidia0", host.now) is not None
    assert host.fleet.explain("nvidia1", host.now) is None
    assert host.fleet.explain("", host.now) is None
