"""How does a dashboard look, with what its queries found? Needs matplotlib."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from PIL import Image

from tests.grafana.queries import DIRECTORY, load
from tests.grafana.shown import Found, legend, rows, said

PAPER, INK, FAINT, CARD = "#111217", "#d8d9da", "#8e8e8e", "#1a1c22"
COLORS = {"green": "#73bf69", "orange": "#ff9830", "red": "#f2495c", "blue": "#5794f2", "text": INK}
LINES = ("#73bf69", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#fade2a", "#8ab8ff", "#ffa6b0", "#96d98d", "#ca95e5")
CELL = (0.62, 0.36)
"""Inches of a step of Grafana's grid."""
HEAD_INCHES = 0.35
LEGEND_LINES = 6
COLORS_KEPT = 200
"""So few that a picture is small enough for the repository."""


def _series(panel: Mapping[str, Any], found: Mapping[str, Found]) -> list[tuple[str, list[tuple[float, float]]]]:
    return [(legend(t, labels), points) for t in panel["targets"] for labels, points in found[t["refId"]]]


def _color(panel: Mapping[str, Any], value: float) -> str:
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    return COLORS[[s["color"] for s in steps if s["value"] is None or value >= s["value"]][-1]]


def _stat(axes: Axes, panel: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    shown = _series(panel, found)
    text = "No data"
    if shown:
        text = said(shown[0][1][-1][1], defaults["unit"], defaults.get("decimals"))
        if panel["targets"][0]["legendFormat"] != "__auto":
            text = shown[0][0]
    color = _color(panel, shown[0][1][-1][1]) if shown else FAINT
    axes.text(0.5, 0.45, text, color=color, fontsize=15, ha="center", va="center", transform=axes.transAxes)


def _graph(axes: Axes, panel: Mapping[str, Any], found: Mapping[str, Found], window: Sequence[float]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    shown = sorted(_series(panel, found), key=lambda s: -s[1][-1][1])
    if not shown:
        _nothing(axes)
        return
    stacked = defaults["custom"]["stacking"]["mode"] == "normal"
    floor: dict[float, float] = {}
    for number, (name, points) in enumerate(shown):
        color = LINES[number % len(LINES)]
        times = [t - window[1] for t, _ in points]
        values = [v + (floor.get(t, 0.0) if stacked else 0.0) for t, v in points]
        if stacked:
            axes.fill_between(
                times, [floor.get(t, 0.0) for t, _ in points], values, color=color, alpha=0.3, linewidth=0
            )
            floor |= {t: v for (t, _), v in zip(points, values, strict=True)}
        label = f"{name[:58]}  {said(points[-1][1], defaults['unit'])}" if number < LEGEND_LINES else None
        axes.plot(times, values, color=color, linewidth=1, label=label, marker="." if len(points) == 1 else None)
    axes.set_xlim(window[0] - window[1], 0)
    if "min" in defaults:
        axes.set_ylim(bottom=defaults["min"])
    if "max" in defaults:
        axes.set_ylim(top=defaults["max"] * 1.02)
    axes.yaxis.set_major_formatter(lambda v, _: said(v, defaults["unit"]))
    axes.tick_params(colors=FAINT, labelsize=6, length=0)
    axes.grid(color="#2c3235", linewidth=0.5)
    more = f"\n+ {len(shown) - LEGEND_LINES} more" if len(shown) > LEGEND_LINES else ""
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.08),
        fontsize=5.5,
        frameon=False,
        labelcolor=INK,
        ncols=2,
        title=more,
        title_fontproperties={"size": 5},
        borderaxespad=0,
    )


def _timeline(axes: Axes, panel: Mapping[str, Any], found: Mapping[str, Found], window: Sequence[float]) -> None:
    shown = [(name, [p for p in points if p[1]]) for name, points in _series(panel, found)]
    if not shown:
        _nothing(axes)
        return
    step = window[2]
    color = COLORS[panel["fieldConfig"]["defaults"]["mappings"][0]["options"]["1"]["color"]]
    for number, (_, points) in enumerate(shown):
        axes.broken_barh([(t - window[1] - step, step * 1.1) for t, _ in points], (number - 0.4, 0.8), color=color)
    axes.set_yticks(range(len(shown)), [name[:26] for name, _ in shown])
    axes.set_xlim(window[0] - window[1], 0)
    axes.tick_params(colors=INK, labelsize=5.5, length=0)


