"""Process lists: merging, unknown memory, garbage, names."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import Group, ProcessSample, Sample
from exporter.providers.nvidia.processes import lists_trusted
from tests.kernel import process
from tests.unit.nvidia.fake import FakeGpu, FakeNvml, Row, Status, Without, gpu, only, opened, read
from tests.unit.nvidia.test_nvidia_partitions import instance, parent

MIB = 1 << 20
COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"
MPS = "nvmlDeviceGetMPSComputeRunningProcesses"


def card(compute: Any = (), graphics: Any = (), mps: Any = (), **answers: Any) -> FakeGpu:
    return gpu(**{COMPUTE: compute, GRAPHICS: graphics, MPS: mps}, **answers)


def processes(fake: FakeGpu, root: Path = Path("/nonexistent")) -> Sample:
    return read(FakeNvml(fake), Group.PROCESSES, root=root)


def counts(**known: int) -> dict[str, int]:
    return {"holding": 0, "unnamed": 0, "uninspectable": 0, "self": 0, **known}


def test_no_process_is_not_the_same_as_no_list() -> None:
    empty = processes(card())
    assert (empty.processes, empty.process_counts) == ((), counts())
    unknown = processes(gpu())
    assert (unknown.processes, unknown.process_counts, unknown.failed) == (None, {}, ())


def test_process_in_two_lists_counts_once_with_the_larger_memory(tmp_path: Path) -> None:
    process(tmp_path, 7, b"python", started=33)
    sample = processes(card(compute=[Row(7, 2048 * MIB)], graphics=[Row(7, 64 * MIB)], mps=[Row(7, None)]), tmp_path)
    assert sample.processes == (ProcessSample(pid=7, started=33, name="python", memory_used_bytes=2048 * MIB),)
    assert sample.process_counts == counts(holding=1)


def test_memory_that_is_not_known_is_absent_and_the_process_uninspectable(tmp_path: Path) -> None:
    process(tmp_path, 7, b"python", started=33)
    sample = processes(card(compute=[Row(7, None)]), tmp_path)
    assert sample.processes == (ProcessSample(pid=7, started=33, name="python"),)
    assert sample.process_counts == counts(uninspectable=1)


def test_lists_of_an_older_driver_have_an_older_name(tmp_path: Path) -> None:
    process(tmp_path, 7, b"python", started=33)
    gone = dict.fromkeys((COMPUTE, GRAPHICS, MPS), Status(13))
    older = {f"{COMPUTE}_v2": [Row(7, MIB)], f"{GRAPHICS}_v2": [], f"{MPS}_v2": Status(13)}
    sample = processes(gpu(**gone, **older), tmp_path)
    assert sample.processes == (ProcessSample(pid=7, started=33, name="python", memory_used_bytes=MIB),)
    assert sample.failed == ()


def test_process_without_a_name_here_has_its_pid_for_one(tmp_path: Path) -> None:
    # It ended between list and name, or its pid is of another namespace.
    sample = processes(card(compute=[Row(7, MIB)]), tmp_path)
    assert sample.processes == (ProcessSample(pid=7, name="pid 7", memory_used_bytes=MIB),)
    assert sample.process_counts == counts(unnamed=1)


def test_process_that_began_after_the_list_is_not_given_what_is_listed(tmp_path: Path) -> None:
    process(tmp_path, 7, b"newcomer", started=10**15)
    assert processes(card(compute=[Row(7, MIB)]), tmp_path).processes == (
        ProcessSample(pid=7, name="pid 7", memory_used_bytes=MIB),
    )


def test_in_a_foreign_namespace_nobody_has_a_name(tmp_path: Path) -> None:
    process(tmp_path, 7, b"stranger")
    library = FakeNvml(card(compute=[Row(7, MIB), Row(4242, MIB)]))
    provider = opened(library, root=tmp_path, foreign=True)
    sample = provider.read(only(provider), frozenset({Group.PROCESSES}))
    assert [(p.pid, p.name, p.started) for p in sample.processes or ()] == [
        (7, "pid 7", None),
        (4242, "pid 4242", None),
    ]
    assert sample.process_counts == counts(unnamed=2)


def test_rows_of_no_process_are_dropped() -> None:
    fake = card(compute=[Row(0, MIB), Row(0xFFFFFFFF, 0), Row(9, MIB)])
    assert [p.pid for p in processes(fake).processes or ()] == [9]


def test_ourselves_and_our_children_are_left_out_and_counted(tmp_path: Path) -> None:
    process(tmp_path, 9, parent=4242)
    sample = processes(card(compute=[Row(4242, MIB), Row(9, MIB)]), tmp_path)
    assert (sample.processes, sample.process_counts) == ((), counts(self=2))


@pytest.mark.parametrize("version", ["535.43.02", "535.54.03", "535.86.10", "535.97"])
def test_lists_of_drivers_with_the_wrong_layout_are_not_read(version: str) -> None:
    library = FakeNvml(card(compute=[Row(7, MIB)]), system={"nvmlSystemGetDriverVersion": version})
    sample = read(library, Group.PROCESSES)
    assert (sample.processes, COMPUTE in library.calls) == (None, False)


@pytest.mark.parametrize("version", ["535.42", "535.98", "535.104.05", "525.147.05", "580.95.05", "5350.50", None, ""])
def test_lists_of_other_drivers_are_read(version: str | None) -> None:
    assert lists_trusted(version)


def test_list_that_is_not_supported_leaves_the_others() -> None:
    fake = card(compute=[Row(7, MIB)], mps=Status(3))
    assert [p.pid for p in processes(fake).processes or ()] == [7]


def test_list_that_breaks_leaves_no_half_truth() -> None:
    sample = processes(card(compute=[Row(7, MIB)], graphics=Status(17)))
    assert (sample.processes, sample.failed) == (None, ("processes",))


def test_list_that_grew_between_its_two_calls_is_asked_again() -> None:
    answers = iter([Status(7), Status(7), [Row(7, MIB)]])
    sample = processes(card(compute=lambda: next(answers)))
    assert ([p.pid for p in sample.processes or ()], sample.failed) == ([7], ())


def test_list_that_always_outgrows_its_room_fails() -> None:
    sample = processes(card(compute=Status(7)))
    assert (sample.processes, sample.failed) == (None, ("processes",))


def test_lost_gpu_is_lost_while_its_processes_are_listed() -> None:
    assert processes(card(graphics=Status(15))).lost
    assert processes(card(graphics=Status(15), compute=Status(3), mps=Status(3))).lost


def test_process_on_two_instances_is_one_process_with_the_memory_of_both() -> None:
    rows = [Row(7, MIB, 1, 0), Row(7, 2 * MIB, 2, 0), Row(8, MIB, 2, 0)]
    fake = parent(instance(1), instance(2), **{COMPUTE: rows})
    sample = processes(fake)
    assert [(p.pid, p.partition, p.memory_used_bytes) for p in sample.processes or ()] == [
        (7, None, 3 * MIB),
        (8, "gi2", MIB),
    ]
    assert sample.process_counts == counts(unnamed=2)


def test_partition_of_a_process_is_named_as_the_partition_is() -> None:
    fake = parent(instance(1, 0), instance(1, 1), **{COMPUTE: [Row(7, MIB, 1, 1)]})
    sample = read(FakeNvml(fake), Group.STATE, Group.PROCESSES)
    (process,) = sample.processes or ()
    assert process.partition == "gi1ci1"
    assert process.partition in {p.partition for p in sample.partitions or ()}


def test_instances_answer_where_their_parent_may_not() -> None:
    first, second = instance(1), instance(2)
    first.answers[COMPUTE] = [Row(7, MIB, 1, 0)]
    second.answers[COMPUTE] = [Row(8, MIB, 2, 0)]
    fake = parent(first, second, **{COMPUTE: Status(4), GRAPHICS: Status(4), MPS: Status(4)})
    assert [(p.pid, p.partition) for p in processes(fake).processes or ()] == [(7, "gi1"), (8, "gi2")]


def test_older_binding_without_one_of_the_lists() -> None:
    sample = read(Without(FakeNvml(card(compute=[Row(7, MIB)])), MPS), Group.PROCESSES)
    assert [p.pid for p in sample.processes or ()] == [7]


row = st.builds(Row, pid=st.integers(1, 5), usedGpuMemory=st.none() | st.integers(0, 1 << 40))
lists = st.lists(row, max_size=8)


@given(lists, lists, lists, st.permutations(range(3)))
def test_each_process_has_the_largest_memory_that_any_list_gives(
    compute: list[Row], graphics: list[Row], mps: list[Row], order: list[int]
) -> None:
    sample = processes(card(compute, graphics, mps))
    everything = [*compute, *graphics, *mps]
    found = {p.pid: p.memory_used_bytes for p in sample.processes or ()}
    assert found == {
        r.pid: max(
            (o.usedGpuMemory for o in everything if o.pid == r.pid and o.usedGpuMemory is not None), default=None
        )
        for r in everything
    }
    assert sum(sample.process_counts.values()) == len(found)
    given_otherwise = [(compute, graphics, mps)[place][::-1] for place in order]
    assert processes(card(*given_otherwise)).processes == sample.processes
