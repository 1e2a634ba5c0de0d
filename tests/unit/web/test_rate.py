import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.protection.rate import Bucket, seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1s", 1.0),
        ("250ms", 0.25),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("0", 0.0),
        ("0s", 0.0),
        ("5µs", 5e-6),
    ],
)
def test_durations_are_read_as_go_writes_them(text: str, expected: float) -> None:
    assert seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "-1s", "1d", "1s ", "٣s", "1e3s", "25h", "1s" * 100])
def test_what_is_no_duration_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        seconds(text)


def test_a_burst_passes_and_then_one_request_each_interval() -> None:
    bucket = Bucket(2.0, 3)
    assert [bucket.take(10.0) for _ in range(4)] == [True, True, True, False]
    assert not bucket.take(11.9)
    assert bucket.take(12.0)
    assert not bucket.take(13.9)
    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


@given(
    st.floats(1e-3, 100), st.integers(1, 50), st.lists(st.floats(-5, 300, allow_nan=False), min_size=1, max_size=200)
)
def test_no_stretch_of_time_lets_more_pass_than_its_tokens_and_the_burst(
    interval: float, burst: int, steps: list[float]
) -> None:
    """Time may also seem to go back, which gives nobody a token."""
    bucket = Bucket(interval, burst)
    now = latest = 0.0
    passed: list[float] = []
    for step in steps:
        now += step
        latest = max(latest, now)
        if bucket.take(now):
            passed.append(latest)
    for first, start in enumerate(passed):
        for count, end in enumerate(passed[first:], 1):
            assert count <= burst + (end - start) / interval + 1e-6
    assert passed
