"""The API server is asked over HTTPS: names, ended pods, devices of DRA; and every way in which it fails to say."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporter.attribution.apiserver import ApiServerSource
from exporter.attribution.ids import DeviceName
from exporter.attribution.source import Findings, Pod, Question, SourceError
from tests.kubelet.api_server import PODS, SLICES, Answer, Api, certificate, serving

GROUP = "/apis/resource.k8s.io"
GPU = DeviceName("gpu.nvidia.com", "node-a", "gpu-0")
SLICE = {
    "spec": {
        "driver": "gpu.nvidia.com",
        "nodeName": "node-a",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-a"}, "type": {"string": "gpu"}}}],
    }
}


def pod(name: str, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node-a", "containers": [{"name": "main", "image": "x"}]} | spec,
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{name}", "ready": True}],
        },
    }


def listing(*items: Any, more: str = "") -> Answer:
    return 200, {"kind": "List", "apiVersion": "v1", "metadata": {"continue": more}, "items": items}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def account(tmp_path: Path, trusted: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "ca.crt").write_bytes(trusted.read_bytes())
    return tmp_path


@pytest.fixture
def api(trusted: Path) -> Iterator[Api]:
    api = Api({PODS: listing(pod("a")), SLICES: listing()})
    with serving(api, trusted):
        yield api


def source(api: Api, account: Path, clock: Clock | None = None, **changes: str) -> ApiServerSource:
    environment = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.port),
        "NODE_NAME": "node-a",
    }
    return ApiServerSource(environment | changes, account, clock=clock or Clock(), deadline_seconds=1.0)


def look(asks: ApiServerSource) -> Findings:
    return asks.look(Question())


def reason(asks: ApiServerSource) -> str:
    with pytest.raises(SourceError) as caught:
        look(asks)
    return str(caught.value)


def test_pods_of_this_node_get_their_names_and_those_that_have_ended_are_known(api: Api, account: Path) -> None:
    api.answers[PODS] = listing(pod("a"), pod("b", "Succeeded"), pod("c", "Failed"), pod("d", "Pending"))
    asks = source(api, account)
    findings = look(asks)
    assert findings.pods == {f"uid-{name}": Pod("team", name, ("main",)) for name in "abcd"}
    assert findings.containers == dict.fromkeys("abcd", "main")
    assert (findings.grants, findings.trouble) == ((), "")
    cluster = asks.cluster()
    assert cluster is not None
    assert cluster.ended == {("team", "b"), ("team", "c")}
    selector = {"fieldSelector": "spec.nodeName=node-a", "limit": "500", "resourceVersion": "0"}
    assert [(asked.path, asked.query, asked.token) for asked in api.asked] == [
        (PODS, selector, "secret"),
        (SLICES, selector, "secret"),
    ]


def test_it_is_asked_every_30_seconds_and_ever_less_often_while_it_fails(api: Api, account: Path) -> None:
    clock = Clock()
    asks = source(api, account, clock)
    for _ in range(260):
        look(asks)
        clock.now += 1
    assert api.paths.count(PODS) in range(8, 11)
    api.asked.clear()
    api.answers[PODS] = (500, {"message": "etcd is away"})
    failing = source(api, account, clock)
    for _ in range(1200):
        assert reason(failing) == f"the API server answers 500 to {PODS}: etcd is away"
        clock.now += 1
    assert api.paths.count(PODS) in range(6, 9)  # 60 s, 120, 240, 300, 300, ...
    api.answers[PODS] = listing(pod("a"))
    clock.now += 400
    assert look(failing).pods


def test_what_was_known_is_used_for_five_minutes_of_silence_and_no_longer(api: Api, account: Path) -> None:
    clock = Clock()
    asks = source(api, account, clock)
    assert asks.cluster() is None
    look(asks)
    api.answers[PODS] = (503, {})
    clock.now += 200
    reason(asks)
    assert asks.cluster() is not None
    clock.now += 200
    assert asks.cluster() is None


def test_a_token_that_is_renewed_is_read_again(api: Api, account: Path) -> None:
    clock = Clock()
    asks = source(api, account, clock)
    look(asks)
    api.token = "renewed"  # noqa: S105 -- of a test
    clock.now += 60
    assert reason(asks) == f"the API server answers 401 to {PODS}: Unauthorized"
    (account / "token").write_text("renewed")
    clock.now += 120
    assert look(asks).pods


def test_long_lists_come_in_pages_and_one_that_expires_meanwhile_is_begun_anew(api: Api, account: Path) -> None:
    expired = [True]

    def pages(query: dict[str, str]) -> Answer:
        if "continue" not in query:
            return listing(pod("a"), more="next page")
        if expired:
            expired.clear()
            return 410, {"message": "The provided continue parameter is too old"}
        return listing(pod("b"))

    api.answers[PODS] = pages
    assert sorted(look(source(api, account)).pods) == ["uid-a", "uid-b"]
    pods = [asked.query for asked in api.asked if asked.path == PODS]
    assert [query.get("continue") for query in pods] == [None, "next page", None, "next page"]
    # The API refuses a version beside a continuation.
    assert ["resourceVersion" in query for query in pods] == [True, False, True, False]


def test_a_list_without_an_end_is_given_up(api: Api, account: Path) -> None:
    api.answers[PODS] = lambda _: listing(pod("a"), more="more")
    assert reason(source(api, account)) == f"the API server lists more than 10000 objects of {PODS}"
    assert api.paths.count(PODS) == 20
    api.answers[PODS] = (410, {"message": "gone for good"})
    assert reason(source(api, account)) == f"the API server answers 410 to {PODS}: gone for good"


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_devices_of_dra_are_read_in_the_version_that_is_served(api: Api, account: Path, version: str) -> None:
    del api.answers[SLICES]
    api.answers[f"{GROUP}/{version}/resourceslices"] = listing(SLICE)
    clock = Clock()
    asks = source(api, account, clock)
    for _ in range(2):
        look(asks)
        cluster = asks.cluster()
        assert cluster is not None
        assert cluster.devices == {GPU: {"uuid": "GPU-a", "type": "gpu"}}
        clock.now += 60
    assert api.paths[-1] == f"{GROUP}/{version}/resourceslices"
    assert api.paths[-2] == PODS  # the second time it is known


def test_a_cluster_without_dra_is_seldom_asked_for_it(api: Api, account: Path) -> None:
    del api.answers[SLICES]
    clock = Clock()
    asks = source(api, account, clock)
    for _ in range(20):
        assert look(asks).trouble == ""
        clock.now += 35
    assert api.paths.count(PODS) == 20
    assert api.paths.count(SLICES) == 2


def test_slices_that_are_forbidden_cost_no_names_and_are_told(api: Api, account: Path) -> None:
    api.answers[SLICES] = (403, {"message": "resourceslices is forbidden"})
    findings = look(source(api, account))
    assert findings.pods
    assert findings.trouble == (
        f"devices of DRA cannot be placed: the API server answers 403 to {SLICES}: resourceslices is forbidden"
    )


def claimed(name: str, claim: str) -> dict[str, Any]:
    claiming = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])
    claiming["status"]["resourceClaimStatuses"] = [{"name": "other", "resourceClaimName": f"{claim}-made"}]
    return claiming


def test_devices_that_are_only_looked_at_are_known_by_their_claims(api: Api, account: Path) -> None:
    claims = f"{GROUP}/v1/namespaces/team/resourceclaims"
    result = {"driver": GPU.driver, "pool": GPU.pool, "device": GPU.device, "request": "gpu"}
    api.answers |= {
        PODS: listing(claimed("worker", "work"), claimed("monitor", "watch")),
        SLICES: listing(SLICE),
        f"{claims}/work": (200, {"status": {"allocation": {"devices": {"results": [result]}}}}),
        f"{claims}/watch": (200, {"status": {}}),
    }
    clock = Clock()
    asks = source(api, account, clock)
    look(asks)
    cluster = asks.cluster()
    assert cluster is not None
    assert cluster.watched == frozenset()
    watching = {"devices": {"results": [result | {"adminAccess": True}]}}
    api.answers[f"{claims}/watch"] = (200, {"status": {"allocation": watching}})
    clock.now += 60
    look(asks)
    cluster = asks.cluster()
    assert cluster is not None
    assert cluster.watched == {(("team", "watch"), GPU)}
    assert api.paths.count(f"{claims}/work") == 1  # what it gives does not change
    assert api.paths.count(f"{claims}/work-made") == 2
    api.answers[PODS] = listing(claimed("worker", "work"))
    clock.now += 60
    look(asks)
    cluster = asks.cluster()
    assert cluster is not None
    assert cluster.watched == frozenset()


def test_claims_that_are_forbidden_are_told(api: Api, account: Path) -> None:
    path = f"{GROUP}/v1/namespaces/team/resourceclaims/work"
    api.answers |= {PODS: listing(claimed("a", "work")), SLICES: listing(SLICE), path: (403, {"message": "no"})}
    assert look(source(api, account)).trouble == (
        f"claims with admin access are taken for work: the API server answers 403 to {path}: no"
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ((403, {"message": "pods is forbidden:\n no"}), f"answers 403 to {PODS}: pods is forbidden: no"),
        ((404, {"message": "x" * 1000}), f"answers 404 to {PODS}: {'x' * 200}"),
        ((429, ["too", "many"]), f"answers 429 to {PODS}"),
        ((302, {}), f"answers 302 to {PODS}"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]", "answers something else than the API promises"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{"items"', "answers something else than the API promises"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n\xff\xff", "answers something else than the API promises"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b'{"x":' * 100_000, "answers something else than the API promises"),
        ((200, {"items": [{"metadata": {"name": 1}}]}), "answers something else than the API promises"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer in HTTP: BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n", "does not answer in HTTP: HTTPException"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", "does not answer in HTTP: IncompleteRead"),
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (33 * 2**20), "answers more than 32 MiB"),
    ],
    ids=[
        *("403", "404", "429", "302", "list", "cut", "bytes", "deep", "types"),
        *("SSH", "headers", "chunks", "empty", "long"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_told_in_a_sentence(api: Api, account: Path, answer: Answer, expected: str) -> None:
    api.answers[PODS] = answer
    assert reason(source(api, account)).startswith(f"the API server {expected}")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_drips_costs_the_deadline(api: Api, account: Path, head: bytes) -> None:
    api.drip_seconds = 0.02
    api.answers[PODS] = head + b"HTTP/1.1 200 OK\r\n" + b"x" * 500
    began = time.monotonic()
    assert reason(source(api, account)) == "the API server did not answer within 1 s"
    assert time.monotonic() - began < 3


def test_a_server_that_does_not_shake_hands_costs_the_deadline(api: Api, account: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        asks = source(api, account, KUBERNETES_SERVICE_PORT=str(mute.getsockname()[1]))
        began = time.monotonic()
        assert reason(asks) == "the API server did not answer within 1 s"
        assert time.monotonic() - began < 3


def test_a_server_that_is_not_there_is_told(api: Api, account: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = str(server.getsockname()[1])
    assert "cannot be reached: Connection refused" in reason(source(api, account, KUBERNETES_SERVICE_PORT=free))


def test_a_server_that_speaks_no_tls_gets_no_token(api: Api, account: Path) -> None:
    heard = b""

    def answer() -> None:
        nonlocal heard
        peer, _ = server.accept()
        with peer:
            heard = peer.recv(65536)
            peer.sendall(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer)
        thread.start()
        asks = source(api, account, KUBERNETES_SERVICE_PORT=str(server.getsockname()[1]))
        assert "the API server does not speak TLS as expected: WRONG_VERSION_NUMBER" in reason(asks)
        thread.join(10)
    assert heard
    assert b"secret" not in heard


def test_a_server_with_another_authority_or_name_is_not_trusted_with_the_token(
    api: Api, account: Path, tmp_path: Path
) -> None:
    asks = source(api, account, KUBERNETES_SERVICE_HOST="localhost")
    assert "shows a certificate that is not trusted: Hostname mismatch" in reason(asks)
    (tmp_path / "other").mkdir()
    (account / "ca.crt").write_bytes(certificate(tmp_path / "other").read_bytes())
    assert "shows a certificate that is not trusted: self-signed certificate" in reason(source(api, account))
    assert api.asked == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"KUBERNETES_SERVICE_HOST": ""}, "KUBERNETES_SERVICE_HOST is not set: this is no pod of a cluster"),
        ({"KUBERNETES_SERVICE_PORT": "tcp://"}, "KUBERNETES_SERVICE_PORT is no port: 'tcp://'"),
        ({"KUBERNETES_SERVICE_PORT": "70000"}, "KUBERNETES_SERVICE_PORT is no port: '70000'"),
        ({"KUBERNETES_SERVICE_HOST": "a..b"}, "the API server cannot be reached: what is given as its name is none"),
        ({"NODE_NAME": ""}, "NODE_NAME is not set: the pod is to get it from its field spec.nodeName"),
    ],
)
def test_a_setting_that_is_missing_is_named(api: Api, account: Path, changes: dict[str, str], expected: str) -> None:
    assert reason(source(api, account, **changes)) == expected


def test_a_service_account_that_is_not_there_is_named(api: Api, account: Path) -> None:
    (account / "ca.crt").write_text("no certificate")
    assert f"cannot be trusted: {account}/ca.crt holds no certificate" in reason(source(api, account))
    (account / "ca.crt").unlink()
    assert f"cannot be trusted: {account}/ca.crt: No such file" in reason(source(api, account))
    for content in (b"two\nlines", b"", b"\xff"):
        (account / "token").write_bytes(content)
        assert "token" in reason(source(api, account))
    (account / "token").unlink()
    assert reason(source(api, account)) == f"{account}/token: No such file or directory"


def test_no_reason_shows_the_token(api: Api, account: Path) -> None:
    for content in ("se\ncret", "secret secret", "wrong-secret"):
        (account / "token").write_text(content)
        assert "secret" not in reason(source(api, account))
