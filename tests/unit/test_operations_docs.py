"""Does the page on operations speak of metrics, options, log lines and tests that exist, and of every alert?"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from exporter.cli import OPTIONS as FLAGS
from exporter.config import Config, load_config
from exporter.metrics import METRIC_NAMES
from exporter.reference import CLOSED_LABELS
from tests.unit.test_energy_docs import SPECS, tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/operations.md").read_text()
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
SPANS = re.findall(r"`([^`\n]+)`", PROSE)
FAULTS = ("fault", "on the page", "in the log", "what to do")
LABELS = {spec.name: {*spec.labels} for spec in SPECS}
SAID = re.compile(r'\b(?:msg|reason)=(?:"([^"]*)"|(\w+))')
MORE = re.compile(r"^… .*$")
"""A line that a library's output ends with, quoted without its beginning."""
LEAST = 12
"""Characters of a template that are to be the page's own words: one of nothing but fields would match anything."""
REPORTS = 20


def options(section: Any, prefix: str = "") -> Iterator[str]:
    for name in section.__struct_fields__:
        value = getattr(section, name)
        yield f"{prefix}{name}"
        if hasattr(value, "__struct_fields__"):
            yield from options(value, f"{prefix}{name}.")


@cache
def templates() -> tuple[re.Pattern[str], ...]:
    """Return what the exporter's texts look like: each string of its sources, with any text where fields are."""
    found: set[str] = set()
    for source in (ROOT / "exporter").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                parts = re.split(r"%[srd]", node.value)
            elif isinstance(node, ast.JoinedStr):
                parts = _split(node)
            else:
                continue
            if len(parts) == 1 or sum(map(len, parts)) >= LEAST:
                found.add(".+".join(map(re.escape, parts)))
    return tuple(re.compile(pattern) for pattern in found)


def _split(node: ast.JoinedStr) -> list[str]:
    parts = [""]
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    return parts


STATES = re.compile(r"GPU is (ok|lost|stale|asleep)")
FAILED = re.compile(r"GET '/metrics' failed")
SHORT = {STATES: '"GPU is ', FAILED: '"%s %r failed"'}
"""Of these little more than a field is written down: by what stands in the source."""


def is_said(text: str) -> bool:
    for pattern, source in SHORT.items():
        if pattern.fullmatch(text):
            return any(source in path.read_text() for path in (ROOT / "exporter").rglob("*.py"))
    return any(pattern.fullmatch(text) for pattern in templates())


def quoted() -> set[str]:
    lines = {one or other for span in SPANS for one, other in SAID.findall(span)}
    return lines | {span for span in SPANS if MORE.match(span)}


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", PROSE, re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows() -> list[dict[str, str]]:
    return [row for table in tables(PAGE) if tuple(table[0]) == FAULTS for row in table]


def reports() -> list[dict[str, str]]:
    (table,) = [table for table in tables(PAGE) if "kind of fault" in table[0]]
    return table


def test_there_is_something_to_hold_the_page_to() -> None:
    assert len(rows()) > 40
    assert len(quoted()) > 50
    assert len(templates()) > 500


def test_a_line_that_nobody_writes_would_be_found() -> None:
    for text in ("provider is sad", "GPU is unwell", "the worker holds … MiB of cheese", "… more lines were eaten"):
        assert not is_said(text)


def test_every_row_says_what_is_seen_and_what_to_do() -> None:
    assert [row for row in rows() if not all(row.values())] == []


def test_every_metric_exists() -> None:
    assert set(re.findall(r"\bgpu_(?!exporter/)[a-z0-9_]+\b", PAGE)) <= METRIC_NAMES


def test_labels_and_their_values_exist() -> None:
    seen = 0
    for name, selected in re.findall(r"\b(gpu_\w+)\{([^}]*)\}", PAGE):
        promql_parser.parse(f"{name}{{{selected}}}")
        for label, value in re.findall(r'(\w+)\s*!?=~?\s*"([^"]*)"', selected):
            assert label in LABELS[name] | {"gpu", "uuid", "provider"}, (name, label)
            assert value in CLOSED_LABELS.get((name, label), (value,)), (name, label, value)
            seen += 1
    assert seen > 15


def test_words_for_states_are_those_of_the_page() -> None:
    states = set(CLOSED_LABELS["gpu_state", "state"])
    assert {re.sub(r"\W", "", word) for word in re.findall(r"`(ok|stale|hung|lost|released|asleep)`", PROSE)} == states


def test_every_option_exists() -> None:
    known, sections = set(options(Config())), set(Config.__struct_fields__)
    named = {span for span in SPANS if re.fullmatch(r"[a-z_]+\.[a-z_]+(\.\*)?|[a-z_]+\.\*", span)}
    named = {name for name in named if name.partition(".")[0] in sections}
    assert len(named) > 10
    assert {name for name in named if name.removesuffix(".*") not in known} == set()
    flags = set(re.findall(r"(?<![\w-])--[a-z]+\.[a-z.-]+", PAGE))
    assert flags
    assert flags <= {*FLAGS.values(), "--config.file"}


def test_examples_of_the_configuration_are_right(tmp_path: Path) -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if set(yaml.safe_load(block)) <= set(Config.__struct_fields__)]
    blocks += [f"{span}\n" for span in SPANS if re.fullmatch(r"\w+: \{.*\}", span)]
    assert len(blocks) > 1
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        assert load_config(path) != Config()


@pytest.mark.parametrize("text", sorted(quoted()))
def test_every_line_of_the_log_exists(text: str) -> None:
    assert is_said(text)


def test_every_alert_has_a_section() -> None:
    files = sorted((ROOT / "config/prometheus").glob("*.yaml"))
    alerts = {
        rule["alert"]
        for path in files
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert alerts
    assert alerts <= set(re.findall(r"^### (\w+)$", PAGE, re.MULTILINE))


def test_links_within_the_page_lead_somewhere() -> None:
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links
    assert links <= anchors()


def test_every_report_names_tests_that_exist() -> None:
    found = reports()
    assert [row[""] for row in found] == [str(number) for number in range(1, REPORTS + 1)]
    for row in found:
        assert all(row.values()), row
        tests = re.findall(r"`([^`]+)`", row["tests"])
        assert tests, row
        for test in tests:
            path, _, name = test.partition("::")
            source = ast.parse((ROOT / "tests" / path).read_text())
            defined = {node.name for node in source.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            assert name in defined, test
