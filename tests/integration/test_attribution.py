"""Whose processes they are and who was given the GPUs, on the daemon's own page, from files as hosts have them."""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.integration.daemon import Daemon, Samples
from tests.kubelet.mock import Node, generate, serving
from tests.unit.attribution import hosts
from tests.unit.attribution.hosts import CASES, write_host, write_pod_logs, write_process

StartDaemon = Callable[..., Daemon]
FIRST = 3000


def write_config(directory: Path, attribution: Mapping[str, Any], *devices: Mapping[str, Any]) -> Path:
    (directory / "scenario.yaml").write_text(json.dumps({"devices": devices}))
    config = directory / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "simulate": "scenario.yaml",
                "sampling": {"processes_seconds": 0.5},
                "processes": {"top": 1000},
                "attribution": attribution,
            }
        )
    )
    return config


def host(root: Path) -> Mapping[str, Any]:
    """Write a host with one process of each case, and return where attribution finds it."""
    proc, logs, jobs = write_host(root), write_pod_logs(root), root / "jobs"
    for number, case in enumerate(CASES):
        write_process(proc, FIRST + number, case.cgroup, uid=case.uid)
    jobs.mkdir()
    (jobs / "0").write_text("4711\n")
    (jobs / "1").write_text("")
    return {"proc": str(proc), "pod_logs": str(logs), "job_files": str(jobs), "kubelet_socket": None}


def running(number: int, **fields: Any) -> Mapping[str, Any]:
    return {"pid": FIRST + number, "started": 5000, "memory_used_bytes": 1e9, **fields}


def sources(page: Samples) -> dict[str, float]:
    return {labels["source"]: value for labels, value in page.all("gpu_exporter_attribution_up")}


def reason(page: Samples, source: str) -> str:
    return page.labels("gpu_exporter_attribution_info", source=source)["reason"]


def agent(daemon: Daemon) -> int:
    """Return the pid of the agent of attribution."""
    found = daemon.agents()
    assert len(found) == 1, found
    return found[0]


def test_page_names_the_owner_of_every_process(start_daemon: StartDaemon, tmp_path: Path) -> None:
    gpus = (
        {"model": "H100-SXM", "processes": [running(n) for n in range(len(CASES))]},
        {"model": "H100-SXM"},
    )
    daemon = start_daemon("--config.file", str(write_config(tmp_path, host(tmp_path), *gpus)))
    page = daemon.scrape_until(lambda page: "gpu_process_info" in page and "gpu_workload_info" in page)

    infos = {int(labels["pid"]): labels for labels, _ in page.all("gpu_process_info")}
    workloads = {labels["workload"] for labels, _ in page.all("gpu_workload_info")}
    assert workloads == {case.key for case in CASES if case.key} | {"slurm/4711"}
    unknown = sum(case.key is None for case in CASES)
    assert page.value("gpu_exporter_attribution_unplaced_processes") == unknown
    for number, case in enumerate(CASES):
        info = infos[FIRST + number]
        kind, *names = (case.key or "").split("/", 1)
        found = {
            "pod": "/".join(filter(None, (info["k8s_namespace"], info["k8s_pod"], info["k8s_container"]))),
            "slurm": info["slurm_job"],
            "container": info["container_id"][:12],
            "service": info["systemd_unit"],
        }
        if kind in found and hosts.OTHER_UID not in names[0]:
            assert names[0].endswith(found[kind]), case.runtime
            assert found[kind], case.runtime
    assert sources(page) == {"proc": 1, "job_files": 1, "pod_logs": 1}


def test_process_and_allocation_of_a_pod_are_one_workload(start_daemon: StartDaemon, tmp_path: Path) -> None:
    stubs = generate(tmp_path)
    with TemporaryDirectory() as short:  # the name of a socket has 107 bytes
        socket = Path(short) / "kubelet.sock"
        place = {**host(tmp_path), "kubelet_socket": str(socket), "job_files": None}
        gpu = {"model": "H100-SXM", "processes": [running(0)]}
        daemon = start_daemon("--config.file", str(write_config(tmp_path, place, gpu)))
        uuid = daemon.scrape_until(lambda page: "gpu_info" in page).labels("gpu_info")["uuid"]
        node = Node(stubs)
        # The kubelet knows names, and neither uids nor ids of containers; the process has those, and no names.
        node.add(
            "trainer-0", node.container({"nvidia.com/gpu": (uuid,)}), node.container(name="sidecar"), namespace="team-a"
        )
        with serving(node, socket):
            page = daemon.scrape_until(lambda page: "gpu_workload_allocation_ratio" in page)
    assert [labels["workload"] for labels, _ in page.all("gpu_workload_info")] == [hosts.POD]
    assert page.value("gpu_workload_allocation_ratio", workload=hosts.POD) == 1
    info = page.labels("gpu_process_info", pid=str(FIRST))
    assert (info["k8s_container"], info["pod_uid"], info["container_id"]) == ("main", hosts.UID, hosts.ID)


