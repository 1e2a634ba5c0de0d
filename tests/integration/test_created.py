"""What `_created` gives to increase(): a real Prometheus with its feature flag, and one without.

The daemon has counted for some seconds before the first scrape. With the flag Prometheus puts a zero where the counter
began, so that those joules are counted; without it they are lost, and each counter has a second series.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.exposition import Format
from tests.integration import daemon as daemons
from tests.integration.daemon import Daemon
from tests.integration.prometheus import Server, find, running

WATTS = 500.0
UNSEEN_SECONDS = 5.0
"""How long it counts before the first scrape."""
SEEN_SECONDS = 6.0
FLAG = "--enable-feature=created-timestamp-zero-ingestion"
SCENARIO = f"devices: [{{model: H100-SXM, load: {{pattern: constant, watts: {WATTS}}}}}]"
NAME = "gpu_energy_joules_total"


class Observed(NamedTuple):
    daemon: Daemon
    servers: dict[str, Server]


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    place, tools = tmp_path_factory.mktemp("created"), find(3)
    (place / "scenario.yaml").write_text(SCENARIO)
    (place / "config.yaml").write_text("simulate: scenario.yaml\nmetrics: {created: true}\n")
    (place / "plain.yaml").write_text("simulate: scenario.yaml\n")
    with ExitStack() as stack:
        dated, plain = (
            stack.enter_context(daemons.running("--config.file", str(place / name), log=place / f"{name}.log"))
            for name in ("config.yaml", "plain.yaml")
        )
        for daemon in (dated, plain):
            daemon.scrape_until(lambda page: NAME in page)
        time.sleep(UNSEEN_SECONDS)
        servers = {}
        for name, daemon, flags in (("flag", dated, (FLAG,)), ("none", dated, ()), ("off", plain, (FLAG,))):
            target = daemon.url.removeprefix("http://")
            configuration: dict[str, Any] = {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [{"job_name": "gpu", "static_configs": [{"targets": [target]}]}],
            }
            servers[name] = stack.enter_context(running(tools, place / name, configuration, *flags))
        time.sleep(SEEN_SECONDS)
        yield Observed(dated, servers)


def openmetrics(daemon: Daemon) -> dict[str, list[float]]:
    reply = daemon.get(headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert reply.headers["content-type"] == Format.OPENMETRICS_1_0_0.content_type
    values: dict[str, list[float]] = {}
    for family in text_string_to_metric_families(reply.body.decode()):
        for sample in family.samples:
            values.setdefault(sample.name, []).append(sample.value)
    return values


def stored(server: Server) -> list[tuple[float, float]]:
    """Return time and value of all samples of the total that the server has."""
    return server.samples(f"{NAME}[5m]", at=time.time())["gpu"]


def increase(server: Server) -> float:
    """Return what increase() gives at the last sample, for a window that is longer than the life of the counter."""
    [(_, joules)] = server.query(f"increase({NAME}[5m])", at=stored(server)[-1][0])
    return joules


def test_it_is_constant_and_the_start_of_the_total(observed: Observed) -> None:
    first = openmetrics(observed.daemon)
    time.sleep(1.2)
    second = openmetrics(observed.daemon)
    assert second[NAME][0] > first[NAME][0]
    [start] = first["gpu_energy_start_timestamp_seconds"]
    assert first["gpu_energy_joules_created"] == second["gpu_energy_joules_created"] == [start]
    # At constant power the age of the total is its joules by watts.
    began = time.time() - openmetrics(observed.daemon)[NAME][0] / WATTS
    assert start == pytest.approx(began, abs=0.3)


def test_text_formats_do_not_have_it(observed: Observed) -> None:
    assert b"_created" not in observed.daemon.get().body


def test_with_the_flag_a_zero_stands_at_the_start_and_no_series_is_added(observed: Observed) -> None:
    server = observed.servers["flag"]
    [start] = openmetrics(observed.daemon)["gpu_energy_start_timestamp_seconds"]
    samples = stored(server)
    assert samples[0] == (pytest.approx(start, abs=0.002), 0.0)
    assert samples[1][1] > WATTS * UNSEEN_SECONDS
    assert server.query('{__name__=~".+_created"}') == []


def test_with_the_flag_what_came_before_the_first_scrape_is_counted(observed: Observed) -> None:
    server = observed.servers["flag"]
    total = stored(server)[-1][1]
    joules = increase(server)
    print(f"with the flag: {joules:.0f} J of {total:.0f} J")
    assert joules == pytest.approx(total, rel=0.01)


def test_without_the_flag_it_is_lost_and_every_counter_has_a_second_series(observed: Observed) -> None:
    server = observed.servers["none"]
    total = stored(server)[-1][1]
    joules = increase(server)
    print(f"without the flag: {joules:.0f} J of {total:.0f} J")
    assert stored(server)[0][1] > WATTS * UNSEEN_SECONDS
    assert joules < total - WATTS * (UNSEEN_SECONDS - 1)
    created = {labels["__name__"] for labels, _ in server.query('{__name__=~".+_created"}')}
    assert "gpu_energy_joules_created" in created
    assert len(created) == 7


def test_without_the_option_the_flag_has_nothing_to_go_by(observed: Observed) -> None:
    server = observed.servers["off"]
    assert stored(server)[0][1] > WATTS * UNSEEN_SECONDS
    assert increase(server) < stored(server)[-1][1] - WATTS * (UNSEEN_SECONDS - 1)
    assert server.query('{__name__=~".+_created"}') == []
