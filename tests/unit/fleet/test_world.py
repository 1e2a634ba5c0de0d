"""Versions tell which blocks look different, and nothing else does."""

import itertools
from collections import defaultdict

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.metrics import (
    DEVICE_METRICS,
    EXPORTER_METRICS,
    OWNER_METRICS,
    PARTITION_METRICS,
    PROCESS_METRICS,
    PROVIDER_METRICS,
    WORKLOAD_METRICS,
)
from exporter.model import (
    Allocation,
    Attribution,
    GpuState,
    Group,
    Owner,
    PartitionSample,
    ProcessSample,
    ProcessSeries,
    Sample,
    SourceStatus,
    Workload,
    WorkloadSnapshot,
    World,
)
from tests.unit.fleet.hosts import ALL, WALL, Host, card

READINGS = {"power_watts": 300.0, "utilization_ratio": 0.5, "temperature_celsius": {"gpu": 60.0}}


def view(world: World) -> dict[str, list[object]]:
    """Return what each block of a page shows, by the table of metrics."""
    blocks: dict[str, list[object]] = defaultdict(list)
    for spec in EXPORTER_METRICS:
        blocks[spec.block].append((spec.name, spec.read(world)))
    for snapshot in world.snapshots:
        for spec in PROVIDER_METRICS:
            blocks[spec.block].append((spec.name, snapshot.provider, spec.read(snapshot)))
        for device in snapshot.devices:
            rows = [(DEVICE_METRICS, [device])]
            rows += [
                (PARTITION_METRICS, device.sample.partitions or ()),
                (PROCESS_METRICS, device.process_series),
                (OWNER_METRICS, device.process_owners),
                (WORKLOAD_METRICS, device.workloads),
            ]
            for table, subjects in rows:
                for spec, subject in itertools.product(table, subjects):
                    if (value := spec.read(subject)) not in (None, {}):
                        blocks[spec.block].append(
                            (spec.name, device.gpu, device.device.key, subject_name(subject), value)
                        )
    return blocks


def subject_name(subject: object) -> object:
    match subject:
        case ProcessSeries():
            return (subject.pid, subject.name, subject.user, subject.workload)
        case Owner():
            return subject.pid
        case WorkloadSnapshot():
            return subject.workload.key
        case PartitionSample():
            return subject.partition
    return None


def test_the_same_world_is_returned_while_nothing_changes() -> None:
    host = Host(card(1), card(2))
    host.read(card(1), *ALL, **READINGS)
    first = host.world
    host.wait(0.9)
    assert host.world is first


def test_fresh_energy_changes_the_energy_block_alone() -> None:
    host = Host(card(1), card(2))
    for _ in range(2):
        host.wait(1.5)
        for device in (card(1), card(2)):
            host.read(device, *ALL, **READINGS)
        before = host.versions
    for _ in range(4):
        host.wait(0.2)
        host.read(card(1), Group.ENERGY, power_watts=301.0)
    assert host.bumped(before) == {"energy"}


def test_what_is_read_again_unchanged_changes_only_what_counts_time() -> None:
    host = Host(card(1))
    host.read(card(1), *ALL, **READINGS, throttled={"idle": False})
    before = host.versions
    host.wait(0.5)
    host.read(card(1), *ALL, **READINGS, throttled={"idle": False})
    assert host.bumped(before) == {"energy", "load"}  # the time stamp and the busy seconds


def test_partitions_and_processes_have_versions_of_their_own() -> None:
    host = Host(card(1))
    host.read(card(1), *ALL, power_watts=1.0, partitions=(), processes=())
    before = host.versions
    parts = (PartitionSample(partition="gi1", memory_used_bytes=0.0),)
    host.read(card(1), partitions=parts)
    assert host.bumped(before) == set()  # not read: nothing was taken over
    host.wait(0.1)
    host.read(card(1), Group.STATE, partitions=parts)
    assert host.bumped(before) == {"energy", "partitions"}  # with the time stamp
    host.wait(0.1)
    before = host.versions
    host.read(card(1), Group.PROCESSES, processes=(ProcessSample(pid=1),))
    assert host.bumped(before) == {"processes"}


