"""A real Prometheus scrapes the daemon, and the joules that it answers are compared with the true ones.

One daemon and one server of each version run side by side for a window, then the tests look at what came of it. The
window is $ENERGY_WINDOW_SECONDS, 60 by default; .ci/long takes five minutes.
"""

import http.server
import os
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec
import pytest

from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration import daemon as daemons
from tests.integration.daemon import Daemon
from tests.integration.prometheus import Server, Tools, check_metrics, find, running
from tests.tools import unavailable

WINDOW = float(os.environ.get("ENERGY_WINDOW_SECONDS", "60"))
SCRAPE_SECONDS = 1.0
SETTLE_SECONDS = 5.0
"""From the daemon's first page to the start of the window."""
MOMENTS = tuple(0.5 * step for step in range(11))
"""Seconds after the end of the window at which it is asked for as well; the median counts, as one late scrape of a busy
machine moves the edge of a window."""
EDGE_SECONDS = 0.15
"""By which an edge of the window may be off: a reading of 50 ms ago is fresh, of a counter renewed each 100 ms."""

CONSTANT_WATTS = 500.0
HIGH_WATTS, LOW_WATTS, PERIOD_SECONDS = 600.0, 200.0, 1.3
"""Of the square wave; the period is no multiple of the scrape interval."""

SCENARIO = f"""
epoch_seconds: {{epoch}}
devices:
  - model: H100-SXM
    load: {{{{pattern: constant, watts: {CONSTANT_WATTS}}}}}
  - model: H100-SXM
    load: {{{{pattern: square, watts: {HIGH_WATTS}, low_watts: {LOW_WATTS}, period_seconds: {PERIOD_SECONDS}}}}}
"""

TEXT, OPENMETRICS = "text", "openmetrics"
JOBS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    2: {TEXT: (), OPENMETRICS: ()},
    3: {
        TEXT: ("PrometheusText0.0.4",),
        "text-1": ("PrometheusText1.0.0",),
        OPENMETRICS: ("OpenMetricsText1.0.0",),
    },
}
"""By major version and job: what is asked for. Version 2 always prefers OpenMetrics, so text goes by way of a relay."""
CASES = [(major, job) for major, jobs in JOBS.items() for job in jobs]


class Observed(msgspec.Struct):
    """What a window left behind."""

    daemon: Daemon
    machine: Machine
    keys: tuple[str, str]
    """Of the constant and of the square device."""
    servers: dict[int, Server]
    start: float
    end: float
    """Of the window, in Unix time."""
    monotonic: float
    """What to add to Unix time to get CLOCK_MONOTONIC."""

    def server(self, major: int) -> Server:
        if major not in self.servers:
            find(major)  # ends the test with the reason
        return self.servers[major]

    def truth(self, key: str, start: float, end: float) -> float:
        """True joules between two moments in Unix time."""
        return self.machine.energy_joules(key, end + self.monotonic) - self.machine.energy_joules(
            key, start + self.monotonic
        )


