"""Do the commands, scripts and queries of docs/attribution.md do what the page says?"""

import json
import os
import re
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from exporter.attribution.job_files import JobFiles
from exporter.attribution.source import Held, Question
from exporter.model import Device
from tests.integration.daemon import Daemon, Samples
from tests.integration.prometheus import Server, find, running
from tests.unit.test_attribution_docs import TEXT, blocks, promql

ROOT = Path(__file__).parents[2]
SHARED = ROOT / "config/scenarios/shared-node.sh"
RULES = ROOT / "config/prometheus/workloads.yaml"
REFUSED = "gpu_power_watts * on (instance, uuid) gpu_workload_info"
NO_ANSWER = ("team:", "namespace:gpu_workload_allocated_gpus:sum")
"""Of the shared node no pod has a team, and none was given a GPU."""


def shared_node(start_daemon: Callable[..., Daemon], directory: Path) -> Daemon:
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nexec sh {SHARED} {sys.executable} "$@"\n')
    python.chmod(0o755)
    return start_daemon(python=str(python), env={"TMPDIR": str(directory)})


def shown() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the series that the page shows of the shared node."""
    for line in next(block for block in blocks("") if "slurm/4711" in block).splitlines():
        yield line.partition("{")[0], dict(re.findall(r'(\w+)="([^"]*)"', line.partition("}")[0]))


def is_whole(page: Samples) -> bool:
    return all(page.all(name, **labels) for name, labels in shown())


def test_the_command_shows_the_series_of_the_page_and_leaves_nothing(
    start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    assert f"sh {SHARED.relative_to(ROOT)} .venv/bin/gpu-exporter\n" in blocks("sh")[0]
    daemon = shared_node(start_daemon, tmp_path)
    page = daemon.scrape_until(is_whole)
    assert page.value("gpu_workload_allocation_ratio", gpu="sim0", workload="slurm/4711") == 0.5
    assert page.value("gpu_workload_allocation_ratio", gpu="sim1", workload="slurm/4713") == 1
    (made,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert daemon.stop() == 0
    assert not made.exists()


@pytest.mark.parametrize("major", [2, 3])
def test_every_query_has_an_answer_with_two_exporters_on_a_node(
    major: int, start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    tools = find(major)
    daemons = [shared_node(start_daemon, tmp_path) for _ in range(2)]
    for daemon in daemons:
        daemon.scrape_until(is_whole)
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": [{**group, "interval": "1s"} for group in groups]}))
    jobs = [
        {
            "job_name": f"gpu-{number}",
            "static_configs": [
                {
                    "targets": [daemon.url.removeprefix("http://")],
                    # As the Prometheus operator labels targets, and relabelled to the name of the node.
                    "labels": {
                        "instance": "node",
                        "namespace": "monitoring",
                        "pod": "gpu-exporter-x",
                        "container": "x",
                    },
                }
            ],
        }
        for number, daemon in enumerate(daemons)
    ]
    configuration = {
        "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
        "rule_files": [str(rules)],
        "scrape_configs": jobs,
    }
    with running(tools, tmp_path / f"prometheus-{major}", configuration) as server:
        asked = [query for query in promql() if query != REFUSED]
        assert len(asked) > 20
        for query in asked:
            if query.startswith(NO_ANSWER) or f"({NO_ANSWER[0]}" in query or f"({NO_ANSWER[1]}" in query:
                assert server.query(query) == [], query
            else:
                assert daemons[0].until(lambda query=query: server.query(query)), query
        assert_refused(server)
        power = server.query("sum by (k8s_namespace) (workload:gpu_workload_power_watts:rate5m{kind='pod'})")
        assert [labels for labels, _ in power] == [{"k8s_namespace": "ml"}]
        ((_, held),) = server.query("sum(workload:gpu_workload_allocated_gpus:sum)")
        assert held == 4  # two of each exporter


def assert_refused(server: Server) -> None:
    assert REFUSED in promql()
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.query(REFUSED)
    with refused.value as answer:
        assert b"many-to-many" in answer.read()


def test_the_prologs_and_epilogs_write_what_is_read(tmp_path: Path) -> None:
    scripts = [block for block in blocks("sh") if "/run/gpu-jobs" in block]
    assert len(scripts) == 4
    lines, clear_lines, amd, clear_amd = (script.replace("/run/gpu-jobs", f"{tmp_path}/jobs") for script in scripts)

    def run(script: str, job: str) -> None:
        variables = {
            "SLURM_JOB_ID": job,
            "SLURM_JOB_USER": "ada",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_GPUS": "0,1",
        }
        subprocess.run(["sh", "-eu", "-c", script], env={**os.environ, **variables}, check=True, timeout=10)

    def told() -> list[tuple[str, str, str]]:
        held = tuple(Held(device=Device(key=str(n), vendor="nvidia", index=n)) for n in range(2))
        found = JobFiles(f"{tmp_path}/jobs").look(Question(held=held))
        assert not found.trouble
        return sorted((grant.device, grant.workload.key, grant.workload.slurm_user) for grant in found.grants)

    for job in ("41", "412"):
        run(lines, job)
    assert told() == [(gpu, f"slurm/{job}", "") for gpu in "01" for job in ("41", "412")]
    run(clear_lines, "41")
    assert told() == [(gpu, "slurm/412", "") for gpu in "01"]
    run(clear_lines, "412")
    assert told() == []
    run(amd, "43")
    assert told() == [(gpu, "slurm/43", "ada") for gpu in "01"]
    run(clear_amd, "43")
    assert told() == []


def test_the_reasons_that_are_shown_are_those_that_are_given() -> None:
    said = set(re.findall(r'gpu_exporter_attribution_info\{reason="([^"]+)"', TEXT))
    source = "\n".join(path.read_text() for path in (ROOT / "exporter/attribution").glob("*.py"))
    assert len(said) == 3
    assert all(f'"{reason}"' in source for reason in said)
