"""Ratios of speed and size within one run, with wide margins; `python -m tests.benchmarks` is the long form.

Each bound is far from what a quiet machine shows (docs/performance.md): what fails here has
become several times slower.
"""

from operator import attrgetter

import msgspec
import pytest

from exporter.exposition import Format, Renderer
from exporter.metrics import Block
from tests.benchmarks.figures import fit
from tests.benchmarks.page import milliseconds, prometheus_client, worlds
from tests.benchmarks.suite.environments import MissingError
from tests.benchmarks.suite.floor import SECONDS_BETWEEN
from tests.benchmarks.suite.floor import compare as beside_the_bare_calls
from tests.benchmarks.suite.growth import of_processes
from tests.benchmarks.suite.peers import NODE, NVITOP
from tests.benchmarks.suite.side_by_side import Run, compare, ratio
from tests.tools import unavailable

RUNS, SECONDS = 1, 4.0
PROCESSES = (0, 250, 500, 750, 1000)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    try:
        seen, missing = compare(8, RUNS, SECONDS, (NVITOP, NODE))
    except MissingError as error:
        unavailable(str(error), "the above")
    if missing:
        unavailable(" ".join(missing), "the above")
    return seen


@pytest.mark.parametrize(
    ("peer", "figure", "most"),
    [
        (NVITOP, "spaced", 1.0),
        (NVITOP, "burst", 0.3),
        (NVITOP, "processor", 2.0),
        (NVITOP, "mebibytes", 3.5),
        (NODE, "spaced", 1.0),
        (NODE, "burst", 0.4),
    ],
)
def test_a_ratio_to_a_peer_over_the_same_devices_is_within_its_bound_by_far(
    runs: list[Run], peer: str, figure: str, most: float
) -> None:
    assert ratio(runs, peer, attrgetter(figure)) < most, runs


def test_a_page_costs_a_fraction_of_what_prometheus_client_takes() -> None:
    renderer, inputs = Renderer(), worlds(8, count=10)
    fixed: dict[str, int] = dict.fromkeys(Block, 1)
    versioned = [
        msgspec.structs.replace(world, versions={**fixed, Block.ENERGY: 2 + moment})
        for moment, world in enumerate(inputs)
    ]
    theirs = milliseconds(lambda world: prometheus_client(world, frozenset(Block)), inputs)
    fresh = milliseconds(lambda world: renderer.page(world, Format.TEXT_0_0_4), versioned)
    cached = milliseconds(lambda world: renderer.page(world, Format.TEXT_0_0_4), versioned[-1:] * 10)
    assert fresh < theirs / 5
    assert cached < theirs / 50


def test_a_second_of_sampling_costs_a_few_times_the_bare_calls() -> None:
    told = beside_the_bare_calls(8)
    in_c, ours = (sum(told[name][part] / SECONDS_BETWEEN[name] for name in told) for part in (1, 2))
    # Python's own share of each call: the stand-in answers in less than half a microsecond, which no driver does.
    assert ours / in_c < 45, told


def test_eight_times_the_devices_cost_eight_times_as_much() -> None:
    few, many = (sum(ours - in_c for _, in_c, ours in beside_the_bare_calls(count).values()) for count in (8, 64))
    assert many / few < 8 * 1.6


def test_the_cost_of_processes_grows_as_their_number() -> None:
    grown = {name: fit(points).exponent for name, points in of_processes(PROCESSES).items()}
    assert max(grown.values()) < 1.4, grown
