from pathlib import Path

import pytest

from exporter.attribution.pod_logs import MOST_ENTRIES, PodLogs
from exporter.attribution.source import NothingToAskError, Pod, Question, SourceError
from tests.unit.attribution.hosts import ID, OTHER_ID, STATIC_UID, UID, write_pod_logs


def test_names_of_pods_and_containers(tmp_path: Path) -> None:
    found = PodLogs(str(write_pod_logs(tmp_path)), expected=True).look(Question())
    assert found.pods == {
        UID: Pod("team-a", "trainer-0", ("main", "sidecar")),
        STATIC_UID: Pod("kube-system", "watcher-node1", ("watch",)),
    }
    assert found.containers == {ID: "main", OTHER_ID: "sidecar"}


def test_links_to_containers_are_not_needed(tmp_path: Path) -> None:
    logs = write_pod_logs(tmp_path)
    (tmp_path / "var/log/containers").rename(tmp_path / "elsewhere")
    found = PodLogs(str(logs), expected=True).look(Question())
    assert len(found.pods) == 2
    assert found.containers == {}


def test_pods_come_and_go(tmp_path: Path) -> None:
    logs = write_pod_logs(tmp_path)
    source = PodLogs(str(logs), expected=True)
    source.look(Question())
    (logs / f"kube-system_watcher-node1_{STATIC_UID}/watch").rmdir()
    (logs / f"kube-system_watcher-node1_{STATIC_UID}").rmdir()
    (logs / f"team-a_trainer-0_{UID}/third").mkdir()
    assert source.look(Question()).pods == {UID: Pod("team-a", "trainer-0", ("main", "sidecar", "third"))}


def test_host_without_kubernetes_is_in_good_order(tmp_path: Path) -> None:
    with pytest.raises(NothingToAskError):
        PodLogs(str(tmp_path / "pods"), expected=False).look(Question())


def test_directory_that_somebody_named_is_missed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="pods does not exist"):
        PodLogs(str(tmp_path / "pods"), expected=True).look(Question())


def test_directory_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "pods").write_text("")
    with pytest.raises(SourceError, match="pods: Not a directory"):
        PodLogs(str(tmp_path / "pods"), expected=False).look(Question())


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    logs = tmp_path / "pods"
    logs.mkdir()
    for number in range(MOST_ENTRIES + 1):
        (logs / f"other-{number}").touch()
    source = PodLogs(str(logs), expected=True)
    assert source.look(Question()).trouble == f"{logs} has more than {MOST_ENTRIES} entries: the rest is left out"
    (logs / "other-0").unlink()
    assert source.look(Question()).trouble == ""
