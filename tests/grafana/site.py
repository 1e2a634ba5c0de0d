"""A small site for the dashboards: a node that serves models, one of mixed GPUs with faults, one that is down.

A real Prometheus scrapes both daemons and the inference servers every two seconds, with the shipped rules.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.grafana.rows import ROWS
from tests.grafana.servers import serving
from tests.integration import daemon as daemons
from tests.integration.daemon import Daemon
from tests.integration.prometheus import Server, find, running
from tests.unit.attribution.hosts import write_host, write_process

RULES = sorted((Path(__file__).parents[2] / "config/prometheus").glob("*.yaml"))
SERVING, MIXED, DOWN = "node-a:10042", "node-b:10042", "node-c:10042"
INTERVAL_SECONDS = 2.0
LOST_SECONDS = 8.0
"""From the start until the GPU of `LOST` falls off the bus."""
LOST = "MI210"
STARTED = 5000
PROCESSES = 2
"""Series of processes for each GPU: fewer than there are on one, so that some are summed."""

EVERYTHING = {"state_seconds": 1.0, "profiling_seconds": 1.0, "pcie_bytes": True}

SERVING_SCENARIO = {
    "devices": [
        {
            "model": row.model,
            "count": row.gpus,
            "load": {"pattern": "constant", "watts": row.watts_per_gpu},
            "processes": [
                {"pid": 5000 + n, "started": STARTED, "name": "vllm", "memory_used_bytes": 150e9, "share": 1.0}
            ],
        }
        for n, row in enumerate(ROWS)
    ]
}


def _process(pid: int, gigabytes: float, **more: Any) -> dict[str, Any]:
    return {"pid": pid, "started": STARTED, "name": "python3", "memory_used_bytes": gigabytes * 1e9, **more}


MIXED_SCENARIO = {
    "devices": [
        # Two users, one of whom works three times as much; an error of which the application is the cause.
        {
            "model": "H100-SXM",
            "load": {"pattern": "training", "level": 0.97},
            "processes": [_process(4101, 40, share=0.7), _process(4102, 20, share=0.25), _process(4105, 1, share=0.05)],
            "faults": [{"kind": "event", "code": 13, "from_seconds": 14, "every_seconds": 5, "lasting_seconds": 1}],
        },
        {
            "model": "H100-SXM",
            "load": {"pattern": "square", "level": 0.7, "period_seconds": 4},
            "partitions": [{"profile": "3g.40gb"}, {"profile": "2g.20gb"}],
            "processes": [_process(4105, 31, partition=0)],
        },
        # Held and idle; a call of its library breaks.
        {
            "model": "H100-SXM",
            "processes": [_process(4103, 61)],
            "faults": [{"kind": "error", "call": "clocks", "status": 999, "from_seconds": 14}],
        },
        {"model": "GB200", "load": {"pattern": "constant", "level": 0.6}, "processes": [_process(4104, 90, share=1.0)]},
        # Its driver is loaded anew, and its memory breaks.
        {
            "model": "A100-SXM",
            "load": {"pattern": "square", "level": 0.8, "period_seconds": 10},
            "accumulator": {"events": [{"kind": "reset", "from_seconds": 20}]},
            "faults": [{"kind": "stuck", "from_seconds": 16, "values": {"ecc_uncorrected": 2}}],
        },
        {"model": LOST, "load": {"pattern": "constant"}, "faults": [{"kind": "lost", "from_seconds": LOST_SECONDS}]},
        {"model": "T4", "load": {"pattern": "constant", "level": 0.6}},
        {
            "model": "MI300X",
            "load": {"pattern": "training", "level": 0.8},
            "texts": {"compute_partition": "CPX"},
            "processes": [_process(4106, 90, queues=8, share=1.0)],
        },
        # Its accumulator counts too little, and its sensor of temperature says what cannot be.
        {
            "model": "MI355X",
            "load": {"pattern": "inference"},
            "accumulator": {"kind": "low"},
            "faults": [
                {"kind": "garbage", "from_seconds": 16, "values": {"temperature_hotspot_celsius": 4000}},
                {
                    "kind": "event",
                    "event": "ras",
                    "code": 0,
                    "from_seconds": 15,
                    "every_seconds": 10,
                    "lasting_seconds": 1,
                },
            ],
        },
        {"model": "RX-9070", "load": {"pattern": "constant", "level": 0.5}},
    ],
}

OWNERS = {
    4101: ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", 1000),
    4102: ("0::/system.slice/slurmstepd.scope/job_4712/step_0/user/task_0\n", 1001),
    4103: ("0::/system.slice/slurmstepd.scope/job_4713/step_0/user/task_0\n", 1000),
    4104: ("0::/system.slice/ollama.service\n", 999),
    4105: ("0::/user.slice/user-1000.slice/session-3.scope\n", 1000),
    4106: ("0::/made/by/hand\n", 1001),
}
JOBS = {0: ("4711", "4712"), 2: ("4713",)}
"""By index of the GPU that was given to them."""


class Site(NamedTuple):
    server: Server
    daemons: Mapping[str, Daemon]
    machines: Mapping[str, Machine]
    """By instance."""
    epoch: float
    monotonic: float
    """What to add to Unix time to get CLOCK_MONOTONIC."""

    def truth(self, instance: str, uuid: str, start: float, end: float) -> float:
        """Return the true joules of a GPU between two moments in Unix time."""
        machine = self.machines[instance]
        return machine.energy_joules(uuid, end + self.monotonic) - machine.energy_joules(uuid, start + self.monotonic)


def _pod(proc: Path, logs: Path, pid: int, namespace: str, name: str) -> None:
    uid = f"3f2a9c1e-7b44-4d0c-9a55-{pid:012d}"
    write_process(proc, pid, f"0::/kubepods/burstable/pod{uid}/{pid:064x}\n", name="vllm", started=STARTED)
    (logs / f"{namespace}_{name}_{uid}/main").mkdir(parents=True)


def _host(root: Path) -> dict[str, Any]:
    """Write what a host has of its users; returns the daemon's options for it."""
    proc, logs, jobs = write_host(root), root / "pods", root / "jobs"
    logs.mkdir()
    jobs.mkdir()
    return {"proc": str(proc), "pod_logs": str(logs), "job_files": str(jobs), "kubelet_socket": None}