def _bars(axes: Axes, panel: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    shown = sorted(((name, points[-1][1]) for name, points in _series(panel, found)), key=lambda s: s[1])
    if not shown:
        _nothing(axes)
        return
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.barh(range(len(shown)), [v for _, v in shown], color="#5794f2", height=0.7)
    for number, (name, value) in enumerate(shown):
        axes.text(0, number, f" {name}: {said(value, unit)}", va="center", fontsize=6, color=INK)
    axes.set_yticks([])
    axes.set_xticks([])


def _table(axes: Axes, panel: Mapping[str, Any], found: Mapping[str, Found]) -> None:
    header, body = rows(panel, found)
    if not body:
        _nothing(axes)
        return
    most = max(3, int(panel["gridPos"]["h"] * 1.6))
    widest = max(6, int(panel["gridPos"]["w"] * 7.5 / len(header)))
    cells = [[cell[:widest] for cell in row] for row in body[:most]]
    drawn = axes.table(
        cells, colLabels=[h[:widest] for h in header], loc="upper left", cellLoc="left", edges="horizontal"
    )
    drawn.auto_set_font_size(False)
    drawn.set_fontsize(5.5)
    for cell in drawn.get_celld().values():
        cell.set_edgecolor("#2c3235")
        cell.get_text().set_color(INK)
    if len(body) > most:
        axes.text(1, 0, f"+ {len(body) - most} rows", fontsize=5.5, color=FAINT, ha="right", transform=axes.transAxes)


def _nothing(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, "No data", color=FAINT, fontsize=9, ha="center", va="center", transform=axes.transAxes)


def draw(board: str, answers: Mapping[str, Any], path: Path) -> None:
    """Write a picture of the dashboard of that name."""
    shape = load(DIRECTORY / f"{board}.json")
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in shape["panels"])
    inches = (24 * CELL[0], height * CELL[1] + HEAD_INCHES)
    figure = plt.figure(figsize=inches, facecolor=PAPER)
    head = HEAD_INCHES / inches[1]
    figure.text(0.004, 1 - 0.25 * head, shape["title"], color=INK, fontsize=10, va="top", weight="bold")
    for panel in shape["panels"]:
        place = panel["gridPos"]
        left, width = place["x"] / 24, place["w"] / 24
        bottom = (1 - head) * (1 - (place["y"] + place["h"]) / height)
        tall = (1 - head) * place["h"] / height
        if panel["type"] == "row":
            figure.text(left + 0.004, bottom + tall * 0.25, f"v {panel['title']}", color=INK, fontsize=9)
            continue
        card = figure.add_axes((left + 0.002, bottom + 0.06 / inches[1], width - 0.004, tall - 0.1 / inches[1]))
        card.set_facecolor(CARD)
        card.set_xticks([])
        card.set_yticks([])
        top = 1 - 0.05 / (tall * inches[1])
        card.text(0.01, top, panel["title"], color=INK, fontsize=7.5, va="top", transform=card.transAxes)
        for spine in card.spines.values():
            spine.set_color("#2c3235")
        _inside(card, panel, answers["panels"][str(panel["id"])], answers["window"])
    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=80, facecolor=PAPER)
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLORS_KEPT).save(path, optimize=True)


def _inside(card: Axes, panel: Mapping[str, Any], found: Mapping[str, Found], window: Sequence[float]) -> None:
    if panel["type"] == "stat":
        _stat(card, panel, found)
        return
    left, bottom = {"timeseries": (0.09, 0.33), "state-timeline": (0.2, 0.1)}.get(panel["type"], (0.015, 0.03))
    axes = card.inset_axes((left, bottom, 0.98 - left, 0.88 - bottom))
    axes.set_facecolor(CARD)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if panel["type"] == "timeseries":
        _graph(axes, panel, found, window)
    elif panel["type"] == "state-timeline":
        _timeline(axes, panel, found, window)
    else:
        axes.set_xticks([])
        axes.set_yticks([])
        (_bars if panel["type"] == "bargauge" else _table)(axes, panel, found)
