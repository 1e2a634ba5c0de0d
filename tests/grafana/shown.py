"""What does a panel say of what its queries found: values in their units, legends, rows of tables?"""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SIGNS = {
    "watt": "W",
    "joule": "J",
    "kwatth": "kWh",
    "Bps": "B/s",
    "hertz": "Hz",
    "bytes": "B",
    "cps": "/s",
    "pps": "/s",
    "reqps": "/s",
}

Found = Sequence[Sequence[Any]]
"""Series as pairs of labels and points."""


def said(value: float, unit: str, decimals: int | None = None) -> str:
    """Return a value as Grafana shows it in that unit, nearly."""
    special = {
        "bool_yes_no": lambda: "Yes" if value else "No",
        "dateTimeAsLocal": lambda: f"{dt.datetime.fromtimestamp(value / 1000, tz=dt.UTC):%Y-%m-%d %H:%M:%S}",
        "percentunit": lambda: f"{100 * value:.{1 if decimals is None else decimals}f} %",
        "celsius": lambda: f"{value:.0f} °C",
        "s": lambda: f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s",
        "none": lambda: f"{value:.10g}" if decimals is None else f"{value:.{decimals}f}",
    }
    if unit in special:
        return special[unit]()
    scale, prefix = next(((s, p) for s, p in PREFIXES if abs(value) >= s), (1.0, ""))
    digits = f"{value / scale:.{2 if decimals is None else decimals}f}"
    return f"{digits} {prefix}{SIGNS.get(unit, '')}".strip()


def legend(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    form = target["legendFormat"]
    if form == "__auto":
        return ", ".join(f"{k}={v}" for k, v in labels.items() if k != "__name__") or target["refId"]
    return re.sub(r"\{\{(\w+)\}\}", lambda match: labels.get(match[1], ""), form)


def rows(panel: Mapping[str, Any], found: Mapping[str, Found]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of a table: joined as its transformations do, in units."""
    organize = panel["transformations"][-1]["options"]
    shown = {
        o["matcher"]["options"]: {p["id"]: p["value"] for p in o["properties"]}
        for o in panel["fieldConfig"]["overrides"]
    }
    single = len(panel["targets"]) == 1
    merged: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
    for target in panel["targets"]:
        field = "Value" if single else f"Value #{target['refId']}"
        name = organize["renameByName"][field]
        for labels, points in found[target["refId"]]:
            # Rows are one where all labels that both have agree.
            key = tuple(sorted(labels.items()))
            match = next((k for k in merged if set(k) <= set(key) or set(key) <= set(k)), key)
            row = merged.pop(match, {})
            row |= dict(labels) | {field: said(points[-1][1], shown[name]["unit"], shown[name].get("decimals"))}
            merged[max(match, key, key=len)] = row
    names = list(dict.fromkeys(name for row in merged.values() for name in row))
    kept = [n for n in names if n not in organize["excludeByName"]]
    header = [organize["renameByName"].get(n, n) for n in kept]
    return header, [[row.get(n, "") for n in kept] for row in merged.values()]
