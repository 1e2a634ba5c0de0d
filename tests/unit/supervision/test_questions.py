import msgspec

from exporter.attribution.source import Held, Process, Question
from exporter.model import Device, DeviceSnapshot, GpuState, PartitionSample, ProcessSample, Sample, Snapshot, World
from exporter.supervision.questions import Questions, has_devices

DEVICE = Device(vendor="nvidia", key="GPU-1")


def world(*samples: Sample) -> World:
    devices = tuple(
        DeviceSnapshot(gpu=f"nvidia{n}", provider="nvidia", device=sample.device, state=GpuState.OK, sample=sample)
        for n, sample in enumerate(samples)
    )
    snapshot = Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=devices)
    return World(snapshots=(snapshot,), versions={})


def test_question() -> None:
    sample = Sample(
        device=DEVICE,
        partitions=(PartitionSample(partition="gi1", uuid="MIG-1", profile="1g.10gb", memory_used_bytes=5.0),),
        processes=(
            ProcessSample(pid=1, started=10, partition="gi1", memory_used_bytes=1.0),
            ProcessSample(pid=1, started=10, partition="gi2"),
            ProcessSample(pid=2),
        ),
    )
    assert Questions().of(world(sample)) == Question(
        held=(
            Held(
                device=DEVICE,
                partitions=(PartitionSample(partition="gi1", uuid="MIG-1", profile="1g.10gb"),),
                processes=(Process(1, 10), Process(2)),
            ),
        )
    )


def test_question_is_the_same_while_only_readings_change() -> None:
    questions = Questions()
    sample = Sample(
        device=DEVICE, processes=(ProcessSample(pid=1, started=10, memory_used_bytes=1.0),), power_watts=5.0
    )
    before = questions.of(world(sample))
    more = (ProcessSample(pid=1, started=10, memory_used_bytes=2.0),)
    after = questions.of(world(msgspec.structs.replace(sample, processes=more, power_watts=6.0)))
    assert after == before


def test_new_process_makes_a_new_question() -> None:
    questions = Questions()
    before = questions.of(world(Sample(device=DEVICE, processes=(ProcessSample(pid=1, started=10),))))
    after = questions.of(world(Sample(device=DEVICE, processes=(ProcessSample(pid=1, started=11),))))
    assert after != before
    assert questions.of(world()) == Question()


def test_devices_that_could_not_be_looked_at_have_no_processes() -> None:
    assert Questions().of(world(Sample(device=DEVICE, lost=True))) == Question(held=(Held(device=DEVICE),))
    assert not has_devices(world())
    assert has_devices(world(Sample(device=DEVICE)))
