"""The kubelet is asked over its socket: who holds which device, and every way in which it fails to say."""

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from exporter.attribution.cluster import Cluster
from exporter.attribution.ids import DeviceName
from exporter.attribution.kubelet import KubeletSource
from exporter.attribution.merge import merge
from exporter.attribution.proc import Sights
from exporter.attribution.source import Findings, Held, NothingToAskError, Question, SourceError
from exporter.config import AttributionConfig
from exporter.model import Device, PartitionSample
from tests.kubelet.mock import Claim, Node, Stubs, generate, serving

A100 = "GPU-aaaaaaaa-0000-0000-0000-000000000000"
H100 = "GPU-bbbbbbbb-1111-1111-1111-111111111111"
MIG = "MIG-cccccccc-2222-2222-2222-222222222222"
MI300 = "00112233445566aa"
QUESTION = Question(
    held=(
        Held(device=Device(vendor="nvidia", key=A100, vendor_uuid=A100, minor=0, pci_address="0000:07:00.0")),
        Held(
            device=Device(vendor="nvidia", key=H100, vendor_uuid=H100, minor=1, pci_address="0000:0f:00.0"),
            partitions=(
                PartitionSample(partition="gi1", uuid=MIG, profile="1g.10gb"),
                PartitionSample(partition="gi2", uuid=MIG.replace("c", "d"), profile="2g.20gb"),
            ),
        ),
        Held(
            device=Device(vendor="amd", key=MI300, pci_address="0000:19:00.0", minor=128),
            partitions=tuple(PartitionSample(partition=str(number)) for number in range(8)),
        ),
    )
)
RESOURCES = AttributionConfig().kubelet_resources


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return generate(tmp_path_factory.mktemp("proto"))


@pytest.fixture
def node(stubs: Stubs) -> Node:
    return Node(stubs)


@pytest.fixture
def path() -> Iterator[Path]:
    # Short: the name of a socket has 107 bytes.
    with tempfile.TemporaryDirectory(prefix="kubelet %") as directory:
        yield Path(directory) / "kubelet.sock"


def source(path: Path, **options: object) -> KubeletSource:
    return KubeletSource(str(path), RESOURCES, **options)  # type: ignore[arg-type] # of several types


def look(path: Path, **options: object) -> Findings:
    return source(path, **options).look(QUESTION)


def reason(path: Path, **options: object) -> str:
    with pytest.raises(SourceError) as caught:
        look(path, **options)
    return str(caught.value)


def held(findings: Findings) -> list[tuple[str, str, str | None]]:
    return [(grant.workload.key, grant.device, grant.partition) for grant in findings.grants]


