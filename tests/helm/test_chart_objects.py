"""What the chart renders is what Kubernetes, the operator of Prometheus and the exporter take."""

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
import yaml
from kubernetes_validate import utils as kubernetes
from referencing.jsonschema import DRAFT202012

from exporter.checks import check
from exporter.config import ConfigError
from tests.helm.chart import CI, Object, example, objects, of_kind, one, render, text
from tests.integration.test_rules import promtool
from tests.integration.web_files import Authority

pytestmark = pytest.mark.integration

VERSIONS = sorted(
    {name.removesuffix("-strict").removesuffix("-local") for name in kubernetes.all_versions()},
    key=lambda version: [int(part) for part in version.split(".")],
)
OLDEST, NEWEST = VERSIONS[0], VERSIONS[-1]
OLDEST_WITH_CLAIMS = "1.34.0"
"""Of values that use dynamic resource allocation: before, the API is not there in this version."""
OPERATOR = ("ServiceMonitor", "PodMonitor", "PrometheusRule")
CUSTOM = ("monitoring.coreos.com/", "cert-manager.io/")
CERTIFICATE_KEYS = {"secretName", "issuerRef", "dnsNames", "duration", "renewBefore", "usages"}


@cache
def validator(version: str, kind: str, api: str) -> jsonschema.protocols.Validator:
    place = f"kubernetes-json-schema/v{version}-local-strict"
    schema = kubernetes.schema_contents(f"{place}/{kind.lower()}-{api}.json", version)
    return jsonschema.Draft202012Validator(schema, registry=definitions(version))


@cache
def definitions(version: str) -> referencing.Registry[Any]:
    place = f"kubernetes-json-schema/v{version}-local-strict"
    contents = kubernetes.schema_contents(f"{place}/_definitions.json", version)
    resource = referencing.Resource.from_contents(contents, default_specification=DRAFT202012)
    # Looked through once, or each reference would do so.
    return referencing.Registry().with_resource("_definitions.json", resource).crawl()


def complaints(found: Object, version: str) -> list[str]:
    """Return what the strict schema of that version of Kubernetes has against an object."""
    return _complaints(json.dumps(found), version)


@cache  # most objects are the same with many values
def _complaints(text_of_object: str, version: str) -> list[str]:
    found = json.loads(text_of_object)
    group, _, api = found["apiVersion"].rpartition("/")
    name = f"{group.partition('.')[0]}-{api}" if group else api
    errors = validator(version, found["kind"], name).iter_errors(found)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_kubernetes_takes_every_object(values: Path) -> None:
    rendered = objects(text(values))
    oldest = OLDEST_WITH_CLAIMS if of_kind(rendered, "ResourceClaimTemplate") else OLDEST
    known = [each for each in rendered if not each["apiVersion"].startswith(CUSTOM)]
    assert len(known) >= 2
    for found in known:
        for version in (oldest, NEWEST):
            assert complaints(found, version) == [], (version, found["metadata"])


@pytest.mark.parametrize("api", ["v1beta1", "v1beta2"])
def test_older_versions_of_the_api_of_claims_are_known(tmp_path: Path, api: str) -> None:
    version = {"v1beta1": "1.32.0", "v1beta2": "1.33.0"}[api]
    dra = {
        "enabled": True,
        "deviceClassNames": ["gpu.nvidia.com", "gpu.amd.com"],
        "apiVersion": f"resource.k8s.io/{api}",
    }
    claim = one(render(tmp_path, {"dra": dra}), "ResourceClaimTemplate")
    assert claim["apiVersion"] == f"resource.k8s.io/{api}"
    assert complaints(claim, version) == []
    assert len(claim["spec"]["spec"]["devices"]["requests"]) == 2