def test_health_of_a_provider_changes_the_exporter_block_alone_and_at_once() -> None:
    host = Host(card(1))
    changes = [
        lambda fleet: fleet.provider_status("nvidia", up=True, reason="", library_version="12.1"),
        lambda fleet: fleet.provider_status("amd", up=False, reason="no library", library_version=None),
        lambda fleet: fleet.restarted("nvidia", "hang"),
        lambda fleet: fleet.expected("nvidia", 8),
        lambda fleet: fleet.expected("nvidia", None),
        lambda fleet: fleet.abandoned(1),
        lambda fleet: fleet.abandoned(2, "agents"),
        lambda fleet: fleet.dropped({"gpu_info": 1}),
    ]
    for change in changes:
        before = host.versions
        change(host.fleet)
        assert host.bumped(before) == {"exporter"}
        before = host.versions
        change(host.fleet)
        if change is not changes[2]:
            assert host.bumped(before) == set()
    snapshots = {snapshot.provider: snapshot for snapshot in host.world.snapshots}
    assert (snapshots["nvidia"].up, snapshots["nvidia"].wanted, snapshots["amd"].wanted) == (True, True, False)
    assert snapshots["nvidia"].library_version == "12.1"
    assert snapshots["nvidia"].worker_restarts == {"hang": 2}
    assert snapshots["amd"].reason == "no library"
    assert host.world.workers_abandoned == 3
    assert host.world.series_dropped == {"gpu_info": 1}


def test_a_provider_that_nobody_asked_for_is_wanted_once_it_was_up_or_pci_shows_devices_of_it() -> None:
    host = Host()
    host.fleet.provider_status("amd", up=False, reason="no library", library_version=None)
    host.fleet.expected("amd", 0)
    assert not host.fleet.is_wanted("amd")
    host.fleet.provider_status("amd", up=True, reason="", library_version="26.0")
    host.fleet.provider_status("amd", up=False, reason="the driver is gone", library_version="26.0")
    host.fleet.expected("simulated", 1)
    for name in ("nvidia", "amd", "simulated"):
        assert host.fleet.is_wanted(name)
    assert all(snapshot.wanted for snapshot in host.world.snapshots)


def test_durations_and_time_stamps_are_taken_over_once_a_second() -> None:
    host = Host(card(1))
    host.read(card(1), Group.ENERGY, power_watts=1.0)
    first = host.world
    for _ in range(9):
        host.wait(0.1)
        host.read(card(1), Group.ENERGY, power_watts=1.0)
        host.fleet.pass_took("nvidia", Group.ENERGY, host.now / 1e6)
        assert host.world.versions["exporter"] == first.versions["exporter"]
    host.wait(0.2)
    snapshot = host.world.snapshots[0]
    assert snapshot.sample_duration_seconds == {"energy": (host.now - 0.2) / 1e6}
    assert snapshot.last_sample_timestamp == pytest.approx(WALL + host.now - 0.2, abs=0.01)
    assert host.world.versions["exporter"] == first.versions["exporter"] + 1


def test_the_first_reading_of_a_provider_is_said_at_once() -> None:
    host = Host(card(1))
    assert host.world.snapshots[0].last_sample_timestamp is None
    host.wait(0.1)
    host.read(card(1), Group.ENERGY, power_watts=1.0)
    assert host.world.snapshots[0].last_sample_timestamp == pytest.approx(host.wall + host.now, abs=0.01)


def test_a_provider_that_has_reported_nothing_says_why() -> None:
    snapshot = Host().world.snapshots[1]
    assert (snapshot.up, snapshot.devices, snapshot.last_sample_timestamp) == (False, (), None)
    assert snapshot.reason


def test_the_number_of_devices_that_answer_belongs_to_the_exporter_block() -> None:
    host = Host(card(1), card(2))
    before = host.versions
    host.give(Sample(device=card(1), lost=True))
    assert host.bumped(before) == {"device", "exporter"}


POD = Workload(key="pod/a/b/c", kind="pod", k8s_pod="b")
ATTRIBUTIONS = st.builds(
    Attribution,
    owners=st.sampled_from([(), (Owner(pid=1, started=5, user="ann", workload=POD),)]),
    allocations=st.sampled_from([(), (Allocation(workload=POD, device="GPU-1"),)]),
    sources=st.sampled_from([(), (SourceStatus(source="proc", up=True),), (SourceStatus(source="proc", up=False),)]),
    unplaced_processes=st.integers(0, 1),
)

