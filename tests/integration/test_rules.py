"""The shipped rules: promtool understands them, they do what their tests say, and they speak of metrics that exist."""

import re
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from exporter.metrics import METRIC_NAMES
from tests.integration.prometheus import find

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "config/prometheus").glob("*.yaml"))
TESTS = sorted((ROOT / "tests/prometheus").glob("*.yaml"))


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def promtool(major: int, *arguments: str | Path) -> None:
    done = subprocess.run(
        [find(major).promtool, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("major", [2, 3])
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_promtool_understands_the_rules(path: Path, major: int) -> None:
    promtool(major, "check", "rules", path)


@pytest.mark.parametrize("major", [2, 3])
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_the_rules_do_what_their_tests_say(path: Path, major: int) -> None:
    promtool(major, "test", "rules", path)


def test_each_file_of_rules_has_tests() -> None:
    tested = {
        (test.parent / name).resolve() for test in TESTS for name in yaml.safe_load(test.read_text())["rule_files"]
    }
    assert tested == set(RULES)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_each_alert_is_tested_firing_and_silent(path: Path) -> None:
    alerts = {rule["alert"] for rule in rules(path) if "alert" in rule}
    checks = [
        (check["alertname"], bool(check.get("exp_alerts")))
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for check in test.get("alert_rule_test", [])
    ]
    assert {name for name, fires in checks if fires} >= alerts
    assert {name for name, fires in checks if not fires} >= alerts


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_speak_of_metrics_that_exist(path: Path) -> None:
    recorded = {rule["record"] for file in RULES for rule in rules(file) if "record" in rule}
    for rule in rules(path):
        promql_parser.parse(rule["expr"])
        # Names in quotes are values of labels.
        words = set(re.findall(r"[a-zA-Z_:][\w:]*", re.sub(r'"[^"]*"', "", rule["expr"])))
        assert {name for name in words if ":" in name} <= recorded, rule
        assert {name for name in words if name.startswith("gpu_")} <= METRIC_NAMES, rule


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_each_alert_leads_to_what_to_do(path: Path) -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").strip().lower()).replace(" ", "-")
        for line in (ROOT / "docs/operations.md").read_text().splitlines()
        if line.startswith("#")
    }
    for rule in rules(path):
        if "alert" in rule:
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert (page, anchor) == ("docs/operations.md", rule["alert"].lower())
            assert anchor in headings
