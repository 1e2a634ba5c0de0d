"""What Prometheus answers to the queries of a dashboard, asked as Grafana asks."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.grafana.queries import answers, defaults, filled, question, variables
from tests.integration.prometheus import Server

Points = list[tuple[float, float]]


class Window(NamedTuple):
    """The selected range, in Unix time, and Grafana's step and `$__rate_interval` for it, in seconds."""

    start: float
    end: float
    step: float
    interval: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Series(NamedTuple):
    labels: dict[str, str]
    points: Points
    """Time and value, those without a number left out."""

    @property
    def last(self) -> float:
        return self.points[-1][1]


def ask(server: Server, expr: str, window: Window, values: Mapping[str, str], *, instant: bool) -> list[Series]:
    """Return the series that have a number, over the window or at its end."""
    text = filled(expr, values, seconds=window.seconds, interval=window.interval)
    if instant:
        data = server.api("query", query=text, time=f"{window.end:.3f}")
        found = [(row["metric"], [row["value"]]) for row in data["result"]]
    else:
        bounds = {"start": f"{window.start:.3f}", "end": f"{window.end:.3f}", "step": f"{window.step:g}"}
        data = server.api("query_range", query=text, **bounds)
        found = [(row["metric"], row["values"]) for row in data["result"]]
    series = [Series(labels, [(t, float(v)) for t, v in points if math.isfinite(float(v))]) for labels, points in found]
    return [s for s in series if s.points]


def choices(server: Server, board: Mapping[str, Any], window: Window) -> dict[str, list[str]]:
    """Return what each variable that asks Prometheus may be."""
    first = defaults(board)
    found = {}
    for name, variable in variables(board).items():
        asked = question(variable)
        if asked is not None:
            series = ask(server, asked, window, first, instant=True)
            found[name] = answers(variable, [s.labels for s in series])
    return found


def stored(server: Server, selector: str, window: Window) -> list[tuple[dict[str, str], Points]]:
    """Return the samples of a window as they are stored, by series."""
    asked = f"{selector}[{window.seconds * 1000:.0f}ms]"
    data = server.api("query", query=asked, time=f"{window.end:.3f}")
    return [(row["metric"], [(t, float(v)) for t, v in row["values"]]) for row in data["result"]]
