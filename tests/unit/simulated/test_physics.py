"""Are integrals, sensors and heat of piecewise-constant quantities what physics says?"""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exporter.providers.simulated.physics import Segment, Track, Warmth, Window, heated, last_update

SEGMENTS = st.lists(st.builds(Segment, st.floats(0.01, 20.0), st.floats(0.0, 1500.0)), min_size=1, max_size=8)
TRACKS = st.builds(Track, SEGMENTS | st.just([]), SEGMENTS)
TIMES = st.floats(0.0, 1000.0)


def summed(track: Track, until: float) -> float:
    """The integral again, by adding up segments one after the other."""
    total = at = 0.0
    segments = iter(track.prefix)
    while at < until:
        segment = next(segments, None)
        if segment is None:
            segments = iter(track.period)
            continue
        lasts = min(segment.seconds, until - at)
        total += lasts * segment.value
        at += segment.seconds
    return total


@given(TRACKS, TIMES)
def test_the_integral_is_the_sum_over_segments(track: Track, t: float) -> None:
    assert track.integral(t) == pytest.approx(summed(track, t), rel=1e-9, abs=1e-5)


@given(TRACKS, TIMES, TIMES, TIMES)
def test_integrals_add_up_and_never_fall(track: Track, a: float, b: float, c: float) -> None:
    a, b, c = sorted((a, b, c))
    assert track.integral(a) <= track.integral(b) + 1e-6
    assert track.between(a, b) + track.between(b, c) == pytest.approx(track.between(a, c), abs=1e-6)
    assert track.between(a, b) == pytest.approx(track.integral(b) - track.integral(a), rel=1e-9, abs=1e-5)


@given(TRACKS, TIMES)
def test_a_value_is_one_of_the_segments_and_repeats(track: Track, t: float) -> None:
    value = track.value(t)
    assert value in {s.value for s in (*track.prefix, *track.period)}
    within = (t - track.prefix_seconds) % track.period_seconds
    starts = [sum(s.seconds for s in track.period[:i]) for i in range(len(track.period) + 1)]
    if t > track.prefix_seconds and min(abs(within - start) for start in starts) > 1e-6:
        assert track.value(t + 3 * track.period_seconds) == value


def test_nothing_happens_before_the_epoch() -> None:
    track = Track((Segment(1, 10),), (Segment(1, 20),))
    assert track.integral(-5) == 0
    assert track.value(-5) == 10


@given(TRACKS, TIMES, st.floats(0.01, 3.0), st.floats(0.01, 1.0))
@example(Track((), (Segment(1.0, 0.0),)), 1.9, 1.0, 0.02)  # 95 * 0.02 is above 1.9
def test_a_sensor_shows_the_mean_over_its_window_before_its_last_update(
    track: Track, t: float, window: float, period: float
) -> None:
    end = last_update(t, period)
    assert 0 <= t - end <= period * (1 + 1e-9)
    shown = track.mean(t, window, period)
    assert track.lowest - 1e-6 <= shown <= track.highest + 1e-6
    if end > 0:
        seen = min(window, end)
        assert shown * seen == pytest.approx(track.integral(end) - track.integral(end - seen), rel=1e-6, abs=1e-4)


def test_a_sensor_of_25_ms_in_100_sees_a_quarter_of_the_time() -> None:
    # High while the sensor does not look: in the first 70 ms of each 100.
    track = Track((), (Segment(0.07, 600.0), Segment(0.03, 100.0)))
    assert track.mean(10.03, 0.025, 0.1) == pytest.approx(100)
    assert track.mean(10.03, 1.0, 0.1) == pytest.approx(450)


def test_short_windows_are_exact_after_a_year() -> None:
    track = Track((), (Segment(1.0, 700.0), Segment(1.0, 90.0)))
    year = 31_536_000.0
    assert track.mean(year + 0.55, 0.025, 0.1) == pytest.approx(700, rel=1e-5)


@pytest.mark.parametrize("segments", [[], [Segment(0.0, 1.0)], [Segment(-1.0, 1.0)], [Segment(math.nan, 1.0)]])
def test_a_track_needs_segments_that_last(segments: list[Segment]) -> None:
    with pytest.raises(ValueError, match="track"):
        Track((), segments)


@given(TRACKS, st.floats(1.0, 100.0))
def test_temperature_stays_between_its_extremes(power: Track, time_constant: float) -> None:
    warmth = Warmth(30.0, 0.05, time_constant)
    shown = heated(power, warmth, step=1.0)
    low, high = (30.0 + 0.05 * watts for watts in (power.lowest, power.highest))
    assert low - 0.51 <= shown.lowest <= shown.highest <= high + 0.51
    assert shown.period_seconds == pytest.approx(power.period_seconds)


def test_temperature_lags_behind_power() -> None:
    power = Track((Segment(100.0, 100.0),), (Segment(1000.0, 700.0),))
    shown = heated(power, Warmth(30.0, 0.06, 20.0), step=0.01)
    assert shown.value(99.0) == pytest.approx(36.0)
    for seconds in (2.0, 10.0, 20.0, 60.0):
        exact = 72.0 - 36.0 * math.exp(-seconds / 20.0)
        assert shown.value(100.0 + seconds) == pytest.approx(exact, abs=1.0)
    assert shown.value(100.0 + 400.0) == pytest.approx(72.0, abs=0.02)


def test_temperature_of_a_fast_load_stands_at_that_of_its_mean() -> None:
    power = Track((), (Segment(0.05, 700.0), Segment(0.05, 100.0)))
    shown = heated(power, Warmth(30.0, 0.05, 25.0), step=0.5)
    assert {shown.lowest, shown.highest} <= {49.5, 50.0, 50.5}


def test_a_window_may_repeat() -> None:
    window = Window(10.0, 50.0, 8.0, 3.0)
    inside = [t for t in range(70) if window.open_at(t)]
    assert inside == [10, 11, 12, 18, 19, 20, 26, 27, 28, 34, 35, 36, 42, 43, 44]
    assert window.closes(19.0) == 21.0
    assert Window(42.0, 44.0, 8.0, 3.0).closes(43.0) == 44.0
    assert Window().open_at(1e9)
