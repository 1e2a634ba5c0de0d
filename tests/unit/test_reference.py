"""The reference page is the tables, and nothing of them is missing."""

import re
from pathlib import Path

from exporter.metrics import METRIC_NAMES
from exporter.reference import CLOSED_LABELS, markdown

PAGE = Path(__file__).parents[2] / "docs/metrics.md"


def test_the_page_in_docs_is_the_tables() -> None:
    assert PAGE.read_text() == markdown(), "write it anew: gpu-exporter metrics > docs/metrics.md"


def test_every_metric_stands_on_the_page_once() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:gauge|counter|info) \|", markdown(), flags=re.MULTILINE)
    assert sorted(rows) == sorted(METRIC_NAMES)


def test_rows_name_all_labels_of_a_series() -> None:
    assert "| `gpu_process_memory_used_bytes` | gauge | bytes | `gpu`, `uuid`, `pid`, `name` |" in markdown()


def test_closed_labels_are_listed_with_their_values() -> None:
    page = markdown()
    for family, label in CLOSED_LABELS:
        assert f"| `{family}` | `{label}` | `" in page


def test_no_cell_breaks_its_table() -> None:
    tables = re.findall(r"^\|.*$", markdown(), flags=re.MULTILINE)
    assert {row.count("|") for row in tables} == {4, 6}
