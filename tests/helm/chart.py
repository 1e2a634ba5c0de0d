"""The chart and the real Helm: found, run, and what it renders."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.tools import unavailable

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/gpu-exporter"
CI = sorted(CHART.glob("ci/*-values.yaml"))
MAJORS = (3, 4)
RELEASE, NAMESPACE = "gpus", "monitoring"

Object = dict[str, Any]
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@cache
def helm(major: int) -> str:
    """Return Helm of that major version, in $HELM_3 or $HELM_4, else on the PATH, or end the test."""
    directory = os.environ.get(f"HELM_{major}")
    found = shutil.which("helm", path=None if directory is None else f"{directory}/bin")
    if found:
        said = subprocess.run([found, "version", "--short"], capture_output=True, text=True, timeout=30, check=True)
        if said.stdout.startswith(f"v{major}."):
            return found
    place = f"~/.cache/gpu-exporter/helm-{major}"
    return unavailable(f"Helm {major}", f"export HELM_{major}={place} && .ci/fetch-helm {major} $HELM_{major}")


def run(major: int, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    # A home of its own: it must not depend on anybody's plugins and repositories.
    environment = {**os.environ, "HELM_NO_PLUGINS": "1", "KUBECONFIG": "/dev/null"}
    return subprocess.run(
        [helm(major), *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False, env=environment
    )


def template(major: int, chart: Path, *arguments: str | Path) -> str:
    done = run(major, "template", RELEASE, chart, "--namespace", NAMESPACE, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def text(values: Path, major: int = 4) -> str:
    return template(major, CHART, "--values", values)


def objects(rendered: str) -> list[Object]:
    return [each for each in yaml.load_all(rendered, Loader) if each]


def render(tmp_path: Path, values: Mapping[str, Any], *arguments: str | Path, chart: Path = CHART) -> list[Object]:
    return objects(template(4, chart, "--values", written(tmp_path, values), *arguments))


def written(directory: Path, values: Mapping[str, Any]) -> Path:
    file = directory / "values.yaml"
    # As JSON: versions of YAML differ in what is a number or a truth value.
    file.write_text(json.dumps(dict(values)))
    return file


def example(name: str, major: int = 4) -> list[Object]:
    """Return what ci/NAME-values.yaml renders."""
    return objects(text(CHART / f"ci/{name}-values.yaml", major))


def of_kind(found: list[Object], kind: str) -> list[Object]:
    return [each for each in found if each["kind"] == kind]


def one(found: list[Object], kind: str) -> Object:
    (only,) = of_kind(found, kind)
    return only


def pod(found: list[Object]) -> Object:
    """Return the pod's spec of the one DaemonSet."""
    spec: Object = one(found, "DaemonSet")["spec"]["template"]["spec"]
    return spec


def container(found: list[Object]) -> Object:
    return next(each for each in pod(found)["containers"] if each["name"] == "gpu-exporter")


def without_dashboards(directory: Path) -> Path:
    """Return a copy of the chart with an empty directory of dashboards, and files instead of links."""
    chart = directory / "chart"
    shutil.copytree(CHART, chart)
    shutil.rmtree(chart / "files/dashboards")
    (chart / "files/dashboards").mkdir()
    return chart


def warnings(tmp_path: Path, values: Mapping[str, Any], *, chart: Path = CHART) -> list[str]:
    """Return what NOTES.txt warns of. Of Helm 4: only that shows it without a cluster."""
    file = written(tmp_path, values)
    done = run(4, "install", "--dry-run=client", RELEASE, chart, "--namespace", NAMESPACE, "--values", file)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    assert notes
    return [line.removeprefix("WARNING: ") for line in notes.splitlines() if line.startswith("WARNING: ")]
