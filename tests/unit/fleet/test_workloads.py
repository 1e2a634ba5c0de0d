"""Who is charged for what a device uses, from the first sight of a workload until it is forgotten."""

from typing import Any

import msgspec
import pytest

from exporter.config import AttributionConfig, SamplingConfig
from exporter.fleet import Fleet
from exporter.fleet.record import MOST_WORKLOADS, MOST_WORKLOADS_IN_ALL, FleetRecord, impossible
from exporter.fleet.tenancy import EVICT_SECONDS, MOST_CHARACTERS, RESTART_SECONDS
from exporter.model import Allocation, Attribution, Group, PartitionSample, SourceStatus, WorkloadSnapshot, World
from tests.unit.fleet.hosts import WALL, Host, card
from tests.unit.fleet.tenants import attribution, grant, owner, pod, process

GPU = card(1)
LINGER = AttributionConfig().linger_seconds


def run(host: Host, seconds: int, watts: float = 400.0, load: float | None = 1.0, **fields: Any) -> None:
    """Let the GPU draw so many watts, read each second."""
    for _ in range(seconds):
        host.wait(1.0)
        host.read(
            GPU, Group.ENERGY, Group.LOAD, power_watts=watts, power_kind="average", utilization_ratio=load, **fields
        )


def running(*claims: Any, idle: int = 0) -> Host:
    """Return a host of which it is known who uses it, read once, after so many seconds at 100 W without load."""
    host = Host(GPU)
    run(host, 1)
    host.fleet.attributed(attribution(*claims), host.now)
    run(host, idle, 100.0, 0.0)
    return host


def passes(host: Host, *processes: Any, **fields: Any) -> None:
    host.read(GPU, Group.PROCESSES, processes=processes, **fields)


def workloads(host: Host) -> dict[str, WorkloadSnapshot]:
    """By name of the pod."""
    return {one.workload.k8s_pod: one for one in host.cards["nvidia0"].workloads}


def charged(host: Host) -> dict[str, tuple[float | None, float | None]]:
    """Active and idle joules by name of the pod, whole ones."""
    return {
        name: (one.active_joules and round(one.active_joules, 6), one.idle_joules and round(one.idle_joules, 6))
        for name, one in workloads(host).items()
    }


def rest(host: Host) -> float | None:
    return host.cards["nvidia0"].unattributed_joules


def test_nothing_is_divided_until_a_source_tells_something() -> None:
    host = Host(GPU)
    run(host, 3)
    assert rest(host) is None
    down = Attribution(sources=(SourceStatus(source="kubelet", up=False, reason="no socket"),))
    host.fleet.attributed(down, host.now)
    run(host, 3)
    assert rest(host) is None
    host.fleet.attributed(attribution(), host.now)
    assert rest(host) == 0.0
    run(host, 3)
    assert rest(host) == pytest.approx(1_200)
    host.fleet.attributed(down, host.now)  # a counter that is there stays
    run(host, 3)
    assert rest(host) == pytest.approx(2_400)


def test_without_readings_of_energy_there_are_seconds_and_no_joules() -> None:
    host = Host(GPU)
    host.fleet.attributed(attribution(grant("a")), host.now)
    for _ in range(5):
        host.wait(1.0)
        host.read(GPU, Group.LOAD, utilization_ratio=0.5)
    assert rest(host) is None
    shown = workloads(host)["a"]
    assert (shown.active_joules, shown.idle_joules) == (None, None)
    assert shown.allocated_seconds == pytest.approx(5, abs=0.01)
    assert shown.busy_seconds == pytest.approx(2)


def test_a_workload_begins_at_0_and_is_charged_from_the_next_step() -> None:
    host = running()
    run(host, 5)
    host.fleet.attributed(attribution(grant("a")), host.now)
    assert charged(host) == {"a": (0.0, 0.0)}
    assert workloads(host)["a"].start_timestamp == pytest.approx(WALL + host.now)
    assert rest(host) == pytest.approx(2_000)
    run(host, 5)
    assert charged(host) == {"a": (2_000.0, 0.0)}
    assert rest(host) == pytest.approx(2_000)


