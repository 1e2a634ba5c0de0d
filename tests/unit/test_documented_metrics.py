"""No page speaks of a metric that the exporter or the shipped rules do not have."""

import re
from pathlib import Path

import pytest
import yaml

from exporter.metrics import METRIC_NAMES, RECOVERY_ACTIONS

ROOT = Path(__file__).parents[2]
OTHERS = {"docs/migration.md"}
"""Has tables of other exporters' metrics, some of which begin as ours do."""
PAGES = [
    path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if str(path.relative_to(ROOT)) not in OTHERS
]
NO_METRICS = {"gpu_metrics", *RECOVERY_ACTIONS}
"""AMD's table in sysfs, and values of labels."""
METRIC = re.compile(r"(?<![\w:/.-])gpu_[a-z0-9_]*[a-z0-9](?![\w:*/-])")
RECORDED = re.compile(r"(?<![\w:/.-])[a-z_]+:gpu_[a-z_]+:[a-z0-9_]+")


def recorded() -> set[str]:
    files = (ROOT / "config/prometheus").glob("*.yaml")
    rules = (rule for file in files for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"])
    return {rule["record"] for rule in rules if "record" in rule}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_speaks_of_metrics_that_exist(page: Path) -> None:
    text = page.read_text()
    assert set(METRIC.findall(text)) - METRIC_NAMES - NO_METRICS == set()
    assert set(RECORDED.findall(text)) - recorded() == set()


def test_a_metric_is_seen_wherever_it_stands() -> None:
    text = "rate(gpu_lies_total[5m]), `gpu_no_watts`{x=1} and pod:gpu_nothing:sum, but gpu_energy_* or a/gpu_file"
    assert METRIC.findall(text) == ["gpu_lies_total", "gpu_no_watts"]
    assert RECORDED.findall(text) == ["pod:gpu_nothing:sum"]
