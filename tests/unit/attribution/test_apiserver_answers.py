"""What the API server's answers tell of pods, of devices of DRA, and of claims."""

import json
from typing import Any, TypeVar

import pytest

from exporter.attribution.cluster import (
    AnswerError,
    ClaimItem,
    PodItem,
    SliceItem,
    claims_of,
    containers_by_id,
    decode,
    decode_list,
    devices_of,
    ended_pods,
    pods_by_uid,
    watched_of,
)
from exporter.attribution.ids import DeviceName
from exporter.attribution.source import Pod

_T = TypeVar("_T")

ID = "4f2a" * 16


def read(form: type[_T], item: Any) -> _T:
    return decode(json.dumps(item).encode(), form)


def pod(name: str, phase: str = "Running", **metadata: Any) -> PodItem:
    item = {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"} | metadata,
        "status": {"phase": phase},
    }
    return read(PodItem, item)


def test_a_static_pod_is_known_by_the_hash_that_its_control_group_is_named_by() -> None:
    static = pod("proxy", annotations={"kubernetes.io/config.hash": "1f" * 16, "kubernetes.io/config.source": "file"})
    assert pods_by_uid([static]) == {"uid-proxy": Pod("team", "proxy"), "1f" * 16: Pod("team", "proxy")}
    assert pods_by_uid([pod("nameless", uid="")]) == {}


def test_containers_of_every_kind_are_named() -> None:
    statuses = {
        "initContainerStatuses": [{"name": "sidecar", "containerID": f"containerd://{ID}"}],
        "containerStatuses": [{"name": "main", "containerID": "cri-o://main-id"}, {"name": "waiting"}],
        "ephemeralContainerStatuses": [{"name": "debug", "containerID": "docker://debug-id"}],
    }
    spec = {
        "initContainers": [{"name": "sidecar"}],
        "containers": [{"name": "main"}, {"name": "waiting"}],
        "ephemeralContainers": [{"name": "debug"}],
    }
    item = read(PodItem, {"metadata": {"name": "a", "namespace": "b", "uid": "u"}, "spec": spec, "status": statuses})
    assert containers_by_id([item]) == {ID: "sidecar", "main-id": "main", "debug-id": "debug"}
    assert pods_by_uid([item])["u"].containers == ("sidecar", "main", "waiting", "debug")


def test_a_name_that_is_in_use_again_has_not_ended() -> None:
    pods = [pod("db-0", "Failed", uid="1"), pod("db-0", uid="2"), pod("job", "Succeeded"), pod("lost", "Unknown")]
    assert ended_pods(pods) == {("team", "job")}


def test_claims_are_found_by_either_way_of_naming_them_and_each_once() -> None:
    item = read(
        PodItem,
        {
            "metadata": {"name": "a", "namespace": "team"},
            "spec": {
                "containers": [],
                "resourceClaims": [
                    {"name": "x", "resourceClaimName": "shared"},
                    {"name": "y", "resourceClaimTemplateName": "template"},
                ],
            },
            "status": {
                "resourceClaimStatuses": [{"name": "y", "resourceClaimName": "a-y-x7k2p"}, {"name": "z"}],
                "phase": "Running",
            },
        },
    )
    assert claims_of([item, item]) == [("team", "shared"), ("team", "a-y-x7k2p")]


ATTRIBUTES = {
    "uuid": {"string": "GPU-a"},
    "gpu.nvidia.com/type": {"string": "gpu"},
    "resource.kubernetes.io/pciBusID": {"string": "0000:07:00.0"},
    "index": {"int": 3},
    "driverVersion": {"version": "580.126.20"},
    "healthy": {"bool": True},
    "resource.kubernetes.io/pcieRoot": {"strings": ["pci0000:00"]},
}


@pytest.mark.parametrize(
    "device",
    [{"name": "gpu-0", "attributes": ATTRIBUTES}, {"name": "gpu-0", "basic": {"attributes": ATTRIBUTES}}],
    ids=["v1", "v1beta1"],
)
def test_attributes_of_a_device_are_read_in_both_shapes(device: dict[str, Any]) -> None:
    item = {"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "node"}, "devices": [device, {"name": "gpu-1"}]}}
    assert devices_of([read(SliceItem, item)]) == {
        DeviceName("gpu.nvidia.com", "node", "gpu-0"): {
            "uuid": "GPU-a",
            "type": "gpu",
            "resource.kubernetes.io/pciBusID": "0000:07:00.0",
            "index": 3,
        },
        DeviceName("gpu.nvidia.com", "node", "gpu-1"): {},
    }


def test_of_a_pool_only_the_newest_generation_counts() -> None:
    def generation(number: int, device: str, pool: str = "node") -> SliceItem:
        spec = {"driver": "d", "pool": {"name": pool, "generation": number}, "devices": [{"name": device}]}
        return read(SliceItem, {"spec": spec})

    slices = [
        generation(7, "a"),
        generation(8, "b"),
        generation(8, "c"),
        generation(6, "d"),
        generation(1, "e", "other"),
    ]
    assert {name.device for name in devices_of(slices)} == {"b", "c", "e"}
    assert devices_of([read(SliceItem, {"spec": {"driver": "d", "pool": {"name": "p"}, "devices": None}})]) == {}


def test_only_what_is_given_with_admin_access_is_watched() -> None:
    name = {"driver": "d", "pool": "p", "request": "r"}
    results = [
        name | {"device": "a", "adminAccess": True},
        name | {"device": "b", "adminAccess": False},
        name | {"device": "c"},
    ]
    claim = read(ClaimItem, {"status": {"allocation": {"devices": {"results": results}}}})
    assert watched_of(claim) == {DeviceName("d", "p", "a")}
    assert watched_of(read(ClaimItem, {"status": {}})) is None
    assert watched_of(read(ClaimItem, {"status": {"allocation": {"devices": {"results": None}}}})) == frozenset()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{", b'{"items": 1}', b'{"items": [1]}', b'{"items": [{"spec": {}}]}', b"\xff"]
)
def test_what_is_no_list_is_an_error(data: bytes) -> None:
    with pytest.raises(AnswerError, match="answers something else than the API promises"):
        decode_list(data, SliceItem)


def test_a_list_without_items_is_empty() -> None:
    assert decode_list(b'{"metadata": {}, "items": null}', PodItem) == ([], "")
