"""What people are told of where readings are from is what the providers do."""

import ast
import re
from pathlib import Path

import pytest

from exporter.fleet.explain import GROUPS, readings_of
from exporter.providers.origins import ORIGINS, origin

PROVIDERS = Path(__file__).parents[3] / "exporter/providers"
READINGS = {name for group in GROUPS for name in readings_of(group)}
DOMAIN = "fabric"
"""Of a clock, and a reading of NVIDIA GPUs."""


def source(provider: str) -> str:
    shared = [PROVIDERS / name for name in ("fdinfo.py", "kfd_tree.py", "tenants.py", "drm_client.py")]
    return "\n".join(path.read_text() for path in [*sorted((PROVIDERS / provider).rglob("*.py")), *shared])


def names(provider: str) -> set[str]:
    """The readings that a provider's code speaks of."""
    found: set[str] = set()
    for path in (PROVIDERS / provider).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.keyword | ast.arg) and node.arg:
                found.add(node.arg)
    return (found & READINGS) - ({DOMAIN} if provider != "nvidia" else set())


@pytest.mark.parametrize("provider", ORIGINS)
def test_each_word_is_one_that_the_provider_says(provider: str) -> None:
    code = source(provider)
    for reading, words in ORIGINS[provider].items():
        for word in re.split(r"[,\s]+", words):
            for part in filter(None, word.split("*")):
                bounds = r"\b" if part.isdigit() else ""
                assert re.search(f"{bounds}{re.escape(part)}{bounds}", code), (reading, word)


@pytest.mark.parametrize("provider", ORIGINS)
def test_each_reading_of_a_provider_has_its_origin(provider: str) -> None:
    assert names(provider) - ORIGINS[provider].keys() == set()
    assert ORIGINS[provider].keys() <= READINGS


def test_what_is_simulated_is_from_nothing_that_could_be_asked() -> None:
    assert origin("nvidia", "pcie_replays") == "nvmlDeviceGetPcieReplayCounter"
    assert origin("simulated", "power_watts") == ""
