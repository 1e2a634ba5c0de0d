"""Both versions of Helm take the chart, packed or not, and render the same of the same values each time."""

import json
import tarfile
from pathlib import Path

import pytest
import yaml

from exporter import __version__
from tests.helm import schema
from tests.helm.chart import (
    CHART,
    CI,
    MAJORS,
    NAMESPACE,
    ROOT,
    example,
    objects,
    of_kind,
    one,
    render,
    run,
    template,
    text,
    without_dashboards,
)

pytestmark = pytest.mark.integration

LINKS = {"files/prometheus": "config/prometheus", "files/dashboards": "config/grafana"}


def test_there_are_values_for_every_mode() -> None:
    assert len(CI) > 20


@pytest.mark.parametrize("major", MAJORS)
def test_lint_has_nothing_to_say(major: int) -> None:
    # With the values that use the most, since lint renders as well.
    for values in ("default", "monitoring", "extra"):
        done = run(major, "lint", "--strict", CHART, "--values", CHART / f"ci/{values}-values.yaml")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARN" not in done.stdout.replace("WARNING", "WARN")


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_two_renders_are_the_same_also_by_another_version(values: Path) -> None:
    three, four = ([line for line in text(values, major).splitlines() if line] for major in MAJORS)
    assert three
    assert three == four


@pytest.mark.parametrize("major", MAJORS)
def test_the_packed_chart_is_the_same_without_links(tmp_path: Path, major: int) -> None:
    done = run(major, "package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        members = archive.getmembers()
    assert all(member.isfile() for member in members)
    packed = {member.name.removeprefix("gpu-exporter/") for member in members}
    rules = {f"files/prometheus/{path.name}" for path in (ROOT / "config/prometheus").glob("*.yaml")}
    assert rules <= packed
    assert not any(name.startswith("ci/") for name in packed)
    values = CHART / "ci/monitoring-values.yaml"
    assert objects(template(major, package, "--values", values)) == objects(text(values, major))


@pytest.mark.parametrize(("link", "home"), LINKS.items())
def test_what_the_chart_shares_has_one_home(link: str, home: str) -> None:
    assert (CHART / link).is_symlink()
    assert (CHART / link).resolve() == ROOT / home


def test_the_chart_is_of_the_version_of_the_exporter() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == __version__


def test_the_schema_has_the_options_of_the_configuration() -> None:
    assert schema.FILE.read_text() == schema.text(), "run: python -m tests.helm.schema"


def test_every_value_is_in_the_schema_and_none_is_left_open() -> None:
    found = json.loads(schema.FILE.read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(found["properties"]) == {*values, "global"}
    open_objects = [
        path for path, node in _nodes(found) if "properties" in node and _describes(path) and not _is_closed(node)
    ]
    # A security context has keys that depend on the version of Kubernetes.
    assert open_objects == ["$defs/securityContext"]


def _nodes(node: object, path: str = "") -> list[tuple[str, dict[str, object]]]:
    if isinstance(node, list):
        return [each for item in node for each in _nodes(item, path)]
    if not isinstance(node, dict):
        return []
    below = [each for key, value in node.items() for each in _nodes(value, f"{path}/{key}".lstrip("/"))]
    return [(path, node), *below]


def _describes(path: str) -> bool:
    """Whether the node says what a value is, not what must not come together."""
    return not {"allOf", "complete", "if", "then", "oneOf"} & set(path.split("/"))


def _is_closed(node: dict[str, object]) -> bool:
    return node.get("type") != "object" or node.get("additionalProperties") is False


def test_dashboards_are_those_that_are_there(tmp_path: Path) -> None:
    chart = without_dashboards(tmp_path)
    wanted = {"dashboards": {"enabled": True, "folder": "GPUs"}}
    assert of_kind(render(tmp_path, wanted, chart=chart), "ConfigMap") == of_kind(render(tmp_path, {}), "ConfigMap")

    dashboard = {"title": 'GPUs {{ of }} "all"\n', "panels": [{"expr": 'up{job=~"$job"}'}]}
    (chart / "files/dashboards/GPU_overview.json").write_text(json.dumps(dashboard))
    (made,) = [each for each in render(tmp_path, wanted, chart=chart) if "overview" in each["metadata"]["name"]]
    assert made["metadata"]["name"] == "gpus-gpu-exporter-gpu-overview"
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert {name: json.loads(content) for name, content in made["data"].items()} == {"GPU_overview.json": dashboard}


def test_every_object_is_of_the_release_and_its_namespace() -> None:
    for values in CI:
        found = objects(text(values))
        extra = values.stem == "extra-values"
        for each in found:
            name, kind = each["metadata"]["name"], each["kind"]
            if extra and kind == "ConfigMap" and name in ("gpus-extra", "text"):
                continue
            assert name.startswith("gpus") or NAMESPACE in name or (extra and kind == "ServiceAccount"), (values, name)
            if kind in ("ClusterRole", "ClusterRoleBinding"):
                assert NAMESPACE in name  # two releases in two namespaces have one each
                continue
            assert each["metadata"]["namespace"] == ("observability" if extra else NAMESPACE)
            assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "gpus"


def test_extra_objects_are_evaluated() -> None:
    names = {each["metadata"]["name"] for each in example("extra")}
    assert {"gpus-extra", "text"} <= names
    assert one(example("extra"), "DaemonSet")["metadata"]["labels"]["team"] == "platform"
