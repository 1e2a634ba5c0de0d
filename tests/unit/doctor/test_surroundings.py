"""What the command `doctor` says of the place that the exporter runs in."""

import socket
from pathlib import Path

import msgspec
import pytest

from exporter.config import AttributionConfig, Config
from exporter.doctor.surroundings import Fact, facts
from exporter.kernel import INITIAL_PID_NAMESPACE
from tests.kernel import kernel_threads, own, process


def found(root: Path, namespace: str = INITIAL_PID_NAMESPACE, **attribution: object) -> dict[str, Fact]:
    config = Config(attribution=msgspec.convert(attribution, AttributionConfig))
    (root / "proc").mkdir(exist_ok=True)
    (root / "place").mkdir()
    return {fact.name: fact for fact in facts(config, {}, root, own(root / "place", namespace))}


def test_a_host_shows_its_pids(tmp_path: Path) -> None:
    process(tmp_path, 1, b"systemd")
    kernel_threads(tmp_path)
    told = found(tmp_path)["pid namespace"]
    assert told == Fact("pid namespace", "that of the host, by /proc")


def test_a_container_with_pids_of_its_own_is_told_what_to_do(tmp_path: Path) -> None:
    process(tmp_path, 1, b"gpu-exporter")
    told = found(tmp_path, "pid:[4026532201]")["pid namespace"]
    assert "other processes" in told.value
    assert "hostPID: true" in told.advice
    assert not told.is_wrong  # the source that meets it says so


def test_whether_the_kubelet_may_be_asked_is_told(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert found(tmp_path)["kubelet socket"].value.startswith("none at /var/lib/kubelet/pod-resources/kubelet.sock")
    path = tmp_path_factory.mktemp("kubelet") / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        config = Config(attribution=AttributionConfig(kubelet_socket=str(path)))
        (told,) = [fact for fact in facts(config, {}) if fact.name == "kubelet socket"]
    assert told.value == f"{path} may be asked"


def test_what_is_no_socket_is_told(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").touch()
    told = found(tmp_path, kubelet_socket="/kubelet.sock")["kubelet socket"]
    assert told.value == "/kubelet.sock is not a socket"
    assert "attribution.kubelet_socket" in told.advice


def test_without_attribution_there_is_nothing_to_tell_of_pids_and_pods(tmp_path: Path) -> None:
    told = found(tmp_path, enabled=False)
    assert "attribution" in told
    assert not {"pid namespace", "kubelet socket"} & told.keys()


def test_device_nodes_and_journal_are_told(tmp_path: Path) -> None:
    told = found(tmp_path)
    assert told["device nodes"].value == "none of /dev/nvidia* and /dev/dri/renderD*"
    assert told["journal"].advice.startswith("name a directory")
    assert told["user"].value.startswith("uid ")


def test_a_journal_that_cannot_be_written_is_wrong(tmp_path: Path) -> None:
    config = Config(journal=msgspec.structs.replace(Config().journal, directory=str(tmp_path / "missing")))
    (wrong,) = [fact for fact in facts(config, {}, tmp_path) if fact.is_wrong]
    assert (wrong.name, wrong.value) == ("journal", f"{tmp_path}/missing may not be written")
