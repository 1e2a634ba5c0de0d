"""The shipped rules for workloads in a real Prometheus that scrapes the daemon: each of them records, and watts add up.

Windows and intervals are shorter here than in the file, which else would take minutes to fill.
"""

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from tests.integration.daemon import Daemon, Samples
from tests.integration.prometheus import Server, find, running
from tests.integration.test_rules import rules
from tests.kubelet.mock import Node, generate, serving
from tests.unit.attribution.hosts import ID, UID, write_host, write_pod_logs, write_process

RULES = Path(__file__).parents[2] / "config/prometheus/workloads.yaml"
WINDOW = "8s"
SCRAPE = "500ms"
NEAR = 0.01
"""Rules are evaluated at other moments than they are asked for."""
POD, JOB = 4101, 4102
SCENARIO = """
epoch_seconds: {epoch}
devices:
  - model: H100-SXM
    load: {{pattern: constant, level: 0.8}}
    processes:
      - {{pid: 4101, started: 5000, memory_used_bytes: 40.0e+9, share: 0.75}}
      - {{pid: 4102, started: 5000, memory_used_bytes: 20.0e+9, share: 0.25}}
  - model: H100-SXM
  - model: H100-SXM
    load: {{pattern: constant, level: 0.5}}
"""
"""The pod and the job share the first GPU; the job has the second for itself, idle; nobody is known on the third."""


@contextmanager
def pod_labels() -> Iterator[str]:
    """Serve what kube-state-metrics tells of the pod; yields host and port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(b'kube_pod_labels{namespace="team-a",pod="trainer-0",label_team="vision"} 1\n')

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A host whose kubelet runs; yields the configuration of the daemon."""
    proc, logs = write_host(tmp_path), write_pod_logs(tmp_path)
    write_process(proc, POD, f"0::/kubepods/burstable/pod{UID}/{ID}\n", started=5000)
    write_process(proc, JOB, "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", uid=1000, started=5000)
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/1").write_text("42\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO.format(epoch=time.monotonic()))
    config = tmp_path / "config.yaml"
    with TemporaryDirectory() as short:
        attribution = {
            "proc": str(proc),
            "pod_logs": str(logs),
            "job_files": str(tmp_path / "jobs"),
            "kubelet_socket": f"{short}/kubelet.sock",
        }
        config.write_text(
            json.dumps(
                {
                    "simulate": str(tmp_path / "scenario.yaml"),
                    "sampling": {"processes_seconds": 0.5},
                    "attribution": attribution,
                }
            )
        )
        yield config


def is_whole(page: Samples) -> bool:
    allocated = {labels["workload"] for labels, _ in page.all("gpu_workload_allocation_ratio")}
    return allocated == {"pod/team-a/trainer-0/main", "slurm/42"} and len(page.all("gpu_process_info", user="ada")) == 1


def watts(server: Server, expression: str) -> float:
    ((_, value),) = server.query(f"sum({expression})")
    return value


@pytest.mark.parametrize("major", [2, 3])
def test_every_rule_records_and_the_watts_of_all_are_those_of_the_gpus(
    major: int, start_daemon: Callable[..., Daemon], site: Path, tmp_path: Path
) -> None:
    node = Node(generate(tmp_path))
    tools = find(major)
    shortened = tmp_path / "rules.yaml"
    groups = yaml.safe_load(RULES.read_text().replace("[5m]", f"[{WINDOW}]"))
    shortened.write_text(json.dumps({"groups": [{**group, "interval": "1s"} for group in groups["groups"]]}))
    daemon = start_daemon(f"--config.file={site}")
    first = daemon.scrape_until(lambda page: len(page.all("gpu_info")) == 3)
    node.add(
        "trainer-0",
        node.container({"nvidia.com/gpu": (first.labels("gpu_info", gpu="sim0")["uuid"],)}),
        namespace="team-a",
    )
    socket = Path(yaml.safe_load(site.read_text())["attribution"]["kubelet_socket"])
    with serving(node, socket), pod_labels() as labels:
        daemon.scrape_until(is_whole)
        # Target labels as the Prometheus operator gives them.
        target = {
            "targets": [daemon.url.removeprefix("http://")],
            "labels": {"namespace": "monitoring", "pod": "gpu-exporter-x"},
        }
        configuration = {
            "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE},
            "rule_files": [str(shortened)],
            "scrape_configs": [
                {"job_name": "gpu-exporter", "static_configs": [target]},
                {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": [{"targets": [labels]}]},
            ],
        }
        with running(tools, tmp_path / "prometheus", configuration) as server:
            names = {rule["record"] for rule in rules(RULES)}
            daemon.until(lambda: all(server.query(name) for name in names))
            time.sleep(float(WINDOW.removesuffix("s")))
            drawn = watts(server, f"rate(gpu_energy_joules_total[{WINDOW}])")
            by_workload = watts(server, "workload:gpu_workload_power_watts:rate5m")
            assert by_workload + watts(server, "gpu:unattributed_power_watts:rate5m") == pytest.approx(drawn, rel=NEAR)
            pods, jobs = (watts(server, f"{kind}:gpu_workload_power_watts:rate5m") for kind in ("pod", "slurm_job"))
            assert pods + jobs == pytest.approx(by_workload, rel=NEAR)
            assert pods > 100
            assert jobs > 100
            for of_the_pod in ("namespace", "team"):
                assert watts(server, f"{of_the_pod}:gpu_workload_power_watts:rate5m") == pytest.approx(pods, rel=NEAR)
            assert watts(server, "pod:gpu_process_memory_used_bytes:sum") == 40e9
            assert watts(server, "owner:gpu_process_memory_used_bytes:sum{owner='ada'}") == 20e9
            assert watts(server, "slurm_job:gpu_workload_allocated_gpus:sum") == 1
            assert {rule["health"] for group in server.api("rules")["groups"] for rule in group["rules"]} == {"ok"}
