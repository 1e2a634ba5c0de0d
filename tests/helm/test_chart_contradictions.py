"""What contradicts itself is refused by the schema or warned of in the notes, by both versions of Helm."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.chart import CHART, run, warnings, without_dashboards, written

pytestmark = pytest.mark.integration

HASH = "$2y$10$qLIX6/3Y7NHlcpUfLE25kOcL6OIvh7ZpmEBzCCXtrJZzrRnxmD1Lm"
LOGIN = {"users": {"prometheus": HASH}}
TLS = {"enabled": True, "existingSecret": "certificate"}

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"nope": 1}, "nope"),
    ({"image": {"tagg": "1"}}, "tagg"),
    ({"image": {"digest": "sha256:1"}}, "digest"),
    ({"image": {"registry": "https://registry.example.org"}}, "registry"),
    ({"image": {"registry": "registry.example.org/"}}, "registry"),
    ({"fullnameOverride": "GpuExporter"}, "fullnameOverride"),
    ({"nameOverride": "gpu_exporter"}, "nameOverride"),
    ({"namespaceOverride": "gpu.exporter"}, "namespaceOverride"),
    ({"telemetryPath": "/-/healthy"}, "telemetryPath"),
    ({"extraArgs": ["--log.level debug"]}, "extraArgs"),
    ({"hostNetwork": None}, "hostNetwork"),
    ({"providers": ["intel"]}, "providers"),
    ({"providers": ["simulated"]}, "providers"),
    ({"config": {"sampling": {"energy_secs": 1}}}, "energy_secs"),
    ({"config": {"sampling": {"energy_seconds": 0}}}, "energy_seconds"),
    ({"config": {"web": {"listen_addresses": [":1"]}}}, "listen_addresses"),
    ({"config": {"journal": {"directory": "/x"}}}, "journal"),
    ({"config": {"attribution": {"api_server": True}}}, "api_server"),
    ({"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, "maxSurge"),
    ({"securityContext": {"privileged": True}}, "privileged"),
    ({"terminationGracePeriodSeconds": 2}, "terminationGracePeriodSeconds"),
    ({"daemonSets": {"nvidia": {"hostNetwork": True}}}, "hostNetwork"),
    ({"daemonSets": {"much-too-long-a-name": {}}}, "much-too-long-a-name"),
    ({"dra": {"enabled": True, "deviceClassNames": []}}, "deviceClassNames"),
    ({"journal": {"storage": "disk"}}, "storage"),
    (
        {"prometheusRule": {"enabled": True, "rules": {"GpuDwn": {"for": "1m"}}}},
        "there is no such rule; there are GpuDown",
    ),
    ({"prometheusRule": {"enabled": True, "rules": {"GpuDown": {"threshold": 2}}}}, "compares with no threshold"),
]
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "podMonitor"),
    ({"serviceMonitor": {"enabled": True}, "service": {"enabled": False}}, "service"),
    ({"serviceMonitor": {"enabled": True, "interval": "soon"}}, "interval"),
    ({"tls": {"enabled": True}}, "existingSecret"),
    ({"tls": {**TLS, "certManager": {"enabled": True, "issuerRef": {"name": "x"}}}}, "oneOf"),
    ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, "issuerRef"),
    ({"tls": {"existingSecret": "x"}}, "enabled"),
    ({"tls": {"clientAuth": {"enabled": True}}}, "enabled"),
    ({"tls": {**TLS, "minVersion": "TLS10"}}, "minVersion"),
    ({"basicAuth": {"users": {"a": "plain text"}}}, "users"),
    ({"basicAuth": {"users": {"a:b": HASH}}}, "a:b"),
    ({"webConfig": {"existingSecret": "x"}, "basicAuth": LOGIN}, "users"),
    ({"webConfig": {"existingSecret": "x", "tls": False}, "tls": TLS}, "webConfig"),
    ({"hostNetwork": True, "hostPort": 1}, "hostPort"),
    ({"service": {"nodePort": 31000}}, "type"),
    ({"service": {"type": "NodePort", "clusterIP": "None"}}, "type"),
    ({"service": {"type": "NodePort", "nodePort": 31000}, "daemonSets": {"a": {}, "b": {}}}, "daemonSets"),
    ({"service": {"clusterIP": "10.0.0.7"}, "daemonSets": {"a": {}, "b": {}}}, "daemonSets"),
    ({"attribution": {"enabled": False, "processes": "hostPID"}}, "processes"),
    ({"attribution": {"enabled": False, "kubelet": {"enabled": True}}}, "kubelet"),
    ({"attribution": {"slurmEnvironment": True}}, "processes"),
    ({"attribution": {"jobFiles": {"hostPath": "relative"}}}, "hostPath"),
    ({"simulated": {"enabled": True}, "providers": ["nvidia"]}, "providers"),
    ({"simulated": {"scenario": {"devices": []}}}, "scenario"),
    ({"simulated": {"enabled": True}, "existingConfigMap": "x"}, "existingConfigMap"),
]
REFUSED = MISTAKES + CONTRADICTIONS


@pytest.mark.parametrize(("values", "words"), REFUSED, ids=[f"{words}-{n}" for n, (_, words) in enumerate(REFUSED)])
def test_what_cannot_be_right_is_refused(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    done = run(4, "template", "gpus", CHART, "--values", written(tmp_path, values))
    assert done.returncode != 0
    assert words in done.stderr


def test_the_older_version_of_helm_refuses_contradictions_as_well(tmp_path: Path) -> None:
    for values, _ in CONTRADICTIONS:
        done = run(3, "template", "gpus", CHART, "--values", written(tmp_path, values))
        assert "don't meet the specifications" in done.stderr, values


MONITOR = {"enabled": True}
MANAGED = {"enabled": True, "certManager": {"enabled": True, "issuerRef": {"name": "internal"}}}
KUBELET = {"kubelet": {"enabled": True}}
WARNED: list[tuple[dict[str, Any], str]] = [
    ({"attribution": KUBELET, "securityContext": {"runAsUser": 1000}}, "securityContext.runAsUser is 1000"),
    ({"amd": {"hostDevices": True}}, "without privileged"),
    ({"amd": {"hostDevices": True}, "privileged": True, "providers": ["nvidia"]}, "provider amd is not opened"),
    ({"privileged": True, "providers": ["amd"]}, "privileged is set without amd.hostDevices"),
    ({"runtimeClassName": "nvidia", "providers": ["amd"]}, "the provider nvidia is not opened"),
    ({"runtimeClassName": "nvidia"}, "runtimeClassName is nvidia on all nodes"),
    ({"providers": ["nvidia"]}, "asked for without runtimeClassName"),
    ({"attribution": {"podLogs": {"enabled": True}}}, "names pods that nobody finds"),
    ({"attribution": {"processes": "hostProc"}}, "finds pods by their uid"),
    ({"attribution": {"apiServer": True}, "serviceAccount": {"create": False}}, "default service account"),
    ({"attribution": {"apiServer": True}, "rbac": {"create": False}}, "needs a role"),
    ({"journal": {"storage": "none"}}, "at each start"),
    ({"journal": {"storage": "emptyDir"}}, "in each new pod"),
    ({"basicAuth": LOGIN}, "in the clear"),
    ({"tls": TLS, "basicAuth": LOGIN}, "whether the port is open"),
    ({"probes": {"existingSecret": "x"}}, "probes.existingSecret has no effect"),
    ({"tls": TLS, "serviceMonitor": MONITOR}, "serviceMonitor.tlsConfig is empty"),
    ({"podMonitor": {**MONITOR, "interval": "1m", "scrapeTimeout": "1m1s"}}, "podMonitor.scrapeTimeout is longer"),
    ({"tls": MANAGED, "serviceMonitor": {**MONITOR, "namespace": "other"}}, "is not that of the Secret"),
    ({"podMonitor": {**MONITOR, "tlsConfig": {"insecureSkipVerify": True}}}, "podMonitor.tlsConfig has no effect"),
    ({"basicAuth": LOGIN, "podMonitor": MONITOR}, "scrapes will get 401"),
    ({"networkPolicy": {"enabled": True}, "hostNetwork": True}, "networkPolicy has no effect"),
    ({"extraArgs": ["--web.telemetry-path=/gpus"]}, "extraArgs has --web.telemetry-path"),
    ({"extraArgs": ["--log.level=debug", "--journal.directory", "/data"]}, "extraArgs has --journal.directory"),
    (
        {"hostPort": 10042, "daemonSets": {"a": {"providers": ["amd"]}, "b": {"providers": ["nvidia"]}}},
        "of the same port",
    ),
    ({"hostNetwork": True, "daemonSets": {"a": {}, "b": {}}}, "of the same port"),
    (
        {"serviceMonitor": {**MONITOR, "jobLabel": "app.kubernetes.io/name"}, "daemonSets": {"a": {}, "b": {}}},
        "the same job",
    ),
    ({"existingConfigMap": "x", "providers": ["amd"]}, "config and providers have no effect"),
    ({"dra": {"enabled": True}}, "resource.kubernetes.io/admin-access=true"),
    ({"dashboards": {"enabled": True}}, "this chart has no dashboards"),
    (
        {"daemonSets": {"a": {"providers": ["nvidia"]}, "b": {}}},
        "More than one of daemonSets opens the provider nvidia",
    ),
    ({"daemonSets": {"a": {"providers": ["nvidia"]}, "b": {"providers": ["drm"]}, "c": {}}}, "opens the provider drm"),
    (
        {"daemonSets": {"a": {"providers": ["amd"]}, "b": {"providers": ["drm"]}}},
        "another drm, which sees the same GPUs",
    ),
]


_warned: dict[str, list[str]] = {}


def warned(tmp_path: Path, values: dict[str, Any]) -> list[str]:
    key = json.dumps(values)
    if key not in _warned:
        chart = without_dashboards(tmp_path) if "dashboards" in values else CHART
        _warned[key] = warnings(tmp_path, values, chart=chart)
    return _warned[key]


@pytest.mark.parametrize(("values", "words"), WARNED, ids=[words.replace(" ", "-") for _, words in WARNED])
def test_what_may_not_be_meant_is_warned_of(tmp_path: Path, values: dict[str, Any], words: str) -> None:
    assert any(words in warning for warning in warned(tmp_path, values))


def test_each_warning_is_tested(tmp_path: Path) -> None:
    lines = (CHART / "templates/_warnings.tpl").read_text().splitlines()
    templates = [line for line in lines if line and not line.startswith(("{{-", "{{/*"))]
    assert len(templates) > 20
    given = [warning for values, _ in WARNED for warning in warned(tmp_path, values)]
    for template in templates:
        pattern = ".+".join(map(re.escape, re.split(r"\{\{.*?\}\}", template)))
        assert any(re.search(pattern, warning) for warning in given), template


def test_a_timeout_as_long_as_the_interval_is_warned_of_nothing(tmp_path: Path) -> None:
    for times in ({"interval": "1m", "scrapeTimeout": "60s"}, {"interval": "", "scrapeTimeout": "1m"}):
        assert warnings(tmp_path, {"podMonitor": {**MONITOR, **times}}) == []


@pytest.mark.parametrize("name", ["default", "nvidia", "amd", "attribution", "cert-manager", "login", "monitoring"])
def test_examples_that_are_complete_are_warned_of_nothing(tmp_path: Path, name: str) -> None:
    values = yaml.safe_load((CHART / f"ci/{name}-values.yaml").read_text())
    values.pop("dashboards", None)
    assert warnings(tmp_path, values) == []
