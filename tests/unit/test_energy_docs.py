"""Does what people are told about energy hold: names, queries, faults, uncertainty, and the measured figures?"""

import re
from pathlib import Path

import promql_parser
import pytest

from exporter import metrics
from exporter.energy import uncertainty

ROOT = Path(__file__).parents[2]
ENERGY = (ROOT / "docs" / "energy.md").read_text()
MEASURED = (ROOT / "docs" / "energy-accuracy.md").read_text()
PAGES = {"docs/energy.md": ENERGY, "README.md": (ROOT / "README.md").read_text()}

SPECS = [
    spec
    for name, table in vars(metrics).items()
    if name.endswith("_METRICS") and isinstance(table, tuple)
    for spec in table
]
NAMES = {spec.name for spec in SPECS}
LABELS = {label for spec in SPECS for label in spec.labels} | {"gpu", "uuid", "instance", "job"}
FIGURE = re.compile(r"[0-9.> ]+ \([0-9.> ]+\)")
"""RMS and worst."""

Table = list[dict[str, str]]


def tables(page: str) -> list[Table]:
    """Return the tables of a page of Markdown; each row by the names of the head."""
    found: list[Table] = []
    head: list[str] | None = None
    for line in page.splitlines():
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = _cells(line)
            found.append([])
        elif not set(line) <= set("|- "):
            found[-1].append(dict(zip(head, _cells(line), strict=True)))
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def table(page: str, *head: str) -> Table:
    return next(rows for rows in tables(page) if tuple(rows[0]) == head)


def queries(page: str) -> list[str]:
    spans = re.findall(r"`([^`\n]+)`", page)
    return [span for span in spans if "gpu_" in span and re.search(r"[({\[ ]", span) and "--" not in span]


def test_there_is_something_to_hold_the_pages_to() -> None:
    assert len(NAMES) > 60
    assert len(queries(ENERGY)) > 15
    assert len(queries(PAGES["README.md"])) > 5


@pytest.mark.parametrize("page", PAGES)
def test_every_metric_that_is_named_exists(page: str) -> None:
    words = set(re.findall(r"\bgpu_[a-z0-9_]+\*?", PAGES[page]))
    unknown = {word for word in words if word not in NAMES and not (word.endswith("*") and _any(word))}
    assert not unknown


def _any(pattern: str) -> bool:
    return any(name.startswith(pattern[:-1]) for name in NAMES)


def test_energy_md_names_every_series_of_energy() -> None:
    assert {name for name in NAMES if "energy" in name} <= set(re.findall(r"\bgpu_[a-z0-9_]+", ENERGY))


@pytest.mark.parametrize("page", PAGES)
def test_every_query_parses_and_asks_for_labels_that_exist(page: str) -> None:
    for query in queries(PAGES[page]):
        # Grafana and newer servers know more than the parser.
        plain = query.replace("$__range", "1h").replace(" anchored)", ")").replace(" smoothed)", ")")
        promql_parser.parse(plain)
        assert set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", plain)) <= LABELS, query


def test_every_fault_is_explained_and_no_other() -> None:
    rows = table(ENERGY, "fault", "what it means", "what becomes of the joules", "what to do")
    assert tuple(row["fault"].strip("`") for row in rows) == metrics.FAULTS
    assert all(all(row.values()) for row in rows)


def test_the_table_of_uncertainty_is_that_of_the_ledger() -> None:
    windows = {"average over 1 s": (1.0,), "instant, or window not known": (0.0, None)}
    rows = table(ENERGY, "measured by", "read each", "uncertainty")
    for row in rows:
        said = float(row["uncertainty"].removesuffix(" %")) / 100
        if row["measured by"] in windows:
            elapsed = float(row["read each"].removesuffix(" s"))
            for window in windows[row["measured by"]]:
                assert uncertainty.of_integral(window, elapsed) == pytest.approx(said), row
    assert {row["measured by"] for row in rows} >= set(windows)
    assert rows[0]["uncertainty"] == f"{100 * uncertainty.BY_ACCUMULATOR:g} %"
    assert rows[-1]["uncertainty"] == f"{100 * uncertainty.NOTHING_KNOWN:g} %"


def test_every_measured_figure_is_that_of_the_committed_results() -> None:
    measured = tables(MEASURED)
    compared = 0
    for rows in tables(ENERGY):
        source = [row for each in measured if set(rows[0]) <= set(each[0]) for row in each]
        if not source:
            assert not any(FIGURE.fullmatch(cell) for row in rows for cell in row.values()), rows[0]
            continue
        for row in rows:
            assert any(row.items() <= found.items() for found in source), row
            compared += 1
    assert compared > 20


def test_the_budgets_are_quoted_as_they_were_found_and_all_are_met() -> None:
    lines = [line for line in MEASURED.splitlines() if line.startswith("- ")]
    assert len(lines) == 3
    for line in lines:
        assert line.endswith(": met")
        assert line in ENERGY.splitlines()


def test_pictures_and_pages_that_are_linked_exist() -> None:
    for page, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            if "://" not in target:
                assert (ROOT / page).parent.joinpath(target).exists(), target
