"""What clients ask for, and what they get."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.exposition import Format
from exporter.web.negotiation import accepts_gzip, negotiate

TEXT, TEXT_1, OPENMETRICS = Format.TEXT_0_0_4, Format.TEXT_1_0_0, Format.OPENMETRICS_1_0_0

PROMETHEUS_3_5 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3_5_TEXT_FIRST = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,"
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.3"
)
PROMETHEUS_3_5_OF_CONVENTIONS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4"
)
PROMETHEUS_2_42 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_WITH_PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7," + PROMETHEUS_3_5
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, TEXT),
        ("", TEXT),
        ("*/*", TEXT),
        (BROWSER, TEXT),
        (PROMETHEUS_3_5, OPENMETRICS),
        (PROMETHEUS_3_5_OF_CONVENTIONS, OPENMETRICS),
        (PROMETHEUS_3_5_TEXT_FIRST, TEXT_1),
        (PROMETHEUS_2_42, OPENMETRICS),
        (PROMETHEUS_WITH_PROTOBUF, OPENMETRICS),
        # One format named
        ("text/plain", TEXT),
        ("text/plain; version=0.0.4", TEXT),
        ("text/plain; version=1.0.0", TEXT_1),
        ("application/openmetrics-text", OPENMETRICS),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", OPENMETRICS),
        ("text/*", TEXT),
        ("application/*", OPENMETRICS),
        # Quality
        ("application/openmetrics-text;q=0.5, text/plain;q=0.9", TEXT),
        ("text/plain;version=0.0.4;q=0.3, application/openmetrics-text;q=0.31", OPENMETRICS),
        ("application/openmetrics-text;q=0.4, */*;q=0.5", TEXT),
        ("application/openmetrics-text, text/plain", OPENMETRICS),
        ("text/plain;version=0.0.4, text/plain;version=1.0.0", TEXT_1),
        # Refusals, and the specific before the general
        ("application/openmetrics-text;q=0, */*", TEXT),
        ("text/plain;version=0.0.4;q=0, text/plain;version=1.0.0", TEXT_1),
        ("text/plain;version=0.0.4;q=0, */*", TEXT_1),
        ("text/*;q=0, */*;q=0.1", OPENMETRICS),
        ("text/*;q=0.9, text/plain;version=0.0.4;q=0.1, application/openmetrics-text;q=0.5", TEXT_1),
        (
            "application/openmetrics-text;version=1.0.0;q=0.2, application/openmetrics-text;q=0.9, text/plain;q=0.5",
            TEXT,
        ),
        # Versions that there are not, and media types that there are not
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0, text/plain;version=1.0.0;q=0.1", TEXT_1),
        ("text/plain;version=banana, application/openmetrics-text;version=1.0.0;q=0.1", OPENMETRICS),
        ("application/json", TEXT),
        ("text/plain;q=0", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("*/*;q=0", TEXT),
        # Spelling
        ("APPLICATION/OpenMetrics-Text; VERSION=1.0.0; Q=1", OPENMETRICS),
        ('application/openmetrics-text; version="1.0.0"', OPENMETRICS),
        ("\tapplication/openmetrics-text \t; version = 1.0.0 ; q = 1.000 ", OPENMETRICS),
        # Malformed: that element is passed over, or the parameter
        (",,;;,", TEXT),
        (";version=1.0.0", TEXT),
        ("application/openmetrics-text;q=", TEXT),
        ("application/openmetrics-text;q=high, text/plain;version=1.0.0;q=0.1", TEXT_1),
        ("application/openmetrics-text;q=nan, text/plain;version=1.0.0;q=0.1", TEXT_1),
        ("application/openmetrics-text;q=inf", TEXT),
        ("application/openmetrics-text;q=1e9", TEXT),
        ("application/openmetrics-text;q=-1", TEXT),
        ("application/openmetrics-text;q=1.5", TEXT),
        ("application/openmetrics-text;q=2", TEXT),
        ("application/openmetrics-text;q=\u0660", TEXT),
        ("application/openmetrics-text;version;q;=", TEXT),
        ("application/openmetrics-text;charset=klingon;foo", OPENMETRICS),
        ("\ud800\x00é/é;é=é", TEXT),
    ],
)
def test_negotiate(accept: str | None, expected: Format) -> None:
    assert negotiate(accept) is expected


@pytest.mark.parametrize("accept", [PROMETHEUS_3_5, PROMETHEUS_3_5_TEXT_FIRST, PROMETHEUS_2_42])
def test_the_order_of_the_ranges_does_not_matter(accept: str) -> None:
    assert len({negotiate(",".join(order)) for order in permutations(accept.split(","))}) == 1


FRAGMENTS = st.sampled_from(
    [
        *'*/;=,.q "0159',
        "text/plain",
        "application/openmetrics-text",
        "*/*",
        "version=",
        "1.0.0",
        "0.0.4",
        ";q=0.",
        "q=0",
    ]
)


@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=20).map("".join)))
def test_no_header_is_an_error(header: str) -> None:
    assert negotiate(header) in Format
    assert accepts_gzip(header) in {True, False}


@given(st.lists(st.sampled_from(PROMETHEUS_3_5.split(",")), max_size=10), st.text("abc;=/*", max_size=20))
def test_what_cannot_be_read_does_not_change_the_answer(ranges: list[str], noise: str) -> None:
    assert negotiate(",".join([*ranges, f"x-{noise}"])) is negotiate(",".join(ranges))


@pytest.mark.parametrize(
    ("accept_encoding", "expected"),
    [
        (None, False),
        ("", False),
        ("gzip", True),
        ("x-gzip", True),
        ("GZIP", True),
        ("gzip, deflate, br, zstd", True),
        ("deflate, br", False),
        ("identity", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=0, *", False),
        ("gzip;q=0.001", True),
        ("*;q=0, gzip", True),
        ("identity, gzip", True),
        ("identity;q=0, gzip;q=0.1", True),
        ("identity;q=1, gzip;q=0.5", False),
        ("gzip;q=1.0, identity; q=0.5, *;q=0", True),
        ("gzip;q=banana", False),
        ("gzip;q=", False),
        ("gzipped", False),
        (",;,", False),
    ],
)
def test_accepts_gzip(accept_encoding: str | None, *, expected: bool) -> None:
    assert accepts_gzip(accept_encoding) is expected