@contextmanager
def listening(path: Path, answer: bytes | None) -> Iterator[None]:
    """Listen without gRPC: say `answer` to everybody, or nothing at all."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(16)
        peers: list[socket.socket] = []
        stop = threading.Event()

        def accept() -> None:
            while not stop.is_set():
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                peers.append(peer)
                if answer is not None:
                    with peer, suppress(OSError):  # who does not understand it does not wait for its end
                        peer.sendall(answer)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for peer in peers:
                peer.close()


def test_every_shape_of_id_leads_to_its_gpu(node: Node, path: Path) -> None:
    node.add("whole", node.container({"nvidia.com/gpu": (A100,)}))
    node.add("sliced", node.container({"nvidia.com/gpu.shared": (f"{A100}::3",)}))
    node.add("mig", node.container({"nvidia.com/mig-1g.10gb": (MIG,)}))
    node.add("mig-sliced", node.container({"nvidia.com/mig-1g.10gb.shared": (f"{MIG}::7",)}))
    node.add("legacy", node.container({"nvidia.com/mig-2g.20gb": (f"MIG-{H100}/2/0",)}))
    node.add("gke", node.container({"nvidia.com/gpu": ("nvidia0/vgpu1", "nvidia1/gi2", "nvidia1/gi1/vgpu0")}))
    node.add("amd", node.container({"amd.com/cpx_nps4": ("0000:19:00.0",)}))
    node.add("dra", node.container({}, Claim("gpu.amd.com", "node", "gpu-0-128")), namespace="team")
    with serving(node, path):
        findings = look(path)
    assert held(findings) == [
        ("pod/default/whole/main", A100, None),
        ("pod/default/sliced/main", A100, None),
        ("pod/default/mig/main", H100, "gi1"),
        ("pod/default/mig-sliced/main", H100, "gi1"),
        ("pod/default/legacy/main", H100, "gi2"),
        ("pod/default/gke/main", A100, None),
        ("pod/default/gke/main", H100, "gi2"),
        ("pod/default/gke/main", H100, "gi1"),
        ("pod/default/amd/main", MI300, "0"),
        ("pod/team/dra/main", MI300, "0"),
    ]
    assert findings.unplaced_devices == 0
    assert findings.trouble == ""
    assert all(grant.running for grant in findings.grants)


def test_containers_of_a_pod_are_told_apart_and_one_may_hold_several_gpus(node: Node, path: Path) -> None:
    node.add(
        "trainer",
        node.container({"nvidia.com/gpu": (A100, H100), "example.com/nic": ("eth1",)}, name="train"),
        node.container({"nvidia.com/mig-1g.10gb": (MIG,)}, name="evaluate"),
        node.container(name="log"),
    )
    with serving(node, path):
        findings = look(path)
    assert held(findings) == [
        ("pod/default/trainer/train", A100, None),
        ("pod/default/trainer/train", H100, None),
        ("pod/default/trainer/evaluate", H100, "gi1"),
    ]
    workload = findings.grants[0].workload
    assert (workload.kind, workload.k8s_namespace, workload.k8s_pod) == ("pod", "default", "trainer")
    assert workload.k8s_container == "train"


def test_two_replicas_of_one_gpu_are_one_grant(node: Node, path: Path) -> None:
    node.add("greedy", node.container({"nvidia.com/gpu": (f"{A100}::0", f"{A100}::1")}))
    with serving(node, path):
        assert held(look(path)) == [("pod/default/greedy/main", A100, None)]


def test_ids_that_belong_to_no_gpu_are_counted_and_their_resources_named_once(
    node: Node, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node.add("far", node.container({"nvidia.com/gpu": ("GPU-gone", "GPU-gone", f"{A100}::0")}))
    node.add("farther", node.container({"nvidia.com/gpu": ("GPU-gone",), "nvidia.com/odd": ("?",)}))
    node.add("claims", node.container({}, Claim("gpu.nvidia.com", "node", "gpu-0")))
    node.add("other", node.container({"example.com/fpga": ("fpga0",)}, Claim("dra.example.com", "node", "nic0")))
    asks = source(path)
    with serving(node, path):
        findings = asks.look(QUESTION)
        assert asks.look(QUESTION) == findings
    assert held(findings) == [("pod/default/far/main", A100, None)]
    assert findings.unplaced_devices == 3
    assert findings.trouble == ""
    assert caplog.messages == [
        "ids of gpu.nvidia.com belong to no GPU that is known, and ResourceSlices that would tell were not read",
        "ids of nvidia.com/gpu belong to no GPU that is known",
        "ids of nvidia.com/odd belong to no GPU that is known",
    ]


def test_devices_of_dra_are_found_by_their_slices_and_those_to_look_at_are_left_out(node: Node, path: Path) -> None:
    gpu, part = (DeviceName("gpu.nvidia.com", "node", name) for name in ("gpu-0", "gpu-1-mig-1g10gb-19-0"))
    cluster = Cluster(
        devices={
            gpu: {"type": "gpu", "uuid": A100},
            part: {"type": "mig", "parentUUID": H100, "profile": "1g.10gb"},
        },
        watched=frozenset({(("default", "monitor"), gpu)}),
    )
    node.add("whole", node.container({}, Claim(*gpu)))
    node.add("shared", node.container({}, Claim(*gpu, share="81cc7b49-2d4b-4a3c-b2a5-6f40d1e4c5f1")))
    node.add("part", node.container({}, Claim(*part)))
    node.add("exporter", node.container({}, Claim(*gpu, name="monitor")))
    with serving(node, path):
        findings = look(path, cluster=lambda: cluster)
    assert held(findings) == [
        ("pod/default/whole/main", A100, None),
        ("pod/default/shared/main", A100, None),
        ("pod/default/part/main", H100, "gi1"),
    ]
    assert findings.unplaced_devices == 0


def test_an_ended_pod_beside_the_one_that_got_its_device_does_not_run(node: Node, path: Path) -> None:
    node.add("done", node.container({"nvidia.com/gpu": (A100,)}))
    node.add("alive", node.container({"nvidia.com/gpu": (A100,)}))
    node.add("elsewhere", node.container({"nvidia.com/mig-1g.10gb": (MIG,)}))
    node.forgotten.add("done")
    with serving(node, path):
        findings = look(path)
    assert [(grant.workload.k8s_pod, grant.running) for grant in findings.grants] == [
        ("done", False),
        ("alive", True),
        ("elsewhere", True),
    ]
    assert node.asked == ["List", "Get default/done", "Get default/alive"]


def test_an_old_kubelet_without_get_leaves_both_pods_running(node: Node, path: Path) -> None:
    node.knows_get = False
    for name in ("done", "alive"):
        node.add(name, node.container({"nvidia.com/gpu": (A100,)}))
    with serving(node, path):
        findings = look(path)
    assert [grant.running for grant in findings.grants] == [True, True]
    assert node.asked == ["List", "Get default/done"]


def test_the_api_server_tells_that_a_pod_has_ended(node: Node, path: Path) -> None:
    node.knows_get = False
    for name in ("done", "alive"):
        node.add(name, node.container({"nvidia.com/gpu": (A100,)}))
    with serving(node, path):
        findings = look(path, cluster=lambda: Cluster(ended=frozenset({("default", "done")})))
    assert [(grant.workload.k8s_pod, grant.running) for grant in findings.grants] == [("done", False), ("alive", True)]


def test_put_together_the_device_is_the_living_pods_alone_and_shares_are_equal(node: Node, path: Path) -> None:
    node.add("done", node.container({"nvidia.com/gpu": (A100,)}))
    node.add("alive", node.container({"nvidia.com/gpu": (A100,)}))
    for number in range(4):
        node.add(f"share-{number}", node.container({"nvidia.com/mig-1g.10gb.shared": (f"{MIG}::{number}",)}))
    node.forgotten.add("done")
    with serving(node, path):
        allocations = merge(QUESTION, Sights(), [look(path)], ()).allocations
    shares = {one.workload.k8s_pod: (one.device, one.partition, one.share) for one in allocations}
    assert shares == {"alive": (A100, None, 1.0)} | {f"share-{number}": (H100, "gi1", 0.25) for number in range(4)}


def test_shares_of_one_gpu_raise_no_doubt(node: Node, path: Path) -> None:
    for number in range(4):
        node.add(f"share-{number}", node.container({"nvidia.com/gpu": (f"{A100}::{number}",)}))
    with serving(node, path):
        assert len(look(path).grants) == 4
    assert node.asked == ["List"]


def test_a_node_without_a_gpu_pod_has_no_grants_and_one_without_any_pod_has_an_error(node: Node, path: Path) -> None:
    with serving(node, path):
        assert reason(path) == "the kubelet lists no pod at all: it has just started, or runs none"
        node.add("plain", node.container())
        assert look(path) == Findings()


def test_an_answer_of_more_than_4_mib_is_read_and_one_of_more_than_16_is_refused(node: Node, path: Path) -> None:
    for number in range(600):
        node.add(f"{number}-{'x' * 240}", *(node.container(name="c" * 60) for _ in range(90)))
    node.add("last", node.container({"nvidia.com/gpu": (A100,)}))
    answer = node.stubs.messages.ListPodResourcesResponse(pod_resources=node.pods)
    assert 4 * 2**20 < answer.ByteSize() < 16 * 2**20
    with serving(node, path):
        began = time.process_time()
        assert held(look(path)) == [("pod/default/last/main", A100, None)]
        print(f"{answer.ByteSize() / 2**20:.1f} MiB: {time.process_time() - began:.2f} s of CPU")
        node.pods *= 4
        assert reason(path) == "the kubelet's answer is larger than 16 MiB"


def test_a_restart_of_the_kubelet_needs_no_restart_of_ours(node: Node, path: Path) -> None:
    node.add("pod", node.container({"nvidia.com/gpu": (A100,)}))
    asks = source(path)
    for _ in range(3):
        with serving(node, path):
            assert held(asks.look(QUESTION)) == [("pod/default/pod/main", A100, None)]
        with pytest.raises(SourceError, match=r"is not there|nobody listens"):
            asks.look(QUESTION)


def test_a_kubelet_that_hangs_costs_the_deadline_and_no_more(node: Node, path: Path) -> None:
    node.hangs = frozenset({"List"})
    with serving(node, path):
        began = time.monotonic()
        assert reason(path, deadline_seconds=0.3) == "the kubelet did not answer within 0.3 s"
        assert time.monotonic() - began < 2


def test_a_get_that_hangs_costs_the_deadline_and_no_findings(node: Node, path: Path) -> None:
    node.hangs = frozenset({"Get"})
    for name in ("done", "alive", "third"):
        node.add(name, node.container({"nvidia.com/gpu": (A100,)}))
    with serving(node, path):
        began = time.monotonic()
        findings = look(path, deadline_seconds=0.3)
        assert time.monotonic() - began < 2
    assert [grant.running for grant in findings.grants] == [True, True, True]


def test_who_accepts_and_says_nothing_costs_the_deadline(path: Path) -> None:
    with listening(path, None):
        began = time.monotonic()
        assert reason(path, deadline_seconds=0.3) == "the kubelet did not answer within 0.3 s"
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\xff" * 4096], ids=["hangs up", "HTTP", "noise"]
)
def test_who_speaks_no_grpc_is_named_so(path: Path, answer: bytes) -> None:
    with listening(path, answer):
        assert "does not speak gRPC, or hung up" in reason(path)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (("RESOURCE_EXHAUSTED", "rejected by rate limit"), "refuses with RESOURCE_EXHAUSTED: rejected by rate limit"),
        (("PERMISSION_DENIED", "no\nthanks"), "refuses with PERMISSION_DENIED: no thanks"),
        (("UNIMPLEMENTED", "unknown service"), "does not know PodResources v1, which kubelets do since 1.20"),
        (("INTERNAL", "x" * 5000), "refuses with INTERNAL: " + "x" * 200),
    ],
    ids=["rate limit", "refused", "old", "long"],
)
def test_a_refusal_is_told_in_a_sentence(node: Node, path: Path, failure: tuple[str, str], expected: str) -> None:
    node.failure = failure
    with serving(node, path):
        assert reason(path).endswith(expected)


@pytest.mark.parametrize(
    "answer", [b"\x0a", b"\x0a\x05abc", b"\x08\x01\x0a\x02\x08\x01", b"\x0a\x03\x0a\x01\xff", os.urandom(512)]
)
def test_an_answer_of_garbage_is_an_error(path: Path, answer: bytes) -> None:
    import grpc  # noqa: PLC0415 -- of an extra

    class Garbage(grpc.GenericRpcHandler):  # type: ignore[misc] # it has no types
        def service(self, details: object) -> object:  # noqa: ARG002 -- as it is called
            return grpc.unary_unary_rpc_method_handler(lambda *_: answer)

    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, (Garbage(),))
        server.add_insecure_port(f"unix:{quote(str(path))}")
        server.start()
        try:
            assert "is not a list of PodResources v1: " in reason(path)
        finally:
            server.stop(None).wait(10)


def test_a_socket_that_is_not_there_is_nothing_to_ask_unless_somebody_named_it(path: Path) -> None:
    assert reason(path) == f"{path} is not there: no kubelet runs here, or its directory is not mounted"
    with pytest.raises(NothingToAskError):
        look(path.parent / "kubelet" / "kubelet.sock", expected=False)
    # The directory is there: this is a node, and its kubelet is not running.
    assert "is not there" in reason(path, expected=False)


def test_a_path_that_can_be_no_socket_is_named_so(path: Path) -> None:
    path.write_text("")
    assert reason(path) == f"{path} is not a socket"
    assert "is longer than the 107 bytes" in reason(path.parent / ("x" * 100))
    assert "is not there" in reason(path / "below a file")


def test_a_socket_on_which_nobody_listens_is_named_so(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    assert stat.S_ISSOCK(path.stat().st_mode)
    assert reason(path) == f"nobody listens on {path}: the kubelet is not running"


@pytest.mark.parametrize("what", ["directory", "socket"])
def test_a_socket_that_is_denied_is_named_so(node: Node, path: Path, what: str) -> None:
    with serving(node, path):
        (path if what == "socket" else path.parent).chmod(0o700 if what == "directory" else 0o600)
        path.parent.chmod(0o755 if what == "socket" else 0o700)
        with plain_user(path):
            assert reason(path) == f"{path} may not be opened: it is root's, so run as root or with CAP_DAC_OVERRIDE"


@contextmanager
def plain_user(path: Path) -> Iterator[None]:
    """Be nobody for a while; who is not root takes the permissions away from themselves."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)
        return
    for one in (path, path.parent):
        if stat.S_IMODE(one.stat().st_mode) in (0o600, 0o700):
            one.chmod(0)
            break
    try:
        yield
    finally:
        path.parent.chmod(0o700)


