"""Does a dashboard follow the rules that grafana/dashboard-linter has for those on Prometheus?"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser
import yaml

from tests.grafana.queries import DIRECTORY, defaults, filled, panels, question, variables

UNITS = (
    *("none", "short", "percentunit", "bool_yes_no"),
    *("watt", "joule", "kwatth", "bytes", "Bps", "hertz", "celsius", "s", "dateTimeAsLocal", "cps", "pps", "reqps"),
)
"""Those of Grafana's units that base units of the exporter can be shown in."""
WITH_UNIT = ("stat", "table", "timeseries", "gauge", "bargauge")
EVERY_GPU = "uuid"
"""Stands for variables without a value for all."""
RANGES, RATE_INTERVAL = 300, 60
WRAPPERS = ("rate", "irate", "increase")
HISTOGRAM = re.compile(r"_(sum|count|bucket)$")


class Finding(NamedTuple):
    rule: str
    where: str
    """Panel, or nothing for the dashboard."""
    what: str


def parsed(expr: str, board: Mapping[str, Any]) -> promql_parser.Expr:
    """Raises ValueError for what is no PromQL."""
    values = {**defaults(board), EVERY_GPU: EVERY_GPU}
    return promql_parser.parse(filled(expr, values, seconds=RANGES, interval=RATE_INTERVAL))


def walk(node: Any, parents: tuple[Any, ...] = ()) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield each expression in a query with those around it, the outermost first."""
    yield node, parents
    inside = (*parents, node)
    for name in ("expr", "lhs", "rhs", "param", "vector_selector", "vs"):
        child = getattr(node, name, None)
        if isinstance(child, (promql_parser.Expr, promql_parser.VectorSelector)):
            yield from walk(child, inside)
    for child in getattr(node, "args", None) or ():
        yield from walk(child, inside)


def selectors(expr: promql_parser.Expr) -> Iterator[tuple[promql_parser.VectorSelector, tuple[Any, ...]]]:
    for node, parents in walk(expr):
        if isinstance(node, promql_parser.VectorSelector):
            yield node, parents


def _variables(board: Mapping[str, Any]) -> Iterator[Finding]:
    known = variables(board)
    source = known.get("datasource")
    if (
        source is None
        or source["type"] != "datasource"
        or source["query"] != "prometheus"
        or source["label"] != "Data source"
    ):
        yield Finding("template-datasource-rule", "", "no variable datasource of Prometheus with its label")
    for name in ("job", "instance"):
        v = known.get(name)
        rule = f"template-{name}-rule"
        if v is None:
            yield Finding(rule, "", "no such variable")
            continue
        if v["datasource"]["uid"] not in ("$datasource", "${datasource}"):
            yield Finding(rule, "", "asks another data source")
        if v["type"] != "query" or v["label"] != name.capitalize() or not v["multi"] or v["allValue"] != ".+":
            yield Finding(rule, "", "is not a query with its label, multi and .+ for all")
    for name, v in known.items():
        asked = question(v)
        if asked is None:
            continue
        if v["refresh"] != 2:
            yield Finding("template-on-time-change-reload-rule", "", name)
        try:
            parsed(asked, board)
        except ValueError as e:
            yield Finding("template-label-promql-rule", "", f"{name}: {e}")


def _board(board: Mapping[str, Any]) -> Iterator[Finding]:
    if board["editable"]:
        yield Finding("uneditable-dashboard", "", "can be edited")
    yield from _variables(board)


def _panel(panel: Mapping[str, Any]) -> Iterator[Finding]:
    where = panel.get("title", "")
    if panel["datasource"]["uid"] not in ("$datasource", "${datasource}"):
        yield Finding("panel-datasource-rule", where, "asks another data source")
    if not panel.get("title") or not panel.get("description"):
        yield Finding("panel-title-description-rule", where, "has no title or no description")
    units = [panel["fieldConfig"]["defaults"].get("unit")]
    units += [p["value"] for o in panel["fieldConfig"]["overrides"] for p in o["properties"] if p["id"] == "unit"]
    if panel["type"] in WITH_UNIT and not set(units) <= set(UNITS):
        yield Finding("panel-units-rule", where, f"units {units}")
    if not panel.get("targets"):
        yield Finding("panel-no-targets-rule", where, "asks nothing")


def _target(expr: str, where: str, board: Mapping[str, Any]) -> Iterator[Finding]:
    try:
        tree = parsed(expr, board)
    except (ValueError, KeyError) as e:
        yield Finding("target-promql-rule", where, f"{e}: {expr}")
        return
    for match in re.finditer(r"\b(i?rate)\([^\[]+\[([^\]]+)\]", expr):
        if match[2] != "$__rate_interval":
            yield Finding("target-rate-interval-rule", where, match[0])
    for label in ("job", "instance"):
        # Each selector of a query, with variables in it, is told by its braces.
        for inside in re.findall(r"\{([^{}]*)\}", expr):
            if f'{label}=~"${label}"' not in inside:
                yield Finding(f"target-{label}-rule", where, inside)
    for selector, parents in selectors(tree):
        counter = selector.name.endswith("_total")
        outside = [p for p in parents if isinstance(p, promql_parser.Call)]
        if counter and not (outside and outside[-1].func.name in WRAPPERS):
            yield Finding("target-counter-agg-rule", where, selector.name)


def findings(board: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _board(board)
    for panel in panels(board):
        yield from _panel(panel)
        for target in panel.get("targets", ()):
            yield from _target(target["expr"], panel["title"], board)


def exceptions(path: Path = DIRECTORY / ".lint") -> Callable[[str, Finding], bool]:
    """Return what says whether a finding of the dashboard of this title is excused; each exception has its reason."""
    excluded = yaml.safe_load(path.read_text())["exclusions"]
    for rule, exception in excluded.items():
        assert len(exception["reason"].split()) > 5, rule
        assert exception["entries"], rule

    def excused(title: str, finding: Finding) -> bool:
        return any(
            entry.get("dashboard", title) == title and entry.get("panel", finding.where) == finding.where
            for entry in excluded.get(finding.rule, {}).get("entries", ())
        )

    return excused
