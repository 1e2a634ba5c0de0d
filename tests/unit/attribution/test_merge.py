"""Grants and owners of random hosts, put together."""

import string
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution import workloads
from exporter.attribution.cgroup import Level, Place, parse
from exporter.attribution.frames import packed, unpacked
from exporter.attribution.merge import MOST_WORKLOADS, merge
from exporter.attribution.proc import Sights
from exporter.attribution.processes import Seen
from exporter.attribution.source import Findings, Grant, Held, Pod, Process, Question
from exporter.model import Device, PartitionSample, SourceStatus, Workload
from tests.unit.attribution import hosts

DEVICES = ("GPU-a", "GPU-b")
PARTITIONS = ("gi1", "gi2")
QUESTION = Question(
    held=tuple(
        Held(
            device=Device(vendor="nvidia", key=key),
            partitions=tuple(PartitionSample(partition=name) for name in PARTITIONS),
        )
        for key in DEVICES
    )
)


def slurm_grant(job: str, device: str = "GPU-a", partition: str | None = None, *, running: bool = True) -> Grant:
    return Grant(workload=workloads.slurm(job), device=device, partition=partition, running=running)


def shares(*grants: Grant) -> dict[str, float]:
    given = merge(QUESTION, Sights(), [Findings(grants=grants)], ())
    return {allocation.workload.key: allocation.share for allocation in given.allocations}


def test_shares() -> None:
    assert shares(slurm_grant("1")) == {"slurm/1": 1.0}
    assert shares(slurm_grant("1"), slurm_grant("2")) == {"slurm/1": 0.5, "slurm/2": 0.5}
    assert shares(slurm_grant("1", partition="gi1"), slurm_grant("2", partition="gi2")) == {"slurm/1": 1, "slurm/2": 1}


def test_what_has_ended_yields_to_what_runs() -> None:
    assert shares(slurm_grant("1", running=False), slurm_grant("2")) == {"slurm/2": 1.0}
    assert shares(slurm_grant("1", running=False)) == {"slurm/1": 1.0}
    assert shares(slurm_grant("1", running=False), slurm_grant("2", "GPU-b")) == {"slurm/1": 1.0, "slurm/2": 1.0}


def test_two_sources_that_tell_the_same_share_nothing() -> None:
    first = Findings(grants=(Grant(workload=workloads.slurm("1", account="physics"), device="GPU-a"),))
    second = Findings(grants=(Grant(workload=workloads.slurm("1", user="ada", account="other"), device="GPU-a"),))
    (allocation,) = merge(QUESTION, Sights(), [first, second], ()).allocations
    assert allocation.share == 1.0
    assert (allocation.workload.slurm_account, allocation.workload.slurm_user) == ("physics", "ada")


def test_grants_of_what_is_not_there_are_counted() -> None:
    found = Findings(grants=(slurm_grant("1", "GPU-z"), slurm_grant("2", "GPU-z"), slurm_grant("3", partition="gi9")))
    given = merge(QUESTION, Sights(), [found, Findings(unplaced_devices=3)], ())
    assert given.allocations == ()
    assert given.unplaced_devices == 5


def test_processes_that_are_not_placed_are_counted() -> None:
    placed, unknown, denied, ended = (Process(pid, 1) for pid in range(4))
    seen = {
        placed: Seen(pid=0, started=1, name="a", uid=0, place=Place(level=Level.SERVICE, unit="a.service")),
        unknown: Seen(pid=1, started=1, name="b", uid=0, place=None),
    }
    held = Held(device=Device(vendor="nvidia", key="GPU-a"), processes=(placed, unknown, denied, ended))
    again = Held(device=Device(vendor="nvidia", key="GPU-b"), processes=(placed, unknown))
    sights = Sights(seen=seen, users={0: "root"}, ended=frozenset({ended}))

    given = merge(Question(held=(held, again)), sights, [], ())

    assert [(owner.pid, owner.user) for owner in given.owners] == [(0, "root"), (1, "root")]
    assert given.unplaced_processes == 2


def test_a_process_of_which_nobody_could_tell_the_start_is_not_placed() -> None:
    # The pid may have been given to another one since the driver was asked.
    unsure = Process(7)
    seen = {unsure: Seen(pid=7, started=1, name="a", uid=0, place=Place(level=Level.SERVICE, unit="a.service"))}
    held = Held(device=Device(vendor="nvidia", key="GPU-a"), processes=(unsure,))
    given = merge(Question(held=(held,)), Sights(seen=seen, users={0: "root"}), [], ())
    assert given.unplaced_processes == 1


def test_what_was_seen_of_an_earlier_question_is_left_out() -> None:
    gone = Process(9, 1)
    seen = {gone: Seen(pid=9, started=1, name="a", uid=0, place=Place(level=Level.ROOT))}
    given = merge(QUESTION, Sights(seen=seen, users={0: "root"}), [], ())
    assert (given.owners, given.unplaced_processes) == ((), 0)