def test_a_workload_that_a_pass_shows_first_is_charged_from_the_step_after_it() -> None:
    host = running(owner(7, "a"))
    run(host, 5)
    host.wait(1.0)
    everything = (Group.ENERGY, Group.LOAD, Group.PROCESSES)
    host.read(GPU, *everything, power_watts=400.0, utilization_ratio=1.0, processes=(process(7, 1.0),))
    assert charged(host) == {"a": (0.0, 0.0)}
    run(host, 1)
    assert charged(host) == {"a": (400.0, 0.0)}


def test_the_idle_part_is_the_lowest_power_at_zero_load() -> None:
    host = running(grant("a"), idle=21)
    assert charged(host)["a"] == (0.0, pytest.approx(2_250))  # the first second began at 400 W
    run(host, 11, 400.0, 1.0)
    active, idle = charged(host)["a"]
    assert (active, idle) == (pytest.approx(3_150), pytest.approx(2_250 + 1_100))


def test_a_step_has_the_load_that_is_read_after_it() -> None:
    host = running(grant("a"), idle=20)
    before = charged(host)["a"][1] or 0.0
    for _ in range(9):
        host.wait(0.1)
        host.read(GPU, Group.ENERGY, power_watts=400.0)
    host.wait(0.1)
    host.read(GPU, Group.ENERGY, Group.LOAD, power_watts=400.0, utilization_ratio=1.0)
    active, idle = charged(host)["a"]
    assert (active, idle) == (pytest.approx(385 - 100), pytest.approx(before + 100))


def test_before_any_zero_load_all_of_a_loaded_step_is_active() -> None:
    host = running(grant("a"))
    run(host, 10, 400.0, 0.3)
    assert charged(host) == {"a": (4_000.0, 0.0)}


def test_work_is_shared_by_what_was_measured() -> None:
    host = running(owner(7, "a"), owner(8, "b"), owner(9, "b"))
    passes(host, process(7, 0.3), process(8, 0.1), process(9, 0.2))
    run(host, 10)
    assert charged(host) == {"a": (2_000.0, 0.0), "b": (2_000.0, 0.0)}
    assert [one.busy_seconds for one in workloads(host).values()] == pytest.approx([5, 5])
    passes(host, process(7, 0.0), process(8, 0.5), process(9, 0.0))
    run(host, 10)
    assert charged(host) == {"a": (2_000.0, 0.0), "b": (6_000.0, 0.0)}
    assert rest(host) == pytest.approx(0, abs=1e-9)


def test_memory_says_nothing_about_work() -> None:
    host = running(owner(7, "a"), owner(8, "b"))
    passes(host, process(7, None, 70e9), process(8, None, 1e9))
    run(host, 10)
    assert charged(host) == {"a": (0.0, 0.0), "b": (0.0, 0.0)}
    assert rest(host) == pytest.approx(4_000)


def test_what_a_process_did_that_could_not_be_placed_is_nobodys() -> None:
    for unplaced in ([], [owner(8, None)]):
        host = running(owner(7, "a"), *unplaced)
        passes(host, process(7, 0.6), process(8, 0.2))
        run(host, 10)
        assert charged(host) == {"a": (3_000.0, 0.0)}
        assert rest(host) == pytest.approx(1_000)


def test_a_sole_tenant_gets_it_all_measured_or_not() -> None:
    for busy in (None, 0.0, 0.4):
        host = running(owner(7, "a"), owner(8, "a"))
        passes(host, process(7, busy), process(8, None))
        run(host, 10)
        assert charged(host) == {"a": (4_000.0, 0.0)}


def test_idle_power_goes_to_whoever_holds_the_gpu_and_work_to_whoever_does_it() -> None:
    host = running(grant("holder"), owner(7, "worker"), idle=20)
    passes(host, process(7, 1.0))
    before = charged(host)["holder"][1] or 0.0
    run(host, 10, 400.0, 1.0)
    active, idle = charged(host)["holder"]
    assert (active, idle) == (0.0, pytest.approx(before + 1_000))
    assert charged(host)["worker"] == (pytest.approx(2_850), 0.0)


