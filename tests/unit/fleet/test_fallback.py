"""Two providers see one card: AMD SMI is preferred, and DRM fills in, or serves alone."""

import pytest

from exporter.fleet.groups import CUT_OFF_SECONDS
from exporter.model import Device, DeviceSnapshot, GpuState, Group, Sample
from tests.unit.fleet.hosts import ALL
from tests.unit.fleet.pair import CARD, Pair, gpu


def test_missing_readings_are_filled_in_and_say_where_they_are_from() -> None:
    host = Pair(CARD)
    host.read(CARD, Group.LOAD, Group.STATE, provider="amd", utilization_ratio=0.5)
    host.read(
        CARD,
        Group.LOAD,
        Group.STATE,
        provider="drm",
        utilization_ratio=0.75,
        memory_used_bytes=5.0,
        fan_speed_ratio=0.25,
        sources={"fan_speed_ratio": "hwmon"},
    )
    shown = host.card
    assert (shown.sample.utilization_ratio, shown.sample.memory_used_bytes) == (0.5, 5.0)
    assert shown.sample.fan_speed_ratio == 0.25
    assert shown.sources["utilization_ratio"] == "amd"
    assert shown.sources["memory_used_bytes"] == "drm"
    assert shown.sources["fan_speed_ratio"] == "drm/hwmon"
    assert host.counted == {"amd": 1, "drm": 0, "simulated": 0}


def test_nothing_is_said_of_sources_where_there_is_one() -> None:
    host = Pair(CARD, listed=("amd",))
    host.read(CARD, *ALL, provider="amd", power_watts=9.0)
    assert host.card.sources == {}
    host.read(CARD, Group.ENERGY, provider="amd", power_watts=9.0)
    host = Pair(CARD, listed=("drm",))
    host.down("amd")
    host.read(CARD, Group.ENERGY, provider="drm", power_watts=9.0, sources={"power_watts": "hwmon"})
    assert host.card.sources["power_watts"] == "drm/hwmon"


def test_a_reading_that_grows_too_old_gives_way_to_that_of_the_other() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.run(16, CARD, "drm")
    shown = host.card
    assert shown.state is GpuState.OK
    assert (shown.provider, shown.sample.utilization_ratio, shown.sample.power_watts) == ("drm", 0.75, 301.0)


@pytest.mark.parametrize("first", ["amd", "drm"])
def test_cards_wait_for_the_preferred_provider_so_that_labels_are_the_same(first: str) -> None:
    host = Pair(listed=())
    seen = {"amd": (gpu(2), gpu(3)), "drm": (gpu(2, key="d2"), gpu(3, key="d3"), gpu(1, key="d1"))}
    for provider in (first, "drm" if first == "amd" else "amd"):
        host.fleet.enumerated(provider, seen[provider], host.now)
        if provider == "drm" and first == "drm":
            host.read(gpu(2, key="d2"), Group.ENERGY, provider="drm", power_watts=1.0)
            assert host.cards == {}
        host.down(provider, up=True)
    keys = {label: shown.device.key for label, shown in host.cards.items()}
    assert keys == {"amd0": "a2", "amd1": "a3", "amd2": "d1"}
    host.read(gpu(3, key="d3"), Group.LOAD, provider="drm", utilization_ratio=0.25)
    assert host.cards["amd1"].sample.utilization_ratio == 0.25


def test_cards_that_a_library_serves_are_not_expected_of_drm() -> None:
    host = Pair(CARD)
    host.fleet.enumerated("drm", (CARD, Device(vendor="intel", key="i")), host.now)
    host.fleet.expected("amd", 1)
    host.fleet.expected("drm", 2)
    host.both(CARD)

    def expected() -> dict[str, int | None]:
        return {snapshot.provider: snapshot.devices_expected for snapshot in host.world.snapshots}

    assert expected() == {"amd": 1, "drm": 1, "simulated": None}
    host.hang("a1", "amd")
    before = host.versions
    assert expected() == {"amd": 1, "drm": 2, "simulated": None}
    host.hang("a1", "amd", state=GpuState.OK)
    assert expected()["drm"] == 1
    assert "exporter" in host.bumped(before)


def test_cards_of_a_library_that_cannot_be_opened_are_those_of_drm() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("drm", (gpu(2), gpu(1)), host.now)
    host.down("drm", up=True)
    assert host.cards == {}
    host.down("amd")
    assert {label: shown.device.key for label, shown in host.cards.items()} == {"amd0": "a1", "amd1": "a2"}
    assert host.counted == {"amd": 0, "drm": 2, "simulated": 0}


def test_other_vendors_and_simulated_cards_wait_for_nobody() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("drm", (Device(vendor="intel", key="i", pci_address="0000:05:00.0"), CARD), host.now)
    host.fleet.enumerated("simulated", (gpu(1, key="s"),), host.now)
    assert list(host.cards) == ["intel0", "sim0"]
    host.fleet.enumerated("amd", (CARD,), host.now)
    assert {label: shown.device.key for label, shown in host.cards.items()} == {
        "amd0": "a1",
        "intel0": "i",
        "sim0": "s",
    }