def test_a_mistake_would_be_found() -> None:
    (daemon_set,) = of_kind(example("default"), "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    spec["containers"][0]["readOnly"] = True
    spec["hostPid"] = True
    for version in (OLDEST, NEWEST):
        assert len(complaints(daemon_set, version)) == 2


def model(kind: str) -> Any:
    # Seconds, which every process that collects tests would pay for.
    from cloudcoil.models.prometheus_operator import v1  # noqa: PLC0415 -- as above

    return getattr(v1, kind)


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_the_operator_takes_its_objects_and_knows_every_key(values: Path) -> None:
    for found in objects(text(values)):
        if found["apiVersion"].startswith("monitoring.coreos.com/"):
            assert found["apiVersion"] == "monitoring.coreos.com/v1"
            assert found["kind"] in OPERATOR
            read = model(found["kind"]).model_validate(found)
            # The models pass over keys that they do not know: those are missing from what they give back.
            known = read.model_dump(by_alias=True, exclude_unset=True, mode="json")
            assert known["spec"] == found["spec"]


def test_a_key_that_the_operator_does_not_know_would_be_found() -> None:
    (monitor,) = of_kind(example("monitoring"), "ServiceMonitor")
    monitor["spec"]["endpoints"][0]["scrapeInterval"] = "5s"
    read = model("ServiceMonitor").model_validate(monitor)
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json")["spec"] != monitor["spec"]
    monitor["spec"]["endpoints"][0]["interval"] = "soon"
    with pytest.raises(ValueError, match="interval"):
        model("ServiceMonitor").model_validate(monitor)


def test_the_modes_have_all_objects_of_operators() -> None:
    kinds = {found["kind"] for values in CI for found in objects(text(values))}
    assert kinds >= {*OPERATOR, "Certificate", "NetworkPolicy", "ResourceClaimTemplate", "ClusterRole"}


def test_keys_of_the_certificate_are_those_of_cert_manager() -> None:
    (certificate,) = of_kind(example("cert-manager"), "Certificate")
    assert certificate["apiVersion"] == "cert-manager.io/v1"
    assert set(certificate["spec"]) <= CERTIFICATE_KEYS
    assert set(certificate["spec"]["issuerRef"]) <= {"name", "kind", "group"}


@pytest.mark.parametrize("major", [2, 3])
def test_promtool_takes_the_rules(tmp_path: Path, major: int) -> None:
    (rule,) = of_kind(example("monitoring"), "PrometheusRule")
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    promtool(major, "check", "rules", file)


@pytest.mark.parametrize("values", CI, ids=lambda path: path.stem)
def test_the_exporter_takes_its_configuration(tmp_path: Path, values: Path) -> None:
    for found in of_kind(objects(text(values)), "ConfigMap"):
        for name, content in found.get("data", {}).items():
            (tmp_path / name).write_text(content)
        if "gpu-exporter.yaml" in found.get("data", {}):
            assert check(str(tmp_path / "gpu-exporter.yaml")) == "configuration"


def test_a_wrong_configuration_would_be_found(tmp_path: Path) -> None:
    (found,) = of_kind(example("simulated"), "ConfigMap")
    (tmp_path / "gpu-exporter.yaml").write_text(found["data"]["gpu-exporter.yaml"])
    (tmp_path / "scenario.yaml").write_text(found["data"]["scenario.yaml"].replace("H100-SXM", "H101"))
    with pytest.raises(ConfigError, match="H101"):
        check(str(tmp_path / "gpu-exporter.yaml"))


def test_promtool_and_the_exporter_take_the_web_configuration(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = {"tls/tls.crt": "server.pem", "tls/tls.key": "server.key", "client-ca/ca.crt": "ca.pem"}
    for place, name in files.items():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes((authority.directory / name).read_bytes())
    made = [secret for values in CI for secret in of_kind(objects(text(values)), "Secret")]
    assert len(made) == 4
    for secret in made:
        content = base64.b64decode(secret["data"]["web-config.yml"]).decode()
        (tmp_path / "web-config.yml").write_text(content.replace("/etc/gpu-exporter", str(tmp_path)))
        promtool(3, "check", "web-config", tmp_path / "web-config.yml")
        assert check(str(tmp_path / "web-config.yml")) == "web configuration"
