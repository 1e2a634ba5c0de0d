"""Dashboards are what the code gives, follow the linter's rules and Grafana's schema, ask for metrics that exist."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from exporter.metrics import METRIC_NAMES
from tests.grafana.boards import dashboards, text
from tests.grafana.linter import exceptions, findings, parsed, selectors
from tests.grafana.queries import DIRECTORY, FILES, defaults, every_target, load, panels, question, targets, variables

OF_PROMETHEUS = {"up", "ALERTS", "scrape_duration_seconds", "scrape_samples_scraped"}
OF_SERVERS = re.compile(r"(vllm:|sglang:|llamacpp:|tgi_)")
CONFIG_MAP_BYTES = 1 << 20

every_board = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def test_the_files_are_what_the_code_gives() -> None:
    """`python -m tests.grafana.boards` writes them."""
    assert {path.stem: path.read_text() for path in FILES} == {
        name: text(board) for name, board in dashboards().items()
    }


def test_there_is_a_board_for_each_question() -> None:
    assert {path.stem.removeprefix("gpu-exporter-") for path in FILES} == {
        "fleet",
        "node",
        "gpu",
        "energy",
        "inference",
        "exporter",
    }


@every_board
def test_a_board_follows_the_rules_of_the_linter(path: Path) -> None:
    board, excused = load(path), exceptions()
    assert [f for f in findings(board) if not excused(board["title"], f)] == []


def test_each_exception_is_needed() -> None:
    lines = (DIRECTORY / ".lint").read_text()
    rules = set(re.findall(r"^  ([a-z-]+):$", lines, re.MULTILINE))
    found = {(f.rule, board["title"]) for board in map(load, FILES) for f in findings(board)}
    assert {rule for rule, _ in found} == rules


def _drop_label(board: dict[str, Any]) -> None:
    variables(board)["job"]["label"] = ""


def _no_refresh(board: dict[str, Any]) -> None:
    variables(board)["instance"]["refresh"] = 1


def _fixed_source(board: dict[str, Any]) -> None:
    panels(board)[0]["datasource"] = {"type": "prometheus", "uid": "abc"}


def _asking(expr: str) -> Callable[[dict[str, Any]], None]:
    def spoil(board: dict[str, Any]) -> None:
        panels(board)[0]["targets"][0]["expr"] = expr

    return spoil


SELECTED = '{job=~"$job", instance=~"$instance"}'


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("uneditable-dashboard", lambda board: board.update(editable=True)),
        ("template-datasource-rule", lambda board: board["templating"]["list"].pop(0)),
        ("template-job-rule", _drop_label),
        ("template-on-time-change-reload-rule", _no_refresh),
        ("template-label-promql-rule", lambda b: variables(b)["job"]["query"].update(query="label_values(up{, job)")),
        ("panel-datasource-rule", _fixed_source),
        ("panel-title-description-rule", lambda board: panels(board)[0].update(description="")),
        ("panel-units-rule", lambda board: panels(board)[0]["fieldConfig"]["defaults"].update(unit="bananas")),
        ("panel-no-targets-rule", lambda board: panels(board)[0].update(targets=[])),
        ("target-promql-rule", _asking(f"sum(gpu_up{SELECTED}")),
        ("target-promql-rule", _asking(f"gpu_up{SELECTED} > $nothing")),
        ("target-rate-interval-rule", _asking(f"rate(gpu_energy_joules_total{SELECTED}[5m])")),
        ("target-job-rule", _asking('sum(gpu_up{instance=~"$instance"})')),
        ("target-instance-rule", _asking('sum(gpu_up{job=~"$job"})')),
        ("target-counter-agg-rule", _asking(f"sum(gpu_energy_joules_total{SELECTED})")),
    ],
)
def test_a_board_that_breaks_a_rule_is_told(rule: str, spoil: Callable[[dict[str, Any]], None]) -> None:
    board = copy.deepcopy(dashboards()["gpu-exporter-fleet"])
    assert rule not in {f.rule for f in findings(board)}
    spoil(board)
    assert rule in {f.rule for f in findings(board)}


def unknown(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the places of what was given and not kept."""
    if isinstance(given, dict) and isinstance(kept, dict):
        lost = [f"{path}.{key}" for key in given.keys() - kept.keys()]
        return lost + [
            place for key in given.keys() & kept.keys() for place in unknown(given[key], kept[key], f"{path}.{key}")
        ]
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [
            place for n, pair in enumerate(zip(given, kept, strict=True)) for place in unknown(*pair, f"{path}[{n}]")
        ]
    return [] if given == kept else [path]