def test_one_card_under_two_keys_is_one_card() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("amd", (CARD,), host.now)
    other = gpu(key="d1", minor=128)
    host.fleet.enumerated("drm", (other,), host.now)
    host.both(CARD)
    host.drm(other)
    assert (host.card.device.key, host.card.device.minor) == ("a1", 128)
    host.hang("d1", "drm")
    assert host.card.state is GpuState.OK, "the other provider does not hang"
    assert host.fleet.relieved("drm", host.now) == {"d1"}


def test_another_card_in_the_slot_is_one_for_both_whoever_sees_it_first() -> None:
    for first, second in (("amd", "drm"), ("drm", "amd")):
        host = Pair(listed=())
        host.fleet.enumerated("amd", (CARD,), host.now)
        host.fleet.enumerated("drm", (gpu(key="d1"),), host.now)
        swapped = {"amd": gpu(key="a9"), "drm": gpu(key="d9")}
        for _ in range(2):
            for provider in (first, second):
                host.fleet.enumerated(provider, (swapped[provider],), host.now)
        assert {label: shown.device.key for label, shown in host.cards.items()} == {
            "amd0": "a1",
            "amd1": swapped[first].key,
        }
        assert host.cards["amd0"].state is GpuState.LOST


def test_a_worker_that_starts_and_crashes_again_and_again_gives_no_reading() -> None:
    host = Pair(CARD)
    host.run(3, CARD, "amd", "drm")
    host.down("amd")
    host.run(6, CARD, "drm")
    assert host.card.provider == "drm"
    for _ in range(3):
        host.fleet.enumerated("amd", (CARD,), host.now)
        host.down("amd", up=True)
        assert (host.card.provider, host.card.sample.power_watts) == ("drm", 301.0)
        host.down("amd")
        host.run(2, CARD, "drm")
    host.down("amd", up=True)
    host.run(1, CARD, "amd", "drm")
    assert host.card.provider == "amd"


@pytest.mark.parametrize("state", [GpuState.HUNG, GpuState.LOST])
def test_what_a_library_says_is_masked_by_power_load_or_memory_and_by_nothing_less(state: GpuState) -> None:
    def broken(**of_drm: object) -> DeviceSnapshot:
        host = Pair(CARD)
        host.both(CARD)
        host.wait(1)
        if state is GpuState.HUNG:
            host.hang("a1", "amd")
        else:
            host.give(Sample(device=CARD, lost=True), "amd")
        host.read(CARD, *ALL, provider="drm", **of_drm)
        return host.card

    bare = broken(pcie_link_width=16.0, temperature_celsius={"edge": 40.0})
    assert (bare.state, bare.provider) == (state, "amd")
    assert (bare.sample.pcie_link_width, bare.sample.temperature_celsius) == (None, {})
    for readings in ({"power_watts": 9.0}, {"utilization_ratio": 0.0}, {"memory_used_bytes": 1.0}):
        shown = broken(**readings)
        assert (shown.state, shown.provider) == (GpuState.OK, "drm")


def test_a_card_that_only_the_library_has_lost_sight_of_is_drms() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.fleet.enumerated("amd", (), host.now)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "drm")
    host.fleet.enumerated("drm", (), host.now)
    assert host.card.state is GpuState.LOST
    host.fleet.enumerated("amd", (CARD,), host.now)
    host.read(CARD, Group.LOAD, provider="amd", utilization_ratio=0.5)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "amd")


def test_of_a_library_that_is_down_and_a_driver_that_says_it_is_gone_the_driver_is_believed() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.down("amd")
    host.wait(CUT_OFF_SECONDS + 1)
    host.drm(CARD)
    assert host.card.state is GpuState.OK
    host.give(Sample(device=CARD, lost=True), "drm")
    assert host.card.state is GpuState.LOST


def test_a_sleeping_card_sleeps_for_both() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.give(Sample(device=CARD, asleep=True), "amd")
    assert host.card.state is GpuState.ASLEEP
    host.hang("a1", "amd")
    host.give(Sample(device=CARD, asleep=True), "drm")
    assert host.card.state is GpuState.ASLEEP, "it was not woken, and so nothing hangs"


def test_released_and_taken_up_again() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.fleet.released(True, host.now)
    assert (host.card.state, host.card.sample.power_watts) == (GpuState.RELEASED, None)
    host.fleet.released(False, host.now)
    host.wait(1)
    assert host.card.state is GpuState.RELEASED
    host.drm(CARD)
    assert host.card.state is GpuState.OK
    host.both(CARD)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "amd")


def test_a_gpu_of_which_the_library_tells_nothing_is_not_missed_in_the_library() -> None:
    # AMD SMI lists APUs, and answers N/A to everything.
    host = Pair(gpu())
    for provider in ("amd", "drm"):
        host.fleet.expected(provider, 1)
    for _ in range(30):
        host.wait(1.0)
        host.read(gpu(), *ALL, provider="amd")
        host.drm(gpu())
    expected = {snapshot.provider: snapshot.devices_expected for snapshot in host.world.snapshots}
    assert (host.counted["amd"], expected["amd"]) == (0, 0)
    assert (host.counted["drm"], expected["drm"]) == (1, 1)
    host.down("amd")
    host.run(10, gpu(), "drm")
    missed = {snapshot.provider: snapshot.devices_expected for snapshot in host.world.snapshots}
    assert missed["amd"] == 1, "a library that is down is missed by what PCI shows"
