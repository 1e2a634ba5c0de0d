"""Panels of a dashboard: each has title, description, unit and queries, and finds its place by itself.

In queries `{@` opens a selector that has the job and instance of the dashboard, `{#` one that has its GPUs as well.
"""

import string
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
EXPORTERS = 'job=~"$job", instance=~"$instance"'
WIDTH = 24

UP = "(up{@} and on (job) group by (job) (last_over_time(gpu_exporter_build_info{@}[$__range])))"
"""Targets of jobs that had an exporter, those that are down included: all jobs together are others' as well."""

DARK_SECONDS = """(sum(clamp_max(
  time() - gpu_last_sample_timestamp_seconds{#}
  and on (job, instance, uuid) gpu_state{#, state=~"lost|hung|stale"} == 1, $__range_s
)) or vector(0))"""
"""What gpu_energy_gap_seconds_total does not have yet of gaps that go on."""

GOOD, FAIR, BAD, NEUTRAL = "green", "orange", "red", "blue"


class Query(NamedTuple):
    expr: str
    legend: str = ""


class Step(NamedTuple):
    """From this value on, this colour."""

    value: float
    color: str


ZERO_IS_GOOD = (Step(1, BAD),)
ONE_IS_GOOD = (Step(1, GOOD),)


def query(expr: str, legend: str = "") -> Query:
    return Query(" ".join(expr.split()), legend)


def _filled(expr: str, gpus: str) -> str:
    """Fill in the selectors."""
    for opening, labels in (("{@", EXPORTERS), ("{#", f"{EXPORTERS}, {gpus}")):
        expr = expr.replace(opening + "}", "{" + labels + "}").replace(opening + ",", "{" + labels + ",")
    return expr


