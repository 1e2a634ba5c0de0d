"""What all dashboards have in common: variables, links to each other, and the rest of their frame."""

from collections.abc import Iterable, Sequence
from typing import Any

from tests.grafana.boards.panels import DATASOURCE, laid_out

TAG = "gpu-exporter"
ON_TIME_CHANGE = 2
ALL = {"selected": True, "text": ["All"], "value": ["$__all"]}
GPU_INFO = 'gpu_info{job=~"$job", instance=~"$instance"}'


def variable(
    name: str, label: str, ask: str, *, regex: str = "", many: bool = True, description: str = ""
) -> dict[str, Any]:
    """Make a variable whose values Prometheus tells; one with `many` begins with all of them."""
    made = {
        "name": name,
        "label": label,
        "description": description,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": ask, "refId": "StandardVariableQuery"},
        "regex": regex,
        "refresh": ON_TIME_CHANGE,
        "sort": 1,
        "multi": many,
        "includeAll": many,
    }
    return {**made, "allValue": ".+", "current": ALL} if many else made


def choice(name: str, label: str, options: Sequence[tuple[str, str]], description: str) -> dict[str, Any]:
    """Make a variable with these texts and values, of which the first is chosen."""
    return {
        "name": name,
        "label": label,
        "description": description,
        "type": "custom",
        "query": ", ".join(f"{text} : {value}" for text, value in options),
        "options": [{"selected": n == 0, "text": text, "value": value} for n, (text, value) in enumerate(options)],
        "current": {"selected": True, "text": options[0][0], "value": options[0][1]},
        "multi": False,
        "includeAll": False,
    }


def number(name: str, label: str, value: str, description: str) -> dict[str, Any]:
    """Make a variable that people type in."""
    current = {"selected": True, "text": value, "value": value}
    return {
        "name": name,
        "label": label,
        "description": description,
        "type": "textbox",
        "query": value,
        "current": current,
        "options": [current],
    }


def every_gpu(label: str = "GPU") -> dict[str, Any]:
    return variable("gpu", label, f"label_values({GPU_INFO}, gpu)")


PRICE = number(
    "price", "Price of a kWh", "0.30", "In the currency that you want to see: costs have no unit but this one."
)
PUE = number(
    "pue", "PUE", "1.0", "What the site draws for each joule of its machines; 1.0 leaves cooling and losses out."
)


def board(
    name: str,
    title: str,
    description: str,
    panels: Iterable[dict[str, Any]],
    variables: Sequence[dict[str, Any]] = (),
    *,
    gpus: str = 'gpu=~"$gpu"',
    since: str = "now-1h",
) -> dict[str, Any]:
    """Make a dashboard with the uid `gpu-exporter-NAME`; `gpus`: how its variables choose GPUs in queries."""
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "description": "The Prometheus that scrapes the exporters.",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "multi": False,
        "includeAll": False,
        "current": {},
    }
    exporters = (
        variable(
            "job",
            "Job",
            "label_values(gpu_exporter_build_info, job)",
            description="Jobs of Prometheus that scrape exporters.",
        ),
        variable(
            "instance",
            "Instance",
            'label_values(gpu_exporter_build_info{job=~"$job"}, instance)',
            description="Exporters: one for each host, as a rule.",
        ),
    )
    annotation = {
        "builtIn": 1,
        "datasource": {"type": "grafana", "uid": "-- Grafana --"},
        "enable": True,
        "hide": True,
        "iconColor": "rgba(0, 211, 255, 1)",
        "name": "Annotations & Alerts",
        "type": "dashboard",
    }
    link = {
        "title": "GPU dashboards",
        "type": "dashboards",
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "tags": [TAG],
        "asDropdown": True,
        "targetBlank": False,
        "includeVars": False,
        "keepTime": True,
    }
    return {
        "uid": f"gpu-exporter-{name}",
        "title": title,
        "description": " ".join(description.split()),
        "tags": [TAG],
        "timezone": "browser",
        "editable": False,
        "graphTooltip": 1,
        "time": {"from": since, "to": "now"},
        "refresh": "30s",
        "schemaVersion": 39,
        "fiscalYearStartMonth": 0,
        "annotations": {"list": [annotation]},
        "links": [link],
        "templating": {"list": [datasource, *exporters, *variables]},
        "panels": laid_out(panels, gpus),
    }
