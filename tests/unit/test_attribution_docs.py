"""Does what people are told about users of GPUs hold: names, options, labels, sources, queries, capabilities?"""

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import promql_parser
import pytest
import yaml

from exporter import metrics
from exporter.attribution import slurm
from exporter.config import Config
from exporter.supervision.need import TERMS
from tests.unit.test_energy_docs import NAMES, queries, table, tables

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "attribution.md").read_text()
RULES = yaml.safe_load((ROOT / "config/prometheus/workloads.yaml").read_text())
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"]}
LABELS = {
    row["name"].strip("`"): set(re.findall(r"\w+", row["labels"]))
    for rows in tables((ROOT / "docs/metrics.md").read_text())
    if "labels" in rows[0]
    for row in rows
}
"""By metric."""
OF_OTHERS = {"job", "instance", "owner", "team"}
"""Labels of targets, and those that the rules make."""


def spans() -> list[str]:
    return re.findall(r"`([^`\n]+)`", TEXT)


def promql() -> list[str]:
    rules = [span for span in spans() if any(name in span for name in RECORDED)]
    asked = [span for span in queries(TEXT) if not span.startswith("metrics: ")]
    return list(dict.fromkeys([*asked, *rules]))


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [text for name, text in found if name == language]


def test_every_metric_that_is_named_exists() -> None:
    words = set(re.findall(r"(?<![a-z0-9_:])gpu_[a-z0-9_]+\b(?!:)(?!\*)", TEXT)) - {"gpu_process_", "gpu_workload_"}
    assert len(words) > 10
    assert words <= NAMES
    assert set(re.findall(r"\b[a-z_]+:gpu_[a-z_]+:[a-z0-9]+", TEXT)) <= RECORDED


def test_every_metric_of_workloads_and_sources_is_explained() -> None:
    ours = {name for name in NAMES if name.startswith(("gpu_process", "gpu_workload", "gpu_exporter_attribution"))}
    assert ours <= set(re.findall(r"gpu_[a-z0-9_]+", TEXT))


def test_a_kubelet_that_comes_later_is_noticed_within_what_is_said() -> None:
    text = " ".join(TEXT.split())
    assert f"within {TERMS.away_seconds / 60:g} minutes for a pod" in text
    assert f"stays for {TERMS.recalled_seconds / 60:g} minutes" in text


def test_every_option_that_is_named_exists() -> None:
    options = [
        span for span in spans() if re.fullmatch(r"(?:attribution|processes|sampling|metrics)\.\w+(?:: \w+)?", span)
    ]
    assert len(options) > 8
    for option in options:
        section, name = option.partition(":")[0].split(".")
        assert name in {field.name for field in msgspec.structs.fields(getattr(Config(), section))}, option
    for example in re.findall(r"`(\w+: \{[^`]+\})`", TEXT):
        msgspec.convert(yaml.safe_load(example), Config)


def test_the_tables_name_all_states_sources_and_kinds() -> None:
    assert {row["state"].strip("`") for row in table(TEXT, "state", "")} == set(metrics.PROCESS_STATES)
    sources = {row["source"].strip("`") for row in table(TEXT, "source", "tells", "needs", "asked")}
    assert sources == set(metrics.ATTRIBUTION_SOURCES)
    kinds = {row["`kind`"].strip("`") for row in table(TEXT, "`kind`", "`workload`", "when")}
    assert kinds == set(metrics.WORKLOAD_KINDS)


@pytest.mark.parametrize("query", promql())
def test_every_query_parses_and_asks_for_labels_that_exist(query: str) -> None:
    promql_parser.parse(query)
    named = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", query))
    for words in re.findall(r"\b(?:by|on|group_left) \(([^)]*)\)", query):
        named |= {word.strip() for word in words.split(",")}
    assert named <= OF_OTHERS.union(*LABELS.values()), query


def test_series_that_are_shown_have_the_labels_of_their_metrics() -> None:
    lines = [line for block in blocks("") for line in block.splitlines()]
    assert len(lines) > 10
    for line in lines:
        name, _, labels = line.rpartition(" ")[0].partition("{")
        assert set(re.findall(r'(\w+)="', labels)) <= LABELS[name], line


def test_the_reason_the_comment_and_the_drop_in_name_the_same_capabilities() -> None:
    drop_in = (ROOT / "systemd/drop-ins/other-users.conf").read_text()
    needed = set(re.findall(r"CAP_\w+", slurm._NEEDS_CAPABILITY))
    assert needed == {"CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH"}
    for setting in ("CapabilityBoundingSet", "AmbientCapabilities"):
        (value,) = re.findall(rf"^{setting}=(.*)$", drop_in, re.MULTILINE)
        assert set(value.split()) == needed
    comment = (ROOT / "config/gpu-exporter.yaml").read_text()
    assert needed <= set(re.findall(r"CAP_\w+", comment))


def test_chosen_labels_are_those_that_can_be_chosen() -> None:
    hints: Any = get_type_hints(type(Config().processes))["labels"]
    (line,) = [line for line in TEXT.splitlines() if line.startswith("- `processes.labels` chooses among")]
    assert set(get_args(get_args(hints)[0])) <= set(re.findall(r"`(\w+)`", line))