STEPS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.01, 0.6, 4.0, 16.0, 40.0])),
    st.tuples(
        st.just("read"),
        st.integers(0, 3),
        st.frozensets(st.sampled_from(ALL)),
        st.fixed_dictionaries(
            {},
            optional={
                "power_watts": st.sampled_from([0.0, 300.0]),
                "energy_counter_joules": st.sampled_from([0.0, 500.0, 1e6]),
                "utilization_ratio": st.sampled_from([0.0, 1.0]),
                "temperature_celsius": st.sampled_from([{}, {"gpu": 50.0}]),
                "throttled": st.sampled_from([{}, {"idle": True}]),
                "partitions": st.sampled_from([None, (), (PartitionSample(partition="gi1", memory_used_bytes=1.0),)]),
                "processes": st.sampled_from([None, (), (ProcessSample(pid=1, started=5, memory_used_bytes=1.0),)]),
                "process_counts": st.sampled_from([{}, {"holding": 1}]),
                "failed": st.sampled_from([(), ("power_watts",)]),
                "rejected": st.sampled_from([(), ("power_watts",)]),
            },
        ),
    ),
    st.tuples(st.sampled_from(["lost", "asleep", "hang", "clear"]), st.integers(0, 3)),
    st.tuples(st.just("enumerate"), st.sampled_from(["nvidia", "amd"]), st.frozensets(st.integers(0, 3))),
    st.tuples(st.just("release"), st.booleans()),
    st.tuples(st.just("took"), st.floats(0, 1)),
    st.tuples(st.just("attribute"), ATTRIBUTIONS),
    st.tuples(st.just("look")),
)


def play(host: Host, step: tuple[object, ...]) -> None:
    match step:
        case ("wait", seconds):
            host.wait(seconds)
        case ("read", number, groups, values):
            host.read(card(number), *groups, **values)
        case ("lost" | "asleep" as what, number):
            host.give(Sample(device=card(number), **{what: True}))
        case ("hang", number):
            host.fleet.device_state("nvidia", f"GPU-{number}", GpuState.HUNG)
        case ("clear", number):
            host.fleet.device_state("nvidia", f"GPU-{number}", GpuState.OK)
        case ("enumerate", provider, numbers):
            host.fleet.enumerated(provider, tuple(map(card, numbers)), host.now)
        case ("release", flag):
            host.fleet.released(flag, host.now)
        case ("attribute", attribution):
            host.fleet.attributed(attribution, host.now)
        case ("took", seconds):
            host.fleet.pass_took("nvidia", Group.LOAD, seconds)


@settings(deadline=None, max_examples=200)
@given(st.lists(STEPS, max_size=40))
@example(  # to another provider and back between two looks
    [
        ("read", 3, frozenset({Group.ENERGY}), {"power_watts": 0.0}),
        ("enumerate", "nvidia", frozenset()),
        ("wait", 0.01),
        ("enumerate", "amd", frozenset({3})),
        ("asleep", 3),
        ("look",),
    ]
)
def test_a_block_whose_version_stands_looks_the_same(steps: list[tuple[object, ...]]) -> None:
    host = Host(card(1), card(2))
    before = host.world
    for step in steps:
        play(host, step)
        if step[0] not in ("wait", "look"):
            continue
        after = host.world
        old, new = view(before), view(after)
        for block, version in after.versions.items():
            assert version >= before.versions[block]
            if version == before.versions[block]:
                assert old[block] == new[block], (block, step)
        before = after


@settings(deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_totals_never_fall_whatever_happens(steps: list[tuple[object, ...]]) -> None:
    host = Host(card(1), card(2))
    before: dict[tuple[str, str], float] = {}
    for step in steps:
        play(host, step)
        now: dict[tuple[str, str], float] = {}
        for gpu, shown in host.cards.items():
            now[gpu, "busy"] = shown.busy_seconds or 0.0
            if shown.energy is not None:
                now[gpu, "total"] = shown.energy.total_joules
                now[gpu, "gap"] = shown.energy.gap_seconds
                now[gpu, "unattributed"] = shown.unattributed_joules or 0.0
        assert all(now[name] >= value for name, value in before.items())
        before = now


@settings(deadline=None)
@given(
    st.permutations(range(6)), st.lists(st.lists(st.floats(0, 700), min_size=6, max_size=6), min_size=1, max_size=20)
)
def test_the_order_in_which_devices_report_is_irrelevant(order: list[int], rows: list[list[float]]) -> None:
    def world(numbers: list[int]) -> World:
        fleet = Fleet([("nvidia", True)], SamplingConfig())
        fleet.enumerated("nvidia", tuple(card(number) for number in numbers), 0.0)
        for second, watts in enumerate(rows):
            for number in numbers:
                given_ = Sample(
                    device=card(number),
                    taken_at={Group.ENERGY: float(second), Group.LOAD: float(second)},
                    power_watts=watts[number],
                    energy_counter_joules=700.0 * second,
                    utilization_ratio=0.5,
                )
                fleet.observed("nvidia", given_, second + 0.1, WALL + second)
        return fleet.world(len(rows))

    assert world(order) == world(sorted(order))
