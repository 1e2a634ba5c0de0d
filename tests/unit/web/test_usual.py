"""What is read without h11 is what h11 reads, and is left to it for any byte that is not usual."""

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.web.site import request_of
from exporter.web.usual import LONGEST, Usual, head_of, read

PROMETHEUS = (
    b"GET /metrics?collect[]=energy HTTP/1.1\r\nHost: node7:10042\r\nUser-Agent: Prometheus/3.5.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
    b"X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
PIECES = (
    *(b"GET ", b"HEAD ", b"POST ", b"get ", b"/", b"http://a/b?c", b" ", b" HTTP/1.1", b" HTTP/1.0", b"\r\n", b"\n"),
    *(b"\r", b"\t", b":", b"\0", b"\xe4", b"Host: a\r\n", b"host:b\r\n", b"Accept:\t*/* \r\n", b"Accept: x\r\n"),
    *(b"Connection: close\r\n", b"Connection: keep-alive\r\n", b"Connection:\r\n", b"Connection: Upgrade, Close\r\n"),
    *(
        b"Content-Length: 0\r\n",
        b"Content-Length: 5\r\n\r\nabcde",
        b"Transfer-Encoding: chunked\r\n",
        b"Upgrade: h2c\r\n",
    ),
    *(b"Expect: 100-continue\r\n", b" folded\r\n", b"A B: c\r\n", b"A : b\r\n", b": b\r\n", b"\r\n\r\n", GET),
)


def by_h11(data: bytes) -> Usual | None:
    """Return what h11 makes of the data, if that is one whole request without a body and nothing after it."""
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    try:
        request, end = connection.next_event(), connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(request, h11.Request) or not isinstance(end, h11.EndOfMessage):
        return None
    return Usual(request_of(request, "client"), connection.our_state is h11.MUST_CLOSE or _closes(connection))


def _closes(connection: h11.Connection) -> bool:
    connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    return connection.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE} or bool(connection.trailing_data[0])


@given(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join))
@settings(max_examples=500, deadline=None)
def test_pieces_of_requests_are_read_as_h11_reads_them_or_not_at_all(data: bytes) -> None:
    for whole in (data, b"GET / HTTP/1.1\r\nHost: a\r\n" + data, b"GET / HTTP/1.1\r\nHost: a\r\n" + data + b"\r\n"):
        usual = read(whole, "client")
        assert usual is None or usual == by_h11(whole)


@given(st.integers(0, len(PROMETHEUS)), st.integers(0, 3), st.binary(max_size=3))
@settings(max_examples=500, deadline=None)
def test_a_scrape_with_any_change_is_read_as_h11_reads_it_or_not_at_all(at: int, cut: int, put: bytes) -> None:
    changed = PROMETHEUS[:at] + put + PROMETHEUS[at + cut :]
    usual = read(changed, "client")
    assert usual is None or usual == by_h11(changed)


@pytest.mark.parametrize(
    "data",
    [
        PROMETHEUS,
        GET,
        b"HEAD /-/ready HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /-/healthy HTTP/1.1\r\nHost: 10.0.0.7:10042\r\nAccept: */*\r\nConnection: close\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nx:2\t\r\nConnection: Keep-Alive\r\n\r\n",
        b"GET http://a:1/b?c=d HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_usual_requests_are_read_at_once(data: bytes) -> None:
    assert read(data, "client") == by_h11(data) is not None


@pytest.mark.parametrize(
    "data",
    [
        PROMETHEUS[:-1],
        GET + GET,
        b"\r\n" + GET,
        b"POST / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nAccept: */*\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA : b\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: \xe4\r\n\r\n",
        b"GET /" + b"a" * LONGEST + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    ],
)
def test_what_is_not_usual_is_left_to_h11(data: bytes) -> None:
    assert read(data, "client") is None


def test_the_head_of_a_response_is_the_one_that_h11_writes() -> None:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("Retry-After", "1"), ("Content-Length", "12")]
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(GET)
    while connection.next_event() is not h11.PAUSED and connection.their_state is not h11.DONE:
        pass
    theirs = connection.send(h11.Response(status_code=503, headers=headers, reason=b"Service Unavailable"))
    assert head_of(503, headers) == theirs


@pytest.mark.parametrize(
    "header", [("A", "b\r\nC: d"), ("A", "b\n"), ("A B", "c"), ("", "a"), ("A", "\xe4"), ("A", "\0")]
)
def test_no_header_can_put_in_another(header: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="head"):
        head_of(200, [header])
