import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.addresses import parse_address, written
from exporter.web.listen import ListenError, open_sockets, passed_sockets


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


@given(st.text(max_size=30) | st.from_regex(r"\[?[0-9a-f:.]{0,12}\]?:[0-9]{0,6}", fullmatch=True))
def test_an_address_that_is_read_is_written_so_that_it_is_read_again(text: str) -> None:
    parsed = parse_address(text)
    if parsed is not None:
        assert parse_address(written(*parsed)) == parsed
        assert 0 <= parsed[1] <= 65535


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "7", "LISTEN_FDS": "0"},
        {"LISTEN_PID": "8", "LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:b"},
        {"LISTEN_PID": "seven", "LISTEN_FDS": "2"},
    ],
)
def test_without_sockets_for_this_process_none_are_taken_and_no_child_takes_them_for_its_own(
    environ: dict[str, str],
) -> None:
    environ["HOME"] = "/"
    assert passed_sockets(environ, 7) == []
    assert environ == {"HOME": "/"}


@pytest.mark.parametrize("count", ["-1", "x", "65", "99999999999", "1.0", "²"])
def test_a_count_that_is_none_is_told(count: str) -> None:
    with pytest.raises(ListenError, match="LISTEN_FDS is"):
        passed_sockets({"LISTEN_PID": "7", "LISTEN_FDS": count}, 7)
