"""The queries of the shipped dashboards, with variables filled in as Grafana fills them."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

DIRECTORY = Path(__file__).parents[2] / "config/grafana"
FILES = sorted(DIRECTORY.glob("*.json"))

VARIABLE = re.compile(r"\$(?:\{(\w+)\}|([A-Za-z_]\w*))")
"""`$1` of label_replace is none."""
ANY_LABEL = re.compile(r"label_values\((.+), *(\w+)\)", re.DOTALL)
ANY_RESULT = re.compile(r"query_result\((.+)\)", re.DOTALL)


class Target(NamedTuple):
    board: str
    """Stem of the file."""
    panel: str
    ref: str
    expr: str
    """With variables."""
    instant: bool

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.ref}"


def load(path: Path) -> dict[str, Any]:
    board: dict[str, Any] = json.loads(path.read_text())
    return board


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the panels that show something: all but the rows."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def targets(path: Path) -> Iterator[Target]:
    for panel in panels(load(path)):
        for target in panel["targets"]:
            yield Target(path.stem, panel["title"], target["refId"], target["expr"], target["instant"])


def every_target() -> list[Target]:
    return [target for path in FILES for target in targets(path)]


def variables(board: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {v["name"]: v for v in board["templating"]["list"]}


def defaults(board: Mapping[str, Any]) -> dict[str, str]:
    """Return what variables are at first; one that has to be asked for and has no value for all is left out."""
    found = {}
    for name, variable in variables(board).items():
        if variable.get("allValue"):
            found[name] = variable["allValue"]
        elif variable["type"] in ("custom", "textbox"):
            found[name] = variable["current"]["value"]
    return found


def filled(expr: str, values: Mapping[str, str], *, seconds: float = 300, interval: float = 60) -> str:
    """Fill in the variables, and Grafana's own for a range of `seconds` and `$__rate_interval` of `interval` seconds.

    Raises KeyError for a variable that has no value.
    """
    own = {
        "__range": f"{seconds:.0f}s",
        "__range_s": f"{seconds:.0f}",
        "__rate_interval": f"{interval:.0f}s",
    }
    known = {**own, **values}
    return VARIABLE.sub(lambda match: known[match[1] or match[2]], expr)


def question(variable: Mapping[str, Any]) -> str | None:
    """Return the PromQL that a variable of type query asks, or None for others."""
    if variable["type"] != "query":
        return None
    ask = variable["query"]["query"]
    match = ANY_LABEL.fullmatch(ask) or ANY_RESULT.fullmatch(ask)
    assert match, ask
    return match[1]


def answers(variable: Mapping[str, Any], labels: list[dict[str, str]]) -> list[str]:
    """Return the values that a variable gets from the labels of the series that its question found."""
    ask = variable["query"]["query"]
    by_label = ANY_LABEL.fullmatch(ask)
    if by_label:
        return sorted({found[by_label[2]] for found in labels})
    # As Grafana writes series: labels in the order of the answer, which is that of the alphabet.
    pattern = re.compile(variable["regex"].strip("/").replace("(?<", "(?P<"))
    lines = ["{" + ",".join(f'{name}="{value}"' for name, value in sorted(found.items())) + "} 1 0" for found in labels]
    matches = [pattern.search(line) for line in lines]
    return [match["value"] for match in matches if match]