def test_workloads_are_bounded() -> None:
    given = merge(QUESTION, Sights(), [Findings(grants=tuple(slurm_grant(str(n)) for n in range(5000)))], ())
    assert len(given.allocations) == MOST_WORKLOADS


names = st.sampled_from(["a", "b", "c"])
places = st.one_of(
    st.none(),
    st.builds(Place, level=st.just(Level.SLURM), slurm_job=names, uid=st.none() | st.integers(0, 2)),
    st.builds(Place, level=st.just(Level.POD), pod_uid=names, container_id=names),
    st.builds(Place, level=st.just(Level.CONTAINER), container_id=names, uid=st.none() | st.integers(0, 2)),
    st.builds(Place, level=st.just(Level.USER), uid=st.integers(0, 2)),
    st.builds(Place, level=st.just(Level.HELPER)),
)
processes = st.dictionaries(st.tuples(st.integers(1, 30), st.integers(1, 3)), places, max_size=20)
grants = st.builds(
    Grant,
    workload=st.one_of(
        st.builds(workloads.slurm, names, user=names, account=names),
        st.builds(workloads.pod, names, names, names),
    ),
    device=st.sampled_from([*DEVICES, "GPU-z"]),
    partition=st.sampled_from([None, *PARTITIONS]),
    running=st.booleans(),
)
found = st.lists(
    st.builds(
        Findings,
        grants=st.lists(grants, max_size=8).map(tuple),
        pods=st.dictionaries(names, st.builds(Pod, names, names, st.lists(names, unique=True).map(tuple))),
        containers=st.dictionaries(names, names),
    ),
    max_size=3,
)


@given(processes, found)
def test_invariants(who: dict[tuple[int, int], Place | None], findings: list[Findings]) -> None:
    asked = {Process(*key): place for key, place in who.items()}
    question = Question(held=(*QUESTION.held, Held(device=Device(vendor="amd", key="x"), processes=tuple(asked))))
    seen = {
        process: Seen(pid=process.pid, started=process.started or 0, name="n", uid=process.pid % 3, place=place)
        for process, place in asked.items()
    }
    sources = (SourceStatus(source="proc", up=True),)

    given = merge(question, Sights(seen=seen, users={0: "root", 1: "ada", 2: "bob"}), findings, sources)

    # An owner is of the process that was asked for, whoever else has had its pid.
    assert [(owner.pid, owner.started) for owner in given.owners] == [(p.pid, p.started) for p in asked]
    assert given.unplaced_processes == sum(owner.workload is None for owner in given.owners)
    # One key, one record, and what its parts say is in the key.
    records: dict[str, Workload] = {}
    for workload in [*(o.workload for o in given.owners), *(a.workload for a in given.allocations)]:
        if workload is not None:
            assert records.setdefault(workload.key, workload) == workload
    # Of each target exactly all of it is given.
    sums = Counter[tuple[str, str | None]]()
    for allocation in given.allocations:
        sums[allocation.device, allocation.partition] += allocation.share  # type: ignore[assignment] -- a share, not a count
    assert all(abs(total - 1) < 1e-9 for total in sums.values())
    assert unpacked(packed(7, given)) == given


@given(st.text(st.sampled_from([*":/.-_@0123456789abcdef\n", *string.ascii_lowercase, "é", "\0"]), max_size=200))
def test_no_text_breaks_the_parser(text: str) -> None:
    parse(text)
    parse(text, private=True)


parts = st.sampled_from(
    [
        *(
            "kubepods",
            "kubepods.slice",
            "burstable",
            f"pod{hosts.UID}",
            f"kubepods-pod{hosts.UNDERSCORED}.slice",
            hosts.ID,
        ),
        *(
            f"docker-{hosts.ID}.scope",
            f"crio-conmon-{hosts.ID}.scope",
            f"libpod-{hosts.ID}.scope",
            "docker",
            "container",
        ),
        *("user.slice", "user-1000.slice", "user@1000.service", "session-1.scope", "a.service", "slurmstepd.scope"),
        *("slurm", "uid_1000", "job_1", "step_0", "..", "system.slice", "machine.slice", "x"),
    ]
)


@given(st.lists(parts, max_size=10))
def test_what_is_said_of_a_place_stands_in_its_path(path: list[str]) -> None:
    place = parse("0::/" + "/".join(path) + "\n")
    if place is None:
        return
    if place.level is Level.POD:
        assert place.pod_uid == hosts.UID
        first = next(part for part in path if part not in ("..", "user.slice"))
        assert first not in ("user-1000.slice", "user@1000.service")
    if place.container_id:
        assert any(place.container_id in part for part in path)
    if place.level is Level.SLURM:
        assert "job_1" in path
    if place.unit:
        assert place.unit in path
    if place.level is Level.USER:
        assert place.uid == 1000
    if place.level is Level.ROOT:
        assert set(path) <= {".."}