def test_idle_holder_of_a_gpu_is_visible(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon(
        "--config.file", str(write_config(tmp_path, host(tmp_path), {"model": "H100-SXM"}, {"model": "H100-SXM"}))
    )
    page = daemon.scrape_until(lambda page: "gpu_workload_allocation_ratio" in page)
    (allocation,) = page.all("gpu_workload_allocation_ratio")
    assert (allocation[0]["gpu"], allocation[0]["workload"], allocation[1]) == ("sim0", "slurm/4711", 1.0)

    # The epilog clears the file, and the next job writes its own.
    (tmp_path / "jobs/0").write_text("")
    (tmp_path / "jobs/1").write_text("4712\n")
    page = daemon.scrape_until(
        lambda page: (
            [(labels["gpu"], labels["workload"]) for labels, _ in page.all("gpu_workload_allocation_ratio")]
            == [("sim1", "slurm/4712")]
        )
    )


def test_process_that_has_the_pid_of_another_is_not_its_owner(start_daemon: StartDaemon, tmp_path: Path) -> None:
    place = host(tmp_path)
    ollama = next(n for n, case in enumerate(CASES) if case.key == "service/ollama.service")
    write_process(Path(place["proc"]), FIRST + ollama, "0::/system.slice/sshd.service\n", started=9000)
    gpu = {"model": "H100-SXM", "processes": [running(ollama), running(0)]}
    daemon = start_daemon("--config.file", str(write_config(tmp_path, place, gpu)))
    page = daemon.scrape_until(lambda page: page.all("gpu_process_info", k8s_pod="trainer-0") != [])
    assert not page.all("gpu_process_info", systemd_unit="sshd.service")
    assert (
        page.value("gpu_exporter_attribution_unplaced_processes") == 0
    )  # it has ended: nobody needs to know whose it was


def test_agent_that_is_killed_is_replaced_and_said(start_daemon: StartDaemon, tmp_path: Path) -> None:
    gpu = {"model": "H100-SXM", "processes": [running(0)]}
    daemon = start_daemon("--config.file", str(write_config(tmp_path, host(tmp_path), gpu)))
    daemon.scrape_until(lambda page: page.all("gpu_process_info", k8s_pod="trainer-0") != [])
    first = agent(daemon)
    os.kill(first, signal.SIGKILL)
    page = daemon.scrape_until(lambda page: set(sources(page).values()) == {0.0})
    assert reason(page, "proc") == "the process that asks is down: it was ended by signal 9"
    assert page.all("gpu_process_info", k8s_pod="trainer-0")  # what was said last stands for a while
    daemon.scrape_until(lambda page: set(sources(page).values()) == {1.0})
    assert agent(daemon) != first
    assert daemon.log.count("source of attribution is down") == 3


def test_agent_that_stands_still_delays_no_page(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--config.file", str(write_config(tmp_path, host(tmp_path), {"model": "H100-SXM"})))
    daemon.scrape_until(lambda page: "gpu_workload_info" in page)
    pid = agent(daemon)
    os.kill(pid, signal.SIGSTOP)
    for _ in range(5):
        assert daemon.get().seconds < 1.0
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < 5
    assert not Path(f"/proc/{pid}").exists()


def test_agent_dies_with_the_daemon(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--config.file", str(write_config(tmp_path, host(tmp_path), {"model": "H100-SXM"})))
    daemon.scrape_until(lambda page: "gpu_workload_info" in page)
    pid = agent(daemon)
    daemon.process.kill()
    daemon.process.wait(10)
    daemon.until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes())


def test_agent_that_is_asked_to_end_ends_quickly(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--config.file", str(write_config(tmp_path, host(tmp_path), {"model": "H100-SXM"})))
    daemon.scrape_until(lambda page: "gpu_workload_info" in page)
    began = time.monotonic()
    assert daemon.stop() == 0
    assert time.monotonic() - began < 3


def test_nobody_looks_where_attribution_is_off(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--config.file", str(write_config(tmp_path, {"enabled": False}, {"model": "H100-SXM"})))
    page = daemon.scrape_until(lambda page: "gpu_power_watts" in page)
    time.sleep(1.5)  # more than one look of whoever would start an agent
    assert "gpu_exporter_attribution_up" not in page
    assert daemon.agents() == []


def test_nobody_looks_while_there_is_no_gpu(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--provider", "nvidia", env={"LD_LIBRARY_PATH": "/nonexistent"}, ready=False)
    time.sleep(2)  # as above
    assert daemon.agents() == []
    assert "gpu_exporter_attribution_up" not in daemon.scrape()


def test_agent_leaves_when_it_has_nothing_to_do_and_comes_back(start_daemon: StartDaemon, tmp_path: Path) -> None:
    place = {**host(tmp_path), "pod_logs": None, "job_files": None}
    ollama = next(n for n, case in enumerate(CASES) if case.key == "service/ollama.service")
    config = write_config(tmp_path, place, {"model": "H100-SXM", "processes": [running(ollama)]})
    daemon = start_daemon(f"--config.file={config}", module="tests.integration.hasty")
    daemon.scrape_until(lambda page: page.all("gpu_process_info", systemd_unit="ollama.service") != [])
    first = agent(daemon)
    daemon.until(lambda: daemon.agents() == [])
    # What it said stands.
    page = daemon.scrape()
    assert sources(page) == {"proc": 1}
    assert reason(page, "proc") == ""
    assert page.value("gpu_process_info", systemd_unit="ollama.service") == 1

    write_process(Path(place["proc"]), FIRST + ollama, "0::/system.slice/llm.service\n")
    page = daemon.scrape_until(lambda page: page.all("gpu_process_info", systemd_unit="llm.service") != [])
    assert sources(page) == {"proc": 1}
    assert agent(daemon) != first
    daemon.until(lambda: daemon.agents() == [])
    assert "source of attribution" not in daemon.log
