"""Values as people write them: a label twice, names that YAML takes for numbers, nothing where there was a default."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.helm.chart import (
    CHART,
    MAJORS,
    Loader,
    Object,
    container,
    objects,
    of_kind,
    one,
    pod,
    render,
    run,
    template,
    written,
)
from tests.helm.test_chart_objects import NEWEST, OLDEST, complaints

pytestmark = pytest.mark.integration

HASH = "$2y$10$qLIX6/3Y7NHlcpUfLE25kOcL6OIvh7ZpmEBzCCXtrJZzrRnxmD1Lm"
LOGIN = {"users": {"prometheus": HASH}}
TLS = {"enabled": True, "existingSecret": "1e3"}
SETS = {"daemonSets": {"a": {}, "b": {}}}


class Strict(Loader):  # type: ignore[misc]  # which of the two there is, is found out at run time
    """Takes no key twice, as the API server does not."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(set(keys)) == len(keys), keys
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


# ---- the same twice

SAME: dict[str, Any] = {
    "commonLabels": {"team": "a", "app.kubernetes.io/part-of": "fleet", "app.kubernetes.io/name": "mine"},
    "podLabels": {"team": "b", "app.kubernetes.io/instance": "mine", "app.kubernetes.io/component": "mine"},
    "podAnnotations": {"kubectl.kubernetes.io/default-container": "sidecar", "checksum/config": "mine"},
    "service": {"labels": {"team": "c"}},
    "serviceMonitor": {"enabled": True, "additionalLabels": {"team": "d"}},
    "prometheusRule": {"enabled": True, "additionalLabels": {"team": "e"}},
    "dashboards": {"enabled": True, "label": "team", "folder": "x", "annotations": {"grafana_folder": "z"}},
    "networkPolicy": {"enabled": True, "from": [{"podSelector": {}}]},
    "extraEnv": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}, {"name": "NODE_NAME", "value": "here"}],
}


