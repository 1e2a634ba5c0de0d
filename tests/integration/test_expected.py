"""Is the page of a client that scrapes on a clock made just before it asks, of readings that are fresh all the same?

Over the C stand-in for NVML, whose readings of energy take 10 ms: a page that waited for one takes longer.
"""

import contextlib
import http.client
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.integration.daemon import Daemon, Samples
from tests.integration.test_fresh import FRESH_SECONDS, UPDATE_SECONDS, WATTS, running

CALL_SECONDS = 0.01
SLOW = tuple(
    f'{{kind: delay, call: "nvmlDeviceGet{call}", seconds: {CALL_SECONDS}}}'
    for call in ("TotalEnergyConsumption", "FieldValues")
)
PERIOD_SECONDS = 0.57
LATE_SECONDS = (0.0, 0.1, 0.3, 0.2)
"""No two intervals in a row are the same."""
IN_A_ROW = 6
MOST = 60


class Page(NamedTuple):
    asked: float
    took: float
    joules: float

    @property
    def waited(self) -> bool:
        return self.took >= CALL_SECONDS


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with running(tmp_path, *SLOW, devices=1) as daemon:
        yield daemon


def scrapes(daemon: Daemon, late: tuple[float, ...]) -> Iterator[Page]:
    """Scrape over one connection, as Prometheus does, each time so much later than a clock would."""
    where = urlsplit(daemon.url)
    with contextlib.closing(http.client.HTTPConnection(f"{where.hostname}:{where.port}", timeout=10)) as connection:
        began = time.monotonic()
        for turn in range(MOST):
            time.sleep(max(0.0, began + turn * PERIOD_SECONDS + late[turn % len(late)] - time.monotonic()))
            asked = time.monotonic()
            connection.request("GET", "/metrics?collect[]=energy")
            body = connection.getresponse().read()
            took = time.monotonic() - asked
            yield Page(asked, took, Samples(body.decode()).value("gpu_energy_hardware_joules_total", gpu="nvidia0"))


def outside(pages: list[Page]) -> int:
    """Count the pages whose joules are not those of the moment at which they were asked for."""
    off = UPDATE_SECONDS + 2 * FRESH_SECONDS + CALL_SECONDS
    return sum(
        abs((after.joules - before.joules) / WATTS - (after.asked - before.asked)) > off
        for before, after in itertools.pairwise(pages)
    )


def test_who_scrapes_on_a_clock_does_not_wait_for_the_driver(daemon: Daemon) -> None:
    pages: list[Page] = []
    # Not at once: on a busy machine the client itself is late now and then, and is not expected for a while.
    for page in scrapes(daemon, (0.0,)):
        pages.append(page)
        if len(pages) > IN_A_ROW and not any(each.waited for each in pages[-IN_A_ROW:]):
            break
    else:
        pytest.fail(f"all but {sum(not page.waited for page in pages)} of {MOST} pages waited")
    assert outside(pages[-IN_A_ROW:]) <= 1


def test_who_scrapes_now_and_then_waits_for_the_driver(daemon: Daemon) -> None:
    pages = list(itertools.islice(scrapes(daemon, LATE_SECONDS), 12))
    assert sum(page.waited for page in pages) >= 8, "now and then the reading of each second is still fresh"
    assert outside(pages) <= 1
