"""What a measurement found, as people read it: a table for a terminal, and one in Markdown."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.measure.results import GpuResult, Report, RunResult, Summary, WindowResult
from exporter.measure.statistics import Statistic

_NONE = "-"
Rows = Sequence[Sequence[str]]


class _Column(NamedTuple):
    title: str
    field: str
    decimals: int


_COLUMNS = (
    _Column("J/out-tok", "joules_per_output_token", 3),
    _Column("W/GPU", "watts_per_gpu", 1),
    _Column("J/query", "joules_per_query", 1),
    _Column("out tok/s/GPU", "output_tokens_per_second_per_gpu", 1),
    _Column("J", "joules", 1),
    _Column("J above idle", "joules_above_idle", 1),
    _Column("s", "seconds", 2),
)


def markdown(report: Report) -> str:
    """Return a row for each window: means over its valid runs, the coefficient of variation in % in brackets."""
    columns = [column for column in _COLUMNS if any(getattr(row, column.field) for row in report.summary)]
    head = ["window", "GPUs", "valid runs", *(column.title for column in columns)]
    rows = [
        [
            summary.window.replace("|", "\\|"),
            _models(report) or str(summary.gpus),
            f"{summary.valid} of {summary.runs}{_failed(summary)}",
            *(_statistic(getattr(summary, column.field), column.decimals) for column in columns),
        ]
        for summary in report.summary
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _failed(summary: Summary) -> str:
    return f", {summary.failed} failed" if summary.failed else ""


def _models(report: Report) -> str:
    """Return how many GPUs there are of each model; nothing where no model is known."""
    counts = Counter(gpu.model or "unknown" for gpu in report.gpus)
    if set(counts) == {"unknown"}:
        return ""
    return ", ".join(f"{count} x {model}" for model, count in counts.items()).replace("|", "\\|")


def _statistic(value: Statistic | None, decimals: int) -> str:
    if value is None:
        return _NONE
    scatter = "" if value.variation_ratio is None else f" ({100 * value.variation_ratio:.2f})"
    return f"{value.mean:.{decimals}f}{scatter}"


def terminal(report: Report) -> str:
    """Return each window with its GPUs, verdict and reasons, and what several runs say together."""
    blocks = [_window(report, run, window) for run in report.runs for window in run.windows]
    if not blocks:
        blocks = ["No window was measured.\n"]
    if len(report.runs) > 1:
        blocks += [_repeats(summary) for summary in report.summary]
    cut = ["The log ends within a row, which was left out."] if any(run.truncated for run in report.runs) else []
    if notes := [*cut, *report.notes]:
        blocks.append("".join(f"{note}\n" for note in notes))
    return "\n".join(blocks)


def _window(report: Report, run: RunResult, window: WindowResult) -> str:
    number = f", run {run.number} of {len(report.runs)}" if len(report.runs) > 1 else ""
    length = "" if window.seconds is None else f", {window.seconds:.2f} s"
    verdict = "power valid" if window.power_valid else "POWER NOT VALID"
    rows = [["GPU", "J", "+-", "W", "peak W", "readings", "from", "accumulator/integral"]]
    rows += [_gpu(gpu) for gpu in window.gpus]
    if len(window.gpus) > 1:
        check = window.cross_check
        watts, peak = _number(window.mean_watts, 1), _number(window.peak_watts, 1)
        joules, error = _number(window.joules, 1), _number(window.uncertainty_joules, 1)
        divergence = _NONE if check is None else _ratio(check.divergence_ratio, divergent=check.divergent)
        rows.append(["all", joules, error, watts, peak, "", "", divergence])
    lines = [f"{window.name}{number}{length}: {verdict}", *_aligned(rows)] if window.gpus else []
    lines = lines or [f"{window.name}{number}{length}: {verdict}"]
    figures = [
        f"{_number(getattr(window, column.field), column.decimals)} {column.title}"
        for column in _COLUMNS[:4]
        if getattr(window, column.field) is not None
    ]
    if figures:
        lines.append("  ".join(figures))
    lines += [f"not valid ({reason.reason}): {reason.text}" for reason in window.reasons]
    return "".join(f"{line}\n" for line in lines)


def _gpu(gpu: GpuResult) -> list[str]:
    return [
        gpu.name,
        _number(gpu.joules, 1),
        _number(gpu.uncertainty_joules, 1),
        _number(gpu.mean_watts, 1),
        _number(gpu.peak_watts, 1),
        f"{gpu.readings}/{gpu.readings_expected}",
        gpu.source or _NONE,
        _ratio(gpu.divergence_ratio, divergent=gpu.divergent),
    ]


def _number(value: float | None, decimals: int) -> str:
    return _NONE if value is None else f"{value:.{decimals}f}"


def _ratio(value: float | None, *, divergent: bool) -> str:
    return _NONE if value is None else f"{100 * value:+.2f} %{' !' if divergent else ''}"


def _repeats(summary: Summary) -> str:
    figures = [
        f"{_statistic(getattr(summary, column.field), column.decimals)} {column.title}"
        for column in _COLUMNS
        if getattr(summary, column.field) is not None
    ]
    told = "  ".join(figures) if figures else "nothing to average"
    counted = f"{summary.valid} of {summary.runs} runs valid{_failed(summary)}"
    return f"{summary.window}, {counted}, mean (variation in %):\n{told}\n"


def _aligned(rows: Rows) -> Iterable[str]:
    """Yield lines with columns under each other: names to the left, figures to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        first, *rest = [
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join((first, *rest)).rstrip()
