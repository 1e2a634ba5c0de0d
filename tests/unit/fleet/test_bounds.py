"""What is beyond the bounds of a sample or a list is left out and counted, and the rest is kept."""

from exporter.fleet import MOST_DEVICES
from exporter.fleet.bounds import MOST_LISTED, MOST_NAMES, MOST_PARTITIONS, MOST_PROCESSES
from exporter.fleet.counters import NameCounts
from exporter.fleet.links import MOST_LINKS
from exporter.fleet.record import MOST_PREFIXES
from exporter.model import Device, Group, LinkSample, PartitionSample, ProcessSample
from tests.unit.fleet.hosts import ALL, Host, card


def failures(host: Host) -> dict[str, int]:
    return dict(host.world.snapshots[0].read_failures)


def test_processes_partitions_and_links_of_one_device_are_bounded() -> None:
    host = Host(card(1))
    host.read(
        card(1),
        *ALL,
        processes=tuple(ProcessSample(pid=pid) for pid in range(MOST_PROCESSES + 5)),
        partitions=tuple(PartitionSample(partition=str(number)) for number in range(MOST_PARTITIONS + 1)),
        links=tuple(LinkSample(kind=f"kind{number}", link=str(number), up=True) for number in range(MOST_LINKS + 2)),
    )
    shown = host.cards["nvidia0"].sample
    assert [process.pid for process in shown.processes or ()] == list(range(MOST_PROCESSES))
    assert len(shown.partitions or ()) == MOST_PARTITIONS
    assert len(shown.links or ()) == MOST_LINKS
    assert failures(host) == {"too_many_processes": 5, "too_many_partitions": 1, "too_many_links": 2}


def test_as_many_as_there_may_be_are_kept() -> None:
    host = Host(card(1))
    processes = tuple(ProcessSample(pid=pid) for pid in range(MOST_PROCESSES))
    host.read(card(1), *ALL, processes=processes, temperature_celsius={str(n): 1.0 for n in range(MOST_NAMES)})
    shown = host.cards["nvidia0"].sample
    assert shown.processes == processes
    assert len(shown.temperature_celsius) == MOST_NAMES
    assert failures(host) == {}


def test_readings_by_name_are_bounded_always_to_the_same_names() -> None:
    host = Host(card(1))
    names = [f"sensor{number:03}" for number in range(MOST_NAMES + 10)]
    for order in (names, names[::-1]):
        host.wait(10)
        host.read(card(1), Group.STATE, temperature_celsius=dict.fromkeys(order, 40.0))
        assert sorted(host.cards["nvidia0"].sample.temperature_celsius) == names[:MOST_NAMES]
    assert failures(host) == {"too_many_names": 20}


def test_seconds_are_counted_for_known_reasons_only() -> None:
    host = Host(card(1))
    for number in range(3):
        host.wait(1)
        reasons = {"hw_thermal": True, f"reason {number}": True}
        host.read(card(1), Group.STATE, throttled=reasons, throttle_seconds={f"other {number}": 1.0})
    assert host.cards["nvidia0"].throttle_seconds == {"hw_thermal": 2.0}
    assert failures(host) == {"unknown_reason": 6}


def test_a_list_of_devices_without_end_is_cut_and_what_was_cut_is_counted() -> None:
    host = Host(*(Device(vendor="nvidia", key=f"K{number:05}") for number in range(MOST_LISTED + 1_000)))
    assert len(host.cards) == MOST_DEVICES
    assert failures(host) == {"too_many_devices": 1_000 + MOST_LISTED - MOST_DEVICES}


def test_labels_have_few_prefixes_whatever_vendors_there_are() -> None:
    host = Host(*(Device(vendor=f"vendor{number:03}", key=f"K{number}") for number in range(MOST_PREFIXES + 4)))
    labels = sorted(host.cards)
    assert len(labels) == MOST_PREFIXES + 4
    assert [label for label in labels if label.startswith("gpu")] == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert failures(host) == {"too_many_vendors": 4}
    assert len(host.fleet.record(host.now).numbers) == MOST_PREFIXES + 1


def test_what_we_count_ourselves_has_its_place_among_names_without_end() -> None:
    counts = NameCounts()
    for number in range(2 * counts.LIMIT):
        counts.add(f"reading{number}")
    counts.add("too_many_devices", 7, ours=True)
    counts.add("another")
    assert counts.counts["too_many_devices"] == 7
    assert counts.counts[counts.OTHER] == counts.LIMIT + 1