def test_without_an_allocation_the_idle_part_is_nobodys() -> None:
    host = running(owner(7, "a"))
    passes(host, process(7, 0.0))
    run(host, 20, 100.0, 0.0)
    assert charged(host) == {"a": (0.0, 0.0)}
    assert rest(host) == pytest.approx(2_150)


def test_a_gpu_that_is_shared_is_held_in_shares() -> None:
    host = running(grant("a", share=0.5), grant("b", share=0.25), idle=10)
    assert {name: one.allocation_ratio for name, one in workloads(host).items()} == {"a": 0.5, "b": 0.25}
    assert charged(host) == {"a": (0.0, 575.0), "b": (0.0, 287.5)}
    assert rest(host) == pytest.approx(287.5)
    assert workloads(host)["b"].allocated_seconds == pytest.approx(2.5, abs=0.01)


def test_more_than_was_there_to_give_is_charged_once() -> None:
    host = running(grant("a"), grant("b"), idle=10)
    assert charged(host) == {"a": (0.0, 575.0), "b": (0.0, 575.0)}
    assert rest(host) == 0


def test_an_idle_holder_is_seen() -> None:
    host = running(grant("a"), owner(7, "b"))
    passes(host, process(7, 1.0))
    run(host, 10)
    idler = workloads(host)["a"]
    assert (idler.allocation_ratio, idler.busy_seconds, idler.active_joules) == (1.0, 0.0, 0.0)
    assert idler.allocated_seconds == pytest.approx(10, abs=0.01)


MIG = (
    PartitionSample(partition="gi1", memory_size_bytes=40e9),
    PartitionSample(partition="gi2", memory_size_bytes=10e9),
)


def partitioned(*parts: PartitionSample, **fields: Any) -> Host:
    host = Host(GPU)
    host.read(GPU, Group.STATE, partitions=parts)
    run(host, 1, memory_size_bytes=80e9, **fields)
    return host


def test_an_instance_is_a_share_of_the_gpu_by_its_memory() -> None:
    host = partitioned(*MIG)
    host.fleet.attributed(attribution(grant("a", partition="gi1"), grant("b", partition="gi2", share=0.5)), host.now)
    assert {name: one.allocation_ratio for name, one in workloads(host).items()} == {"a": 0.5, "b": 0.0625}
    host.read(GPU, Group.STATE, partitions=MIG[1:])
    host.wait(0.01)
    assert {name: one.allocation_ratio for name, one in workloads(host).items()} == {"a": None, "b": 0.0625}


def test_partitions_that_share_memory_are_alike() -> None:
    for size in (192e9, None):
        parts = tuple(PartitionSample(partition=str(number), memory_size_bytes=size) for number in range(8))
        host = partitioned(*parts)
        host.fleet.attributed(attribution(grant("a", partition="3")), host.now)
        assert workloads(host)["a"].allocation_ratio == 0.125


def test_work_in_partitions_is_shared_by_what_was_measured_of_each() -> None:
    measured = (
        PartitionSample(partition="0", memory_size_bytes=1e9, utilization_ratio=0.9),
        PartitionSample(partition="1", memory_size_bytes=1e9, utilization_ratio=0.3),
    )
    claims = attribution(owner(7, "a"), grant("b", partition="1"))
    host = partitioned(*measured, load=None)
    host.fleet.attributed(claims, host.now)
    passes(host, process(7, partition="0"))
    run(host, 8, load=None)
    assert charged(host) == {"a": (3_200.0, 0.0), "b": (0.0, 0.0)}  # the only one that runs anything
    host.read(GPU, Group.STATE, partitions=measured)
    passes(host, process(7, partition="0"), process(8, partition="1"))
    run(host, 10, load=None)
    assert charged(host) == {"a": (6_200.0, 0.0), "b": (0.0, 0.0)}
    assert rest(host) == pytest.approx(1_000)  # process 8 could not be placed


