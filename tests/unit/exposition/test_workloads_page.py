"""What the page says of processes, their owners and workloads."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.exposition import Format, Renderer
from exporter.metrics import PROCESS_LABELS, Block
from exporter.model import (
    Attribution,
    DeviceSnapshot,
    Owner,
    ProcessSeries,
    SourceStatus,
    Workload,
    WorkloadSnapshot,
    World,
)
from tests.unit.exposition.test_page_properties import samples
from tests.unit.exposition.worlds import device, world, worlds

POD = Workload(
    key="pod/lab/train/main",
    kind="pod",
    k8s_namespace="lab",
    k8s_pod="train",
    k8s_container="main",
    pod_uid="1b2c",
    container_id="abcd",
)
JOB = Workload(
    key="slurm/42", kind="slurm", slurm_job="42", slurm_user="ann", slurm_account="geo", slurm_partition="gpu"
)


def tenant(workload: Workload = POD, **fields: float | None) -> WorkloadSnapshot:
    known = {"active_joules": 300.5, "idle_joules": 100.25, "busy_seconds": 5.0, "allocated_seconds": 8.0}
    return WorkloadSnapshot(workload=workload, **{**known, "allocation_ratio": 0.5, "start_timestamp": 900.5, **fields})


def shared(index: int = 0, **fields: object) -> DeviceSnapshot:
    return msgspec.structs.replace(device(index), workloads=(tenant(),), unattributed_joules=1099.5, **fields)


def page(of: World, form: Format = Format.TEXT_0_0_4, *labels: str, **options: bool) -> str:
    return Renderer(process_labels=labels or PROCESS_LABELS, **options).page(of, form).decode()


def lines(of: str, family: str) -> list[str]:
    return [line for line in of.splitlines() if line.startswith(f"{family}{{")]


def test_a_workload_has_its_families_with_the_labels_of_its_device() -> None:
    shown = page(world(shared()))
    (info,) = lines(shown, "gpu_workload_info")
    assert 'k8s_container="main",k8s_namespace="lab",k8s_pod="train",kind="pod"' in info
    assert 'slurm_job=""' in info
    of_both = 'uuid="GPU-0",workload="pod/lab/train/main"}'
    for line in (
        f'gpu_workload_allocation_ratio{{gpu="nvidia0",{of_both} 0.5',
        f'gpu_workload_energy_joules_total{{gpu="nvidia0",part="active",{of_both} 300.5',
        f'gpu_workload_energy_joules_total{{gpu="nvidia0",part="idle",{of_both} 100.25',
        f'gpu_workload_busy_seconds_total{{gpu="nvidia0",{of_both} 5.0',
        f'gpu_workload_allocated_seconds_total{{gpu="nvidia0",{of_both} 8.0',
        'gpu_unattributed_energy_joules_total{gpu="nvidia0",uuid="GPU-0"} 1099.5',
    ):
        assert f"{line}\n" in shown


def test_estimates_are_named_so() -> None:
    shown = page(world(shared()))
    for family in ("gpu_workload_energy_joules_total", "gpu_workload_busy_seconds_total"):
        assert f"# HELP {family} Estimate " in shown


def test_all_that_adds_up_stands_in_the_block_of_energy() -> None:
    energy = Renderer().page(world(shared()), Format.TEXT_0_0_4, frozenset({Block.ENERGY})).decode()
    for family in ("gpu_energy", "gpu_unattributed_energy", "gpu_workload_energy"):
        assert lines(energy, f"{family}_joules_total")
    assert not lines(energy, "gpu_workload_info")


def test_what_is_not_known_of_a_workload_is_absent() -> None:
    unknown = tenant(JOB, active_joules=None, idle_joules=None, busy_seconds=None, allocation_ratio=None)
    shown = page(world(msgspec.structs.replace(device(), workloads=(unknown,))))
    assert {line.partition("{")[0] for line in shown.splitlines() if line.startswith("gpu_workload")} == {
        "gpu_workload_info",
        "gpu_workload_allocated_seconds_total",
    }
    (info,) = lines(shown, "gpu_workload_info")
    assert 'slurm_account="geo",slurm_job="42",slurm_partition="gpu",slurm_user="ann"' in info


def test_counters_of_a_workload_were_created_when_it_was_first_seen() -> None:
    shown = page(world(shared()), Format.OPENMETRICS_1_0_0, created=True)
    created = [line for line in shown.splitlines() if line.startswith("gpu_workload") and "_created{" in line]
    assert {line.partition("{")[0] for line in created} == {
        "gpu_workload_energy_joules_created",
        "gpu_workload_busy_seconds_created",
        "gpu_workload_allocated_seconds_created",
    }
    assert all(line.endswith(" 900.5") for line in created)
    assert len(created) == 4


SERIES = ProcessSeries(pid="7", name="python", user="ann", workload=POD.key, memory_used_bytes=5.0)


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (("pid", "name"), 'gpu="nvidia0",name="python",pid="7",uuid="GPU-0"'),
        (("workload", "user"), 'gpu="nvidia0",user="ann",uuid="GPU-0",workload="pod/lab/train/main"'),
        (("name", "name"), 'gpu="nvidia0",name="python",uuid="GPU-0"'),
        (("user",), 'gpu="nvidia0",user="ann",uuid="GPU-0"'),
    ],
)
def test_processes_have_the_labels_that_are_chosen(labels: tuple[str, ...], text: str) -> None:
    shown = page(world(device(series=(SERIES,))), Format.TEXT_0_0_4, *labels)
    assert lines(shown, "gpu_process_memory_used_bytes") == [f"gpu_process_memory_used_bytes{{{text}}} 5.0"]


def test_without_labels_the_processes_of_a_device_are_one_series() -> None:
    shown = Renderer(process_labels=()).page(
        world(device(series=(ProcessSeries(memory_used_bytes=9.0),))), Format.TEXT_0_0_4
    )
    assert b'gpu_process_memory_used_bytes{gpu="nvidia0",uuid="GPU-0"} 9.0\n' in shown


def test_of_a_pid_that_was_recycled_between_two_lists_the_newest_process_has_the_owner() -> None:
    gone = Owner(pid=7, started=5, name="python", user="ann", workload=POD)
    there = Owner(pid=7, started=900, name="bash", user="bob")
    unsure = Owner(pid=7, name="sh")
    for owners in ((gone, there, unsure), (unsure, there, gone)):
        devices = tuple(shared(number, process_owners=(owner,)) for number, owner in enumerate(owners))
        (info,) = lines(page(world(*devices)), "gpu_process_info")
        assert 'user="bob"' in info


def test_a_process_on_two_gpus_has_one_owner() -> None:
    owner = Owner(pid=7, started=5, name="python", user="ann", workload=POD)
    other = Owner(pid=8, name="Xorg")
    devices = (shared(0, process_owners=(owner,)), shared(1, process_owners=(owner, other)))
    first, second = lines(page(world(*devices)), "gpu_process_info")
    assert first.endswith(
        '{container_id="abcd",k8s_container="main",k8s_namespace="lab",k8s_pod="train",name="python",pid="7",'
        'pod_uid="1b2c",slurm_job="",systemd_unit="",user="ann"} 1.0'
    )
    assert 'k8s_pod="",name="Xorg",pid="8",pod_uid=""' in second


def test_sources_say_whether_they_tell_and_why_not() -> None:
    sources = (
        SourceStatus(source="proc", up=True),
        SourceStatus(source="kubelet", up=False, reason="no socket"),
    )
    shown = page(world(device(), attribution=Attribution(sources=sources, unplaced_devices=2, unplaced_processes=3)))
    for line in (
        'gpu_exporter_attribution_up{source="kubelet"} 0.0',
        'gpu_exporter_attribution_up{source="proc"} 1.0',
        'gpu_exporter_attribution_info{reason="no socket",source="kubelet"} 1.0',
        'gpu_exporter_attribution_info{reason="",source="proc"} 1.0',
        "gpu_exporter_attribution_unplaced_devices 2.0",
        "gpu_exporter_attribution_unplaced_processes 3.0",
    ):
        assert f"{line}\n" in shown
    assert "gpu_exporter_attribution" not in page(world(device()))


@given(worlds, st.lists(st.sampled_from(["pid", "name", "user", "workload"]), max_size=4))
@settings(deadline=None)
def test_whatever_labels_are_chosen_no_series_is_there_twice(of: World, labels: list[str]) -> None:
    renderer = Renderer(process_labels=labels)
    shown = samples(renderer.page(of, Format.TEXT_0_0_4), Format.TEXT_0_0_4)
    assert len({series for series, _ in shown}) == len(shown)
