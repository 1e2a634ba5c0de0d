"""Does samples.csv keep every reading, whole, whatever ends the run, and is nothing else taken for one?"""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.measure.records import Point
from exporter.measure.samples import COLUMNS, HEADER, SamplesError, SampleWriter, read_samples, row
from exporter.model import GpuState

number = st.none() | st.floats(-1e12, 1e12)
points = st.builds(
    Point,
    at=st.floats(0, 4e9).map(lambda value: round(value, 6)),
    monotonic=st.floats(0, 1e9).map(lambda value: round(value, 6)),
    gpu=st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\n\r\u2028\u2029\x85"), min_size=1),
    state=st.sampled_from(GpuState),
    power_watts=number,
    counter_joules=number,
    utilization_ratio=number,
    temperature_celsius=number,
)
SOME = tuple(
    Point(
        at=1_800_000_000.25 + t,
        monotonic=5.25 + t,
        gpu=gpu,
        state=GpuState.LOST if t == 3 else GpuState.OK,
        power_watts=None if t == 3 else 400.125 + t,
        counter_joules=1e6 / 3 + t,
        utilization_ratio=0.5,
    )
    for t in range(5)
    for gpu in ("GPU-1", "GPU-2")
)
TEXT = (HEADER + "".join(map(row, SOME))).encode()


@given(st.lists(points, max_size=5).map(tuple))
def test_what_is_written_is_read_again(some: tuple[Point, ...]) -> None:
    file = io.StringIO(newline="")
    writer = SampleWriter(file)
    for point in some:
        writer.write([point])
    found = read_samples(file.getvalue().encode())
    assert found.points == some
    assert not found.truncated


def test_a_file_cut_anywhere_has_the_rows_that_are_whole_and_says_so() -> None:
    ends = [place + 1 for place, byte in enumerate(TEXT) if byte == ord("\n")][1:]
    for cut in range(len(TEXT) + 1):
        found = read_samples(TEXT[:cut])
        whole = sum(end <= cut for end in ends[1:])
        assert found.points == SOME[:whole]
        assert found.truncated == (cut not in ends)


@given(points)
def test_a_row_is_what_a_writer_of_csv_makes_of_it(point: Point) -> None:
    numbers = (point.power_watts, point.counter_joules, point.utilization_ratio, point.temperature_celsius)
    times = (f"{point.at:.6f}", f"{point.monotonic:.6f}")
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow((*times, point.gpu, point.state.value, *numbers))
    assert row(point) == line.getvalue()


@pytest.mark.parametrize("key", ['a,b"c', '"', " ", "#", "'", ";", "\t"])
def test_a_key_may_hold_what_separates_cells(key: str) -> None:
    point = Point(at=1.0, monotonic=2.0, gpu=key)
    assert read_samples((HEADER + row(point)).encode()).points == (point,)


def test_what_is_written_at_once_is_flushed() -> None:
    class Counted(io.StringIO):
        flushed = ""

        def flush(self) -> None:
            self.flushed = self.getvalue()

    file = Counted(newline="")
    writer = SampleWriter(file)
    assert file.flushed == HEADER
    writer.write(SOME[:2])
    assert file.flushed == HEADER + "".join(map(row, SOME[:2]))


LINE = row(SOME[0]).encode()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"# gpu-exporter samples 2\n", "line 1: expected '# gpu-exporter samples 1'"),
        (TEXT.replace(b"state", b"status", 1), "line 2: expected"),
        (HEADER.encode() + b"1,2\n", "line 3: expected 8 cells, found 2"),
        (HEADER.encode() + LINE.replace(b"400.125", b"many"), "line 3: power_watts: 'many' is not a number"),
        (HEADER.encode() + LINE.replace(b"400.125", b"nan"), "line 3: power_watts: 'nan' is not a number"),
        (HEADER.encode() + LINE + LINE.replace(b",ok,", b",fine,"), "line 4: state: 'fine' is none of ok, stale"),
        (HEADER.encode() + LINE.replace(b"GPU-1", b""), "line 3: gpu is empty"),
        (HEADER.encode() + LINE + b"\xff\n", "line 4: not UTF-8"),
    ],
)
def test_what_is_not_of_that_form_is_said_with_its_line(content: bytes, says: str) -> None:
    with pytest.raises(SamplesError) as caught:
        read_samples(content)
    assert says in str(caught.value)


def test_the_head_is_the_documented_one() -> None:
    assert HEADER.splitlines() == ["# gpu-exporter samples 1", ",".join(COLUMNS)]