def test_work_in_partitions_that_was_not_measured_is_nobodys_unless_one_is_alone() -> None:
    host = partitioned(*MIG, load=None)
    host.fleet.attributed(attribution(owner(7, "a"), owner(8, "b")), host.now)
    passes(host, process(7, partition="gi1"), process(8, partition="gi2"))
    run(host, 5, load=None)
    assert charged(host) == {"a": (0.0, 0.0), "b": (0.0, 0.0)}
    passes(host, process(7, partition="gi1"))
    run(host, 5, load=None)
    assert charged(host) == {"a": (2_000.0, 0.0), "b": (0.0, 0.0)}


def test_where_no_load_is_told_it_is_0_while_nobody_runs_anything() -> None:
    host = partitioned(*MIG, load=None)
    host.fleet.attributed(
        attribution(owner(7, "a"), grant("a", partition="gi1"), grant("b", partition="gi2")), host.now
    )
    passes(host)
    run(host, 8, 400.0, load=None, memory_size_bytes=80e9)
    assert charged(host) == {"a": (0.0, 1_600.0), "b": (0.0, 400.0)}
    passes(host, process(7, partition="gi1"))
    run(host, 1, 400.0, load=None, memory_size_bytes=80e9)
    assert charged(host) == {"a": (400.0, 1_600.0), "b": (0.0, 400.0)}


def test_a_recycled_pid_is_not_its_predecessor() -> None:
    host = running(owner(7, "a"))
    passes(host, process(7, 1.0))
    run(host, 5)
    passes(host, process(7, 1.0, started=900))
    run(host, 5)
    assert charged(host) == {"a": (2_000.0, 0.0)}
    host.fleet.attributed(attribution(owner(7, "b", started=900)), host.now)
    run(host, 5)
    assert charged(host) == {"a": (2_000.0, 0.0), "b": (2_000.0, 0.0)}


def test_a_process_of_unknown_start_has_no_owner() -> None:
    host = running(owner(7, "a"))
    passes(host, process(7, 1.0, started=None))
    run(host, 5)
    assert charged(host) == {}


def test_old_processes_are_nobody() -> None:
    host = running(owner(7, "a"))
    passes(host, process(7, 1.0))
    run(host, 60)
    assert charged(host)["a"] == (pytest.approx(12_000), 0.0)
    host = running(owner(7, "a"))
    passes(host, process(7, 1.0))
    host.wait(600.0)
    accumulated = {"power_watts": 400.0, "utilization_ratio": 1.0}
    host.read(GPU, Group.ENERGY, Group.LOAD, Group.PROCESSES, processes=(process(7, 1.0),), **accumulated)
    assert charged(host) == {"a": (0.0, 0.0)}


def test_where_nobody_can_look_whoever_was_given_the_whole_gpu_works_there() -> None:
    host = running(grant("a"))
    host.read(GPU, Group.PROCESSES, processes=None)
    run(host, 5)
    assert charged(host) == {"a": (2_000.0, 0.0)}
    host = running(grant("a", share=0.5))
    host.read(GPU, Group.PROCESSES, processes=None)
    run(host, 5)
    assert charged(host) == {"a": (0.0, 0.0)}


def test_a_workload_that_is_gone_is_shown_for_a_time_and_then_begins_anew() -> None:
    host = running(grant("a"))
    run(host, 5)
    host.fleet.attributed(attribution(), host.now)
    run(host, int(LINGER) - 1)
    assert charged(host) == {"a": (2_000.0, 0.0)}
    assert workloads(host)["a"].allocation_ratio is None
    before = rest(host)
    run(host, 2)
    assert charged(host) == {}
    assert rest(host) == pytest.approx((before or 0.0) + 800)
    host.fleet.attributed(attribution(grant("a")), host.now)
    assert charged(host) == {"a": (0.0, 0.0)}


def test_a_workload_is_forgotten_though_nothing_else_happens() -> None:
    host = running(grant("a"))
    host.fleet.attributed(attribution(), host.now)
    assert set(workloads(host)) == {"a"}
    before = host.versions
    host.wait(LINGER)
    assert set(workloads(host)) == set()
    assert {"energy", "workloads"} <= host.bumped(before)


