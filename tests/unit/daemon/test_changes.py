"""Which options a reload changes, and what it says of the others."""

import re
from pathlib import Path

import msgspec
import pytest

from exporter.config import (
    AttributionConfig,
    Config,
    JournalConfig,
    LogConfig,
    MetricsConfig,
    ProcessesConfig,
    SamplingConfig,
    WebConfig,
    WorkersConfig,
)
from exporter.daemon.changes import LIVE, changes, held_back, is_live

DOCS = Path(__file__).parents[3] / "docs/operations.md"
EVERYTHING = Config(
    providers=("amd",),
    simulate="x.yaml",
    web=WebConfig(
        listen_addresses=(":1",), telemetry_path="/x", max_requests=1, config_file="web.yaml", systemd_socket=True
    ),
    sampling=SamplingConfig(
        energy_seconds=1.0,
        load_seconds=2.0,
        state_seconds=3.0,
        processes_seconds=4.0,
        profiling_seconds=10.0,
        pcie_bytes=True,
        deadline_seconds=5.0,
        open_deadline_seconds=6.0,
    ),
    workers=WorkersConfig(
        max_age_seconds=None,
        max_memory_bytes=None,
        max_descriptors=None,
        release_seconds=60.0,
        exit_after_seconds=60.0,
    ),
    metrics=MetricsConfig(disable=("gpu_*",), created=True, links="each"),
    processes=ProcessesConfig(top=1, labels=("user",), minimum_bytes=1),
    attribution=AttributionConfig(
        enabled=False,
        proc="/host/proc",
        kubelet_socket=None,
        kubelet_resources=("x",),
        pod_logs=None,
        api_server=True,
        job_files="/jobs",
        slurm_environment=True,
        linger_seconds=1.0,
    ),
    journal=JournalConfig(directory="a", state_directory="b"),
    log=LogConfig(level="debug", format="json"),
)


def options(tree: object, path: str = "") -> set[str]:
    if not isinstance(tree, dict):
        return {path}
    return set().union(*(options(value, f"{path}.{name}" if path else name) for name, value in tree.items()))


OPTIONS = options(msgspec.to_builtins(Config()))


def test_each_option_that_differs_is_named_by_its_key_path() -> None:
    assert set(changes(Config(), EVERYTHING)) == OPTIONS
    assert list(changes(EVERYTHING, EVERYTHING)) == []


def test_those_that_cannot_change_are_told_one_by_one() -> None:
    fixed = sorted(path for path in OPTIONS if not is_live(path))
    assert sorted(held_back(Config(), EVERYTHING)) == [
        f"{path}: cannot change while the exporter runs; restart it" for path in fixed
    ]


def test_nothing_is_said_of_those_that_can() -> None:
    live = Config(
        web=WebConfig(max_requests=1),
        workers=EVERYTHING.workers,
        metrics=EVERYTHING.metrics,
        log=EVERYTHING.log,
    )
    assert held_back(Config(), live) == []


@pytest.mark.parametrize("live", LIVE)
def test_what_can_change_is_an_option_or_a_section_of_them(live: str) -> None:
    assert [path for path in OPTIONS if path == live or path.startswith(f"{live}.")]


def test_the_documentation_names_what_can_change_and_what_cannot() -> None:
    rows = dict(re.findall(r"^\| (on reload|at a restart only) \| (.+) \|$", DOCS.read_text(), re.MULTILINE))
    named = {when: set(re.findall(r"`([\w.]+)(?:\.\*)?`", row)) for when, row in rows.items()}
    assert named["on reload"] == set(LIVE)
    for path in OPTIONS:
        by_docs = any(path == name or path.startswith(f"{name}.") for name in named["at a restart only"])
        assert by_docs != is_live(path), path
