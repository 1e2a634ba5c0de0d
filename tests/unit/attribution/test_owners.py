"""Every runtime of the fixture hosts, through the files of its /proc and /var/log/pods."""

from pathlib import Path

import pytest

from exporter.attribution.merge import merge
from exporter.attribution.pod_logs import PodLogs
from exporter.attribution.proc import Proc
from exporter.attribution.source import Findings, Grant, Held, Pod, Process, Question
from exporter.attribution.workloads import pod
from exporter.model import Attribution, Device
from tests.unit.attribution import hosts
from tests.unit.attribution.hosts import CASES, Case, write_host, write_pod_logs, write_process

GPU = Device(vendor="nvidia", key="GPU-1")
PID = 4242


def ask(*processes: Process) -> Question:
    return Question(held=(Held(device=GPU, processes=processes),))


def answer(root: Path, question: Question, *findings: Findings) -> Attribution:
    sights = Proc(str(root / "proc"), str(root)).look(question)
    return merge(question, sights, findings, ())


@pytest.mark.parametrize("case", CASES, ids=[case.runtime for case in CASES])
def test_process_is_placed(case: Case, tmp_path: Path) -> None:
    proc, logs = write_host(tmp_path), write_pod_logs(tmp_path)
    write_process(proc, PID, case.cgroup, uid=case.uid)
    question = ask(Process(PID, 5000))

    given = answer(tmp_path, question, PodLogs(str(logs), expected=True).look(question))

    (owner,) = given.owners
    assert (owner.pid, owner.started, owner.name) == (PID, 5000, "python3")
    assert (owner.workload.key if owner.workload else None) == case.key
    assert given.unplaced_processes == (case.key is None)


def test_what_is_known_of_a_pod(tmp_path: Path) -> None:
    proc, logs = write_host(tmp_path), write_pod_logs(tmp_path)
    write_process(proc, PID, f"0::/kubepods/pod{hosts.UID}/{hosts.ID}\n", uid=1001)
    question = ask(Process(PID, 5000))

    (owner,) = answer(tmp_path, question, PodLogs(str(logs), expected=True).look(question)).owners

    assert owner.user == "bob"
    assert owner.workload is not None
    assert owner.workload.kind == "pod"
    assert (owner.workload.k8s_namespace, owner.workload.k8s_pod, owner.workload.k8s_container) == (
        *("team-a", "trainer-0"),
        "main",
    )
    assert (owner.workload.pod_uid, owner.workload.container_id) == (hosts.UID, hosts.ID)


def test_quadlet_keeps_its_unit(tmp_path: Path) -> None:
    proc = write_host(tmp_path)
    write_process(proc, PID, f"0::/system.slice/llm.service/libpod-payload-{hosts.ID}\n")

    (owner,) = answer(tmp_path, ask(Process(PID, 5000))).owners

    assert owner.workload is not None
    assert (owner.workload.systemd_unit, owner.workload.container_id) == ("llm.service", hosts.ID)


def pod_in(container_id: str = hosts.ID) -> str:
    return f"0::/kubepods/pod{hosts.UID}/{container_id}\n"


def grant(container: str) -> Grant:
    # As the kubelet tells it: names, and neither uid nor container id.
    return Grant(workload=pod("team-a", "trainer-0", container), device="GPU-1")


def test_process_and_allocation_meet_by_the_single_container_that_was_granted(tmp_path: Path) -> None:
    write_process(write_host(tmp_path), PID, pod_in())
    names = Findings(pods={hosts.UID: Pod("team-a", "trainer-0", ("main", "sidecar"))})

    given = answer(tmp_path, ask(Process(PID, 5000)), Findings(grants=(grant("main"),)), names)

    (owner,), (allocation,) = given.owners, given.allocations
    assert owner.workload == allocation.workload
    assert allocation.workload.key == "pod/team-a/trainer-0/main"
    assert (allocation.workload.pod_uid, allocation.workload.container_id) == (hosts.UID, hosts.ID)


def test_process_and_allocation_meet_by_the_name_of_the_container(tmp_path: Path) -> None:
    write_process(write_host(tmp_path), PID, pod_in())
    names = Findings(pods={hosts.UID: Pod("team-a", "trainer-0")}, containers={hosts.ID: "sidecar"})

    given = answer(tmp_path, ask(Process(PID, 5000)), Findings(grants=(grant("main"), grant("sidecar"))), names)

    (owner,) = given.owners
    assert owner.workload is not None
    assert owner.workload.key == "pod/team-a/trainer-0/sidecar"
    assert owner.workload in [allocation.workload for allocation in given.allocations]


def test_of_two_granted_containers_none_is_guessed(tmp_path: Path) -> None:
    write_process(write_host(tmp_path), PID, pod_in())
    names = Findings(pods={hosts.UID: Pod("team-a", "trainer-0", ("main", "sidecar"))})

    given = answer(tmp_path, ask(Process(PID, 5000)), Findings(grants=(grant("main"), grant("sidecar"))), names)

    (owner,) = given.owners
    assert owner.workload is not None
    assert owner.workload.key == "pod/team-a/trainer-0"
