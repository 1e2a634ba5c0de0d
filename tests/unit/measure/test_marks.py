"""Windows out of what a command appends to a file: every line, cut anywhere, and nothing that it did not say."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.measure.marks import LONGEST_OUTPUT_LINE, MOST_WINDOWS, Counts, Marks, number
from exporter.measure.records import Window


def windows(text: str, *, given: dict[str, float] | None = None) -> dict[str, Window]:
    """The windows of a command that ran from 0 to 100 and wrote a line a second."""
    marks = Marks()
    for moment, line in enumerate(text.splitlines(keepends=True), 1):
        marks.feed(line.encode(), float(moment))
    marks.finish()
    return {window.name: window for window in marks.windows(0.0, 100.0, given)}


def test_a_command_without_marks_is_one_window() -> None:
    assert windows("") == {"command": Window(name="command", start=0.0, end=100.0)}
    assert windows("", given={"tokens": 5.0, "queries": 2.0}) == {
        "command": Window(name="command", start=0.0, end=100.0, output_tokens=5.0, queries=2.0)
    }


def test_windows_follow_each_other_and_overlap() -> None:
    found = windows("start a\nstart b b\nend a\nend b b\n")
    assert list(found) == ["command", "a", "b b"]
    assert (found["a"].start, found["a"].end) == (1.0, 3.0)
    assert (found["b b"].start, found["b b"].end) == (2.0, 4.0)


def test_a_window_that_comes_again_has_a_number() -> None:
    found = windows("start a\nend a\nstart a\nend a\nstart command\nend command\n")
    assert list(found) == ["command", "a", "a (2)", "command (2)"]
    assert found["a (2)"].start == 3.0
    assert found["command"].end == 100.0


def test_a_window_without_an_end_has_none() -> None:
    assert windows("start a\n")["a"].end is None


def test_counts_belong_to_the_windows_that_are_open_or_to_the_last_one() -> None:
    found = windows("tokens 1\nstart a\ntokens 10\nstart b\ntokens 100\nqueries 2\nend b\nend a\ntokens 1,000\n")
    assert found["command"].output_tokens == 1111
    assert found["a"].output_tokens == 1110
    assert found["b"].output_tokens == 100
    assert (found["command"].queries, found["a"].queries, found["b"].queries) == (2, 2, 2)


def test_what_is_known_of_the_command_belongs_to_its_one_window_too() -> None:
    one = windows("start a\nend a\n", given={"tokens": 7.0})
    assert (one["command"].output_tokens, one["a"].output_tokens) == (7, 7)
    two = windows("start a\nend a\nstart b\nend b\n", given={"tokens": 7.0})
    assert (two["command"].output_tokens, two["a"].output_tokens, two["b"].output_tokens) == (7, None, None)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("begin a\n", "none of start NAME"),
        ("start\n", "none of start NAME"),
        ("start \x1b[2J\n", "none of start NAME"),
        (f"start {'x' * 2000}\n", "none of start NAME"),
        ("tokens many\n", "none of start NAME"),
        ("tokens -5\n", "none of start NAME"),
        ("tokens 1e999\n", "none of start NAME"),
        ("end a\n", "was ended and not begun"),
        ("start a", "no end of line"),
    ],
)
def test_what_is_no_mark_is_told_and_does_not_count(line: str, said: str) -> None:
    marks = Marks()
    marks.feed(line.encode(), 1.0)
    marks.finish()
    assert len(marks.windows(0.0, 2.0)) == 1
    (note,) = marks.notes
    assert said in note
    assert note.isprintable()
    assert len(note) < 250


def test_a_window_begun_twice_begins_where_it_did_first() -> None:
    marks = Marks()
    marks.feed(b"start a\n", 1.0)
    marks.feed(b"start a\nend a\n", 2.0)
    assert marks.windows(0.0, 9.0)[1] == Window(name="a", start=1.0, end=2.0)
    assert len(marks.notes) == 1


def test_windows_and_notes_are_bounded() -> None:
    marks = Marks()
    for count in range(2 * MOST_WINDOWS):
        marks.feed(f"start {count}\nend {count}\nnonsense {count}\n".encode(), float(count))
    assert len(marks.windows(0.0, 1e6)) == 1 + MOST_WINDOWS
    assert len(marks.notes) == 20


LINES = st.lists(
    st.sampled_from(["start a", "end a", "start b", "end b", "tokens 5", "queries 1", "", "start ü", "x"]), max_size=12
)


@given(LINES, st.lists(st.integers(0, 120), max_size=8))
def test_where_pieces_are_cut_changes_nothing(lines: list[str], cuts: list[int]) -> None:
    data = "".join(f"{line}\n" for line in lines).encode()
    whole, pieces = Marks(), Marks()
    whole.feed(data, 1.0)
    edges = [0, *sorted(cuts), len(data)]
    for begin, end in itertools.pairwise(edges):
        pieces.feed(data[begin:end], 1.0)
    whole.finish()
    pieces.finish()
    assert pieces.windows(0.0, 2.0) == whole.windows(0.0, 2.0)
    assert pieces.notes == whole.notes


@given(st.binary(max_size=300))
def test_no_bytes_break_it(data: bytes) -> None:
    marks = Marks()
    marks.feed(data, 1.0)
    marks.finish()
    assert marks.windows(0.0, 2.0)[0].name == "command"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        (" 12,345 ", 12345),
        ("12_345", 12345),
        ("12'345.5", 12345.5),
        ("1.2e4", 12000),
        ("", None),
        ("-1", None),
        ("1 2", None),
        ("nan", None),
        ("1e999", None),
        ("0x10", None),
        ("٣", 3),
    ],
)
def test_numbers_as_people_and_programs_write_them(text: str, value: float | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"Total generated tokens:\s+(\d+)", 1500),
        (r"(?P<what>\w+) tokens:\s+(?P<tokens>\d+)", 1500),
        (r"\d+$", 1500),
        (r"nothing (\d+)", 0),
        (r"(x)?Total", 0),
    ],
)
def test_the_number_is_the_group_named_so_or_the_first_one_or_all_of_the_match(pattern: str, value: float) -> None:
    counts = Counts(re.compile(pattern))
    total = counts.feed(b"\xff\nTotal generated tokens:  1000\r\nTotal generated tokens: 500")
    assert total + counts.feed(b"", end=True) == value


@given(st.lists(st.integers(0, 60), max_size=6))
def test_lines_are_put_together_from_pieces(cuts: list[int]) -> None:
    data = "grün: 17 tokens\r9 tokens\n4 tokens".encode()
    counts = Counts(re.compile(r"(\d+) tokens"))
    edges = [0, *sorted(cuts), len(data)]
    total = sum(counts.feed(data[begin:end]) for begin, end in itertools.pairwise(edges))
    assert total + counts.feed(b"", end=True) == 30
    assert counts.matches == 3


def test_a_line_without_end_is_looked_at_in_pieces() -> None:
    counts = Counts(re.compile("(7)"))
    assert counts.feed(b"x" * (3 * LONGEST_OUTPUT_LINE) + b"7") == 7
    assert counts.feed(b"7") == 0
    assert counts.feed(b"\n") == 7