def through_grafana(board: dict[str, Any]) -> dict[str, Any]:
    """Return what the types that Grafana makes from its schema keep of a dashboard."""
    plugins.register_default_plugins()
    kept: dict[str, Any] = json.loads(JSONEncoder().encode(Dashboard.from_json(copy.deepcopy(board))))
    return kept


@every_board
def test_grafanas_schema_knows_every_key(path: Path) -> None:
    board = load(path)
    assert unknown(board, through_grafana(board)) == []


def test_a_key_that_grafana_does_not_know_is_told() -> None:
    board = copy.deepcopy(dashboards()["gpu-exporter-fleet"])
    panels(board)[0]["options"]["colourMode"] = "value"
    board["panels"][2]["fieldConfig"]["defaults"]["units"] = "watt"
    assert unknown(board, through_grafana(board)) == [
        ".panels[1].options.colourMode",
        ".panels[2].fieldConfig.defaults.units",
    ]


@every_board
def test_a_board_speaks_of_metrics_that_exist(path: Path) -> None:
    board = load(path)
    asked = [target.expr for target in targets(path)]
    asked += [q for q in map(question, variables(board).values()) if q is not None]
    names = {selector.name for expr in asked for selector, _ in selectors(parsed(expr, board))}
    assert {name for name in names if not OF_SERVERS.match(name)} <= METRIC_NAMES | OF_PROMETHEUS


def test_every_metric_is_on_a_board() -> None:
    asked = {path.stem: load(path) for path in FILES}
    shown = {s.name for target in every_target() for s, _ in selectors(parsed(target.expr, asked[target.board]))}
    assert METRIC_NAMES - shown == set()


@every_board
def test_a_board_fits_a_config_map_and_says_what_it_is(path: Path) -> None:
    board = load(path)
    assert path.stat().st_size < CONFIG_MAP_BYTES / 2
    assert board["uid"] == path.stem
    assert len(board["uid"]) <= 40
    assert 36 <= board["schemaVersion"] <= 41
    assert board["description"].endswith(".")
    assert board["tags"] == ["gpu-exporter"]
    assert "__inputs" not in board


@every_board
def test_panels_have_numbers_and_places_of_their_own(path: Path) -> None:
    board = load(path)
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    titles = [panel["title"] for panel in panels(board)]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells


@every_board
def test_descriptions_are_sentences(path: Path) -> None:
    for panel in panels(load(path)):
        assert re.fullmatch(r"[A-Z].+\.", panel["description"]), panel["title"]


@every_board
def test_variables_have_labels_and_are_used(path: Path) -> None:
    board = load(path)
    used = json.dumps(board)
    for name, variable in variables(board).items():
        assert variable["label"], name
        assert f"${name}" in used or f"${{{name}}}" in used, name


def test_the_choices_of_servers_are_those_that_are_documented() -> None:
    page = (DIRECTORY.parents[1] / "docs/dashboards.md").read_text()
    board = load(DIRECTORY / "gpu-exporter-inference.json")
    for name in ("tokens", "prompts", "queries"):
        for option in variables(board)[name]["options"]:
            assert f"`{option['value']}`" in page
    assert defaults(board)["tokens"] == "vllm:generation_tokens_total"