def test_looking_leaks_no_threads_and_no_descriptors(node: Node, path: Path) -> None:
    node.add("pod", node.container({"nvidia.com/gpu": (A100,)}))
    asks = source(path, deadline_seconds=5.0)

    def used() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- one call for each

    with serving(node, path):
        for _ in range(10):
            asks.look(QUESTION)
        before = used()
        for _ in range(100):
            asks.look(QUESTION)
        after = used()
    with listening(path.with_name("mute.sock"), None):
        for _ in range(20):
            with pytest.raises(SourceError):
                source(path.with_name("mute.sock"), deadline_seconds=0.01).look(QUESTION)
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2


def test_without_grpc_the_extra_is_named_and_no_memory_is_spent_before_a_socket_is_there(path: Path) -> None:
    script = (
        "import sys; sys.modules['grpc'] = None\n"
        "from exporter.attribution.kubelet import KubeletSource\n"
        "from exporter.attribution.source import Question, SourceError\n"
        "try: KubeletSource(sys.argv[1], ()).look(Question())\n"
        "except SourceError as e: print(e)\n"
    )

    def said() -> str:
        command = [sys.executable, "-c", script, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout

    assert "is not there" in said()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert "gRPC is not installed" in said()
        assert "gpu-exporter[kubernetes]" in said()