def _write(
    root: Path, scenario: Mapping[str, Any], epoch: float, *, links: str = "total", **sampling: Any
) -> tuple[Path, dict[str, Any], Machine]:
    root.mkdir()
    attribution = _host(root)
    text = json.dumps({"epoch_seconds": epoch, **scenario})  # JSON is YAML
    (root / "scenario.yaml").write_text(text)
    config = root / "config.yaml"
    config.write_text(
        json.dumps(
            {
                "simulate": "scenario.yaml",
                "sampling": {"processes_seconds": 1.0, **sampling},
                "metrics": {"links": links},
                "attribution": attribution,
                "processes": {"top": PROCESSES},
            }
        )
    )
    return config, attribution, Machine(load_scenario(text), epoch)


def rules(directory: Path) -> list[str]:
    """Write the shipped rules with short intervals, which else would record nothing for a minute."""
    written = []
    for path in RULES:
        groups = [{**group, "interval": "2s"} for group in yaml.safe_load(path.read_text())["groups"]]
        (directory / path.name).write_text(json.dumps({"groups": groups}))
        written.append(str(directory / path.name))
    return written


def configuration(pages: Mapping[str, Daemon], models: str, rule_files: list[str]) -> dict[str, Any]:
    exporters = [
        *(
            {"targets": [daemon.url.removeprefix("http://")], "labels": {"instance": name}}
            for name, daemon in pages.items()
        ),
        # Nothing listens on port 1.
        {"targets": ["127.0.0.1:1"], "labels": {"instance": DOWN}},
    ]
    served = [
        {
            "targets": [models],
            "labels": {
                "__metrics_path__": f"/{n}",
                "instance": f"{SERVING.partition(':')[0]}:{8000 + n}",
                "namespace": "serving",
                "pod": row.pod,
            },
        }
        for n, row in enumerate(ROWS)
    ]
    interval = f"{INTERVAL_SECONDS:.0f}s"
    return {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": rule_files,
        "scrape_configs": [
            {"job_name": "gpu-exporter", "static_configs": exporters},
            {"job_name": "inference", "static_configs": served},
        ],
    }


@contextmanager
def site(directory: Path, *flags: str) -> Iterator[Site]:
    """Start all of it, wait until each target was scraped, and stop it at the end. `flags`: of Prometheus."""
    tools = find(3)
    epoch = time.monotonic()
    first, at_a, serving_machine = _write(directory / "a", SERVING_SCENARIO, epoch)
    for n, row in enumerate(ROWS):
        _pod(Path(at_a["proc"]), Path(at_a["pod_logs"]), 5000 + n, "serving", row.pod)
    second, at_b, mixed_machine = _write(directory / "b", MIXED_SCENARIO, epoch, links="each", **EVERYTHING)
    for pid, (group, uid) in OWNERS.items():
        write_process(Path(at_b["proc"]), pid, group, uid=uid, started=STARTED)
    for index, jobs in JOBS.items():
        (Path(at_b["job_files"]) / str(index)).write_text("".join(f"{job}\n" for job in jobs))
    with ExitStack() as stack:
        pages = {
            name: stack.enter_context(
                daemons.running(
                    f"--config.file={config}", f"--journal.directory={config.parent}", log=config.parent / "log"
                )
            )
            for name, config in ((MIXED, second), (SERVING, first))  # the GPU has to be seen before it is lost
        }
        models = stack.enter_context(serving())
        server = stack.enter_context(
            running(tools, directory / "prometheus", configuration(pages, models, rules(directory)), *flags)
        )
        scraped = len(pages) + len(ROWS)
        pages[MIXED].until(lambda: len(server.query("up == 1")) == scraped, seconds=60)
        monotonic = time.clock_gettime(time.CLOCK_MONOTONIC) - time.time()
        yield Site(server, pages, {SERVING: serving_machine, MIXED: mixed_machine}, epoch, monotonic)
