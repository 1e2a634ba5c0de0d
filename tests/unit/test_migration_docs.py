"""Does the page for those who come from another exporter name metrics, labels and rules that exist?"""

import re
from pathlib import Path

import pytest
import yaml

from exporter.exposition.subjects import tables as page_tables
from exporter.metrics import PROCESS_LABELS
from exporter.reference import CLOSED_LABELS
from tests.promql import selectors
from tests.unit.test_energy_docs import Table, tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/migration.md").read_text()
LABELS = {
    spec.name: {*table.labels, *spec.labels}
    for table in page_tables(PROCESS_LABELS, each_link=True)
    for spec in table.specs
}
METRICS = [rows for rows in tables(PAGE) if "unit" in rows[0]]
IDENTITIES = [rows for rows in tables(PAGE) if "unit" not in rows[0]]
ROWS = [row for rows in METRICS for row in rows]
INFO = re.compile(r"((?:`\w+`(?:, )?)+) of `(gpu_\w+_info|gpu_info)`")


def spans(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def rules(name: str) -> dict[str, str]:
    file = yaml.safe_load((ROOT / f"config/prometheus/compatibility-{name}.yaml").read_text())
    return {rule["record"]: rule["expr"] for group in file["groups"] for rule in group["rules"]}


def ruled(name: str) -> Table:
    """Return the table whose names the rules of the file record."""
    (found,) = [rows for rows in METRICS if "rule" in rows[0] and rows[0]["theirs"].strip("`") in rules(name)]
    return found


def test_there_is_a_table_for_each_exporter() -> None:
    assert len(METRICS) == 6
    assert min(map(len, METRICS)) > 10
    assert len(IDENTITIES) == 3


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["theirs"].strip("`"))
def test_what_stands_for_it_here_exists(row: dict[str, str]) -> None:
    asked = [selector for span in spans(row["ours"]) if "gpu_" in span for selector in selectors(span)]
    assert asked or row["ours"].startswith(("none", "as above"))
    for selector in asked:
        name = str(selector.name)
        assert name in LABELS
        for matcher in selector.matchers.matchers:
            assert matcher.name in LABELS[name]
            values = CLOSED_LABELS.get((name, matcher.name), (matcher.value,))
            assert any(re.fullmatch(matcher.value, value) for value in values)


@pytest.mark.parametrize("name", ["dcgm", "amd"])
def test_the_page_says_which_names_are_recorded_and_of_what(name: str) -> None:
    recorded = {record: expression for record, expression in rules(name).items() if ":" not in record}
    by_rule = {row["theirs"].strip("`"): row for row in ruled(name) if row["rule"] == "yes"}
    assert by_rule.keys() == recorded.keys()
    for theirs, row in by_rule.items():
        ours = {selector.name for span in spans(row["ours"]) for selector in selectors(span)}
        rule = {selector.name for selector in selectors(recorded[theirs])} - {f"gpu:{name}_labels:info"}
        assert rule in (ours, {f"gpu:{name}_identity:info"}), theirs


@pytest.mark.parametrize("name", ["dcgm", "amd"])
def test_the_other_names_are_not_recorded(name: str) -> None:
    others = {row["theirs"].strip("`") for row in ruled(name) if row["rule"] != "yes"}
    assert others
    assert others.isdisjoint(rules(name))


def test_labels_that_stand_for_theirs_exist() -> None:
    found = [(label, metric) for labels, metric in INFO.findall(PAGE) for label in spans(labels)]
    assert len(found) > 20
    assert [pair for pair in found if pair[0] not in LABELS[pair[1]]] == []


@pytest.mark.parametrize("name", ["dcgm", "amd"])
def test_labels_of_theirs_are_those_that_the_rules_make(name: str) -> None:
    expression = rules(name)[f"gpu:{name}_labels:info"] + rules(name)[f"gpu:{name}_identity:info"]
    made = set(re.findall(r'"(\w+)", "[^"]*", "\w*", "', expression))
    listed = {
        label
        for rows in IDENTITIES
        for row in rows
        if "rule" in row and row["rule"] != "none" and not row["rule"].startswith("none:")
        for label in spans(row["theirs"])
    }
    assert made
    assert made <= listed