def test_one_that_comes_back_in_time_goes_on() -> None:
    host = running(grant("a"))
    run(host, 5)
    host.fleet.attributed(attribution(), host.now)
    run(host, 100)
    host.fleet.attributed(attribution(grant("a")), host.now)
    run(host, 200)
    assert charged(host) == {"a": (82_000.0, 0.0)}


def test_there_is_room_for_so_many_and_the_others_are_counted() -> None:
    many = [grant(f"pod-{number:03}", share=0.01) for number in range(MOST_WORKLOADS + 6)]
    host = running(*many)
    assert len(workloads(host)) == MOST_WORKLOADS
    assert host.world.series_dropped == {"gpu_workload_info": 6}
    run(host, 10, 100.0, 0.0)
    assert rest(host) == pytest.approx(1_150 * (1 - 0.01 * MOST_WORKLOADS))
    host.fleet.attributed(attribution(*many[6:]), host.now)
    assert {grant_.workload.k8s_pod for grant_ in many[:6]} <= set(
        workloads(host)
    )  # not every scraper has seen the last
    assert host.world.series_dropped == {"gpu_workload_info": 6}
    run(host, round(EVICT_SECONDS), 100.0, 0.0)
    host.fleet.attributed(attribution(*many[6:], unplaced_devices=1), host.now)  # those that are gone make room
    assert set(workloads(host)) == {grant_.workload.k8s_pod for grant_ in many[6:]}
    assert host.world.series_dropped == {}


def test_there_is_room_for_so_many_on_all_gpus_together() -> None:
    count = MOST_WORKLOADS_IN_ALL // MOST_WORKLOADS + 1
    host = Host(*(card(number) for number in range(count)))
    everywhere = [grant(f"pod-{n:02}", number) for number in range(count) for n in range(MOST_WORKLOADS)]
    host.fleet.attributed(attribution(*everywhere), host.now)
    assert sum(len(shown.workloads) for shown in host.cards.values()) == MOST_WORKLOADS_IN_ALL
    assert host.world.series_dropped == {"gpu_workload_info": MOST_WORKLOADS}
    assert impossible(host.fleet.record(host.now), host.now) is None
    host.fleet.attributed(attribution(*everywhere[MOST_WORKLOADS:]), host.now)
    host.wait(LINGER)
    assert host.cards["nvidia0"].workloads == ()
    host.fleet.attributed(attribution(*everywhere[MOST_WORKLOADS:], unplaced_devices=1), host.now)
    assert host.world.series_dropped == {}


def test_a_key_that_the_page_would_cut_is_left_out() -> None:
    host = running(grant("a" * MOST_CHARACTERS))
    assert workloads(host) == {}
    assert host.world.series_dropped == {"gpu_workload_info": 1}


def test_a_workload_has_an_account_on_each_gpu() -> None:
    host = Host(card(1), card(2))
    host.fleet.attributed(attribution(grant("a"), grant("a", 2), grant("b", 2)), host.now)
    assert [[one.workload.k8s_pod for one in shown.workloads] for shown in host.cards.values()] == [["a"], ["a", "b"]]


def test_a_gpu_that_appears_later_is_divided_from_its_first_sight() -> None:
    host = Host()
    host.fleet.attributed(attribution(grant("a")), host.now)
    host.fleet.enumerated("nvidia", (GPU,), host.now)
    run(host, 6)
    assert charged(host) == {"a": (2_000.0, 0.0)}


def restarted(host: Host, config: AttributionConfig | None = None) -> Host:
    """Return the host after a restart that took 10 s."""
    record: FleetRecord = host.fleet.record(host.now)
    after = Host(now=host.now + 10.0)
    if config is not None:
        after.fleet = Fleet([("nvidia", True)], after.fleet._sampling, attribution=config)
    after.fleet.restore(record, after.now)
    after.fleet.enumerated("nvidia", (GPU,), after.now)
    return after


