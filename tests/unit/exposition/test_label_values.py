"""Strings from drivers and processes, as they come onto the page."""

import pytest
from hypothesis import given
from prometheus_client.parser import text_string_to_metric_families

from exporter.exposition.labels import quoted
from exporter.text import LONGEST, cleaned
from tests.unit.exposition.worlds import texts

FIRMWARE_BYTES = b"VBIOS \xff\xfe1".decode("utf-8", "surrogateescape")
COMM_CUT_AT_15_BYTES = "計算機械学習".encode()[:15].decode("utf-8", "surrogateescape")
COMM_CUT_IN_A_CHARACTER = "a計算機械学習".encode()[:15].decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("Größe 計算 🔥", "Größe 計算 🔥"),
        (FIRMWARE_BYTES, "VBIOS ��1"),
        (COMM_CUT_AT_15_BYTES, "計算機械学"),
        (COMM_CUT_IN_A_CHARACTER, "a計算機械��"),
        ("lone \ud83d surrogate", "lone � surrogate"),
        ("0123\0\0\0", "0123"),
        ("bell\a tab\t escape\x1b[31m del\x7f c1\x85", "bell tab escape[31m del c1"),
        ("two\nlines", "two\nlines"),
        ("two\r\nlines", "two\nlines"),
        ('a "quoted" C:\\path', 'a "quoted" C:\\path'),
        ("\0", ""),
        ("x" * 1000, "x" * LONGEST),
    ],
)
def test_a_value_is_cleaned_and_what_is_fine_is_kept(raw: str, clean: str) -> None:
    assert cleaned(raw) == clean


def test_the_cap_counts_what_remains_after_cleaning() -> None:
    assert cleaned("\0" * 500 + "end") == "end"


def test_newline_quote_and_backslash_are_escaped_after_the_cut() -> None:
    assert quoted('a\\b"c\nd') == r"a\\b\"c\nd"
    assert quoted('"' * 300) == r"\"" * LONGEST


@given(texts)
def test_every_string_can_be_encoded_and_read_back(raw: str) -> None:
    line = f'name{{label="{quoted(raw)}"}} 1.0\n'
    (family,) = text_string_to_metric_families(line.encode().decode())
    assert family.samples[0].labels == {"label": cleaned(raw)}


@given(texts)
def test_cleaning_twice_is_cleaning_once(raw: str) -> None:
    assert cleaned(cleaned(raw)) == cleaned(raw)
