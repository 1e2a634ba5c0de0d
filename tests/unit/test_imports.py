"""Imports point one way, the core touches no machine, and vendors' packages stay in the worker."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]

# A part is a module or package directly under exporter. It imports from its own layer and those above it in this list,
# and parts of one layer do not import each other in a circle.
LAYERS = (
    {
        "model",
        "energy",
        "validation",
        "logs",
        "pci",
        "addresses",
        "framing",
        "kernel",
        "kfd",
        "lean",
        "parentage",
        "early",
        "manual",
        "pace",
        "settings",
        "systemd",
        "text",
    },
    {"metrics", "providers", "strict_yaml"},
    {"config"},
    {
        *("announce", "attribution", "captures", "exposition", "fleet", "journal", "supervision", "web", "reference"),
        "wording",
    },
    {"daemon", "checks", "serve", "measure", "doctor", "cli", "__main__"},
)
RANK = {part: rank for rank, parts in enumerate(LAYERS) for part in parts}

IMPORT_NOTHING_OF_OURS = {"model", "energy"}
SHOWS = {"exposition", "web"}
KNOWS = {"attribution", "config", "energy", "fleet", "metrics", "model", "providers", "supervision"}
PURE = {"model", "metrics", "energy", "exposition"}
OUTSIDE = {
    *("asyncio", "datetime", "io", "logging", "multiprocessing", "os", "pathlib", "random", "shutil", "signal"),
    *("socket", "subprocess", "tempfile", "threading", "time", "urllib"),
}
VENDOR_PACKAGES = {"pynvml": "nvidia", "amdsmi": "amd"}


class Import(NamedTuple):
    importer: str
    imported: str
    in_function: bool


def modules() -> dict[str, Path]:
    found = {}
    for path in (ROOT / "exporter").rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports_of(module: str) -> Iterator[Import]:
    """Every import in the source, those inside functions too."""
    tree = ast.parse(MODULES[module].read_text())
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            candidates = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in candidates]
        else:
            continue
        for name in names:
            yield Import(module, name, id(node) in inner)


IMPORTS = [found for module in MODULES for found in imports_of(module)]
OURS = [found for found in IMPORTS if found.imported.partition(".")[0] == "exporter"]


def is_opener(found: Import) -> bool:
    return found.importer == "exporter.providers" and found.in_function


def part(module: str) -> str:
    """The part that a module belongs to; empty for the package itself, which holds the version."""
    return module.split(".")[1] if "." in module else ""


def test_every_part_has_a_layer() -> None:
    assert {part(module) for module in MODULES} - {""} <= set(RANK), "a new part is to be given a place in LAYERS"


def test_imports_point_one_way() -> None:
    upward = [
        found
        for found in OURS
        if part(found.imported) and RANK.get(part(found.importer), -1) < RANK[part(found.imported)]
    ]
    assert upward == []


def test_parts_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for found in OURS:
        if part(found.importer) != part(found.imported):
            graph.setdefault(part(found.importer), set()).add(part(found.imported))
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for found in OURS:
        if not is_opener(found):
            graph.setdefault(found.importer, set()).add(found.imported)
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("name", sorted(IMPORT_NOTHING_OF_OURS))
def test_the_foundations_import_nothing_of_ours(name: str) -> None:
    assert [found for found in OURS if part(found.importer) == name != part(found.imported)] == []


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_core_imports_nothing_that_reaches_outside(name: str) -> None:
    assert {found.imported.partition(".")[0] for found in IMPORTS if part(found.importer) == name} & OUTSIDE == set()


@pytest.mark.parametrize("name", sorted(KNOWS))
def test_what_is_known_does_not_depend_on_how_it_is_shown(name: str) -> None:
    assert [found for found in OURS if part(found.importer) == name and part(found.imported) in SHOWS] == []


@pytest.mark.parametrize("package", VENDOR_PACKAGES)
def test_only_its_provider_imports_a_vendors_package(package: str) -> None:
    home = f"exporter.providers.{VENDOR_PACKAGES[package]}"
    importers = {found.importer for found in IMPORTS if found.imported.partition(".")[0] == package}
    assert [importer for importer in importers if not f"{importer}.".startswith(f"{home}.")] == []


@pytest.mark.parametrize("vendor", VENDOR_PACKAGES.values())
def test_only_its_opener_imports_a_vendors_provider(vendor: str) -> None:
    home = f"exporter.providers.{vendor}."
    reaching = [
        found
        for found in OURS
        if f"{found.imported}.".startswith(home) and not f"{found.importer}.".startswith(home) and not is_opener(found)
    ]
    assert reaching == []


# Each of these was in memory for one function that is seldom called, or for none.
NO_CHILD_LOADS = {
    *("asyncio", "dataclasses", "difflib", "inspect", "json", "ssl", "yaml"),
    *("_hashlib", "hashlib", "http", "html", "logging", "shutil", "socket", "subprocess", "tempfile", "urllib.request"),
    *("exporter.config", "exporter.metrics", "exporter.validation", "exporter.fleet", "exporter.web"),
}
LOADED_BY_NONE = {
    "parent": {
        *(
            "_hashlib",
            "_ssl",
            "bcrypt",
            "dataclasses",
            "difflib",
            "hashlib",
            "html",
            "inspect",
            "ipaddress",
            "json",
            "ssl",
        ),
        *("encodings.idna", "h11", "tokenize", "yaml", "pynvml", "amdsmi", "exporter.web.guard", "exporter.web.secure"),
        *("exporter.measure.recorder", "exporter.providers.nvidia", "exporter.supervision.worker"),
    },
    "worker": NO_CHILD_LOADS | {"ctypes.util"},
    "agent": NO_CHILD_LOADS | {"exporter.attribution.apiserver", "exporter.attribution.https"},
}
LOADING = {
    # An address that no host has: the daemon ends when all is loaded, and before it looks for a GPU.
    "parent": """
        sys.argv = ["gpu-exporter", "--web.listen-address=192.0.2.1:0", "--log.level=error", "--provider=nvidia"]
        from exporter.__main__ import main
        assert main() == 1
        assert "exporter.web.connection" in sys.modules
    """,
    "worker": """
        from exporter.supervision import worker
        from exporter.providers.nvidia import binding, open_nvidia
        binding.load()
    """,
    "agent": """
        from exporter.attribution import agent
        from exporter.attribution.sources import sources
        from exporter.settings import AttributionConfig
        sources(AttributionConfig())
    """,
}


@pytest.mark.parametrize("process", LOADING)
def test_a_process_loads_nothing_that_it_has_no_use_for(process: str) -> None:
    script = f"""
import sys
sys.modules["typing_extensions"] = None  # msgspec imports it where it is, and it is there for tests only
{dedent(LOADING[process])}
print(*(name for name, module in sys.modules.items() if vars(module or type).get("__spec__")))
"""  # one that is postponed has no specification yet
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "exporter.model" in loaded
    assert loaded & LOADED_BY_NONE[process] == set()


def test_imports_are_found_at_all() -> None:
    assert Import("exporter.exposition.renderer", "exporter.metrics", in_function=False) in IMPORTS
    assert [found for found in IMPORTS if is_opener(found)]
    assert {found.imported.partition(".")[0] for found in IMPORTS} & set(sys.stdlib_module_names)
