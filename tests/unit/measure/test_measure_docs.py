"""Does docs/measure.md name what there is: every reason, column and field, and nothing else?"""

import re
from pathlib import Path

import msgspec
import pytest

from exporter.measure import samples, verdict
from exporter.measure.marks import VARIABLE
from exporter.measure.results import GpuResult, WindowResult
from tests.unit.test_energy_docs import table

PAGE = (Path(__file__).parents[3] / "docs/measure.md").read_text()


def code(cell: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", cell)


def test_every_reason_is_explained_and_no_other() -> None:
    rows = table(PAGE, "reason", "what it means", "what to do")
    assert tuple(row["reason"].strip("`") for row in rows) == verdict.WORDS
    assert all(all(row.values()) for row in rows)


def test_every_column_of_samples_is_explained() -> None:
    rows = table(PAGE, "column", "what it is")
    assert tuple(name for row in rows for name in code(row["column"])) == samples.COLUMNS
    assert samples.VERSION_LINE in PAGE


def test_fields_that_are_named_exist() -> None:
    known = {field.name for record in (GpuResult, WindowResult) for field in msgspec.structs.fields(record)}
    named = [name for row in table(PAGE, "field", "what it is") for name in code(row["field"])]
    assert len(named) >= 8
    assert set(named) <= known


def test_the_variable_of_the_marks_is_the_one_that_commands_are_given() -> None:
    assert PAGE.count(VARIABLE) >= 2


@pytest.mark.parametrize("option", sorted(set(re.findall(r"(?<![-\w])--[a-z][a-z-]+", PAGE))))
def test_options_that_are_named_exist(option: str) -> None:
    ours = (Path(__file__).parents[3] / "exporter/measure/options.py").read_text()
    cli = (Path(__file__).parents[3] / "exporter/cli.py").read_text()
    edges = ("--start", "--end")
    vendors = ("--query-gpu", "--format", "--power", "--energy", "--usage", "--temperature", "--csv", "--watch")
    assert option in (*edges, *vendors) or f'"{option}"' in ours + cli
