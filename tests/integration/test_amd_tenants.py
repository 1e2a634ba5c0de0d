"""Who uses AMD GPUs: amdsmi wheels over their C stand-ins, KFD's files beside them, and what a user may not see."""

import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration import vantage
from tests.integration.amd import Look, bare, machine, parse, run_script
from tests.integration.vantage import stranger
from tests.kernel import kernel_threads, kfd_process, process, write_kfd
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree
from tests.native.plan import write_plan

NEWEST = "7.0.2"
NOBODY = {"holding": 0, "unnamed": 0, "bystander": 0, "uninspectable": 0, "self": 0}
BYSTANDERS = [f"{{pid: {100 + n}, name: python3, memory_used_bytes: 0, queues: 0}}" for n in range(7)]
HOLDER = "{pid: 4242, name: /opt/bin/vllm, memory_used_bytes: 177386942464}"


def mi300x(*processes: str, more: str = "") -> str:
    return f"- {{model: MI300X, processes: [{', '.join(processes)}]{more}}}"


@pytest.mark.parametrize("version", WHEELS)
def test_one_holder_and_seven_bystanders_through_amd_smi(look: Look, version: str, tmp_path: Path) -> None:
    odd = [
        "{pid: 5000000, name: '', memory_used_bytes: 5}",
        "{pid: 300, name: '', memory_used_bytes: 1048576}",
        "{pid: 301, name: '', memory_used_bytes: 1048576}",
    ]
    kernel_threads(tmp_path)
    process(tmp_path, 300, b"ollama", started=55)
    (sample,) = look(version, machine(mi300x(*BYSTANDERS, HOLDER, *odd))).samples
    assert sample["processes"] == [
        {"pid": 300, "started": 55, "name": "ollama", "memory_used_bytes": 1048576},
        {"pid": 301, "name": "pid 301", "memory_used_bytes": 1048576},
        {"pid": 4242, "name": "vllm", "memory_used_bytes": 177386942464},
    ]
    assert sample["process_counts"] == {**NOBODY, "holding": 2, "unnamed": 1, "bystander": 7, "uninspectable": 1}
    assert sample["rejected"] == ["processes"]


@pytest.mark.parametrize("version", WHEELS)
def test_one_holder_and_seven_bystanders_through_kfd(look: Look, version: str, tmp_path: Path) -> None:
    fleet = machine(f"{mi300x(*BYSTANDERS, HOLDER)}\n- {{model: MI300X}}")
    write_kfd(tmp_path, fleet, 1000)
    kernel_threads(tmp_path)
    process(tmp_path, 4242, b"vllm", started=55)
    first, second = look(version, fleet).samples
    assert first["processes"] == [
        {"pid": 4242, "started": 55, "name": "vllm", "memory_used_bytes": 177386942464, "busy_ratio": 0.0}
    ]
    assert first["process_counts"] == {**NOBODY, "holding": 1, "bystander": 7}
    # All eight can be seen by the driver on the other GPU, too, where none holds anything.
    assert (second["processes"], second["process_counts"]) == ([], {**NOBODY, "bystander": 8})


@pytest.mark.parametrize("version", WHEELS)
def test_each_partition_has_its_own_processes(look: Look, version: str, tmp_path: Path) -> None:
    fleet = machine(
        "- {model: MI300X, load: {pattern: constant, watts: 750}, texts: {compute_partition: CPX}, "
        "partitions: [{}, {}, {}, {}, {}, {}, {}, {}], processes: ["
        "{pid: 4242, memory_used_bytes: 1073741824, queues: 2, partition: 3, share: 0.125}, "
        "{pid: 4243, memory_used_bytes: 7, queues: 1, partition: 7, share: 0.0625}, "
        "{pid: 4243, memory_used_bytes: 8, queues: 1, partition: 6, share: 0.0625}]}"
    )
    write_kfd(tmp_path, fleet, 1000)
    (sample,) = look(version, fleet).samples
    one, both = sample["processes"]
    assert (one["pid"], one["memory_used_bytes"], one["partition"]) == (4242, 1073741824, "3")
    assert (both["pid"], both["memory_used_bytes"], both.get("partition")) == (4243, 15, None)
    load = sample["utilization_ratio"]
    assert one["busy_ratio"] == pytest.approx(0.125 * load, abs=1 / 304)
    assert both["busy_ratio"] == pytest.approx(0.125 * load, abs=1 / 304)


