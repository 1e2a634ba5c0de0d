"""Pods that were given GPUs are on the page of the real daemon, whatever the kubelet does."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.daemon import Daemon, Samples
from tests.kubelet.mock import Node, Stubs, generate, serving

StartDaemon = Callable[..., Daemon]
DEVICES = [
    {"model": "H100-SXM", "load": {"pattern": "constant", "watts": 400}},
    {"model": "MI300X", "load": {"pattern": "constant", "watts": 400}},
]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return generate(tmp_path_factory.mktemp("proto"))


@pytest.fixture
def path() -> Iterator[Path]:
    # Short: the name of a socket has 107 bytes.
    with TemporaryDirectory() as directory:
        yield Path(directory) / "kubelet.sock"


@pytest.fixture
def daemon(start_daemon: StartDaemon, tmp_path: Path, path: Path) -> Daemon:
    scenario, config = tmp_path / "scenario.yaml", tmp_path / "config.yaml"
    scenario.write_text(json.dumps({"devices": DEVICES}))
    config.write_text(
        json.dumps(
            {
                "providers": ["simulated"],
                "simulate": str(scenario),
                "sampling": {"processes_seconds": 0.2, "state_seconds": 0.2},
                "attribution": {"kubelet_socket": str(path), "pod_logs": None, "linger_seconds": 0},
                "web": {"listen_addresses": ["127.0.0.1:0"]},
            }
        )
    )
    return start_daemon("--config.file", str(config))


def up(page: Samples) -> float | None:
    return page.get("gpu_exporter_attribution_up", source="kubelet")


def shares(page: Samples) -> dict[tuple[str, str], float]:
    return {(one["workload"], one["gpu"]): value for one, value in page.all("gpu_workload_allocation_ratio")}


def test_page_shows_who_was_given_which_gpu_over_a_restart_and_a_hang_of_the_kubelet(
    daemon: Daemon, stubs: Stubs, path: Path
) -> None:
    page = daemon.scrape_until(lambda page: up(page) == 0 and len(page.all("gpu_info")) == len(DEVICES))
    assert "is not there" in page.labels("gpu_exporter_attribution_info", source="kubelet")["reason"]
    (nvidia, amd) = (page.labels("gpu_info", gpu=gpu) for gpu in ("sim0", "sim1"))
    node = Node(stubs)
    node.add("done", node.container({"nvidia.com/gpu": (nvidia["uuid"],)}))
    node.add("trainer", node.container({"nvidia.com/gpu": (nvidia["uuid"],), "nvidia.com/odd": ("far",)}))
    node.add("shared", node.container({"amd.com/gpu": (amd["pci_address"],)}), node.container(name="log"))
    node.forgotten.add("done")
    expected = {("pod/default/trainer/main", "sim0"): 1.0, ("pod/default/shared/main", "sim1"): 1.0}
    with serving(node, path):
        page = daemon.scrape_until(lambda page: shares(page) == expected and up(page) == 1)
        assert page.value("gpu_exporter_attribution_unplaced_devices") == 1
        info = page.labels("gpu_workload_info", gpu="sim0")
        assert (info["k8s_namespace"], info["k8s_pod"], info["k8s_container"]) == ("default", "trainer", "main")
    daemon.scrape_until(lambda page: up(page) == 0)
    node.pods.pop()
    node.hangs = frozenset({"List"})
    node.release.clear()
    node.asked.clear()
    with serving(node, path):
        daemon.scrape_until(lambda _: node.asked == ["List"])
        assert daemon.get().seconds < 2  # the kubelet has 5
        node.release.set()
        del expected["pod/default/shared/main", "sim1"]
        daemon.scrape_until(lambda page: shares(page) == expected and up(page) == 1)
    assert "ids of nvidia.com/odd belong to no GPU that is known" in daemon.log
    assert "Traceback" not in daemon.log
