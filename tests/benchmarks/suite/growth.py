"""How the cost grows with devices and with processes: at least five points each, and a line through them."""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from exporter.exposition import Format, Renderer
from tests.benchmarks import attribution
from tests.benchmarks.figures import Fit, fit
from tests.benchmarks.page import milliseconds, worlds
from tests.benchmarks.processes import fdinfo_scans, kfd_pass, nvml_pass
from tests.benchmarks.suite import floor
from tests.benchmarks.suite.section import Section

DEVICES = (8, 16, 24, 32, 48, 64)
PROCESSES = (0, 1_000, 2_000, 3_000, 4_000, 5_000)


def of_devices(counts: Sequence[int]) -> dict[str, list[tuple[float, float]]]:
    """Return (devices, milliseconds) of what a pass of each group takes beyond the bare calls, and of a cold page.

    The stand-in looks for a device among all, so its own calls grow as the square.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        for name, (_, in_c, ours) in floor.compare(count).items():
            points.setdefault(f"provider beyond the calls, {name}", []).append((count, (ours - in_c) / 1e3))
        page = milliseconds(lambda world: Renderer().page(world, Format.TEXT_0_0_4, gzip=True), worlds(count, count=5))
        points.setdefault("cold page, gzip", []).append((count, page))
    return points


def of_processes(counts: Sequence[int]) -> dict[str, list[tuple[float, float]]]:
    """Return (processes, milliseconds) of a pass of each kind over trees of files in the shape of the kernel's."""
    points: dict[str, list[tuple[float, float]]] = {}
    for count in counts:
        folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
        try:
            works = {
                "NVML's lists of 8 GPUs": nvml_pass(folder / "nvml", count),
                "KFD, 64 partitions": kfd_pass(folder / "kfd", count, everywhere=False),
                "DRM's files, next scan": fdinfo_scans(folder / "fdinfo", count)[1],
            }
            for name, work in works.items():
                work()
                points.setdefault(name, []).append((count, floor.best(work, 3) * 1e3))
        finally:
            shutil.rmtree(folder)
    return points


def of_owners(counts: Sequence[int]) -> dict[str, list[tuple[float, float]]]:
    """Return the same of a pass of attribution: the first, and one that knows all processes."""
    points: dict[str, list[tuple[float, float]]] = {"attribution, first pass": [], "attribution, next pass": []}
    for count in counts:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            taken = attribution.measure(Path(folder), count)
        for row, seconds in zip(points.values(), taken, strict=False):
            row.append((count, seconds * 1e3))
    return points


def growth(_: float) -> Section:
    section = Section("Growth")
    section.say(
        "One pass over all devices (H100s of the C stand-in), less the same calls made in C, and one page; "
        "milliseconds of processor time, best of many. Exponent: of the growth of what is above the first point; 1 is "
        "linear."
    )
    _show(section, of_devices(DEVICES), DEVICES, "a device")
    section.say(
        "One pass over all processes, spread over 8 GPUs (or 64 partitions, of 64 pods); a tenth of them have DRM's "
        "files open. The trees of files are in memory; of the kernel's own /proc a file takes longer."
    )
    _show(section, {**of_processes(PROCESSES), **of_owners(PROCESSES)}, PROCESSES, "a process")
    return section


def _show(section: Section, points: Mapping[str, list[tuple[float, float]]], counts: Sequence[int], each: str) -> None:
    rows = []
    for name, row in points.items():
        line: Fit = fit(row)
        section.figures[f"growth {name}"] = line.exponent
        told = [f"{line.slope * 1e3:.1f}", f"{line.r2:.3f}", f"{line.exponent:.2f}"]
        rows.append([name, *(f"{value:.2f}" for _, value in row), *told])
    section.table(("", *(f"{count:,}" for count in counts), f"us {each}", "R2", "exponent"), rows)