def test_what_is_given_twice_is_there_once_and_selectors_still_find_their_pods(tmp_path: Path) -> None:
    text = template(4, CHART, "--values", written(tmp_path, {**SAME, **SETS}))
    found: list[Object] = [each for each in yaml.load_all(text, Strict) if each]
    for each in found:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "fleet"
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/instance"]) == ("gpu-exporter", "gpus")
    teams = {each["kind"]: each["metadata"]["labels"]["team"] for each in found}
    assert (teams["Service"], teams["ServiceMonitor"], teams["PrometheusRule"]) == ("c", "d", "e")
    for each in of_kind(found, "DaemonSet"):
        made = each["spec"]["template"]
        assert made["metadata"]["labels"]["team"] == "b"
        assert each["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
        assert made["metadata"]["annotations"] == SAME["podAnnotations"]
        environment = [(entry["name"], entry.get("value")) for entry in made["spec"]["containers"][0]["env"]]
        assert sorted(environment) == [
            ("NODE_NAME", "here"),
            ("NVIDIA_DRIVER_CAPABILITIES", "utility"),
            ("NVIDIA_VISIBLE_DEVICES", "void"),
        ]
    for each in of_kind(found, "ConfigMap"):
        if any(name.endswith(".json") for name in each["data"]):
            assert each["metadata"]["labels"]["team"] == "1"
            assert each["metadata"]["annotations"] == {"grafana_folder": "z"}


# ---- names

NUMBERS: dict[str, Any] = {
    "namespaceOverride": "123",
    "fullnameOverride": "no",
    "nameOverride": "on",
    "runtimeClassName": "1",
    "priorityClassName": "2",
    "serviceAccount": {"name": "3"},
    "image": {"repository": "4", "tag": "5"},
    "imagePullSecrets": [{"name": "6"}],
    "tls": {**TLS, "clientAuth": {"enabled": True, "caSecret": "7"}},
    "basicAuth": {"users": {"true": HASH, "8": HASH}},
    "probes": {"existingSecret": "9"},
    "nodeSelector": {"gpu": "true"},
    "serviceMonitor": {"enabled": True, "jobLabel": "1", "namespace": "2"},
    "prometheusRule": {"enabled": True, "namespace": "3"},
    "dashboards": {"enabled": True, "namespace": "4"},
    "attribution": {"apiServer": True},
    "networkPolicy": {"enabled": True},
    "podSecurityContext": {"fsGroup": 1000680000, "supplementalGroups": [1000680001]},
}


@pytest.mark.parametrize("sets", [{}, SETS], ids=["one set", "two sets"])
def test_names_that_look_like_numbers_are_names(tmp_path: Path, sets: dict[str, Any]) -> None:
    done = run(4, "template", "2026", CHART, "--values", written(tmp_path, {**NUMBERS, **sets}))
    assert done.returncode == 0, done.stderr
    for each in objects(done.stdout):
        metadata = each["metadata"]
        names = [metadata["name"], metadata.get("namespace", ""), *metadata["labels"].values()]
        assert all(isinstance(name, str) for name in names), names
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            for version in (OLDEST, NEWEST):
                assert complaints(each, version) == [], metadata


def test_a_release_may_have_a_dot_in_its_name(tmp_path: Path) -> None:
    done = run(4, "template", "gpus.north", CHART, "--values", written(tmp_path, {}))
    assert one(objects(done.stdout), "Service")["metadata"]["name"] == "gpus-north-gpu-exporter"


@pytest.mark.parametrize(("tag", "label"), [("1.0_", "1.0"), ("_x", "x"), ("a" * 62 + "-b", "a" * 62)])
def test_the_version_is_a_label_whatever_the_tag(tmp_path: Path, tag: str, label: str) -> None:
    found = one(render(tmp_path, {"image": {"tag": tag}}), "DaemonSet")
    assert found["metadata"]["labels"]["app.kubernetes.io/version"] == label


def test_no_two_releases_share_a_journal_or_a_role(tmp_path: Path) -> None:
    """The namespace team-a with the release x-gpu-exporter is not the namespace team with a-x-gpu-exporter."""

    def names(release: str, namespace: str) -> set[str]:
        values = written(tmp_path, {"attribution": {"apiServer": True}})
        done = run(4, "template", release, CHART, "--namespace", namespace, "--values", values)
        found = objects(done.stdout)
        paths = {volume["hostPath"]["path"] for volume in pod(found)["volumes"] if "hostPath" in volume}
        return paths | {one(found, kind)["metadata"]["name"] for kind in ("ClusterRole", "ClusterRoleBinding")}

    assert not names("x", "team-a") & names("a-x", "team")


def test_a_release_whose_name_is_no_name_of_a_service_is_told_what_to_set() -> None:
    done = run(4, "template", "2026", CHART)
    assert done.returncode != 0
    assert "set fullnameOverride" in done.stderr


def test_a_user_of_the_pod_is_that_of_the_container_too(tmp_path: Path) -> None:
    found = render(tmp_path, {"podSecurityContext": {"runAsUser": 1000, "runAsGroup": 2000}})
    context = container(found)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1000, 2000, True)
    assert "1000:2000" in pod(found)["initContainers"][0]["command"]


def test_the_test_of_a_service_without_an_address_asks_for_the_port_of_the_pod(tmp_path: Path) -> None:
    for address, port in (("None", 10042), ("", 80)):
        found = render(tmp_path, {"service": {"clusterIP": address, "port": 80}})
        assert f":{port}/metrics" in " ".join(one(found, "Pod")["spec"]["containers"][0]["command"])


def test_a_set_may_have_nothing_of_what_all_have(tmp_path: Path) -> None:
    all_have = {"runtimeClassName": "nvidia", "privileged": True, "extraArgs": ["--log.level=debug"]}
    empty = {"runtimeClassName": "", "privileged": False, "extraArgs": [], "tolerations": []}
    found = render(tmp_path, {**all_have, "daemonSets": {"a": empty}})
    assert not {"runtimeClassName", "tolerations"} & pod(found).keys()
    assert "privileged" not in container(found)["securityContext"]
    assert "--log.level=debug" not in container(found)["args"]


# ---- nothing

