"""What attribution costs by the number of processes: `python -m tests.benchmarks.attribution [PROCESSES ...]`.

Processor time of one pass in the agent (first: all processes are read; next: all are known) and of taking its answer in
the parent, over 64 partitions of 8 GPUs with as many pods. The processes are files of a copy of /proc; what the real
one costs instead is measured on the benchmark's own process. Ends with 1 when 5,000 processes take more than 2 s.
"""

import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from exporter.attribution import workloads
from exporter.attribution.frames import answers, packed, unpacked
from exporter.attribution.merge import merge
from exporter.attribution.proc import Proc
from exporter.attribution.processes import look_at
from exporter.attribution.source import Findings, Grant, Held, Pod, Process, Question
from exporter.framing import encode
from exporter.model import Device, PartitionSample
from tests.unit.attribution.hosts import write_host, write_process

POINTS = (625, 1250, 2500, 5000, 10_000)
LIMIT_SECONDS, LIMIT_PROCESSES = 2.0, 5000
GPUS, PARTITIONS = 8, 8
FIRST_PID = 10_000
ROUNDS = 5

T = TypeVar("T")


def uid(pod: int) -> str:
    return f"00000000-0000-4000-8000-{pod:012x}"


def container(pod: int) -> str:
    return f"{pod:064x}"


def host(root: Path, count: int) -> tuple[Question, Findings]:
    """Write the processes, spread over all partitions; return the question and what the other sources tell."""
    pods = GPUS * PARTITIONS
    proc = write_host(root)
    for number in range(count):
        pod = number % pods
        cgroup = (
            f"0::/kubepods.slice/kubepods-pod{uid(pod).replace('-', '_')}.slice/cri-containerd-{container(pod)}.scope\n"
        )
        write_process(proc, FIRST_PID + number, cgroup, uid=number % 50)
    held = tuple(
        Held(
            device=Device(vendor="nvidia", key=f"GPU-{gpu}"),
            partitions=tuple(PartitionSample(partition=f"gi{part}") for part in range(PARTITIONS)),
            processes=tuple(
                Process(FIRST_PID + number, 5000) for number in range(count) if number % pods // PARTITIONS == gpu
            ),
        )
        for gpu in range(GPUS)
    )
    grants = tuple(
        Grant(
            workload=workloads.pod(f"team-{pod % 7}", f"trainer-{pod}", "main"),
            device=f"GPU-{pod // PARTITIONS}",
            partition=f"gi{pod % PARTITIONS}",
        )
        for pod in range(pods)
    )
    names = {uid(pod): Pod(f"team-{pod % 7}", f"trainer-{pod}", ("main",)) for pod in range(pods)}
    return Question(held=held), Findings(grants=grants, pods=names)


def timed(work: Callable[[], T]) -> tuple[T, float]:
    before = time.process_time()
    result = work()
    return result, time.process_time() - before


def measure(root: Path, count: int) -> tuple[float, float, float, int]:
    """Return processor seconds of the first pass, the next pass, and taking the answer; and bytes of the answer."""
    question, findings = host(root, count)
    firsts, nexts, takes = [], [], []
    size = 0
    for _ in range(ROUNDS):
        source = Proc(str(root / "proc"), str(root))

        def ask(source: Proc = source) -> bytes:
            return encode(packed(1, merge(question, source.look(question), [findings], ())))

        _, first = timed(ask)
        data, following = timed(ask)
        size = len(data)
        (attribution,), take = timed(lambda data=data: [unpacked(answer) for answer in answers().feed(data)])  # type: ignore[misc] -- bound at once
        assert len(attribution.owners) == count
        assert attribution.unplaced_processes == 0
        assert {owner.workload.key for owner in attribution.owners if owner.workload} <= {
            allocation.workload.key for allocation in attribution.allocations
        }
        firsts.append(first)
        nexts.append(following)
        takes.append(take)
    return min(firsts), min(nexts), min(takes), size


def real_proc() -> float:
    """Return processor seconds to read one process of the real /proc."""
    look_at("/proc", os.getpid(), None)
    _, seconds = timed(lambda: [look_at("/proc", os.getpid(), None) for _ in range(2000)])
    return seconds / 2000


def growth(points: list[tuple[int, float]]) -> float:
    """Return the exponent of the growth: 1 is linear."""
    xs, ys = ([math.log(value) for value in column] for column in zip(*points, strict=True))
    return statistics.linear_regression(xs, ys).slope


def main() -> int:
    counts = tuple(map(int, sys.argv[1:])) or POINTS
    print(f"{'processes':>10} {'first pass':>12} {'next pass':>12} {'in the parent':>14} {'answer':>10}")
    firsts, nexts = [], []
    worst = 0.0
    for count in counts:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
            first, following, take, size = measure(Path(directory), count)
        print(f"{count:>10} {first:>10.3f} s {following:>10.3f} s {take:>12.4f} s {size / 1024:>6.0f} KiB")
        firsts.append((count, first))
        nexts.append((count, following))
        if count <= LIMIT_PROCESSES:
            worst = max(worst, first)
    real = real_proc()
    print(f"real /proc: {real * 1e6:.0f} us for each process, {real * LIMIT_PROCESSES:.2f} s for {LIMIT_PROCESSES}")
    if len(counts) > 1:
        print(f"growth (1 is linear): first pass {growth(firsts):.2f}, next pass {growth(nexts):.2f}")
    return int(max(worst, real * LIMIT_PROCESSES) > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
