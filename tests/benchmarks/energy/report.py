"""What the yardstick found, as a page of Markdown."""

from collections.abc import Iterable, Sequence

from tests.benchmarks.energy.promql import RULES, LifeRow, WindowRow
from tests.benchmarks.energy.yardstick import METHODS, UNEXPLAINED, Error, Row, budgets, percent

HEAD = """\
# Energy: measured

Written by `python -m tests.benchmarks.energy_accuracy --page docs/energy-accuracy.md`; what it means is in
[energy.md](energy.md). Loads, sensors and phases are made from fixed seeds, so the same code gives the same page.
"""
YARDSTICK = """\
## Joules of 300 s windows

Error in %, RMS over the windows, the worst in brackets. Loads switch between 80 and 650 W. Sensors renew their value
each 100 ms. `ours` is the ledger of `exporter/energy`, fed when the worker's schedule reads and at each scrape, every
15 s. The others see the same trace: the scraped watts averaged by PromQL; all-smi's published integral (a timer of 3 s,
trapezoids up to 10 s, then the last power for the whole gap); Zeus (the accumulator if it is between 0.1 and 10 times
the power over 0.5 s, else power polled each 50 ms); the accumulator as scraped, falls counted as `increase` does.
`ours says` is `gpu_energy_uncertainty_ratio` in %, the largest at the end of a window.
"""
INCREASE = """\
## `increase` over an exact counter

Error in %, RMS over windows that end at random moments, the worst in brackets. `anchored` and `smoothed` as they are
documented for Prometheus 3.7 and newer.
"""
NO_ANSWER = "no answer"
LIVES = """\
## Short lives

Share of the joules that `increase` over an hour finds of a counter that lived for so long, at 500 W, in %.
"""


def page(
    rows: Sequence[Row], windows: Iterable[WindowRow], bills: Iterable[WindowRow], lives: Iterable[LifeRow]
) -> str:
    return "\n".join([HEAD, yardstick(rows), promql(windows, bills, lives)])


def yardstick(rows: Sequence[Row]) -> str:
    lines = [
        YARDSTICK,
        *_head("what is there", "load or fault", "windows", "ours says", *METHODS, "where ours is not first, or more"),
    ]
    lines += [row_line(row) for row in rows]
    lines += ["", "Budgets:", "", *(f"- {budget}" for budget in budgets(rows)), ""]
    return "\n".join(lines)


def row_line(row: Row) -> str:
    cells = (cell(row.errors[method]) if method in row.errors else "" for method in METHODS)
    return _line(
        f"{row.section}, {row.sensor}", row.name, str(row.windows), percent(row.expected), *cells, row.explanation
    )


def cell(error: Error) -> str:
    return f"{percent(error.rms)} ({percent(error.worst)})"


def failures(rows: Sequence[Row]) -> list[str]:
    """Return what is not as promised, a sentence each."""
    missed = [f"{budget}" for budget in budgets(rows) if not budget.met]
    missed += [f"ours is further off than it says: {row_line(row)}" for row in rows if row.understated]
    return missed + [f"ours is not first: {row_line(row)}" for row in rows if UNEXPLAINED in row.explanation]


def promql(windows: Iterable[WindowRow], bills: Iterable[WindowRow], lives: Iterable[LifeRow]) -> str:
    lines = [INCREASE, *_head("load", "scrape", "window", *(f"`{rule}`" for rule in RULES))]
    lines += [
        _line(
            row.load,
            f"{row.scrape} s",
            row.window,
            *(cell(row.errors[rule]) if rule in row.errors else NO_ANSWER for rule in RULES),
        )
        for each in (windows, bills)
        for row in each
    ]
    lines += ["", LIVES, *_head("scrape", "life", "as scraped", "with a sample of 0 at its start")]
    lines += [
        _line(f"{row.scrape} s", row.life, f"{100 * row.plain:.0f}", f"{100 * row.zero_sample:.0f}") for row in lives
    ]
    return "\n".join([*lines, ""])


def _head(*names: str) -> list[str]:
    return [_line(*names), _line(*("---" for _ in names))]


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
