"""Are the published figures of benchmarks found again from power and token rates that give them?"""

from typing import NamedTuple

import msgspec
import pytest

from exporter.measure import tables
from exporter.measure.evaluate import evaluate
from exporter.measure.records import Identity, Point, Policy, Run, Window
from exporter.measure.results import Report, report

INTERVAL = 1.0
RUNS = 3


class Row(NamedTuple):
    """Means over three runs, with the coefficient of variation in % where one was published."""

    hardware: str
    gpus: int
    concurrency: int
    joules_per_token: float
    tokens_scatter: float
    watts_per_gpu: float
    watts_scatter: float
    joules_per_query: float
    tokens_per_second_per_gpu: float


ROWS = (
    Row("b200", 4, 4, 3.846, 2.37, 495.5, 3.22, 3539.0, 128.8),
    Row("b200", 4, 32, 1.680, 1.39, 731.3, 1.38, 1554.6, 435.4),
    Row("b200", 8, 4, 5.665, 0.80, 425.4, 0.61, 5212.8, 75.1),
    Row("mi355x", 4, 4, 4.882, 1.16, 502.8, 0.90, 4492.1, 103.0),
    Row("mi355x", 4, 32, 1.967, 0.34, 764.1, 0.42, 1820.6, 388.4),
)


def points(gpus: int, watts: float, seconds: float) -> list[Point]:
    """Readings at 1 Hz, of power that goes up and down about its mean, so that its mean over the window is exact."""
    times = [INTERVAL * step for step in range(-4, round(seconds / INTERVAL) + 5)]
    return [
        Point(
            at=1_800_000_000.0 + t,
            monotonic=1_000.0 + t,
            gpu=f"gpu{number}",
            power_watts=watts * (1 + 0.1 * (-1) ** (step + number)),
            utilization_ratio=1.0,
        )
        for step, t in enumerate(times)
        for number in range(gpus)
    ]


def measured(row: Row) -> Report:
    """Script three runs whose means and scatter are those of the row: one at the mean, two beside it."""
    results = []
    identities = tuple(
        Identity(gpu=f"gpu{n}", label=f"gpu{n}", vendor="nvidia", model=row.hardware, limit_watts=1400.0)
        for n in range(row.gpus)
    )
    for number in range(RUNS):
        aside = number - 1
        watts = row.watts_per_gpu * (1 + row.watts_scatter / 100 * aside)
        per_token = row.joules_per_token * (1 + row.tokens_scatter / 100 * aside)
        # So many whole seconds that the queries are many; 2 x INTERVAL, so that the swing about the mean cancels.
        seconds = 2 * INTERVAL * round(60 * row.joules_per_query / (watts * row.gpus) / (2 * INTERVAL))
        joules = watts * row.gpus * seconds
        asked = Window(
            name="bench",
            start=1_000.0,
            end=1_000.0 + seconds,
            output_tokens=joules / per_token,
            queries=joules / (row.joules_per_query * (1 + row.tokens_scatter / 100 * aside)),
        )
        run = Run(
            points=tuple(points(row.gpus, watts, seconds)),
            windows=(asked,),
            policy=Policy(interval_seconds=INTERVAL),
            gpus=identities,
            gpus_at_end=identities,
        )
        results.append(evaluate(run, number=number + 1, exit_status=0))
    return report(results, exporter_version="0", policy=run.policy, gpus=identities, command=("bench",))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.hardware}-tp{row.gpus}-conc{row.concurrency}")
def test_a_published_row_is_found_again(row: Row) -> None:
    found = measured(row)
    assert found.power_valid
    (summary,) = found.summary
    assert (summary.runs, summary.valid, summary.gpus) == (RUNS, RUNS, row.gpus)

    assert summary.joules_per_output_token is not None
    assert summary.joules_per_output_token.count == RUNS
    assert summary.joules_per_output_token.mean == pytest.approx(row.joules_per_token, abs=0.002)
    assert 100 * (summary.joules_per_output_token.variation_ratio or 0) == pytest.approx(row.tokens_scatter, abs=0.005)
    assert summary.watts_per_gpu is not None
    assert summary.watts_per_gpu.mean == pytest.approx(row.watts_per_gpu, abs=0.05)
    assert 100 * (summary.watts_per_gpu.variation_ratio or 0) == pytest.approx(row.watts_scatter, abs=0.005)
    assert summary.joules_per_query is not None
    assert summary.joules_per_query.mean == pytest.approx(row.joules_per_query, abs=0.05)
    # Rounded as published, this is the quotient of the other two to within half of its last place, and their scatter.
    assert summary.output_tokens_per_second_per_gpu is not None
    rate = summary.output_tokens_per_second_per_gpu
    assert rate.mean == pytest.approx(row.tokens_per_second_per_gpu, rel=1e-3)
    # Joules per token are watts per GPU over tokens per second per GPU in each run.
    for run in found.runs:
        (window,) = run.windows
        assert window.watts_per_gpu is not None
        assert window.output_tokens_per_second_per_gpu is not None
        quotient = window.watts_per_gpu / window.output_tokens_per_second_per_gpu
        assert window.joules_per_output_token == pytest.approx(quotient)


def test_the_table_shows_them_as_they_were_published() -> None:
    lines = tables.markdown(measured(ROWS[0])).splitlines()
    assert lines[0].startswith("| window | GPUs | valid runs | J/out-tok | W/GPU | J/query | out tok/s/GPU |")
    assert lines[2].startswith("| bench | 4 x b200 | 3 of 3 | 3.846 (2.37) | 495.5 (3.22) | 3539.0 (2.37) | 128.8 (")


def test_a_run_that_is_not_valid_is_left_out_of_the_means_and_told() -> None:
    good = measured(ROWS[0])
    first, *rest = good.runs
    spoilt = msgspec.structs.replace(
        first, windows=(msgspec.structs.replace(first.windows[0], power_valid=False, joules=9e9),)
    )
    found = report([spoilt, *rest], exporter_version="0", policy=good.policy, gpus=good.gpus)
    assert not found.power_valid
    (summary,) = found.summary
    assert (summary.runs, summary.valid) == (3, 2)
    assert summary.joules is not None
    assert summary.joules.mean < 1e6
    nothing = report([spoilt], exporter_version="0", policy=good.policy, gpus=good.gpus).summary[0]
    assert nothing.joules is None


def test_a_run_whose_command_failed_is_left_out_of_the_means_and_told() -> None:
    good = measured(ROWS[0])
    *rest, last = good.runs
    broken = msgspec.structs.replace(
        last, exit_status=3, windows=(msgspec.structs.replace(last.windows[0], joules=1.0, seconds=0.01),)
    )
    found = report([*rest, broken], exporter_version="0", policy=good.policy, gpus=good.gpus)
    (summary,) = found.summary
    assert (summary.runs, summary.valid, summary.failed) == (3, 2, 1)
    assert summary.joules == report(rest, exporter_version="0", policy=good.policy, gpus=good.gpus).summary[0].joules
    assert "2 of 3, 1 failed" in tables.markdown(found)
    assert "2 of 3 runs valid, 1 failed" in tables.terminal(found)
    alone = report([broken], exporter_version="0", policy=good.policy, gpus=good.gpus).summary[0]
    assert (alone.valid, alone.failed) == (1, 0)
    assert alone.joules is not None


def test_one_run_has_no_scatter() -> None:
    good = measured(ROWS[4])
    alone = report(good.runs[:1], exporter_version="0", policy=good.policy, gpus=good.gpus).summary[0]
    assert alone.joules is not None
    assert alone.joules.variation_ratio is None
