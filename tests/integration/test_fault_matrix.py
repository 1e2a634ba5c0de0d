"""What each fault does to a running daemon: a table without an empty or a failed cell.

Every daemon serves two providers; one of them suffers. Columns: it goes on serving, the right devices are down and in
the right state, all others go on, totals never fall, it recovers by itself, and it holds no more than before.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.fault_bench import (
    PSS_GROWTH,
    RELEASE,
    SCRAPE_SECONDS,
    SYMPTOM_SECONDS,
    Bench,
    Control,
    Seen,
    SimulatedBench,
)
from tests.integration.fault_rows import GPUS, NEWCOMER, ROWS, Row
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import build

MOST_DESCRIPTORS = 2 * 40 + 40
MOST_MEMORY = 2 * 60_000_000 + 60_000_000
"""What a worker may hold before it is replaced: twice the limits of the configuration, and what leaks in a moment."""
AT_ONCE = 20
"""Daemons that run at the same time: nearly all of a row is waiting."""
AT_ONCE_AGAIN = 4
MOST_REPEATS = 2
AROUND_SECONDS = 2.0
"""Before and after a fault, for which the daemon without one is looked at: of short ones there would be few scrapes."""
CALM = 0.02
"""The share of scrapes that are late without a fault on a machine that has time for us."""
STARTS = threading.Semaphore(4)
"""To start is not waiting, and would delay the scrapes of the others."""
COLUMNS = (
    "serves: p99, late",
    "right devices down",
    "others unbroken",
    "totals never fall",
    "recovers",
    "nothing leaks",
)

Outcomes = dict[Row, "Seen | BaseException"]


class Matrix(NamedTuple):
    rows: Outcomes
    took: str
    """In words."""


def id_of(row: Row) -> str:
    return f"{row.vendor}: {row.name}"


@pytest.fixture(scope="module")
def matrix(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """All rows that were asked for, run side by side."""
    names = {item.callspec.id for item in request.session.items if hasattr(item, "callspec")}
    rows = [row for row in ROWS if id_of(row) in names] or list(ROWS)
    folder = tmp_path_factory.mktemp("matrix")
    build("nvidia")
    rocm = amdsmi_tree(RELEASE, folder) if any(row.vendor == "amd" for row in rows) else {}
    together = [[row for row in rows if row.shares and row.vendor == vendor] for vendor in ("nvidia", "amd")]
    # The times of simulated faults are laid down for all of them.
    simulated = [row for row in ROWS if row.shares and row.vendor == "simulated"]
    together += [simulated] if any(row in rows for row in simulated) else []
    alone = [[row] for row in rows if not row.shares]
    # The longest first, and those mostly wait.
    jobs = [*filter(None, together), *sorted(alone, key=lambda job: job[0].scenario is None)]
    began = time.monotonic()
    with Control(folder / "control") as control:
        done = _run_all(jobs, control, folder / "first", rocm, AT_ONCE)
        first = time.monotonic() - began
        repeated = ""
        for attempt in range(MOST_REPEATS):
            # What went wrong while the daemon without a fault was held up as well says nothing about the fault.
            again = [job for job in jobs if any(_is_doubtful(row, done[row]) for row in job)]
            if again:
                since = time.monotonic()
                done |= _run_all(again, control, folder / f"again{attempt}", rocm, AT_ONCE_AGAIN)
                repeated += f", {sum(map(len, again))} of them again in {time.monotonic() - since:.0f} s"
    return Matrix({row: done[row] for row in rows}, f"{len(rows)} faults in {first:.0f} s{repeated}")


def _run_all(jobs: list[list[Row]], control: Control, folder: Path, rocm: Mapping[str, str], at_once: int) -> Outcomes:
    folder.mkdir()
    with ThreadPoolExecutor(at_once) as pool:
        runs = [(job, pool.submit(run, job, folder / f"job{n}", rocm)) for n, job in enumerate(jobs)]
    done: Outcomes = {}
    for job, future in runs:
        error = future.exception()
        done |= dict.fromkeys(job, error) if error else dict(zip(job, future.result(), strict=True))
    for seen in done.values():
        if isinstance(seen, Seen):
            seen.noise = control.late(seen.began - AROUND_SECONDS, seen.ended + AROUND_SECONDS)
    return done


def _is_doubtful(row: Row, seen: Seen | BaseException) -> bool:
    if isinstance(seen, BaseException):
        return True
    wrong = [cell for cell in cells(row, seen) if "FAILED" in cell]
    # So few scrapes may have been late by chance: the others run beside it no more.
    late_only = bool(wrong) and wrong == [_serves(seen)] and not seen.notes
    return late_only or (seen.noise > CALM and bool(seen.notes or wrong))


def run(rows: list[Row], folder: Path, rocm: Mapping[str, str]) -> list[Seen]:
    """Have one fault after the other befall one daemon."""
    scenarios = tuple(row.scenario for row in rows if row.scenario is not None)
    shares = rows[0].shares
    bench = (
        SimulatedBench(folder, scenarios, attributes=shares)
        if scenarios
        else Bench(folder, rows[0].vendor, attributes=shares)
    )
    with ExitStack() as stack:
        with STARTS:
            bench.start(stack, rocm)
        return [befall(bench, row) for row in rows]


def befall(bench: Bench, row: Row) -> Seen:
    bench.begin()
    row.inject(bench)
    bench.seen.symptom = bench.wait(lambda page: row.symptom(bench, page), SYMPTOM_SECONDS)
    bench.hold(row.hold)
    row.heal(bench)
    bench.seen.recovered = bench.wait(lambda page: bench.well(page, row.devices) and row.then(bench, page), row.within)
    bench.seen.ended = time.monotonic()
    bench.settle()
    if "Traceback" in bench.daemon.log:
        bench.seen.notes.append(f"a traceback: {bench.daemon.log[-3000:]}")
    return bench.seen


def cells(row: Row, seen: Seen) -> tuple[str, ...]:
    """Return a cell for each of COLUMNS; those of what went wrong begin with FAILED."""
    return (
        _serves(seen),
        _right_down(row, seen),
        _others(row, seen),
        _judged(not seen.falls, "yes", "; ".join(seen.falls[:2])),
        _judged(seen.recovered is not None, f"in {seen.recovered or 0:.1f} s", f"not in {row.within:g} s"),
        _leaks(row, seen),
    )


def _judged(good: bool, told: str, wrong: str) -> str:
    return told if good else f"FAILED: {wrong}"


def _serves(seen: Seen) -> str:
    took = sorted(seen.seconds)
    late = sum(seconds >= SCRAPE_SECONDS for seconds in took)
    p99 = took[math.ceil(0.99 * len(took)) - 1] * 1000
    told = f"{p99:.0f} ms, {late} of {len(took)}" + (f" (without a fault {seen.noise:.0%})" if seen.noise else "")
    # One in fifty may be held up by what else runs on the machine, and more where a daemon beside it without any fault
    # is held up: twice as many, and what chance adds to so many in so few scrapes.
    expected = len(took) * (0.02 + 2 * seen.noise)
    allowed = 1 + expected + 2 * math.sqrt(expected)
    return _judged(seen.statuses == {200} and late <= allowed, told, f"{told}, status {seen.statuses}")


def _right_down(row: Row, seen: Seen) -> str:
    if seen.symptom is None:
        return f"FAILED: the fault does not show in {SYMPTOM_SECONDS:g} s"
    wrong = []
    for device in _present(row, seen):
        away = seen.states[device] - {"ok"}
        if device not in GPUS:
            away -= {None}  # before it was there
        expected = set(row.down.get(device, ()))
        if not away <= expected or bool(expected) != bool(away):
            wrong.append(f"device {device} is {sorted(map(str, away)) or 'ok'}, not {sorted(expected) or 'ok'}")
    shown = ", ".join(sorted({str(state) for device in row.down for state in seen.states[device]} - {"ok"}))
    return _judged(
        not wrong, f"{len(row.down)} {shown} in {seen.symptom:.1f} s" if row.down else "none", "; ".join(wrong)
    )


def _present(row: Row, seen: Seen) -> list[int]:
    """Return the devices that are there in the end, and the one of the other provider."""
    return [*row.devices, max(seen.states)]


def _others(row: Row, seen: Seen) -> str:
    others = [device for device in _present(row, seen) if device not in row.down and device not in row.unread]
    broken = {device: seen.gaps[device] for device in others if seen.gaps.get(device) and device != NEWCOMER}
    told = f"{len(others)} go on" + (f", {seen.restarts:.0f} workers replaced" if seen.restarts else "")
    return _judged(not broken and not (row.shares and seen.restarts), told, f"{told}; without power: {broken}")


def _leaks(row: Row, seen: Seen) -> str:
    before, after = seen.before, seen.after
    if before is None or after is None:
        return "FAILED: not measured"
    grown = after.pss - before.pss
    good = after.no_more_than(before) and grown <= PSS_GROWTH
    if "leak" in row.name:
        good = good and seen.worst_worker[0] <= MOST_DESCRIPTORS and seen.worst_worker[1] <= MOST_MEMORY
    told = f"{after.children} children, {after.descriptors} files, {after.threads} threads, {grown / 2**20:+.1f} MiB"
    return _judged(good, told, f"{told}; before {before}, worst worker {seen.worst_worker}")


@pytest.mark.parametrize("row", ROWS, ids=id_of)
def test_fault(matrix: Matrix, row: Row) -> None:
    seen = matrix.rows[row]
    if isinstance(seen, BaseException):
        raise seen
    wrong = [f"{name}: {cell}" for name, cell in zip(COLUMNS, cells(row, seen), strict=True) if "FAILED" in cell]
    assert not wrong, "\n".join([*wrong, *seen.notes])
    assert not seen.notes, "\n".join(seen.notes)


def test_the_table_is_whole(matrix: Matrix, record_property: Callable[[str, str], None]) -> None:
    table = [("fault", *COLUMNS)]
    for row, seen in matrix.rows.items():
        failed = isinstance(seen, BaseException)
        table.append((id_of(row), *([f"FAILED: {seen!r}"[:60]] * len(COLUMNS) if failed else cells(row, seen))))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    text = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in table)
    record_property("table", f"{text}\n{matrix.took}")
    assert all(cell.strip() and "FAILED" not in cell for line in table for cell in line), f"\n{text}"