def test_names_and_numbers_that_amd_smi_cannot_take_cost_nothing_where_kfd_is(look: Look, tmp_path: Path) -> None:
    # Beyond any real pid: that of the reader itself is never listed.
    pid = 5_000_000
    fleet = machine(mi300x(f"{{pid: {pid}, count: 1500, memory_used_bytes: 1048576}}"))
    write_kfd(tmp_path, fleet, 1000)
    first, *rest = fleet.devices[0].rows
    broken = dataclasses.replace(first, texts={**first.texts, "name": "bad\udcffname"})
    kernel_threads(tmp_path)
    process(tmp_path, pid, b"bad\xffname")
    (sample,) = look(NEWEST, bare(dataclasses.replace(fleet.devices[0], rows=(broken, *rest)))).samples
    assert len(sample["processes"]) == 1500
    assert sample["processes"][0]["name"] == "bad\ufffdname"
    assert sample.get("failed", []) == []


def seen_from(root: Path, where: Callable[[Path], tuple[str, ...]], *pids: int) -> dict[str, Any]:
    """Read an MI300X that processes with these pids hold, through KFD."""
    fleet = machine(mi300x())
    write_kfd(root, fleet, 1000)
    for pid in pids:
        kfd_process(root, pid, {int(fleet.devices[0].numbers["kfd_gpu_id"]): 1048576})
    write_plan(root / "plan", fleet)
    environment = {**amdsmi_tree(NEWEST, root), "GPU_EXPORTER_PLAN": str(root / "plan")}
    (sample,) = parse(run_script(root, environment, before=where(root))).samples
    assert sample.get("failed", []) == []
    found: dict[str, Any] = sample
    return found


def test_root_sees_all(tmp_path: Path) -> None:
    with stranger() as other:
        sample = seen_from(tmp_path, vantage.as_root, other.pid)
    (found,) = sample["processes"]
    assert (found["pid"], found["name"], found["started"]) == (other.pid, "sleep", other.started)
    # Even root may lack the right to look into a process, such as the first one of a container.
    assert {**sample["process_counts"], "uninspectable": 0} == {**NOBODY, "holding": 1}


def test_with_the_hosts_proc_a_namespace_hides_nothing(tmp_path: Path) -> None:
    with stranger() as other:
        sample = seen_from(tmp_path, vantage.in_a_namespace_with_the_hosts_proc, other.pid)
    (found,) = sample["processes"]
    assert (found["pid"], found["name"], found["started"]) == (other.pid, "sleep", other.started)


def test_plain_user_sees_who_computes_and_says_whose_files_it_may_not_see(tmp_path: Path) -> None:
    for user in ("root", "plain"):
        (tmp_path / user).mkdir()
    with stranger() as other, stranger():
        root = seen_from(tmp_path / "root", vantage.as_root, other.pid)["process_counts"]
        sample = seen_from(tmp_path / "plain", vantage.as_plain_user, other.pid)
    (found,) = sample["processes"]
    assert (found["name"], found["started"], found["memory_used_bytes"]) == ("sleep", other.started, 1048576)
    counts = sample["process_counts"]
    assert counts["uninspectable"] > root["uninspectable"]
    assert {**counts, "uninspectable": 0} == {**NOBODY, "holding": 1}


@pytest.mark.parametrize("level", [1, 2])
def test_behind_hidepid_there_are_no_names_and_the_hidden_are_counted(tmp_path: Path, level: int) -> None:
    with stranger() as other, stranger():
        sample = seen_from(tmp_path, partial(vantage.past_hidepid, level=level), other.pid)
    (found,) = sample["processes"]
    assert (found["name"], found.get("started"), found["memory_used_bytes"]) == (f"pid {other.pid}", None, 1048576)
    counts = sample["process_counts"]
    assert counts["uninspectable"] >= 2  # another one and the first process of the host, at least
    assert {**counts, "uninspectable": 0} == {**NOBODY, "unnamed": 1}


def test_in_a_pid_namespace_nobody_is_mistaken_for_another(tmp_path: Path) -> None:
    # There, 1 is the exporter's own number; to the driver it is another process.
    sample = seen_from(tmp_path, vantage.in_a_namespace, 1)
    assert [(p["pid"], p["name"], p.get("started")) for p in sample["processes"]] == [(1, "pid 1", None)]
    assert sample["process_counts"] == {**NOBODY, "unnamed": 1}
