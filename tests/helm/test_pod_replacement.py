"""A pod is replaced under a real Prometheus: each GPU keeps its series, and increase() tells its joules.

Once after SIGTERM and once after SIGKILL. That their accumulators prove right takes a minute: here the journal
says that they have.
"""

import json
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from exporter.journal.format import decode, encode
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.helm.chart import NAMESPACE, Object, of_kind, render
from tests.helm.kubelet import NODE, Node
from tests.integration.daemon import Daemon, Samples, address
from tests.integration.prometheus import Server, find, running

pytestmark = pytest.mark.integration

SCRAPE_SECONDS = 0.3
SCRAPES = 20
"""Of each pod, at least."""
EDGE_SECONDS = 0.1
"""Of the window of increase() beyond its samples: Prometheus extrapolates to it."""
TOTAL, GAPS = "gpu_energy_joules_total", "gpu_energy_gap_seconds_total"
SERVICE = "gpus-gpu-exporter"
WATTS = {"H100-SXM": 500, "MI300X": 400}


class Run(NamedTuple):
    """What the pods left in Prometheus."""

    server: Server
    machine: Machine
    monotonic: float
    """What to add to Unix time to get CLOCK_MONOTONIC."""
    begin: float
    end: float
    """Unix time of the first and the last scrape that count."""
    served: list[float]
    """Unix times at which each of the pods had been scraped."""

    def stored(self, selector: str) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        window = f"{round(1000 * (self.end - self.begin))}ms"
        data = self.server.api("query", query=f"{selector}[{window}]", time=f"{self.end:.3f}")
        return [(row["metric"], [(t, float(v)) for t, v in row["values"]]) for row in data["result"]]


def operator_configuration(monitor: Object, targets: Path) -> dict[str, Any]:
    """Return what the operator makes of a ServiceMonitor, with targets from a file instead of the API server.

    It names namespace, service, pod, container, endpoint and job, in front of the relabelings of the monitor.
    """
    (endpoint,) = monitor["spec"]["endpoints"]
    names = {
        "namespace": "__meta_kubernetes_namespace",
        "service": "__meta_kubernetes_service_name",
        "pod": "__meta_kubernetes_pod_name",
        "container": "__meta_kubernetes_pod_container_name",
        "job": "__meta_kubernetes_service_name",
    }
    own = [{"source_labels": [meta], "target_label": label} for label, meta in names.items()]
    own.append({"target_label": "endpoint", "replacement": endpoint["port"]})
    return {
        "global": {"scrape_interval": f"{round(1000 * SCRAPE_SECONDS)}ms"},
        "scrape_configs": [
            {
                "job_name": f"serviceMonitor/{NAMESPACE}/{monitor['metadata']['name']}/0",
                "scrape_timeout": f"{round(1000 * SCRAPE_SECONDS)}ms",
                "honor_labels": endpoint["honorLabels"],
                "metrics_path": endpoint["path"],
                "scheme": endpoint["scheme"],
                "file_sd_configs": [{"files": [str(targets)], "refresh_interval": "1s"}],
                "relabel_configs": [*own, *map(snake, endpoint["relabelings"])],
            }
        ],
    }


def snake(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value for key, value in rule.items()}


def announce(targets: Path, name: str, place: str) -> None:
    """Tell Prometheus what the API server would: of one pod, as the one before is gone."""
    labels = {
        "__meta_kubernetes_namespace": NAMESPACE,
        "__meta_kubernetes_service_name": SERVICE,
        "__meta_kubernetes_pod_name": name,
        "__meta_kubernetes_pod_container_name": "gpu-exporter",
        "__meta_kubernetes_pod_node_name": NODE,
    }
    beside = targets.with_suffix(".new")
    beside.write_text(json.dumps([{"targets": [place], "labels": labels}]))
    beside.replace(targets)


@contextmanager
def replaced(node: Node, rendered: list[Object], targets: Path, name: str) -> Iterator[Daemon]:
    """Start a pod with a port of its own, as pods have addresses of their own."""
    listen = {"--web.listen-address=:10042": "--web.listen-address=127.0.0.1:0"}
    with node.started(rendered, network=False, changes=listen) as made:
        assert made.process is not None
        daemon = Daemon(made.process, made.log_file)
        daemon.url = made.until(lambda: address(daemon))
        announce(targets, name, daemon.url.removeprefix("http://"))
        daemon.scrape_until(lambda page: len(page.all(TOTAL)) == len(WATTS))
        yield daemon


def qualified(page: Samples) -> bool:
    return sum(value for _, value in page.all("gpu_energy_qualified")) == len(WATTS)


