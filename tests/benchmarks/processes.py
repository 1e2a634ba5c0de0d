"""What it costs to know who holds the GPUs: `python -m tests.benchmarks.processes [DIRECTORY]`; by default in /dev/shm.

Processor time of one pass of the processes group over trees of files in the shape of the kernel's, for 0 to 5,000
processes: KFD on 8 packages with 64 partitions (each process computes on one, and has it open alone; then each has all
64 open, read to the end, and as far as a pass goes), graphics found through DRM (first scan, and the next), NVIDIA's
lists on 8 GPUs. Last, a scan of this machine's own /proc.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exporter.model import Group
from exporter.providers.fdinfo import Scanner
from exporter.providers.kfd_tree import TreeReader
from exporter.providers.procfs import Proc, boottime, listed_pids, proc_of
from tests.kernel import fdinfo, kfd, kfd_process, node, open_files, process
from tests.unit.amd.vendor import FakeAmdsmi, gpu, provider
from tests.unit.nvidia import fake

COUNTS = (0, 500, 1_000, 2_000, 3_500, 5_000)
PACKAGES, PARTS = 8, 8
ONLY = frozenset({Group.PROCESSES})
ROUNDS = 3
FIRST = 10_000
"""The least pid."""
MIB = 1 << 20


def partitions() -> tuple[list[int], FakeAmdsmi]:
    """Return KFD's numbers of all partitions, and the library that shows them."""
    handles, ids = [], []
    for package in range(PACKAGES):
        for part in range(PARTS):
            ids.append(1000 + 10 * package + part)
            handles.append(
                gpu(
                    gpu_device_bdf=f"0000:{package + 1:02x}:00.{part}",
                    gpu_asic_info={"asic_serial": f"0x{package + 1:x}"},
                    gpu_kfd_info={"kfd_id": ids[-1], "node_id": len(ids), "current_partition_id": part},
                )
            )
    return ids, FakeAmdsmi(*handles)


def kfd_pass(root: Path, count: int, *, everywhere: bool) -> Callable[[], int]:
    ids, library = partitions()
    kfd(root)
    for number, gpu_id in enumerate(ids, 1):
        node(root, number, gpu_id, bus=number, units=38)
    for pid in range(FIRST, FIRST + count):
        home = ids[pid % len(ids)]
        process(root, pid)
        open_files(root, pid, *((f"/dev/null{n}", "pos: 0\n") for n in range(3)))
        vram = {**(dict.fromkeys(ids, 0) if everywhere else {}), home: MIB}
        kfd_process(root, pid, vram, queues=(home,), units={home: 19})
    opened = provider(library, root, clock=time.monotonic)
    devices = opened.devices()
    return lambda: sum(len(opened.read(device, ONLY).processes or ()) for device in devices)


def kfd_tree(root: Path) -> Callable[[], int]:
    reader = TreeReader(root, boottime, seconds=60)

    def read() -> int:
        tree = reader.read()
        assert tree is not None
        return len(tree.entries)

    return read


def fdinfo_scans(root: Path, count: int) -> tuple[Callable[[], int], Callable[[], int]]:
    """Every tenth process has a render node open. Returns a first scan, and one that follows it."""
    (root / "proc").mkdir(parents=True, exist_ok=True)
    for pid in range(FIRST, FIRST + count):
        process(root, pid)
        files = [(f"/dev/null{n}", "pos: 0\n") for n in range(9)]
        if not pid % 10:
            files.append(("/dev/dri/renderD128", fdinfo(pid, drm_resident_vram="5 KiB", drm_engine_gfx="9 ns")))
        open_files(root, pid, *files)
    proc = Proc(root, frozenset())

    def scan(scanner: Scanner) -> int:
        found = scanner.scan()
        assert found is not None
        assert found.unreached == 0
        return sum(map(len, found.usages.values()))

    kept = Scanner(proc, ("gfx",), seconds=60)
    return lambda: scan(Scanner(proc, ("gfx",), seconds=60)), lambda: scan(kept)


def nvml_pass(root: Path, count: int) -> Callable[[], int]:
    (root / "proc").mkdir(parents=True, exist_ok=True)
    for pid in range(FIRST, FIRST + count):
        process(root, pid)
    gpus = [
        fake.gpu(
            number,
            nvmlDeviceGetComputeRunningProcesses=[
                fake.Row(pid, MIB) for pid in range(FIRST, FIRST + count) if pid % PACKAGES == number - 1
            ],
        )
        for number in range(1, PACKAGES + 1)
    ]
    opened = fake.opened(fake.FakeNvml(*gpus), root=root)
    devices = opened.devices()
    return lambda: sum(len(opened.read(device, ONLY).processes or ()) for device in devices)


def cost(work: Callable[[], int], expected: int | None) -> float:
    """Return the processor seconds of the fastest of a few runs. `expected`: what each is to find, if it is certain."""
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        found = work()
        taken.append(time.process_time() - began)
        assert expected in (None, found), (expected, found)
    return min(taken)


def linear(points: list[tuple[int, float]]) -> str:
    """Fit a line and say how much it leaves unexplained."""
    n = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    whole = sum((y - mean_y) ** 2 for _, y in points)
    return f"{slope * 1e6:.0f} us a process, R2 {1 - rest / whole:.4f}"


def main() -> None:
    place = sys.argv[1] if len(sys.argv) > 1 else "/dev/shm"  # noqa: S108 -- the only tmpfs that is everywhere
    series: dict[str, list[tuple[int, float]]] = {}
    for count in COUNTS:
        folder = Path(tempfile.mkdtemp(dir=place))
        try:
            graphics = -(-count // 10)
            first, next_one = fdinfo_scans(folder / "fdinfo", count)
            measured: dict[str, tuple[Callable[[], int], int | None]] = {
                "KFD, one partition each": (kfd_pass(folder / "kfd", count, everywhere=False), count),
                "KFD, all 64, one pass": (kfd_pass(folder / "all", count, everywhere=True), None),
                "KFD, all 64, to the end": (kfd_tree(folder / "all"), count),
                "DRM, first scan": (first, graphics),
                "DRM, next scan": (next_one, graphics),
                "NVML": (nvml_pass(folder / "nvml", count), count),
            }
            for name, (work, expected) in measured.items():
                series.setdefault(name, []).append((count, cost(work, expected)))
        finally:
            shutil.rmtree(folder)
    for name, points in series.items():
        print(f"{name:>26}: " + ", ".join(f"{count} {seconds:.3f} s" for count, seconds in points))
        if not name.endswith("one pass"):  # which has an end, however many there are
            print(f"{'':>26}  {linear(points)}")
    here = proc_of(Path("/"))
    scanner = Scanner(here, ("gfx",), seconds=60)
    for name in ("first", "next"):
        began = time.process_time()
        scanner.scan()
        taken = time.process_time() - began
        print(f"{name} scan of the {len(listed_pids(Path('/'))[0])} processes of this machine: {taken * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
