"""What holds of any readings: windows add up, the zero of the clock does not matter, fewer readings are no better."""

import math

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from exporter.measure import bounds
from exporter.measure.evaluate import evaluate
from exporter.measure.records import Identity, Point, Policy, Run, Window
from exporter.measure.results import RunResult
from exporter.measure.window import CounterLine, PowerLine

GPUS = (Identity(gpu="a", limit_watts=700.0, power_window_seconds=1.0), Identity(gpu="b"))
INTERVAL = 1.0

steps = st.lists(
    st.tuples(st.floats(0.2, 1.8), st.floats(0.0, 1000.0), st.floats(0.0, 3000.0)), min_size=3, max_size=40
)


def readings(made: list[tuple[float, float, float]], gpu: str = "a", start: float = 0.0) -> list[Point]:
    """(time since the reading before, watts, joules since then)."""
    points, at, counter = [], start, 0.0
    for elapsed, watts, joules in made:
        at, counter = at + elapsed, counter + joules
        points.append(Point(at=at, monotonic=at, gpu=gpu, power_watts=watts, counter_joules=counter))
    return points


def coarse(points: list[Point]) -> Run:
    """A run over all of the readings but for their edges."""
    first, last = points[0].monotonic, points[-1].monotonic
    asked = Window(name="w", start=first + 0.25 * (last - first), end=first + 0.75 * (last - first))
    known = tuple(gpu for gpu in GPUS if gpu.gpu in {point.gpu for point in points})
    return Run(
        points=tuple(points),
        windows=(asked,),
        policy=Policy(interval_seconds=INTERVAL),
        gpus=known,
        gpus_at_end=known,
    )


@given(steps, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_joules_of_windows_that_follow_each_other_add_up(
    made: list[tuple[float, float, float]], a: float, b: float, c: float
) -> None:
    points = readings(made)
    first, last = points[0].monotonic, points[-1].monotonic
    start, middle, end = sorted(min(last, first + share * (last - first)) for share in (a, b, c))
    for line in (PowerLine(points), CounterLine(points)):
        parts = line.joules(start, middle), line.joules(middle, end)
        whole = line.joules(start, end)
        assert None not in (*parts, whole)
        assert sum(parts) == pytest.approx(whole, rel=1e-9, abs=1e-6)  # type: ignore[arg-type]  # not None
        assert whole >= -1e-6  # type: ignore[operator]  # not None


@given(steps, st.floats(0, 1), st.floats(0, 1))
def test_the_integral_is_between_the_lowest_and_the_highest_power(
    made: list[tuple[float, float, float]], a: float, b: float
) -> None:
    points = readings(made)
    line = PowerLine(points)
    first, last = line.times[0], line.times[-1]
    start, end = sorted(min(last, first + share * (last - first)) for share in (a, b))
    joules = line.joules(start, end)
    assert joules is not None
    watts = line.watts[line.span(start, end)]
    assert min(watts) * (end - start) - 1e-6 <= joules <= max(watts) * (end - start) + 1e-6


@given(
    st.floats(0.0, 1000.0), st.lists(st.floats(0.01, 2.0), min_size=2, max_size=40), st.floats(0, 1), st.floats(0, 1)
)
def test_constant_power_is_exact_whatever_the_times(watts: float, gaps: list[float], a: float, b: float) -> None:
    points = readings([(gap, watts, 0.0) for gap in gaps])
    line = PowerLine(points)
    first, last = line.times[0], line.times[-1]
    start, end = sorted(min(last, first + share * (last - first)) for share in (a, b))
    assert line.joules(start, end) == pytest.approx(watts * (end - start), rel=1e-9, abs=1e-6)


def comparable(result: RunResult, shift: float) -> list[object]:
    """What must not depend on when it was, rounded to what floating point leaves of it."""
    found: list[object] = []
    for window in result.windows:
        found += [window.power_valid, [reason.reason for reason in window.reasons]]
        found.append(None if window.start_timestamp is None else round(window.start_timestamp - shift, 3))
        for gpu in window.gpus:
            found += [
                None if value is None else float(f"{value:.6g}")
                for value in (gpu.joules, gpu.hardware_joules, gpu.uncertainty_joules, gpu.peak_watts)
            ]
            found.append(gpu.readings)
    return found


@settings(max_examples=50)
@given(steps, st.integers(-1000, 100_000))
def test_shifting_the_clock_changes_nothing(made: list[tuple[float, float, float]], shift: int) -> None:
    # Multiples of 2^-10 s, so that a shift rounds nothing and no edge changes sides.
    exact = [(max(1, round(t * 1024)) / 1024, watts, joules) for t, watts, joules in made]
    points = readings(exact)
    here = coarse(points)
    (asked,) = here.windows
    start, end = (round(edge * 1024) / 1024 for edge in (asked.start, asked.end or 0.0))
    here = msgspec.structs.replace(here, windows=(msgspec.structs.replace(asked, start=start, end=end),))
    moved = [msgspec.structs.replace(p, at=p.at + shift, monotonic=p.monotonic + shift) for p in points]
    there = msgspec.structs.replace(
        here,
        points=tuple(moved),
        windows=(msgspec.structs.replace(asked, start=start + shift, end=end + shift),),
    )
    assert comparable(evaluate(there), shift) == comparable(evaluate(here), 0.0)


@settings(max_examples=200)
@given(st.data())
def test_a_subset_of_the_readings_never_makes_the_verdict_better(data: st.DataObject) -> None:
    made = data.draw(steps)
    points = sorted([*readings(made), *readings(made, "b", 0.1)], key=lambda point: point.monotonic)
    # Readings that stand for evidence of something else than coverage would not be readings that are just missing.
    points = [msgspec.structs.replace(point, counter_joules=None, utilization_ratio=0.5) for point in points]
    whole = coarse(points)
    kept = data.draw(st.lists(st.booleans(), min_size=len(points), max_size=len(points)))
    fewer = msgspec.structs.replace(
        whole, points=tuple(point for point, keep in zip(points, kept, strict=True) if keep)
    )
    before = {(reason.gpu, reason.reason) for reason in evaluate(whole).windows[0].reasons}
    after = {(reason.gpu, reason.reason) for reason in evaluate(fewer).windows[0].reasons}
    for gpu, reason in before:
        # A gap may grow until there is no reading beyond it, and a GPU without any is told so once.
        graver = {"no_power"} if reason == "presence" else {"no_power", "edge_start", "edge_end"}
        assert (gpu, reason) in after or any((gpu, word) in after for word in graver)


@given(steps, st.floats(0, 1), st.floats(0, 1), st.sampled_from([None, 0.0, 0.1, 1.0]))
def test_a_bound_is_finite_and_no_more_than_there_can_be(
    made: list[tuple[float, float, float]], a: float, b: float, seconds: float | None
) -> None:
    line = PowerLine(readings(made))
    first, last = line.times[0], line.times[-1]
    start, end = sorted(min(last, first + share * (last - first)) for share in (a, b))
    assume(end > start)
    highest = bounds.highest_watts(1000.0, line)
    bound = bounds.of_integral(line, start, end, window=seconds, interval=INTERVAL, highest=highest)
    assert math.isfinite(bound)
    assert 0 <= bound <= highest * (end - start) * (1 + 1e-9)
