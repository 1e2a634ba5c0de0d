"""What asking the kubelet costs: `python -m tests.benchmarks.kubelet [PODS]`, against a kubelet of our own.

Memory (PSS) that the first look adds and that further looks add, threads, and processor time of one look.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exporter.attribution.kubelet import KubeletSource
from exporter.attribution.source import Held, Question
from exporter.config import AttributionConfig
from exporter.model import Device
from tests.benchmarks.figures import pss_mebibytes
from tests.kubelet.mock import Node, generate, serving

LOOKS = 2000
UUID = "GPU-00000000-0000-0000-0000-{:012x}"


def serve(path: Path, pods: int) -> None:
    """Serve a node of `pods` pods with three containers each, of which eight hold a GPU, until standard input ends."""
    with tempfile.TemporaryDirectory() as directory:
        node = Node(generate(Path(directory)))
        for number in range(pods):
            devices = {"nvidia.com/gpu": (UUID.format(number),)} if number < 8 else {}
            sidecars = (node.container(name=f"sidecar-{one}") for one in range(2))
            node.add(f"deployment-6d4b75cb6d-{number:05}", node.container(devices), *sidecars, namespace="production")
        with serving(node, path):
            print("serving", flush=True)
            sys.stdin.read()


def measure(path: Path) -> None:
    held = (Held(device=Device(vendor="nvidia", key=UUID.format(number), minor=number)) for number in range(8))
    question = Question(held=tuple(held))
    source = KubeletSource(str(path), AttributionConfig().kubelet_resources)
    before = pss_mebibytes(os.getpid())
    assert len(source.look(question).grants) == 8
    first = pss_mebibytes(os.getpid())
    for _ in range(100):
        source.look(question)
    warm, began = pss_mebibytes(os.getpid()), time.process_time()
    for _ in range(LOOKS):
        source.look(question)
    took = time.process_time() - began
    after = pss_mebibytes(os.getpid())
    threads = len(list(Path("/proc/self/task").iterdir()))
    print(f"memory: {before:.1f} MiB before, {first - before:+.1f} by the first look, {warm - first:+.1f} by 100 more,")
    print(f"        {after - warm:+.2f} by {LOOKS} more; {threads} threads between looks")
    print(f"processor time of one look: {took / LOOKS * 1000:.2f} ms")


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        serve(Path(sys.argv[2]), int(sys.argv[3]))
        return
    pods = sys.argv[1] if len(sys.argv) > 1 else "110"
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kubelet.sock"
        command = [sys.executable, "-m", "tests.benchmarks.kubelet", "serve", str(path), pods]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == "serving\n"
            measure(path)
            server.stdin.close()


if __name__ == "__main__":
    main()
