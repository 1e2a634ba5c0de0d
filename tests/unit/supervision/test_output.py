import logging

from hypothesis import given
from hypothesis import strategies as st

from exporter.supervision.output import Output

NOW = 50.0


def test_lines_are_told_whole_however_they_arrive() -> None:
    output = Output(NOW)
    assert output.feed(b"Unable to lo", NOW) == []
    assert output.feed(b"ad library\nsecond\nthi", NOW) == [
        (logging.WARNING, "Unable to load library"),
        (logging.WARNING, "second"),
    ]
    assert output.end(NOW) == [(logging.WARNING, "thi")]


def test_what_was_said_before_is_for_debugging() -> None:
    output = Output(NOW)
    output.feed(b"no library\n", NOW)
    assert output.feed(b"no library\n", NOW + 100) == [(logging.DEBUG, "no library")]


def test_twenty_lines_a_minute_and_a_count_of_the_rest() -> None:
    output = Output(NOW)
    lines = output.feed(b"".join(b"line %d\n" % number for number in range(100)), NOW)
    assert len(lines) == 20
    assert output.feed(b"more\n" * 50, NOW + 1) == []
    assert output.feed(b"later\n", NOW + 61) == [
        (logging.WARNING, "130 more lines were printed and left out"),
        (logging.WARNING, "later"),
    ]


def test_bytes_that_are_no_text_do_not_reach_a_terminal() -> None:
    ((_, text),) = Output(NOW).feed(b"\x1b[31mred\xff\x00\n", NOW)
    assert text.isprintable()
    assert "red" in text


@given(st.lists(st.binary(max_size=3000), max_size=30))
def test_whatever_is_printed_memory_and_lines_are_bounded(pieces: list[bytes]) -> None:
    output = Output(NOW)
    lines = [line for piece in pieces for line in output.feed(piece, NOW)] + output.end(NOW)
    assert len(lines) <= 20
    assert all(len(text) <= 500 for _, text in lines)


def test_a_line_without_end_is_cut_and_not_kept() -> None:
    output = Output(NOW)
    lines = [line for _ in range(1000) for line in output.feed(b"x" * 1000, NOW)]
    assert [len(text) for _, text in lines] == [500]
    assert output.feed(b"\nnext\n", NOW) == [(logging.WARNING, "next")]
