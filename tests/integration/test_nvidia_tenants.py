"""The real pynvml over the C stand-in: MIG instances and processes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.model import Group, PartitionSample, ProcessSample, Sample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.schema import (
    DeviceSpec,
    FaultSpec,
    Load,
    Partition,
    Process,
    Scenario,
)
from tests.integration import vantage
from tests.integration.nvidia import MIB, Start, constant, first, machine, session
from tests.integration.vantage import stranger
from tests.native.plan import standin_environment, write_plan


def test_mig_parent_and_instances(start: Start) -> None:
    partitions = (
        Partition(profile="3g.40gb", gi=1, ci=0, uuid="MIG-a", memory_used_bytes=30_000.0 * MIB),
        Partition(profile="1g.10gb", gi=4, ci=0, uuid="MIG-gone", to_seconds=1.0),  # a hole in the numbering
        Partition(profile="2g.20gb", gi=5, ci=0, uuid="MIG-b", memory_used_bytes=100.0 * MIB),
        Partition(profile="2g.20gb", gi=5, ci=1, uuid="MIG-c", memory_used_bytes=100.0 * MIB),
    )
    processes = (
        Process(pid=101, memory_used_bytes=29_000.0 * MIB, partition=0),
        Process(pid=102, memory_used_bytes=50.0 * MIB, partition=3),
    )
    parent = constant("A100-SXM", watts=300.0, partitions=partitions, processes=processes)
    with start(machine(parent)) as served:
        sample = first(served)
    assert sample.device.partition_mode == "mig"
    assert (sample.utilization_ratio, sample.engine_utilization_ratio) == (None, {})
    assert sample.memory_remap_failed is None
    assert (sample.power_watts, sample.energy_counter_joules is not None) == (300.0, True)
    big, small = 40_192.0 * MIB, 19_968.0 * MIB
    assert sample.partitions == (
        PartitionSample(
            partition="gi1",
            uuid="MIG-a",
            profile="3g.40gb",
            memory_used_bytes=30_000.0 * MIB,
            memory_size_bytes=big,
        ),
        PartitionSample(
            partition="gi5ci0",
            uuid="MIG-b",
            profile="2g.20gb",
            memory_used_bytes=100.0 * MIB,
            memory_size_bytes=small,
        ),
        PartitionSample(partition="gi5ci1", uuid="MIG-c", profile="2g.20gb"),
    )
    assert [(p.pid, p.partition) for p in sample.processes or ()] == [(101, "gi1"), (102, "gi5ci1")]
    assert sample.failed == ()


def test_mig_that_is_switched_while_we_run(start: Start, plan: Path) -> None:
    whole = machine(constant("A100-SXM"))
    divided = Machine(
        Scenario(devices=(constant("A100-SXM", partitions=(Partition(profile="7g.80gb", gi=0, ci=0),)),)), whole.epoch
    )
    with start(whole) as served:
        served.open()
        (device,) = served.devices()
        assert served.read(device, Group.STATE).partitions == ()
        write_plan(plan, divided)
        sample = served.read(device, Group.STATE)
        assert [p.partition for p in sample.partitions or ()] == ["gi0"]
        assert sample.device.partition_mode == "mig"
        write_plan(plan, whole)
        assert served.read(device, Group.STATE).partitions == ()


def counts(**known: int) -> dict[str, int]:
    return {"holding": 0, "unnamed": 0, "uninspectable": 0, "self": 0, **known}


def test_processes_of_three_lists(start: Start) -> None:
    with stranger() as other:
        processes = (
            Process(pid=other.pid, memory_used_bytes=2048.0 * MIB),
            Process(pid=other.pid, memory_used_bytes=64.0 * MIB, kind="graphics"),
            Process(pid=4_194_999, kind="mps"),  # above any pid_max; memory unknown
            Process(pid=0xFFFFFFFF, memory_used_bytes=1.0 * MIB, kind="graphics"),
            Process(pid=os.getpid(), memory_used_bytes=1.0 * MIB),  # the parent of the process that reads
        )
        with start(machine(constant("H100-SXM", processes=processes))) as served:
            sample = first(served)
    assert sample.processes == (
        ProcessSample(pid=other.pid, started=other.started, name="sleep", memory_used_bytes=2048.0 * MIB),
        ProcessSample(pid=4_194_999, name="pid 4194999"),
    )
    assert sample.process_counts == counts(holding=1, uninspectable=1, self=1)


def test_processes_share_the_work_since_the_read_before(start: Start) -> None:
    processes = tuple(
        Process(pid=pid, memory_used_bytes=1.0 * MIB, share=share, kind=kind)
        for pid, share, kind in ((4_194_991, 0.7, "compute"), (4_194_992, 0.25, "graphics"), (4_194_993, 0.05, "mps"))
    )
    idler = Process(pid=4_194_994, memory_used_bytes=1.0 * MIB)
    load = Load(pattern="square", period_seconds=0.02)  # the first read looks back over 50 of them
    shared = DeviceSpec(model="H100-SXM", load=load, processes=(*processes, idler))
    with start(machine(shared, constant("H100-SXM", processes=(idler,)))) as served:
        served.open()
        device, other = served.devices()
        found = {p.pid: p.busy_ratio for p in served.read(device, Group.PROCESSES).processes or ()}
        unknown = served.read(other, Group.PROCESSES)
    assert found == pytest.approx({4_194_991: 0.35, 4_194_992: 0.125, 4_194_993: 0.025, 4_194_994: 0.0}, abs=0.02)
    assert [p.busy_ratio for p in unknown.processes or ()] == [None]
    assert unknown.failed == ()


def seen_from(root: Path, where: Callable[[Path], tuple[str, ...]], pid: int) -> Sample:
    """Read a GPU that the process with this pid holds."""
    before = where(root)
    write_plan(root / "plan", machine(constant("H100-SXM", processes=(Process(pid=pid, memory_used_bytes=MIB),))))
    with session(standin_environment(root / "plan"), before) as served:
        served.open(root)
        return served.read(served.devices()[0], Group.PROCESSES)


@pytest.mark.parametrize("where", [vantage.as_root, vantage.as_plain_user, vantage.in_a_namespace_with_the_hosts_proc])
def test_whoever_sees_the_hosts_processes_names_them(tmp_path: Path, where: Callable[[Path], tuple[str, ...]]) -> None:
    with stranger() as other:
        sample = seen_from(tmp_path, where, other.pid)
    assert sample.processes == (
        ProcessSample(pid=other.pid, started=other.started, name="sleep", memory_used_bytes=MIB),
    )
    assert sample.process_counts == counts(holding=1)


def test_behind_hidepid_there_are_no_names(tmp_path: Path) -> None:
    with stranger() as other:
        sample = seen_from(tmp_path, vantage.past_hidepid, other.pid)
    assert sample.processes == (ProcessSample(pid=other.pid, name=f"pid {other.pid}", memory_used_bytes=MIB),)
    assert sample.process_counts == counts(unnamed=1)


def test_in_a_pid_namespace_nobody_is_mistaken_for_another(tmp_path: Path) -> None:
    # There, 1 is the exporter's own number; to the driver it is another process.
    sample = seen_from(tmp_path, vantage.in_a_namespace, 1)
    assert sample.processes == (ProcessSample(pid=1, name="pid 1", memory_used_bytes=MIB),)
    assert sample.process_counts == counts(unnamed=1)


def test_many_processes_that_come_and_go(start: Start) -> None:
    churn = Process(pid=50_000, count=400, memory_used_bytes=1.0 * MIB, every_seconds=0.4, lasting_seconds=0.2)
    with start(machine(constant("H100-SXM", processes=(churn,)))) as served:
        served.open()
        (device,) = served.devices()
        sizes = set()
        for _ in range(20):
            sample = served.read(device, Group.PROCESSES)
            assert sample.failed == ()
            assert sample.processes is not None
            assert all(p.memory_used_bytes == MIB for p in sample.processes)
            sizes.add(len(sample.processes))
    assert max(sizes) > 100


def test_process_lists_that_this_driver_lacks_are_unknown(start: Start) -> None:
    lists = (f"nvmlDeviceGet{kind}RunningProcesses*" for kind in ("Compute", "Graphics", "MPSCompute"))
    lacking = tuple(FaultSpec(kind="error", call=call, status=13) for call in lists)
    busy = (Process(pid=7, memory_used_bytes=1.0 * MIB),)
    with start(machine(constant("H100-SXM", faults=lacking, processes=busy))) as served:
        sample = first(served)
    assert (sample.processes, sample.process_counts, sample.failed, sample.lost) == (None, {}, (), False)


def test_process_lists_of_a_driver_before_510_have_an_older_name(start: Start) -> None:
    lists = (f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
    lacking = tuple(FaultSpec(kind="error", call=call, status=13) for call in lists)
    busy = (Process(pid=2**31 - 2, memory_used_bytes=1.0 * MIB),)
    with start(machine(constant("H100-SXM", faults=lacking, processes=busy))) as served:
        sample = first(served)
    assert [(p.pid, p.memory_used_bytes) for p in sample.processes or ()] == [(2**31 - 2, 1.0 * MIB)]
    assert sample.failed == ()
