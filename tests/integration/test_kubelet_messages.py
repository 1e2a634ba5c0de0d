"""Our decoding of the kubelet's messages agrees with the runtime of protobuf."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.attribution.podresources import (
    ClaimedDevice,
    Container,
    Devices,
    Pod,
    decode_get,
    decode_list,
    encode_get,
)
from tests.kubelet.mock import Stubs, generate

TEXTS = st.text(max_size=6)
NAMES = st.text(min_size=1, max_size=6)
DEVICES = st.builds(Devices, TEXTS, st.lists(TEXTS, min_size=1, max_size=3).map(tuple))
CLAIMED = st.builds(ClaimedDevice, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS)
CONTAINERS = st.builds(
    Container, TEXTS, st.lists(DEVICES, max_size=3).map(tuple), st.lists(CLAIMED, max_size=3).map(tuple)
)
PODS = st.lists(st.builds(Pod, NAMES, NAMES, st.lists(CONTAINERS, max_size=3).map(tuple)), max_size=3)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return generate(tmp_path_factory.mktemp("proto"))


def message(stubs: Stubs, pod: Pod) -> Any:
    m = stubs.messages
    return m.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        cpu_ids=[0, 2**40, -1],
        containers=[
            m.ContainerResources(
                name=container.name,
                devices=[
                    m.ContainerDevices(
                        resource_name=one.resource,
                        device_ids=one.ids,
                        topology=m.TopologyInfo(nodes=[m.NUMANode(ID=-1)]),
                    )
                    for one in container.devices
                ],
                cpu_ids=[1],
                memory=[m.ContainerMemory(memory_type="memory", size=2**63)],
                dynamic_resources=[
                    m.DynamicResource(
                        claim_name=one.claim,
                        claim_namespace=one.claim_namespace,
                        claim_resources=[
                            m.ClaimResource(
                                cdi_devices=[m.CDIDevice(name="vendor.com/class=device")],
                                driver_name=one.driver,
                                pool_name=one.pool,
                                device_name=one.device,
                                share_id="81cc7b49",
                            )
                        ],
                    )
                    for one in container.claimed
                ],
            )
            for container in pod.containers
        ],
    )


def holding(pod: Pod) -> Pod:
    return Pod(pod.namespace, pod.name, tuple(one for one in pod.containers if one.devices or one.claimed))


@settings(max_examples=50)
@given(pods=PODS)
def test_what_protobuf_encodes_is_what_we_decode(stubs: Stubs, pods: list[Pod]) -> None:
    m = stubs.messages
    answer = m.ListPodResourcesResponse(pod_resources=[message(stubs, pod) for pod in pods])
    assert decode_list(answer.SerializeToString()) == tuple(holding(pod) for pod in pods)
    for pod in pods:
        one = m.GetPodResourcesResponse(pod_resources=message(stubs, pod))
        assert decode_get(one.SerializeToString()) == holding(pod)
    assert decode_get(m.GetPodResourcesResponse().SerializeToString()) is None


@given(name=TEXTS, namespace=TEXTS)
def test_what_we_encode_is_what_protobuf_decodes(stubs: Stubs, name: str, namespace: str) -> None:
    request = stubs.messages.GetPodResourcesRequest.FromString(encode_get(namespace, name))
    assert (request.pod_namespace, request.pod_name) == (namespace, name)