MAY_BE_NOTHING = (
    "affinity", "basicAuth.users", "commonLabels", "config", "config.workers", "daemonSets", "dnsConfig", "extraArgs",
    "extraEnv", "imagePullSecrets", "nodeSelector", "podSecurityContext", "providers", "resources",
    "resources.limits", "securityContext", "tolerations", "updateStrategy.rollingUpdate",
    "tls.existingSecret", "webConfig.existingSecret",
)  # fmt: skip


def nothing(path: str) -> dict[str, Any]:
    made: Any = None
    for key in reversed(path.split(".")):
        made = {key: made}
    found: dict[str, Any] = made
    return found


@pytest.mark.parametrize("path", MAY_BE_NOTHING)
def test_a_default_may_be_taken_away(tmp_path: Path, path: str) -> None:
    values = {**nothing(path), "runtimeClassName": "nvidia"}
    found = render(tmp_path, values)
    assert "nil" not in json.dumps(found)
    for version in (OLDEST, NEWEST):
        assert complaints(one(found, "DaemonSet"), version) == []
    assert container(found)["livenessProbe"]["httpGet"]["scheme"] == "HTTP"
    settings = yaml.safe_load(one(found, "ConfigMap")["data"]["gpu-exporter.yaml"])
    assert settings["providers"] == []
    assert container(found)["securityContext"]["runAsUser"] == 65532
    assert pod(found)["securityContext"]["fsGroup"] == 65532


def without(values: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {name: value for name, value in values.items() if name != key}
    return {**values, key: without(values[key], tuple(rest))}


def taken_away(allowed: Callable[[tuple[str, ...]], bool], below: dict[str, Any], *above: str) -> dict[str, Any]:
    """Return values that take away all that may be."""
    made: dict[str, Any] = {}
    for key, value in below.items():
        if allowed((*above, key)):
            made[key] = None
        elif isinstance(value, dict) and (within := taken_away(allowed, value, *above, key)):
            made[key] = within
    return made


def test_no_template_breaks_where_all_is_taken_away_that_may_be(tmp_path: Path) -> None:
    schema = jsonschema.Draft7Validator(json.loads((CHART / "values.schema.json").read_text()))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    taken = taken_away(lambda path: schema.is_valid(without(values, path)), values)
    assert (taken["config"], taken["extraEnv"], taken["tls"]["existingSecret"]) == (None, None, None)
    assert "nvidia" not in taken
    for name in ("serviceMonitor", "prometheusRule", "dashboards", "networkPolicy", "dra"):
        taken.setdefault(name, {})["enabled"] = True
    taken["tls"].update(TLS, clientAuth={**taken["tls"]["clientAuth"], "enabled": True})
    taken["probes"] = {**taken["probes"], "existingSecret": None}
    taken["attribution"] = {"apiServer": True, "processes": "hostProc", "kubelet": {"enabled": True}}
    found = render(tmp_path, taken)
    # No more is told of the server than without.
    assert container(found)["livenessProbe"]["tcpSocket"] == {"port": "metrics"}
    assert "client-ca" not in json.dumps(found)
    assert "nil" not in json.dumps([each for each in found if each["kind"] != "ConfigMap"])
    assert {"ServiceMonitor", "PrometheusRule", "NetworkPolicy", "ResourceClaimTemplate", "ClusterRole", "Pod"} <= {
        each["kind"] for each in found
    }


@pytest.mark.parametrize("major", MAJORS)
def test_what_must_be_there_is_named_where_it_is_not(tmp_path: Path, major: int) -> None:
    """As with `helm upgrade --reuse-values` from a chart that did not have it yet."""
    for path in (
        "hostNetwork",
        "dra",
        "dra.enabled",
        "attribution.kubelet",
        "journal.hostPath.live",
        "image.repository",
    ):
        done = run(major, "template", "gpus", CHART, "--values", written(tmp_path, nothing(path)))
        assert done.returncode != 0
        assert path.rpartition(".")[2] in done.stderr
        assert "nil pointer" not in done.stderr
        assert ("is required" if major == 3 else "missing propert") in done.stderr
