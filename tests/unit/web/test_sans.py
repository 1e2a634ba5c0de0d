"""Which names of a client's certificate count as allowed."""

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.web.protection.tls import allowed

KINDS = ("DNS", "email", "URI", "IP Address")


def certificate(*names: tuple[str, str]) -> dict[str, Any]:
    return {"subject": ((("commonName", "scraper.example"),),), "subjectAltName": names}


@pytest.mark.parametrize(
    ("kind", "name", "wanted", "fits"),
    [
        ("DNS", "scraper.example", "scraper.example", True),
        ("DNS", "Scraper.example", "scraper.example", False),
        ("DNS", "*.example", "scraper.example", False),
        ("DNS", "scraper.example", "*.example", False),
        ("DNS", "scraper.example\0.evil.test", "scraper.example", False),
        ("DNS", "scraper.example ", "scraper.example", False),
        ("URI", "spiffe://a/b", "spiffe://a/b", True),
        ("URI", "spiffe://a/b/c", "spiffe://a/b", False),
        ("email", "a@example.org", "a@example.org", True),
        ("IP Address", "192.0.2.7", "192.0.2.7", True),
        ("IP Address", "2001:DB8:0:0:0:0:0:7", "2001:db8::7", True),
        ("IP Address", "2001:DB8:0:0:0:0:0:7", "2001:0db8::0:7", True),
        ("IP Address", "<invalid>", "<invalid>", False),
        ("DirName", "scraper.example", "scraper.example", False),
        ("othername", "scraper.example", "scraper.example", False),
        ("Registered ID", "1.2.3", "1.2.3", False),
    ],
)
def test_a_name_is_allowed_when_it_is_exactly_one_of_those(kind: str, name: str, wanted: str, fits: bool) -> None:
    assert allowed(certificate(("DNS", "other.example"), (kind, name)), ["no.example", wanted]) is fits


def test_the_common_name_does_not_count_and_no_certificate_has_no_names() -> None:
    assert not allowed(certificate(), ["scraper.example"])
    assert not allowed({}, ["scraper.example", ""])
    assert not allowed(certificate(("DNS", "scraper.example")), [])


@given(st.lists(st.tuples(st.sampled_from(KINDS[:3]), st.text(max_size=8)), max_size=5), st.lists(st.text(max_size=8)))
def test_one_name_that_is_equal_lets_in_and_nothing_else_does(names: list[tuple[str, str]], wanted: list[str]) -> None:
    assert allowed(certificate(*names), wanted) == (not {name for _, name in names}.isdisjoint(wanted))


@given(st.ip_addresses(), st.ip_addresses())
def test_addresses_are_compared_as_addresses(one: ipaddress.IPv4Address, other: ipaddress.IPv4Address) -> None:
    told = one.exploded.upper()
    assert allowed(certificate(("IP Address", told)), [str(one)])
    assert allowed(certificate(("IP Address", told)), [str(other)]) == (one == other)