def _panel(
    kind: str,
    title: str,
    description: str,
    unit: str,
    queries: Sequence[Query],
    *,
    size: tuple[int, int],
    instant: bool,
    form: str = "time_series",
    defaults: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    targets = [
        {
            "datasource": DATASOURCE,
            "editorMode": "code",
            "expr": q.expr,
            "format": form,
            "instant": instant,
            "legendFormat": q.legend or "__auto",
            "range": not instant,
            "refId": letter,
        }
        for letter, q in zip(string.ascii_uppercase, queries, strict=False)
    ]
    assert len(targets) == len(queries), title
    return {
        "type": kind,
        "title": title,
        "description": " ".join(description.split()),
        "datasource": DATASOURCE,
        "gridPos": {"h": size[1], "w": size[0], "x": 0, "y": 0},
        "fieldConfig": {"defaults": {"unit": unit, **(defaults or {})}, "overrides": []},
        "options": options or {},
        "targets": targets,
        **more,
    }


def _thresholds(steps: Iterable[Step], base: str | None) -> dict[str, Any]:
    found = [{"color": base or "text", "value": None}, *({"color": s.color, "value": s.value} for s in steps)]
    return {"mode": "absolute", "steps": found}


def stat(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 4,
    decimals: int | None = None,
    steps: Sequence[Step] = (),
    base: str | None = None,
) -> dict[str, Any]:
    """Make a panel with one number, that of the end of the range, or the legend of its series where there is one.

    `base`: its colour below the first step.
    """
    defaults: dict[str, Any] = {"color": {"mode": "thresholds"}, "thresholds": _thresholds(steps, base)}
    if decimals is not None:
        defaults["decimals"] = decimals
    options = {
        "colorMode": "value",
        "graphMode": "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "textMode": "name" if any(q.legend for q in queries) else "auto",
    }
    return _panel(
        "stat", title, description, unit, queries, size=(width, 4), instant=True, defaults=defaults, options=options
    )


def graph(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    width: int = 12,
    stacked: bool = False,
    maximum: float | None = None,
    signed: bool = False,
) -> dict[str, Any]:
    """Make a panel of lines over time, which begins at zero unless `signed`."""
    custom = {
        "drawStyle": "line",
        "fillOpacity": 30 if stacked else 0,
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
    }
    defaults: dict[str, Any] = {"color": {"mode": "palette-classic"}, "custom": custom}
    if not signed:
        defaults["min"] = 0
    if maximum is not None:
        defaults["max"] = maximum
    options = {
        "legend": {
            "calcs": ["mean", "max", "lastNotNull"],
            "displayMode": "table",
            "placement": "bottom",
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return _panel(
        "timeseries",
        title,
        description,
        unit,
        queries,
        size=(width, 8),
        instant=False,
        defaults=defaults,
        options=options,
    )


def timeline(
    title: str,
    description: str,
    *queries: Query,
    width: int = 12,
    color: str = FAIR,
    other: str = "transparent",
    height: int = 8,
) -> dict[str, Any]:
    """Make a panel of what is 1 and what is 0 over time, in these colours."""
    mapping = {"0": {"color": other, "text": "no"}, "1": {"color": color, "text": "yes"}}
    defaults = {
        "color": {"mode": "thresholds"},
        "custom": {"fillOpacity": 80, "lineWidth": 0},
        "mappings": [{"type": "value", "options": mapping}],
    }
    options = {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
        "mergeValues": True,
        "rowHeight": 0.8,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel(
        "state-timeline",
        title,
        description,
        "none",
        queries,
        size=(width, height),
        instant=False,
        defaults=defaults,
        options=options,
    )


def bars(title: str, description: str, unit: str, *queries: Query, width: int = 12) -> dict[str, Any]:
    """Make a panel of one horizontal bar for each series at the end of the range."""
    defaults = {"color": {"mode": "continuous-BlYlRd"}, "min": 0}
    options = {
        "displayMode": "gradient",
        "orientation": "horizontal",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "showUnfilled": True,
        "valueMode": "color",
    }
    return _panel(
        "bargauge", title, description, unit, queries, size=(width, 8), instant=True, defaults=defaults, options=options
    )


class Column(NamedTuple):
    """The value of one query in a table, under its name."""

    name: str
    unit: str
    expr: str


def table(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    width: int = WIDTH,
    height: int = 8,
    hide: Sequence[str] = ("job",),
) -> dict[str, Any]:
    """Make a table with a row for each set of labels and a column for each label and query, without those in `hide`."""
    single = len(columns) == 1
    names = {
        (f"Value #{letter}" if not single else "Value"): c
        for letter, c in zip(string.ascii_uppercase, columns, strict=False)
    }
    overrides = [
        {
            "matcher": {"id": "byName", "options": c.name},
            "properties": [
                {"id": "unit", "value": c.unit},
                # What `increase` finds of a whole number is none.
                *([{"id": "decimals", "value": 0}] if c.unit == "none" else []),
            ],
        }
        for c in columns
    ]
    panel = _panel(
        "table",
        title,
        description,
        columns[0].unit,
        [query(c.expr) for c in columns],
        size=(width, height),
        instant=True,
        form="table",
        options={
            "cellHeight": "sm",
            "footer": {"show": False, "countRows": False, "fields": "", "reducer": ["sum"]},
            "showHeader": True,
        },
        transformations=[
            *([] if single else [{"id": "merge", "options": {}}]),
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(("Time", "__name__", *hide), True),
                    "renameByName": {field: c.name for field, c in names.items()},
                },
            },
        ],
    )
    panel["fieldConfig"]["overrides"] = overrides
    return panel


def row(title: str) -> dict[str, Any]:
    return {
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": 0},
        "panels": [],
    }


def laid_out(panels: Iterable[dict[str, Any]], gpus: str) -> list[dict[str, Any]]:
    """Number the panels and place them from left to right; `gpus`: the matcher behind `{#`."""
    x = y = height = 0
    for number, panel in enumerate(found := list(panels), start=1):
        place = panel["gridPos"]
        if x + place["w"] > WIDTH:
            x, y, height = 0, y + height, 0
        place.update(x=x, y=y)
        x, height = x + place["w"], max(height, place["h"])
        panel["id"] = number
        for target in panel.get("targets", ()):
            target["expr"] = _filled(target["expr"], gpus)
    return found
