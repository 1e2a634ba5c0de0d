"""The shipped rules: promtool understands them, they do what their tests say, and they speak of series that exist."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from exporter.exposition.subjects import TABLES, Table, tables
from exporter.metrics import FATAL_EVENTS, PROCESS_LABELS, Kind
from exporter.reference import CLOSED_LABELS
from tests.integration.prometheus import find
from tests.promql import selectors

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "config/prometheus").glob("*.yaml"))
TESTS = sorted((ROOT / "tests/prometheus").glob("*.yaml"))


def labels_by_name(of: tuple[Table[Any], ...]) -> dict[str, set[str]]:
    return {spec.name: {*table.labels, *spec.labels} for table in of for spec in table.specs}


KINDS = {spec.name: spec.kind for table in TABLES for spec in table.specs}
SPECS = labels_by_name(tables(PROCESS_LABELS, each_link=True))
"""Labels of each of our metrics, those of links one by one included."""
BY_DEFAULT = labels_by_name(TABLES)
OTHERS = {"up": set(), "kube_pod_labels": {"namespace", "pod", "label_team"}}
"""Labels of the metrics of others."""
TARGET = {"job", "instance", "namespace", "pod", "container"}
"""Labels that Prometheus and its operator give to whatever they scrape."""
SEVERITIES = {"critical", "warning", "info"}
every_file = pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
every_test = pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


RECORDED = {rule["record"] for file in RULES for rule in rules(file) if "record" in rule}


def promtool(major: int, *arguments: str | Path) -> None:
    done = subprocess.run(
        [find(major).promtool, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def inputs(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield name and labels of each series that a file of tests gives to the rules."""
    for test in yaml.safe_load(path.read_text())["tests"]:
        for given in test["input_series"]:
            (selector,) = selectors(given["series"])
            yield str(selector.name), {matcher.name: matcher.value for matcher in selector.matchers.matchers}


@pytest.mark.parametrize("major", [2, 3])
@every_file
def test_promtool_understands_the_rules(path: Path, major: int) -> None:
    promtool(major, "check", "rules", path)


@pytest.mark.parametrize("major", [2, 3])
@every_test
def test_the_rules_do_what_their_tests_say(path: Path, major: int) -> None:
    promtool(major, "test", "rules", path)


def test_each_file_of_rules_has_tests() -> None:
    tested = {
        (test.parent / name).resolve() for test in TESTS for name in yaml.safe_load(test.read_text())["rule_files"]
    }
    assert tested == set(RULES)


def test_each_alert_is_tested_silent_then_firing_then_silent_again() -> None:
    seen: dict[str, list[str]] = {}
    for file in TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            fires: dict[str, str] = {}
            for check in test.get("alert_rule_test", []):
                name = check["alertname"]
                fires[name] = fires.get(name, "") + ("1" if check.get("exp_alerts") else "0")
            for name, course in fires.items():
                seen.setdefault(name, []).append(course)
    alerts = {rule["alert"] for path in RULES for rule in rules(path) if "alert" in rule}
    assert alerts == seen.keys()
    assert {name for name, courses in seen.items() if not any(re.fullmatch("0+1+0+", one) for one in courses)} == set()


@every_test
def test_series_of_the_tests_have_the_shape_of_our_page(path: Path) -> None:
    for name, labels in inputs(path):
        if name in OTHERS:
            assert labels.keys() <= {*OTHERS[name], *TARGET}, (name, labels)
            continue
        assert labels.keys() <= {*SPECS[name], *TARGET}, (name, labels)
        # Labels of an info metric that are empty are as if they were not there.
        needed = BY_DEFAULT[name] & ({"gpu", "uuid"} if KINDS[name] is Kind.INFO else SPECS[name])
        assert {"job", "instance", *needed} <= labels.keys(), name
        for label, value in labels.items():
            assert value in CLOSED_LABELS.get((name, label), (value,)), (name, labels)


@every_file
def test_rules_speak_of_series_that_exist(path: Path) -> None:
    for rule in rules(path):
        for selector in selectors(rule["expr"]):
            name = str(selector.name)
            if name in RECORDED:
                continue
            labels = OTHERS[name] if name in OTHERS else SPECS[name]
            for matcher in selector.matchers.matchers:
                assert matcher.name in labels, rule
                closed = CLOSED_LABELS.get((name, matcher.name))
                if closed is not None:
                    assert set(matcher.value.split("|")) <= set(closed), rule


@every_file
def test_nothing_is_recorded_under_a_name_of_the_page(path: Path) -> None:
    names = Counter(rule["record"] for rule in rules(path) if "record" in rule)
    assert names.keys().isdisjoint(SPECS)
    assert [name for name, count in names.items() if count > 1] == []


@every_file
def test_each_alert_says_what_is_wrong_how_bad_it_is_and_what_to_do(path: Path) -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line.lstrip("# ").strip().lower()).replace(" ", "-")
        for line in (ROOT / "docs/operations.md").read_text().splitlines()
        if line.startswith("#")
    }
    for rule in rules(path):
        if "alert" in rule:
            assert rule["labels"]["severity"] in SEVERITIES
            assert "$labels.instance" in rule["annotations"]["summary"]
            page, _, anchor = rule["annotations"]["runbook"].partition("#")
            assert (page, anchor) == ("docs/operations.md", rule["alert"].lower())
            assert anchor in headings


@every_file
def test_annotations_speak_of_labels_that_the_alert_has(path: Path) -> None:
    # promtool takes a label that is not there for an empty one.
    for rule in rules(path):
        known = {"job", "instance"}.union(*(SPECS[s.name] for s in selectors(rule["expr"]) if s.name in SPECS))
        text = " ".join(rule.get("annotations", {}).values())
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= known, rule


def test_conditions_end_with_their_threshold_as_the_chart_expects_it() -> None:
    without = {"GpuExporterDown", "GpuPcieLinkNarrow"}
    """Their right side is another series."""
    alerts = {rule["alert"]: rule["expr"] for path in RULES for rule in rules(path) if "alert" in rule}
    ends = {name for name, expression in alerts.items() if re.search(r"(==|[<>]=?) [0-9.]+$", expression)}
    assert alerts.keys() - ends == without


def test_each_rule_that_records_is_tested() -> None:
    asked = {
        str(selector.name)
        for file in TESTS
        for test in yaml.safe_load(file.read_text())["tests"]
        for check in test.get("promql_expr_test", [])
        for selector in selectors(check["expr"])
    }
    used = {str(selector.name) for file in RULES for rule in rules(file) for selector in selectors(rule["expr"])}
    assert asked | used >= RECORDED


def test_each_error_that_is_shown_before_it_happens_raises_one_alert() -> None:
    codes: dict[str, list[str]] = {"xid": [], "ras": []}
    for rule in rules(ROOT / "config/prometheus/alerts.yaml"):
        for selector in selectors(rule["expr"]):
            found = {matcher.name: matcher.value for matcher in selector.matchers.matchers}
            if selector.name == "gpu_error_event_last_timestamp_seconds":
                codes[found["kind"]] += found["code"].split("|")
    assert sorted(codes["xid"]) == sorted(FATAL_EVENTS["xid"])
    assert sorted(codes["ras"]) == sorted({*FATAL_EVENTS["ras"], "non_fatal_uncorrected"})
