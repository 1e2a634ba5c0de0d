"""The real pynvml over the C stand-in: MIG instances and processes."""

import os
from pathlib import Path

from exporter.model import Group, PartitionSample, ProcessSample
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.schema import (
    FaultSpec,
    Partition,
    Process,
    Scenario,
)
from tests.integration.nvidia import MIB, Start, constant, first, machine
from tests.native.plan import write_plan


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


def test_processes_of_three_lists(start: Start) -> None:
    me = os.getpid()
    comm = Path(f"/proc/{me}/comm").read_text().strip()
    processes = (
        Process(pid=me, memory_used_bytes=2048.0 * MIB),
        Process(pid=me, memory_used_bytes=64.0 * MIB, kind="graphics"),
        Process(pid=0, memory_used_bytes=1.0, kind="mps"),
        Process(pid=4_194_999, kind="mps"),  # above any pid_max; memory unknown
        Process(pid=0xFFFFFFFF, memory_used_bytes=1.0 * MIB, kind="graphics"),
    )
    with start(machine(constant("H100-SXM", processes=processes))) as served:
        sample = first(served)
    found = {p.pid: p for p in sample.processes or ()}
    assert found[me] == ProcessSample(pid=me, name=comm, memory_used_bytes=2048.0 * MIB)
    assert found[4_194_999] == ProcessSample(pid=4_194_999, name="pid 4194999")
    assert not {0, 0xFFFFFFFF} & set(found)
    assert sample.process_counts["uninspectable"] >= 1
    assert sum(sample.process_counts.values()) == len(found)


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
    lists = (f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
    lacking = tuple(FaultSpec(kind="error", call=call, status=13) for call in lists)
    busy = (Process(pid=7, memory_used_bytes=1.0 * MIB),)
    with start(machine(constant("H100-SXM", faults=lacking, processes=busy))) as served:
        sample = first(served)
    assert (sample.processes, sample.process_counts, sample.failed, sample.lost) == (None, {}, (), False)
