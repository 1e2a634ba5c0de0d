"""A kubelet that serves PodResources v1 on a Unix socket, with messages that the runtime of protobuf encodes.

It shares nothing with the product's own decoding: the messages are generated from the .proto beside this file.
"""

import importlib
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.tools import unavailable

PROTO = Path(__file__).parent / "podresources.proto"


class Stubs(NamedTuple):
    messages: Any
    services: Any


class Claim(NamedTuple):
    """A device of DRA."""

    driver: str
    pool: str
    device: str
    name: str = "claim"
    share: str | None = None


def generate(directory: Path) -> Stubs:
    """Generate the messages and the service into `directory`, and import them."""
    try:
        from grpc_tools import protoc  # noqa: PLC0415 -- where it is missing, the test is skipped
    except ImportError:
        unavailable("gRPC's code generator", "python -m pip install grpcio-tools")
    options = (f"-I{PROTO.parent}", f"--python_out={directory}", f"--grpc_python_out={directory}")
    assert protoc.main(("protoc", *options, PROTO.name)) == 0
    sys.path.insert(0, str(directory))
    try:
        return Stubs(*(importlib.import_module(f"podresources_pb2{part}") for part in ("", "_grpc")))
    finally:
        sys.path.remove(str(directory))


@dataclass
class Node:
    """What a node runs, and how its kubelet behaves."""

    stubs: Stubs
    pods: list[Any] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)
    """Pods that List goes on telling of, and Get does not know."""
    knows_get: bool = True
    """Get came with Kubernetes 1.27."""
    failure: tuple[str, str] | None = None
    """Status and details with which List is refused."""
    asked: list[str] = field(default_factory=list)
    """Calls, in their order."""
    hangs: frozenset[str] = frozenset()
    """Methods that do not answer until `release`."""
    release: threading.Event = field(default_factory=threading.Event)

    def add(self, name: str, *containers: Any, namespace: str = "default") -> None:
        memory = self.stubs.messages.ContainerMemory(memory_type="memory", size=2**40)
        self.pods.append(
            self.stubs.messages.PodResources(
                name=name, namespace=namespace, containers=containers, cpu_ids=[1, 300], memory=[memory]
            )
        )

    def container(
        self, devices: Mapping[str, tuple[str, ...]] | None = None, *claims: Claim, name: str = "main"
    ) -> Any:
        """Describe a container; `devices`: ids by resource."""
        m = self.stubs.messages
        numa = m.TopologyInfo(nodes=[m.NUMANode(ID=0), m.NUMANode(ID=1)])
        return m.ContainerResources(
            name=name,
            devices=[
                m.ContainerDevices(resource_name=resource, device_ids=ids, topology=numa)
                for resource, ids in (devices or {}).items()
            ],
            cpu_ids=[2, 3],
            memory=[m.ContainerMemory(memory_type="hugepages-1Gi", size=2**31, topology=numa)],
            dynamic_resources=[
                m.DynamicResource(
                    claim_name=claim.name,
                    claim_namespace="default",
                    claim_resources=[
                        m.ClaimResource(
                            cdi_devices=[m.CDIDevice(name=f"k8s.{claim.driver}/claim={claim.device}")],
                            driver_name=claim.driver,
                            pool_name=claim.pool,
                            device_name=claim.device,
                            share_id=claim.share,
                        )
                    ],
                )
                for claim in claims
            ],
        )


def _servicer(node: Node) -> Any:
    import grpc  # noqa: PLC0415 -- as above

    messages = node.stubs.messages

    class Servicer(node.stubs.services.PodResourcesListerServicer):  # type: ignore[name-defined,misc] # generated
        def List(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802 -- as generated
            node.asked.append("List")
            if "List" in node.hangs:
                node.release.wait(30)
            if node.failure is not None:
                context.abort(grpc.StatusCode[node.failure[0]], node.failure[1])
            return messages.ListPodResourcesResponse(pod_resources=node.pods)

        def Get(self, request: Any, context: Any) -> Any:  # noqa: N802 -- as above
            node.asked.append(f"Get {request.pod_namespace}/{request.pod_name}")
            if "Get" in node.hangs:
                node.release.wait(30)
            if not node.knows_get:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown method Get for service v1.PodResourcesLister")
            for pod in node.pods:
                if (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                    if pod.name not in node.forgotten:
                        return messages.GetPodResourcesResponse(pod_resources=pod)
                    break
            # The kubelet says so with the status that Go's errors have by default.
            details = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            return context.abort(grpc.StatusCode.UNKNOWN, details)

    return Servicer()


@contextmanager
def serving(node: Node, path: Path) -> Iterator[None]:
    """Serve the node on the socket; at the end the socket stays, as that of a kubelet that is stopped does not."""
    import grpc  # noqa: PLC0415 -- as above

    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        node.stubs.services.add_PodResourcesListerServicer_to_server(_servicer(node), server)
        assert server.add_insecure_port(f"unix:{quote(str(path))}")
        server.start()
        try:
            yield
        finally:
            node.release.set()
            server.stop(None).wait(10)
