"""The same figures to look at. Needs matplotlib, which nothing else here does."""

from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.energy.promql import BILLED, WindowRow
from tests.benchmarks.energy.traces import AVERAGE, FULL, QUARTER
from tests.benchmarks.energy.yardstick import ALL_SMI, NO_ACCUMULATOR, OURS, WATTS, ZEUS, Row

COLOURS = {OURS: "#0072b2", ZEUS: "#009e73", ALL_SMI: "#e69f00", WATTS: "#d55e00"}
FLOOR = 0.01
"""Where the logarithmic axis begins, in %."""


def draw(rows: Sequence[Row], windows: Sequence[WindowRow], directory: Path) -> list[Path]:
    """Write the plots into a directory and return their paths."""
    import matplotlib as mpl  # noqa: PLC0415 -- optional

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "gpu-exporter"  # the same figures give the same file
    mpl.rcParams["svg.fonttype"] = "none"  # text stays text: a fifth of the size
    from matplotlib import pyplot as plt  # noqa: PLC0415 -- only who draws needs it

    directory.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(3, 1, figsize=(9, 8), sharex=True, layout="constrained")
    for axis, sensor in zip(axes, (AVERAGE, FULL, QUARTER), strict=True):
        shown = [row for row in rows if row.section == NO_ACCUMULATOR and row.sensor == sensor]
        for place, (method, colour) in enumerate(COLOURS.items()):
            at = [index + 0.2 * (place - 1.5) for index in range(len(shown))]
            values = [max(FLOOR, 100 * row.errors[method].rms) for row in shown]
            axis.bar(at, values, 0.18, color=colour, label=method)
        axis.set(yscale="log", ylim=(FLOOR, 100), ylabel="RMS error, %", title=f"power is {sensor}")
        axis.axhline(1.0 if sensor == QUARTER else 0.5, color="black", linestyle=":", linewidth=1)
        axis.set_xticks(range(len(shown)), [row.name.replace(", ", ",\n") for row in shown], fontsize=8)
    axes[0].legend(ncols=4, fontsize=8, loc="upper left")
    figure.suptitle("Joules of 300 s without a hardware accumulator (dotted: our budget)")
    return [_save(figure, directory / "energy-methods.svg"), _increase(windows, directory / "energy-increase.svg")]


def _increase(windows: Sequence[WindowRow], path: Path) -> Path:
    from matplotlib import pyplot as plt  # noqa: PLC0415 -- only who draws needs it

    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    groups = list(dict.fromkeys((row.scrape, row.window) for row in windows))
    rough = {(row.scrape, row.window): row for row in windows if row.load == BILLED}
    rules = {"increase": "#d55e00", "anchored": "#e69f00", "smoothed": "#0072b2"}
    for place, (rule, colour) in enumerate(rules.items()):
        at = [index + 0.27 * (place - 1) for index, group in enumerate(groups) if rule in rough[group].errors]
        errors = [rough[group].errors[rule] for group in groups if rule in rough[group].errors]
        axis.bar(at, [100 * error.rms for error in errors], 0.25, color=colour, label=rule)
        axis.scatter(at, [100 * error.worst for error in errors], s=14, color=colour, marker="_")
    axis.set(
        yscale="log", ylabel="error, %: RMS, and worst (dash)", title=f"increase() over an exact counter, {BILLED}"
    )
    axis.set_xticks(range(len(groups)), [f"{window}\nscraped each {scrape} s" for scrape, window in groups], fontsize=8)
    axis.legend()
    return _save(figure, path)


def _save(figure: object, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None})  # type: ignore[attr-defined]  # matplotlib may be absent
    return path