def test_accounts_go_on_over_a_restart() -> None:
    host = running(grant("a"), idle=20)
    run(host, 5)
    before, nobody = workloads(host)["a"], rest(host)
    after = restarted(host)
    kept = workloads(after)["a"]
    assert (kept.active_joules, kept.idle_joules) == (before.active_joules, before.idle_joules)
    assert (kept.allocated_seconds, kept.start_timestamp) == (before.allocated_seconds, before.start_timestamp)
    assert rest(after) == nobody
    run(after, 2)
    assert rest(after) == pytest.approx((nobody or 0.0) + 400)  # nobody is known to be there yet, and a gap before
    after.fleet.attributed(attribution(grant("a")), after.now)
    run(after, 1)
    assert charged(after)["a"] == (
        pytest.approx((before.active_joules or 0.0) + 300),  # at the idle power that the journal kept
        pytest.approx((before.idle_joules or 0.0) + 100),
    )
    assert (workloads(after)["a"].busy_seconds or 0.0) > (before.busy_seconds or 0.0)


def test_accounts_of_workloads_that_do_not_come_back_are_forgotten() -> None:
    host = running(grant("a"))
    run(host, 5)
    after = restarted(host)
    after.wait(LINGER - 1)
    assert set(workloads(after)) == {"a"}
    after.wait(1)
    assert set(workloads(after)) == set()


def test_accounts_wait_after_a_restart_until_it_can_be_known_who_is_there() -> None:
    host = restarted(running(grant("a"), grant("b"), idle=30), AttributionConfig(linger_seconds=0))
    before = workloads(host)
    assert set(before) == {"a", "b"}
    host.wait(RESTART_SECONDS - 1)
    host.fleet.attributed(attribution(grant("a")), host.now)
    assert set(workloads(host)) == {"a", "b"}
    assert workloads(host)["a"].idle_joules == before["a"].idle_joules
    host.wait(1)
    assert set(workloads(host)) == {"a"}
    host.fleet.attributed(attribution(), host.now)
    assert workloads(host) == {}


def test_accounts_wait_as_long_for_a_device_that_a_driver_is_slow_to_list() -> None:
    host = running(grant("a"))
    run(host, 5)
    after = Host(now=host.now)
    after.fleet = Fleet([("nvidia", True)], SamplingConfig(), attribution=AttributionConfig(linger_seconds=0))
    after.fleet.restore(host.fleet.record(host.now), after.now)
    for waited, count in ((RESTART_SECONDS, 1), (RESTART_SECONDS + 1, 0)):
        (kept,) = after.fleet.record(after.now + waited).cards
        assert kept.tenancy is not None
        assert len(kept.tenancy.workloads) == count


def test_of_a_device_that_does_not_come_back_only_the_rest_is_kept() -> None:
    host = running(grant("a"))
    run(host, 5)
    gone = Host(now=host.now)
    gone.fleet.restore(host.fleet.record(host.now), host.now)
    for seconds, kept in ((LINGER, 1), (1.0, 0)):
        gone.wait(seconds)
        (one,) = gone.fleet.record(gone.now).cards
        assert one.tenancy is not None
        assert len(one.tenancy.workloads) == kept


def test_without_attribution_nothing_of_it_is_taken_over() -> None:
    host = running(grant("a"))
    run(host, 5)
    after = restarted(host, AttributionConfig(enabled=False))
    run(after, 5)
    assert rest(after) is None
    assert workloads(after) == {}


def test_what_is_known_of_the_sources_is_on_the_page_when_it_changes() -> None:
    host = Host(GPU)
    world: World = host.world
    assert world.attribution is None
    for change in (attribution(), attribution(unplaced_devices=2), attribution(unplaced_processes=3)):
        before = host.versions
        host.fleet.attributed(change, host.now)
        assert "exporter" in host.bumped(before)
        assert host.world.attribution == change
        before = host.versions
        host.fleet.attributed(change, host.now)
        assert host.bumped(before) == set()


def test_an_identity_that_becomes_known_later_is_taken_over() -> None:
    host = running(grant("a"))
    known = msgspec.structs.replace(pod("a"), pod_uid="1234")
    host.fleet.attributed(attribution(Allocation(workload=known, device="GPU-1")), host.now)
    (shown,) = host.cards["nvidia0"].workloads
    assert shown.workload.pod_uid == "1234"