@contextmanager
def relay(target: str) -> Iterator[str]:
    """Give the page to who asks in text 0.0.4, whatever else they would like better; yields its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with urllib.request.urlopen(target, timeout=5) as page:  # noqa: S310 -- http, on loopback
                body = page.read()
                self.send_response(200)
                self.send_header("Content-Type", page.headers["Content-Type"])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()


def tools_found() -> dict[int, Tools]:
    found = {}
    for major in JOBS:
        try:
            found[major] = find(major)
        except pytest.skip.Exception:  # the tests that need it say so
            continue
    return found


def configuration(major: int, daemon: str, relayed: str) -> dict[str, Any]:
    jobs = []
    for job, protocols in JOBS[major].items():
        target = relayed if (major, job) == (2, TEXT) else daemon
        jobs.append({"job_name": job, "static_configs": [{"targets": [target]}]})
        if protocols:
            jobs[-1]["scrape_protocols"] = list(protocols)
    return {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS:g}s", "scrape_timeout": f"{SCRAPE_SECONDS:g}s"},
        "scrape_configs": jobs,
    }


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    place = tmp_path_factory.mktemp("prometheus")
    epoch = time.monotonic()
    text = SCENARIO.format(epoch=f"{epoch:.3f}")
    scenario = place / "loads.yaml"
    scenario.write_text(text)
    machine = Machine(load_scenario(text), epoch=round(epoch, 3))
    tools = tools_found()
    with ExitStack() as stack:
        daemon = stack.enter_context(daemons.running("--simulate", str(scenario), log=place / "daemon.log"))
        daemon.scrape_until(lambda page: len(page.all("gpu_energy_joules_total")) == len(machine.devices))
        address = daemon.url.removeprefix("http://")
        relayed = stack.enter_context(relay(f"{daemon.url}/metrics"))
        servers = {
            major: stack.enter_context(running(found, place / str(major), configuration(major, address, relayed)))
            for major, found in tools.items()
        }
        time.sleep(SETTLE_SECONDS)
        start = time.time()
        time.sleep(WINDOW + MOMENTS[-1] + 2 * SCRAPE_SECONDS)
        yield Observed(
            daemon=daemon,
            machine=machine,
            keys=(machine.devices[0].key, machine.devices[1].key),
            servers=servers,
            start=start,
            end=start + WINDOW,
            monotonic=time.monotonic() - time.time(),
        )


@pytest.mark.parametrize(("major", "job"), CASES)
def test_no_scrape_fails(observed: Observed, major: int, job: str) -> None:
    server = observed.server(major)
    window = f"[{WINDOW:g}s]"
    [(_, lowest)] = server.query(f'min_over_time(up{{job="{job}"}}{window})', at=observed.end)
    [(_, count)] = server.query(f'count_over_time(up{{job="{job}"}}{window})', at=observed.end)
    assert lowest == 1
    assert count >= WINDOW / SCRAPE_SECONDS - 1
    [target] = [target for target in server.targets() if target["labels"]["job"] == job]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert [line for line in server.log.splitlines() if "level=info" not in line.lower() and "scrape" in line] == []


@pytest.mark.parametrize(("major", "job"), CASES)
def test_every_series_of_the_page_is_stored_and_no_other(observed: Observed, major: int, job: str) -> None:
    server = observed.server(major)
    own = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "scrape_samples_post_metric_relabeling"}
    own |= {"scrape_series_added"}
    stored = {labels["__name__"] for labels, _ in server.query(f'{{job="{job}"}}', at=observed.end)} - own
    assert stored == set(observed.daemon.scrape().series)


@pytest.mark.parametrize(("major", "job"), CASES)
def test_types_and_units_arrive(observed: Observed, major: int, job: str) -> None:
    server = observed.server(major)
    [target] = [target for target in server.targets() if target["labels"]["job"] == job]
    match = "{" + ", ".join(f'{name}="{value}"' for name, value in target["labels"].items()) + "}"
    known = {row["metric"]: row for row in server.api("targets/metadata", match_target=match)}
    openmetrics = job == OPENMETRICS
    name = "gpu_energy_joules_total"
    # From OpenMetrics it keeps what it learnt under the name of the family, from text under that of the sample.
    row = known.get(name) or known[name.removesuffix("_total")]
    assert row["type"] == "counter"
    assert row["unit"] == ("joules" if openmetrics else "")
    assert known["gpu_power_watts"]["type"] == "gauge"


@pytest.mark.parametrize(("major", "job"), CASES)
def test_the_joules_of_a_constant_load_are_right_to_a_thousandth(observed: Observed, major: int, job: str) -> None:
    """Of the five minutes that .ci/long takes; in a shorter window its edges weigh more."""
    assert relative_error(observed, major, job, observed.keys[0]) == pytest.approx(
        0, abs=max(0.001, EDGE_SECONDS / WINDOW)
    )


@pytest.mark.parametrize(("major", "job"), CASES)
def test_the_joules_of_a_square_wave_are_right_to_a_hundredth(observed: Observed, major: int, job: str) -> None:
    assert relative_error(observed, major, job, observed.keys[1]) == pytest.approx(0, abs=0.01)


def relative_error(observed: Observed, major: int, job: str, key: str) -> float:
    """Compare increase() over the window with the truth of the simulated machine."""
    query = f'increase(gpu_energy_joules_total{{job="{job}",uuid="{key}"}}[{WINDOW:g}s])'
    errors = []
    for later in MOMENTS:
        [(_, joules)] = observed.server(major).query(query, at=observed.end + later)
        errors.append(joules / observed.truth(key, observed.start + later, observed.end + later) - 1)
    error = statistics.median(errors)
    print(f"Prometheus {major}, {job}, {key}: {error:+.4%} ({min(errors):+.4%} to {max(errors):+.4%})")
    return error


@pytest.mark.parametrize("major", JOBS)
def test_promtool_has_nothing_to_say_about_the_page(start_daemon: Callable[..., Daemon], major: int) -> None:
    tools = find(major)
    page = start_daemon("--provider", "simulated").get().body
    assert b"gpu_energy_joules_total" in page
    assert check_metrics(tools, page) == ""
    assert "_total" in check_metrics(tools, b"# HELP x_total A gauge.\n# TYPE x_total gauge\nx_total 1\n")


def test_a_missing_tool_fails_where_it_must_not_be_skipped() -> None:
    expected = pytest.fail.Exception if os.environ.get("CI") == "true" else pytest.skip.Exception
    with pytest.raises(expected, match="it is missing; install it with: apt-get install it"):
        unavailable("it", "apt-get install it")
