"""One card is one card: names are pinned, nothing is listed twice, nothing is forgotten too soon."""

from exporter.fleet.fleet import MOST_DEVICES
from exporter.model import Device, GpuState, Group, Sample
from tests.unit.fleet.hosts import Host, card


def names(host: Host) -> dict[str, str]:
    return {gpu: shown.device.key for gpu, shown in host.cards.items()}


def test_labels_follow_the_bus_not_the_order_of_the_report() -> None:
    assert names(Host(card(3), card(1), card(2))) == {"nvidia0": "GPU-1", "nvidia1": "GPU-2", "nvidia2": "GPU-3"}


def test_devices_without_an_address_follow_their_index() -> None:
    host = Host(card(2, pci_address=None), card(10, pci_address=None), card(1, pci_address=None))
    assert list(names(host).values()) == ["GPU-1", "GPU-2", "GPU-10"]


def test_a_label_stays_with_its_key_and_is_not_given_to_another() -> None:
    host = Host(card(1), card(2))
    host.fleet.enumerated("nvidia", (card(2, index=0), card(5)), host.now)
    assert names(host) == {"nvidia0": "GPU-1", "nvidia1": "GPU-2", "nvidia2": "GPU-5"}
    assert host.cards["nvidia1"].device.index == 0
    host.fleet.enumerated("nvidia", (card(1), card(2), card(5)), host.now)
    assert names(host) == {"nvidia0": "GPU-1", "nvidia1": "GPU-2", "nvidia2": "GPU-5"}


def test_each_vendor_counts_for_itself_and_simulated_devices_are_told_apart() -> None:
    host = Host(card(1))
    host.fleet.enumerated("amd", (card(1, vendor="amd", key="0xa1"), card(2, vendor="amd", key="0xa2")), host.now)
    host.fleet.enumerated("simulated", (card(1, key="SIM-1"), card(2, vendor="amd", key="SIM-2")), host.now)
    assert list(names(host)) == ["nvidia0", "amd0", "amd1", "sim0", "sim1"]


def test_a_card_whose_identity_cannot_be_read_for_a_time_is_not_a_second_one() -> None:
    known, address = card(1, model="H100"), "0000:01:00.0"
    anonymous = card(1, key=address)
    host = Host(known)
    host.read(known, Group.LOAD, utilization_ratio=0.5)
    host.fleet.enumerated("nvidia", (anonymous,), host.now)
    host.wait(1)
    host.read(anonymous, Group.LOAD, utilization_ratio=0.6)
    assert names(host) == {"nvidia0": "GPU-1"}
    shown = host.cards["nvidia0"]
    assert (shown.device, shown.state, shown.sample.utilization_ratio) == (known, GpuState.OK, 0.6)
    host.fleet.device_state("nvidia", address, GpuState.HUNG)
    assert host.cards["nvidia0"].state is GpuState.HUNG
    host.fleet.device_state("nvidia", address, GpuState.OK)
    host.fleet.enumerated("nvidia", (known,), host.now)
    assert names(host) == {"nvidia0": "GPU-1"}


def test_a_card_that_is_first_seen_without_its_identity_keeps_its_key() -> None:
    address = "0000:01:00.0"
    host = Host(card(1, key=address))
    host.fleet.enumerated("nvidia", (card(1, model="H100"),), host.now)
    host.read(card(1, model="H100"), Group.LOAD, utilization_ratio=0.6)
    assert names(host) == {"nvidia0": address}
    assert host.cards["nvidia0"].device.model == "H100"
    assert host.cards["nvidia0"].sample.utilization_ratio == 0.6


def test_another_card_in_the_same_slot_is_another_card() -> None:
    host = Host(card(1))
    host.fleet.enumerated("nvidia", (card(1, key="GPU-9"),), host.now)
    assert names(host) == {"nvidia0": "GPU-1", "nvidia1": "GPU-9"}


def test_a_device_is_known_by_its_samples_too() -> None:
    host = Host()
    host.read(card(4), Group.LOAD, utilization_ratio=0.5)
    assert host.cards["nvidia0"].sample.utilization_ratio == 0.5


def test_two_devices_with_one_key_are_counted_and_the_first_is_kept_apart() -> None:
    twin = card(2, key="GPU-1")
    host = Host(card(1), twin, card(3))
    assert names(host) == {"nvidia0": "GPU-1", "nvidia1": "GPU-3"}
    assert host.world.snapshots[0].read_failures == {"duplicate_identity": 1}
    host.read(card(1), Group.LOAD, utilization_ratio=0.25)
    host.wait(1)
    host.read(twin, Group.LOAD, utilization_ratio=1.0)
    assert host.cards["nvidia0"].sample.utilization_ratio == 0.25
    assert host.cards["nvidia0"].device.pci_address == "0000:01:00.0"


def test_a_device_that_two_providers_see_is_listed_once_by_the_preferred_one() -> None:
    for first, second in (("nvidia", "amd"), ("amd", "nvidia")):
        host = Host()
        for provider in (first, second):
            host.fleet.enumerated(provider, (card(1),), host.now)
        for provider, ratio in (("nvidia", 0.25), ("amd", 0.75)):
            host.read(card(1), Group.LOAD, provider=provider, utilization_ratio=ratio)
        assert [len(snapshot.devices) for snapshot in host.world.snapshots] == [1, 0, 0]
        assert host.cards["nvidia0"].sample.utilization_ratio == 0.25


