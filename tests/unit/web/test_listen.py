import pytest

from exporter.addresses import parse_address, written
from exporter.web.listen import ListenError, open_sockets


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("127.0.0.1:10042", ("127.0.0.1", 10042)),
        ("localhost:0", ("localhost", 0)),
        (":9100", ("", 9100)),
        ("[::1]:65535", ("::1", 65535)),
        ("[fe80::1%eth0]:80", ("fe80::1%eth0", 80)),
    ],
)
def test_host_and_port_are_told_apart(text: str, parsed: tuple[str, int]) -> None:
    assert parse_address(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "127.0.0.1:", "::1:80", "[]:80", "a:65536", "a:-1", "a:²", "a:http", "http://a:1", "a b:1"],
)
def test_what_is_no_address_is_refused_with_the_text_and_what_is_expected(text: str) -> None:
    assert parse_address(text) is None
    with pytest.raises(ListenError) as caught:
        open_sockets((text,))
    assert repr(text) in str(caught.value)
    assert "host:port" in str(caught.value)


@pytest.mark.parametrize("text", ["127.0.0.1:10042", "[::1]:80"])
def test_an_address_is_written_as_it_is_given(text: str) -> None:
    parsed = parse_address(text)
    assert parsed is not None
    assert written(*parsed) == text
