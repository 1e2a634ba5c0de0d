"""What a fleet costs a Prometheus: `python -m tests.benchmarks.fleet [--targets N] [--minutes M]`.

One process stands for 1,000 targets with 8 GPUs each, with a job and two processes a GPU. A real Prometheus scrapes
them with the shipped rules: half of the time jobs stay, then each target has new ones every two minutes.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.figures import pss_mebibytes
from tests.benchmarks.suite.fleet_server import JOB, PID
from tests.benchmarks.suite.rig import Scraper, exporter, plain, scenario, series
from tests.benchmarks.suite.section import TITLE, Section, machine, merged
from tests.integration import prometheus
from tests.integration.daemon import ROOT

GPUS, PROCESSES = 8, 2
SCRAPE_SECONDS = 15.0
CHURN_SECONDS = 120.0
LOOK_SECONDS = 5.0
RULES = ROOT / "config/prometheus"
SIZED_TARGETS = 10
"""Whose samples are measured on disk."""
SETTLED = 3
"""Scrapes after which all series are there."""


class State(NamedTuple):
    """Of the server at one moment."""

    at: float
    samples: float
    series: float
    resident: float
    """Bytes, of the process."""
    processor: float
    """Seconds since its start."""
    wal: float
    """Bytes written to the log, about."""
    rules: Mapping[str, float]
    """Seconds of the last evaluation, by group."""
    failures: float


@contextlib.contextmanager
def targets(churn_from: float) -> Iterator[tuple[str, bytes]]:
    """Yield host and port of the process that stands for the fleet, and the page that it serves."""
    with tempfile.TemporaryDirectory() as name:
        jobs = Path(name)
        for gpu in range(GPUS):
            (jobs / str(gpu)).write_text(f"{JOB.decode()}{gpu}\n")
        used = [
            [
                {
                    "pid": int(f"{PID.decode()}{PROCESSES * gpu + n}"),
                    "name": "python3",
                    "memory_used_bytes": 3e10 + 1e9 * n,
                }
                for n in range(PROCESSES)
            ]
            for gpu in range(GPUS)
        ]
        config = {
            "sampling": {"processes_seconds": 1.0},
            "attribution": {"job_files": name, "kubelet_socket": None, "pod_logs": None},
        }
        with exporter(scenario(GPUS, processes=used), config, provider="simulated") as daemon:
            scraper = Scraper(daemon.url)
            wanted = (b"\ngpu_workload_energy_joules_total{", b"\ngpu_process_memory_used_bytes{")

            def full() -> bytes | None:
                page = plain(scraper.scrape().body)
                return page if all(page.count(each) >= GPUS for each in wanted) else None

            page = daemon.until(full, 60)
            command = [sys.executable, "-m", "tests.benchmarks.suite.fleet_server", daemon.url]
            command += [str(churn_from), str(CHURN_SECONDS)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
                assert server.stdout is not None
                try:
                    yield f"127.0.0.1:{int(server.stdout.readline())}", page
                finally:
                    server.kill()


def configuration(address: str, count: int) -> dict[str, object]:
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS:g}s", "scrape_timeout": "10s", "evaluation_interval": "30s"},
        "rule_files": [str(path) for path in sorted(RULES.glob("*.yaml"))],
        "scrape_configs": [
            {
                "job_name": "gpu-exporter",
                "static_configs": [
                    {"targets": [address], "labels": {"__metrics_path__": f"/{n}", "instance": f"node{n:04d}:10042"}}
                    for n in range(count)
                ],
            }
        ],
    }


def look(server: prometheus.Server) -> State:
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as response:  # noqa: S310 -- http, on loopback
        page = response.read().decode()

    def value(name: str) -> float:
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE)
        return sum(map(float, found))

    groups = re.findall(
        r'^prometheus_rule_group_last_duration_seconds{rule_group="[^"]*;(.*)"} (\S+)$', page, re.MULTILINE
    )
    return State(
        at=time.monotonic(),
        samples=value("prometheus_tsdb_head_samples_appended_total"),
        series=value("prometheus_tsdb_head_series"),
        resident=value("process_resident_memory_bytes"),
        processor=value("process_cpu_seconds_total"),
        wal=value("prometheus_tsdb_wal_storage_size_bytes"),
        rules={group: float(seconds) for group, seconds in groups},
        failures=value("prometheus_rule_evaluation_failures_total"),
    )


def watched(server: prometheus.Server, until: float) -> tuple[State, State, dict[str, float]]:
    """Return the first and the last state, and the slowest evaluation of each group between them."""
    first = last = look(server)
    slowest: dict[str, float] = dict(first.rules)
    while time.monotonic() < until:
        time.sleep(min(LOOK_SECONDS, max(0.1, until - time.monotonic())))
        last = look(server)
        slowest = {group: max(seconds, slowest.get(group, 0.0)) for group, seconds in last.rules.items()}
    return first, last, slowest


def bytes_a_sample(server: prometheus.Server, data: Path) -> tuple[float, float]:
    """Write the head as a block, and return bytes of its chunks for each sample, and samples of each series."""
    url = f"{server.url}/api/v1/admin/tsdb/snapshot"
    with urllib.request.urlopen(url, data=b"", timeout=300) as response:  # noqa: S310 -- http, on loopback
        name = json.load(response)["data"]["name"]
    samples = written = of_series = 0
    for meta in (data / "snapshots" / name).glob("*/meta.json"):
        stats = json.loads(meta.read_text())["stats"]
        samples, of_series = samples + stats["numSamples"], of_series + stats["numSeries"]
        written += sum(path.stat().st_size for path in (meta.parent / "chunks").iterdir())
    return written / samples, samples / of_series


def fleet(count: int, minutes: float) -> Section:
    section = Section("Fleet")
    half = minutes * 30
    churn_from = SETTLED * SCRAPE_SECONDS + half
    described = machine()
    rows = []
    with tempfile.TemporaryDirectory() as name, targets(churn_from) as (address, page):
        folder = Path(name)
        tools = prometheus.find(3)
        # The head of the whole fleet takes minutes to be written as a block, that of a few targets a second.
        few = configuration(address, SIZED_TARGETS)
        with (
            prometheus.running(tools, folder, configuration(address, count)) as server,
            prometheus.running(tools, folder / "few", few, "--web.enable-admin-api") as small,
        ):
            began = time.monotonic()
            time.sleep(SETTLED * SCRAPE_SECONDS)
            for kind, end in (("jobs stay", churn_from), (f"new jobs each {CHURN_SECONDS:g} s", churn_from + half)):
                first, last, slowest = watched(server, began + end)
                rows.append(_row(kind, first, last))
                print(*rows[-1], sep=", ", file=sys.stderr, flush=True)
                evaluation = ", ".join(f"{group} {seconds:.2f} s" for group, seconds in sorted(slowest.items()))
                section.say(f"Slowest evaluation of each group of the shipped rules, {kind}: {evaluation}.")
            up = sum(value for _, value in server.query("up"))
            broken = sorted(set(re.findall(r'msg="Evaluating rule failed".* name=(\S+)', server.log)))
            pss = pss_mebibytes(server.process.pid)
            written, long = bytes_a_sample(small, folder / "few" / "data")
            failures = look(server).failures
    section.parts.insert(
        0,
        f"Measured on {time.strftime('%Y-%m-%d')} by `python -m tests.benchmarks.fleet --targets {count} --minutes "
        f"{minutes:g}`: {described}. {count:,} targets x {GPUS} H100s with a job and {PROCESSES} processes each, "
        f"{series(page):,} series a target, scraped each {SCRAPE_SECONDS:g} s by Prometheus 3 on the same machine.",
    )
    header = (
        "",
        "series in the head",
        "samples/s",
        "processor, cores",
        "resident, GiB",
        "KiB a series",
        "log, B a sample",
    )
    section.parts.insert(1, "")
    section.table(header, rows)
    section.parts[1] = section.parts.pop()
    section.say(
        f"On disk {written:.2f} bytes a sample (chunks of {long:.0f} samples; full ones of 120 are smaller); at the "
        f"end {pss / 1024:.1f} GiB PSS, {up:.0f} of {count:,} targets up, {failures:.0f} failed evaluations of rules"
        + (f" ({', '.join(broken)})." if broken else ".")
    )
    section.figures.update(up=up / count, failures=failures)
    return section


def _row(kind: str, first: State, last: State) -> list[str]:
    seconds, samples = last.at - first.at, last.samples - first.samples
    return [
        kind,
        f"{last.series:,.0f}",
        f"{samples / seconds:,.0f}",
        f"{(last.processor - first.processor) / seconds:.2f}",
        f"{last.resident / 2**30:.2f}",
        f"{last.resident / last.series / 1024:.2f}",
        f"{(last.wal - first.wal) / samples:.2f}",
    ]


def main() -> int:
    """Return 1 when a target is not scraped, or a rule fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fleet", description=__doc__)
    parser.add_argument("--targets", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--output", type=Path, help="put the section into this page, in place of the old one")
    asked = parser.parse_args()
    section = fleet(asked.targets, asked.minutes)
    print(section)
    if asked.output is not None:
        old = asked.output.read_text() if asked.output.exists() else TITLE
        asked.output.write_text(merged(old, {section.title: str(section)}))
    return int(section.figures["up"] < 1 or section.figures["failures"] > 0)


if __name__ == "__main__":
    sys.exit(main())
