"""The page on Kubernetes speaks of values that exist, and its examples are good for the chart."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, ROOT, render

PAGE = (ROOT / "docs/kubernetes.md").read_text()
OPERATIONS = (ROOT / "docs/operations.md").read_text()
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [block for block in BLOCKS if set(yaml.safe_load(block)) <= set(VALUES)]
SETTING = re.compile(r"([a-z][A-Za-z]+(?:\.[A-Za-z]+)*)(?:: .+)?")


def exists(path: str) -> bool:
    node: Any = VALUES
    for key in path.split("."):
        if not isinstance(node, dict) or key not in node:
            return False
        node = node[key]
    return True


def test_values_exist() -> None:
    spans = [match[1] for span in re.findall(r"`([^`\n]+)`", PAGE) if (match := SETTING.fullmatch(span))]
    named = {span for span in spans if span.partition(".")[0] in VALUES}
    assert len(named) > 15
    # Beyond these the names are those of Kubernetes.
    free = ("podSecurityContext.", "daemonSets.", "config.")
    assert [name for name in sorted(named) if not exists(name) and not name.startswith(free)] == []
    assert set(re.findall(r"--set ([\w.]+)=", PAGE)) == {"image.registry", "serviceMonitor.enabled"}


@pytest.mark.integration
@pytest.mark.parametrize("example", EXAMPLES, ids=[block.partition(":")[0] for block in EXAMPLES])
def test_examples_are_good_for_the_chart(tmp_path: Path, example: str) -> None:
    assert render(tmp_path, yaml.safe_load(example))


def test_all_examples_but_that_of_prometheus_are_values() -> None:
    others = [block for block in BLOCKS if block not in EXAMPLES]
    assert [set(yaml.safe_load(block)) for block in others] == [{"relabel_configs"}]
    assert len(EXAMPLES) >= 5


def test_the_affinity_that_the_page_on_operations_explains_is_the_default() -> None:
    (block,) = re.findall(r"^```yaml\n(affinity:\n.*?)^```$", OPERATIONS, re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(block)["affinity"] == VALUES["affinity"]


def test_links_lead_to_headings() -> None:
    for page, anchor in re.findall(r"\]\((\w+\.md)#([^)]+)\)", PAGE.replace("\n", " ")):
        headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
        assert anchor in {re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings}, (
            page,
            anchor,
        )