def test_the_other_provider_takes_over_without_a_step_of_energy_between_two_sensors() -> None:
    host = Host(card(1))
    host.fleet.enumerated("amd", (card(1),), host.now)
    for _ in range(10):
        host.read(card(1), Group.ENERGY, power_watts=100.0, energy_counter_joules=5.0)
        host.wait(1)
    assert host.cards["nvidia0"].energy.total_joules == 900
    host.read(card(1), Group.LOAD, provider="amd", utilization_ratio=0.5)
    host.fleet.enumerated("nvidia", (), host.now)
    assert host.cards["nvidia0"].state is GpuState.OK
    assert [len(snapshot.devices) for snapshot in host.world.snapshots] == [0, 1, 0]
    for _ in range(3):
        host.read(card(1), Group.ENERGY, provider="amd", power_watts=300.0, energy_counter_joules=9e9)
        host.wait(1)
    assert host.cards["nvidia0"].provider == "amd"
    assert host.cards["nvidia0"].energy.total_joules == 900 + 600
    assert host.cards["nvidia0"].energy.gap_seconds == 1
    assert host.cards["nvidia0"].energy.faults["jump"] == 0


def test_a_card_that_changes_its_place_on_the_page_changes_the_blocks_it_shows_in() -> None:
    host = Host(card(1))
    host.read(card(1), Group.ENERGY, power_watts=9.0)
    host.fleet.enumerated("amd", (card(1), card(2, vendor="amd")), host.now)
    before = host.versions
    host.fleet.enumerated("nvidia", (), host.now)
    assert host.bumped(before) == {"device", "energy", "exporter"}


def test_identity_that_changes_is_published_under_the_same_label() -> None:
    host = Host(card(1))
    before = host.versions
    host.read(card(1, partition_mode="mig"), Group.LOAD)
    assert host.cards["nvidia0"].device.partition_mode == "mig"
    assert "device" in host.bumped(before)


def test_the_longest_lost_are_forgotten_first_and_the_living_never() -> None:
    living = tuple(card(number, pci_address=None) for number in range(MOST_DEVICES - 2))
    host = Host(*living, card(900), card(901))
    host.wait(10)
    host.fleet.enumerated("nvidia", (*living, card(900)), host.now)
    host.wait(10)
    host.fleet.enumerated("nvidia", (*living,), host.now)
    assert len(host.cards) == MOST_DEVICES
    host.fleet.enumerated("nvidia", (*living, card(902)), host.now)
    keys = set(names(host).values())
    assert len(keys) == MOST_DEVICES
    assert {"GPU-900", "GPU-902"} <= keys
    assert "GPU-901" not in keys
    host.fleet.enumerated("nvidia", (*living, card(902), card(903), card(904)), host.now)
    assert len(host.cards) == MOST_DEVICES
    assert "GPU-904" not in set(names(host).values())
    assert host.world.snapshots[0].read_failures == {"too_many_devices": 1}
    assert {device.key for device in living} <= set(names(host).values())


def test_numbers_of_forgotten_cards_are_not_given_again() -> None:
    host = Host()
    for number in range(2 * MOST_DEVICES):
        host.fleet.enumerated("nvidia", (Device(vendor="nvidia", key=f"K{number}"),), host.now)
        host.wait(1)
    shown = host.cards
    assert len(shown) == MOST_DEVICES
    assert shown[f"nvidia{2 * MOST_DEVICES - 1}"].device.key == f"K{2 * MOST_DEVICES - 1}"
    assert "nvidia0" not in shown


def test_a_lost_device_that_is_forgotten_for_another_of_the_same_list_is_known_again_at_once() -> None:
    lost = [card(900 + number, pci_address=f"0000:f{number}:00.0") for number in range(2)]
    living = tuple(card(number, pci_address=None) for number in range(MOST_DEVICES - 2))
    host = Host(*living, *lost)
    for device in lost:
        host.give(Sample(device=device, lost=True))
        host.wait(1)
    newcomer = card(1, key="GPU-new", pci_address="0000:00:00.0")
    host.fleet.enumerated("nvidia", (newcomer, *living, *lost), host.now)
    assert len(host.cards) == MOST_DEVICES
    assert {"GPU-new", *(device.key for device in living)} <= set(names(host).values())
    assert host.world.snapshots[0].read_failures == {"too_many_devices": 1}


def test_samples_of_ever_new_devices_do_not_grow_what_is_kept() -> None:
    host = Host()
    for number in range(MOST_DEVICES + 50):
        host.read(Device(vendor="nvidia", key=f"K{number}"), Group.LOAD, utilization_ratio=0.5)
    assert len(host.cards) == MOST_DEVICES
    assert host.world.snapshots[0].read_failures == {"too_many_devices": 50}
    assert len(host.fleet._providers["nvidia"].listed) == MOST_DEVICES
