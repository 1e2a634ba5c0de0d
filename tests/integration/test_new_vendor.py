"""Does the recipe of CONTRIBUTING.md for a new vendor work? It is followed to the letter in a copy of the tree."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.integration.daemon import ROOT

LOOK = """
import sys
import time
from pathlib import Path

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import Group
from exporter.providers import PROVIDERS
from exporter.providers.protocol import OpenContext

provider, version = PROVIDERS["acme"].open(OpenContext(between_calls=lambda: None, root=Path(sys.argv[1])))
fleet = Fleet([("acme", True)], SamplingConfig())
fleet.provider_status("acme", up=True, reason="", library_version=version)
fleet.enumerated("acme", provider.devices(), time.monotonic())
for device in provider.devices():
    fleet.observed("acme", provider.read(device, frozenset(Group)), time.monotonic(), time.time())
for snapshot in fleet.world(time.monotonic()).snapshots:
    for device in snapshot.devices:
        sample = device.sample
        print(device.gpu, device.device.key, device.device.model, sample.power_watts, sample.utilization_ratio)
"""


def blocks() -> list[str]:
    """Return the blocks of Python of the recipe, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    recipe = text[text.index("## To add a vendor") :]
    return [textwrap.dedent(found) for found in re.findall(r"```python\n(.*?)\n *```", recipe, re.DOTALL)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the tree to which the recipe has been applied."""
    tree = tmp_path / "tree"
    left_out = {"exporter": ("__pycache__",), "tests": ("__pycache__", "golden", "captures")}
    for name, patterns in left_out.items():
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns(*patterns))
    shutil.copy(ROOT / "pyproject.toml", tree)
    provider, opener, entry = blocks()
    (tree / "exporter/providers/acme.py").write_text(provider + "\n")
    registry = tree / "exporter/providers/__init__.py"
    text = registry.read_text()
    text = text.replace("\nclass ProviderEntry", f"\n{opener}\n\n\nclass ProviderEntry", 1)
    text = text.replace('        "simulated": ', f'        {entry}\n        "simulated": ', 1)
    registry.write_text(text)
    return tree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host with one card of the vendor."""
    card = tmp_path / "host/sys/class/acme/card0"
    card.mkdir(parents=True)
    files = {"serial": "AC-17", "model": "Anvil 9", "power_uw": "250000000", "energy_uj": "1", "busy_percent": "50"}
    for name, value in files.items():
        (card / name).write_text(value + "\n")
    (card.parent / "version").write_text("1.2\n")
    return tmp_path / "host"


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_recipe_gives_a_provider_whose_readings_are_on_the_page(tree: Path, root: Path) -> None:
    done = run(tree, "-c", LOOK, str(root))
    assert done.stderr == ""
    assert done.stdout == "acme0 AC-17 Anvil 9 250.0 0.5\n"


def test_the_new_provider_can_be_asked_for_by_name_and_says_why_it_is_down(tree: Path) -> None:
    done = run(tree, "-m", "exporter", "doctor", "--provider", "acme")
    assert "acme: the acme driver is not loaded" in done.stdout
    assert (done.returncode, done.stderr) == (2, "")


def test_the_code_of_the_recipe_is_as_clean_as_ours(tree: Path) -> None:
    file = "exporter/providers/acme.py"
    for check in (("format", "--check"), ("check", "--ignore", "INP")):
        done = run(tree, "-m", "ruff", *check, file)
        assert done.returncode == 0, done.stdout
    done = run(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_imports.py")
    assert done.returncode == 0, done.stdout
