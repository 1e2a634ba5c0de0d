"""What the values mean: no rights are taken that nobody asked for, and a pod finds what the one before has left."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import (
    CHART,
    CI,
    Object,
    container,
    example,
    objects,
    of_kind,
    one,
    pod,
    render,
    run,
    text,
)

pytestmark = pytest.mark.integration

HASH = "$2y$10$qLIX6/3Y7NHlcpUfLE25kOcL6OIvh7ZpmEBzCCXtrJZzrRnxmD1Lm"
LOGIN = {"users": {"prometheus": HASH}}
TLS = {"enabled": True, "existingSecret": "certificate"}
RESTRICTED_VOLUMES = {"configMap", "secret", "emptyDir", "projected", "downwardAPI"}


def pods(found: list[Object]) -> list[Object]:
    """Return the specs of all pods."""
    daemon_sets = [each["spec"]["template"]["spec"] for each in of_kind(found, "DaemonSet")]
    return daemon_sets + [each["spec"] for each in of_kind(found, "Pod")]


def ours(spec: Object) -> list[Object]:
    """Return the containers of a pod that are the chart's own."""
    found: list[Object] = [*spec.get("initContainers", []), *spec["containers"]]
    return [each for each in found if each["name"] not in ("sidecar", "wait")]


# ---- rights


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_containers_are_closed_but_for_what_the_values_ask_for(values: Path) -> None:
    asks = yaml.safe_load(values.read_text())
    rendered = objects(text(values))
    for spec in pods(rendered):
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in ours(spec):
            context = {**spec["securityContext"], **each["securityContext"]}
            assert context["readOnlyRootFilesystem"] is True
            assert context["capabilities"]["drop"] == ["ALL"]
            privileged = context.get("privileged", False)
            assert context["allowPrivilegeEscalation"] is privileged
            assert privileged in (False, asks.get("privileged", False), "amd" in asks.get("daemonSets", {}))
            added = context["capabilities"].get("add", [])
            if each["name"] == "own-journal":
                assert (context["runAsUser"], added) == (0, ["CHOWN"])
            elif added:
                assert asks["attribution"]["slurmEnvironment"]
            elif context["runAsUser"] == 0:
                assert asks["attribution"]["kubelet"]["enabled"]
            else:
                assert context["runAsNonRoot"] is True
    assert "kfd" not in text(values)
    asked = asks.get("attribution", {})
    assert ("hostPID" in text(values)) is (asked.get("processes") == "hostPID")
    assert ("hostNetwork" in text(values)) is asks.get("hostNetwork", False)
    roles = of_kind(rendered, "ClusterRole") + of_kind(rendered, "ClusterRoleBinding")
    assert len(roles) == (2 if asked.get("apiServer") else 0)
    for each in of_kind(rendered, "DaemonSet"):
        spec = each["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is asked.get("apiServer", False)


def test_without_host_paths_it_is_for_a_restricted_namespace() -> None:
    for spec in pods(example("restricted")):
        assert not spec.keys() & {"hostPID", "hostNetwork", "hostIPC", "initContainers"}
        for volume in spec.get("volumes", []):
            assert set(volume) - {"name"} <= RESTRICTED_VOLUMES
        for each in ours(spec):
            context = {**spec["securityContext"], **each["securityContext"]}
            assert (context["runAsNonRoot"], context["runAsUser"], context["allowPrivilegeEscalation"]) == (
                True,
                65532,
                False,
            )
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not any("hostPort" in port for port in each.get("ports", []))


def test_root_is_taken_for_the_kubelet_unless_a_user_is_named(tmp_path: Path) -> None:
    kubelet = {"attribution": {"kubelet": {"enabled": True}}}
    rooted = render(tmp_path, kubelet)
    assert (container(rooted)["securityContext"]["runAsUser"], pod(rooted)["securityContext"]["fsGroup"]) == (0, 0)
    named = render(tmp_path, {**kubelet, "securityContext": {"runAsUser": 1000, "runAsGroup": 2000}})
    context = container(named)["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1000, 2000, True)
    assert pod(named)["securityContext"]["fsGroup"] == 2000
    (init,) = pod(named)["initContainers"]
    assert "1000:2000" in init["command"]


def test_secrets_are_read_by_root_and_the_group_of_the_exporter_alone() -> None:
    seen = 0
    for values in CI:
        for spec in pods(objects(text(values))):
            for volume in spec.get("volumes", []):
                if "secret" in volume:
                    assert volume["secret"]["defaultMode"] == 0o440
                    assert "fsGroup" in spec["securityContext"]
                    seen += 1
    assert seen > 8


def test_hashes_are_in_the_secret_alone() -> None:
    found = example("login")
    without = [each for each in found if each["kind"] != "Secret"]
    assert len(without) == len(found) - 1
    assert HASH not in json.dumps(without)
    assert "$2y$" not in json.dumps(without)


# ---- vendors


def test_nvidia_gets_its_runtime_and_no_device_node() -> None:
    spec = pod(example("nvidia"))
    assert spec["runtimeClassName"] == "nvidia"
    environment = {each["name"]: each.get("value") for each in spec["containers"][0]["env"]}
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "utility"
    assert "nvidia.com/gpu" not in json.dumps(spec["containers"])  # no GPU is taken
    assert not any(volume.get("hostPath", {}).get("path", "").startswith("/dev") for volume in spec["volumes"])


def test_amd_gets_render_nodes_when_it_is_asked_to() -> None:
    spec = pod(example("amd"))
    mounts = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert "/dev/dri" in mounts
    assert spec["containers"][0]["securityContext"]["privileged"] is True
    assert spec["securityContext"]["supplementalGroups"] == [44, 109]
    assert "NVIDIA_VISIBLE_DEVICES" not in json.dumps(spec)


def test_each_vendor_has_all_that_is_its_own() -> None:
    found = example("per-vendor")
    sets = {each["metadata"]["name"].rpartition("-")[2]: each for each in of_kind(found, "DaemonSet")}
    assert sets.keys() == {"nvidia", "amd"}
    specs = {name: each["spec"]["template"]["spec"] for name, each in sets.items()}
    assert specs["nvidia"]["runtimeClassName"] == "nvidia"
    assert "runtimeClassName" not in specs["amd"]
    assert specs["amd"]["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "feature.node.kubernetes.io/amd-gpu": "true",
    }
    # What is false in a set wins over what is true for all.
    users = {name: spec["containers"][0]["securityContext"]["runAsUser"] for name, spec in specs.items()}
    assert users == {"nvidia": 0, "amd": 65532}
    for kind in ("Service", "ServiceMonitor", "NetworkPolicy", "ConfigMap"):
        assert len(of_kind(found, kind)) == 2
    selectors = [each["spec"]["selector"]["matchLabels"] for each in sets.values()]
    assert selectors[0] != selectors[1]
    for each in sets.values():
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
        matching = [
            service for service in of_kind(found, "Service") if service["spec"]["selector"].items() <= labels.items()
        ]
        assert len(matching) == 1
    configurations = [yaml.safe_load(each["data"]["gpu-exporter.yaml"]) for each in of_kind(found, "ConfigMap")]
    assert sorted(each["providers"] for each in configurations) == [["amd", "drm"], ["nvidia"]]
    places = [
        volume["hostPath"]["path"]
        for spec in specs.values()
        for volume in spec["volumes"]
        if volume["name"] in ("journal", "state")
    ]
    assert len(set(places)) == 4


def test_labels_never_match_pods_of_the_test_or_of_another_release(tmp_path: Path) -> None:
    for values in CI:
        found = objects(text(values))
        for service in of_kind(found, "Service"):
            for test in of_kind(found, "Pod"):
                assert not service["spec"]["selector"].items() <= test["metadata"]["labels"].items()
    one_release = one(render(tmp_path, {}), "DaemonSet")["spec"]["selector"]["matchLabels"]
    assert "gpus" in one_release.values()


def test_the_drain_of_the_operator_takes_the_pod_away() -> None:
    terms = pod(example("default"))["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]

    def welcome(labels: dict[str, str]) -> bool:
        return any(
            all(_holds(rule, labels) for rule in term["matchExpressions"]) for term in terms["nodeSelectorTerms"]
        )

    label = "nvidia.com/gpu.deploy.client"
    assert welcome({})
    assert welcome({label: "true"})
    assert not welcome({label: "paused-for-driver-upgrade"})
    assert not welcome({label: "paused-for-mig-change"})


def _holds(rule: Object, labels: dict[str, str]) -> bool:
    if rule["operator"] == "DoesNotExist":
        return rule["key"] not in labels
    assert rule["operator"] == "In"
    return labels.get(rule["key"]) in rule["values"]


# ---- pods that follow each other


def test_an_update_never_has_two_pods_on_a_node() -> None:
    for values in CI:
        for each in of_kind(objects(text(values)), "DaemonSet"):
            assert "maxSurge" not in json.dumps(each["spec"]["updateStrategy"])
            assert each["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 5


def test_a_changed_configuration_makes_new_pods_and_a_changed_certificate_does_not(tmp_path: Path) -> None:
    def template(values: dict[str, Any]) -> Object:
        found: Object = one(render(tmp_path, values), "DaemonSet")["spec"]["template"]
        return found

    before = template({"tls": TLS, "basicAuth": LOGIN})
    assert template({"tls": TLS, "basicAuth": {"users": {"other": HASH}}}) == before
    changed = template({"tls": TLS, "basicAuth": LOGIN, "config": {"log": {"level": "debug"}}})
    sums = [each["metadata"]["annotations"].pop("checksum/config") for each in (before, changed)]
    assert sums[0] != sums[1]
    assert changed == before
    assert "checksum/config" not in json.dumps(template({"existingConfigMap": "mine"}))


def test_the_journal_is_of_one_release(tmp_path: Path) -> None:
    def places(*arguments: str) -> set[str]:
        done = run(4, "template", *arguments, CHART)
        (found,) = of_kind(objects(done.stdout), "DaemonSet")
        volumes = found["spec"]["template"]["spec"]["volumes"]
        return {volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume}

    one_release = places("gpus", "--namespace", "monitoring")
    assert one_release == {f"{place}/gpu-exporter-pods/monitoring.gpus-gpu-exporter" for place in ("/run", "/var/lib")}
    assert not one_release & places("gpus", "--namespace", "other")
    assert not one_release & places("more", "--namespace", "monitoring")
    assert tmp_path.exists()


@pytest.mark.parametrize("name", ["monitoring", "pod-monitor", "per-vendor", "tls"])
def test_both_monitors_name_targets_after_the_node(name: str) -> None:
    monitors = [each for each in example(name) if each["kind"] in ("ServiceMonitor", "PodMonitor")]
    assert monitors
    for monitor in monitors:
        (endpoint,) = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
        to_node, without_pod = endpoint["relabelings"][:2]
        assert to_node["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
        assert to_node["targetLabel"] == "instance"
        assert without_pod["action"] == "labeldrop"
        for label in ("pod", "container", "namespace", "service", "endpoint"):
            assert re.fullmatch(without_pod["regex"], label)
        for label in ("job", "instance", "zone", "pod_template"):
            assert not re.fullmatch(without_pod["regex"], label)
        assert endpoint["honorLabels"] is False