def say_that_accumulators_are_right(node: Node) -> None:
    """Change what a pod has left on the node: as a pod leaves it that has run for a minute."""
    journals = [path for place in ("/run", "/var/lib") for path in node.place(place).rglob("*.journal")]
    assert {path.name for path in journals} == {"live.journal", "stopped.journal"}
    replace = msgspec.structs.replace
    for journal in journals:
        content = decode(journal.read_bytes())
        cards = []
        for card in content.fleet.cards:
            assert card.meter is not None
            ledger = card.meter.ledger
            assert ledger is not None
            proved = replace(ledger, check=replace(ledger.check, qualified=True))
            cards.append(replace(card, meter=replace(card.meter, ledger=proved)))
        # In place: it stays the exporter's own.
        journal.write_bytes(encode(replace(content, fleet=replace(content.fleet, cards=tuple(cards)))))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("replacement")
    epoch = round(time.monotonic(), 3)
    scenario = {
        "epoch_seconds": epoch,
        "devices": [
            {"model": model, "load": {"pattern": "constant", "watts": watts}} for model, watts in WATTS.items()
        ],
    }
    values = {"simulated": {"enabled": True, "scenario": scenario}, "serviceMonitor": {"enabled": True}}
    rendered = render(place, values)
    (monitor,) = of_kind(rendered, "ServiceMonitor")
    node, targets = Node(place / "node"), place / "targets.json"
    targets.write_text("[]")
    with running(find(3), place / "prometheus", operator_configuration(monitor, targets)) as server:
        served: list[float] = []

        def scraped(name: str) -> float:
            """Wait until that pod was scraped often enough; returns the Unix time from which on it was."""
            begin, deadline = time.time(), time.monotonic() + 60
            while _scrapes(server, begin) < SCRAPES:
                assert time.monotonic() < deadline, f"{name} is not scraped: {server.targets()}"
                time.sleep(0.2)
            served.append(time.time())
            return begin

        with replaced(node, rendered, targets, "gpus-gpu-exporter-zzzzz") as daemon:
            assert not qualified(daemon.scrape())
            assert daemon.stop(signal.SIGTERM) == 0
        say_that_accumulators_are_right(node)
        with replaced(node, rendered, targets, "gpus-gpu-exporter-aaaaa") as daemon:
            assert qualified(daemon.scrape())
            begin = scraped("the first pod")
            assert daemon.stop(signal.SIGTERM) == 0
        with replaced(node, rendered, targets, "gpus-gpu-exporter-bbbbb") as daemon:
            scraped("the pod after SIGTERM")
            daemon.stop(signal.SIGKILL)
        with replaced(node, rendered, targets, "gpus-gpu-exporter-ccccc"):
            scraped("the pod after SIGKILL")
            end = time.time()
            monotonic = time.monotonic() - end
        machine = Machine(load_scenario(json.dumps(scenario)), epoch=epoch)
        yield Run(server, machine, monotonic, begin, end, served)


def _scrapes(server: Server, begin: float) -> int:
    """Return how many stored scrapes since then found all GPUs, by the one that was found least often."""
    data = server.api("query", query=f"{TOTAL}[1m]", time=f"{time.time():.3f}")
    counts = [sum(t > begin for t, _ in row["values"]) for row in data["result"]]
    return min(counts) if len(counts) == len(WATTS) else 0


def test_each_gpu_has_one_series_over_three_pods(run: Run) -> None:
    for name in (TOTAL, GAPS, "gpu_power_watts", "gpu_info"):
        found = run.stored(name)
        assert len(found) == len(WATTS), [labels for labels, _ in found]
        for labels, _ in found:
            assert labels["instance"] == NODE
            assert labels["job"] == SERVICE
            assert not labels.keys() & {"pod", "container", "namespace", "service", "endpoint"}


def test_each_pod_was_scraped_and_kept_a_journal(run: Run) -> None:
    ((_, samples),) = run.stored("gpu_exporter_journal_up")
    assert {value for _, value in samples} == {1}
    since = run.begin
    for until in run.served:
        assert sum(since < t <= until for t, _ in samples) >= SCRAPES
        since = until


def test_no_total_ever_fell(run: Run) -> None:
    for labels, samples in run.stored(TOTAL):
        values = [value for _, value in samples]
        assert values == sorted(values), labels


def test_increase_is_within_1_percent_of_truth(run: Run) -> None:
    for labels, samples in run.stored(TOTAL):
        uuid, last = labels["uuid"], samples[-1][0]
        window = last - samples[0][0] + EDGE_SECONDS
        ((_, joules),) = run.server.query(f'increase({TOTAL}{{uuid="{uuid}"}}[{round(1000 * window)}ms])', last)
        truth = run.machine.energy_joules(uuid, last + run.monotonic) - run.machine.energy_joules(
            uuid, last + run.monotonic - window
        )
        print(f"{uuid}: increase() {joules:.1f} J, truth {truth:.1f} J, {100 * (joules / truth - 1):+.2f} %")
        assert joules == pytest.approx(truth, rel=0.01)


def test_nothing_is_missing(run: Run) -> None:
    for labels, samples in run.stored(GAPS):
        assert {value for _, value in samples} == {samples[0][1]}, labels
    for labels, samples in run.stored("gpu_energy_qualified"):
        assert {value for _, value in samples} == {1}, labels
