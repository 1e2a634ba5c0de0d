"""What lies in the tree is what the code means by it."""

import json
import re
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from exporter.config import Config, load_config
from exporter.providers.simulated.scenario import load_scenario
from exporter.strict_yaml import load
from exporter.validation import convert
from exporter.web.protection.form import Form

ROOT = Path(__file__).parents[2]


def test_every_file_in_config_is_good_for_what_it_is_for() -> None:
    for path in (ROOT / "config").rglob("*"):
        name = str(path.relative_to(ROOT / "config"))
        if path.is_dir() or path.suffix == ".md":  # what is for people has its links followed below
            continue
        if name == "gpu-exporter.yaml":
            load_config(path)
        elif name.startswith("web-config/"):
            document = load(path.read_bytes())
            convert(document.value, Form, document.problems)
        elif name == "scenarios/shared-node.sh":
            assert name in (ROOT / "tests/integration/test_attribution_docs.py").read_text()  # runs it
        elif name.startswith("grafana/"):
            assert name == "grafana/.lint" or json.loads(path.read_text())["panels"]  # tests/grafana holds them to more
        elif name.startswith("prometheus/"):
            assert load(path.read_bytes()).value["groups"]  # promtool has its say in test_rules
        elif name.startswith(("compose/", "container/")):
            # It is read by the one, and by the other, which test_image builds from.
            readers = (ROOT / "tests/unit/test_packaging.py", ROOT / "Dockerfile")
            assert any(path.name in reader.read_text() for reader in readers)
        elif name.startswith("scenarios/"):
            load_scenario(path.read_text(), name=name)
        else:
            pytest.fail(f"no test loads {name}")


def test_the_sample_configuration_holds_every_option_at_its_default() -> None:
    path = ROOT / "config/gpu-exporter.yaml"
    assert load_config(path) == Config()
    assert load(path.read_bytes()).value == msgspec.json.decode(msgspec.json.encode(Config()))


def test_each_option_of_the_sample_configuration_has_a_comment() -> None:
    lines = (ROOT / "config/gpu-exporter.yaml").read_text().splitlines()
    bare = [
        line.strip()
        for before, line in pairwise(lines)
        if ": " in line and "#" not in line and not before.strip().startswith("#")
    ]
    assert bare == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))
        for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert broken == []


def test_the_readme_gives_the_two_commands() -> None:
    """`.ci/run` takes the second one from there."""
    first, second, *_ = re.findall(r"^```sh\n(.*?)\n```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first.endswith(".venv/bin/gpu-exporter --provider simulated")
    assert second.endswith(".venv/bin/pytest -n 4 --dist loadfile")
    assert "'.[test]'" in second
