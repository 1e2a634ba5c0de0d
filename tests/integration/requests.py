"""Requests that break the rules of HTTP and of TLS, made of good ones and of chance."""

from collections.abc import Iterator
from random import Random

METHODS = (b"GET", b"HEAD", b"POST", b"PUT", b"OPTIONS", b"TRACE", b"CONNECT", b"PRI", b"get", b"G\0T", b"", b"A" * 300)
TARGETS = (
    *(
        b"/metrics",
        b"/",
        b"/-/healthy",
        b"/-/ready",
        b"*",
        b"",
        b"//",
        b"/../../etc/passwd",
        b"/%2e%2e/%00",
        b"/metrics/",
    ),
    *(
        b"http://localhost/metrics",
        b"http://",
        b"https://a:99999/-/ready",
        b"localhost:80",
        b"/metrics#x",
        b"/\xff\xfe",
    ),
    *(b"/metrics?collect[]=energy", b"/metrics?collect%5B%5D=%00", b"/metrics?" + b"a=b&" * 500, b"/" + b"a" * 9_000),
    *(b"/device/sim0", b"/device/sim0?x", b"/device/", b"/device/%00", b"/device/" + b"a" * 3_000, b"/device/<b>%22"),
    *(b"/metrics?collect[]=" + b"x" * 3_000, b"/metrics ?", b"/m\r\nX: y", b"/<script>", b"/\x1b[2J", b"/metrics?%"),
)
VERSIONS = (b"HTTP/1.1",) * 6 + (
    b"HTTP/1.0",
    b"HTTP/0.9",
    b"HTTP/2.0",
    b"HTTP/1.99999999",
    b"http/1.1",
    b"",
    b"HTTP/1.1 x",
)
HEADERS = (
    *(b"Host: localhost", b"Host: a", b"Host:", b"Host : a", b"host: a\r\nHost: b", b"Connection: close"),
    *(b"Connection: keep-alive", b"Connection: upgrade", b"Upgrade: h2c", b"Expect: 100-continue", b"Expect: 999"),
    *(b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999999999999"),
    *(
        b"Content-Length: 5, 5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: +5",
        b"Content-Length: 0x5",
    ),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: \x0bchunked", b"Transfer-Encoding: chunked, identity"),
    *(b"Transfer-Encoding: gzip", b"Transfer-Encoding: chunked\r\nContent-Length: 3", b"Transfer-Encoding : chunked"),
    *(b"Accept: " + b"text/plain;q=0.1," * 200, b"Accept: */*;q=nan", b"Accept: ;;;,,,=", b"Accept: \xff"),
    *(b"Accept: application/openmetrics-text;version=1.0.0", b"Accept: text/plain; version=1.0.0; escaping=values"),
    *(b"Accept-Encoding: gzip", b"Accept-Encoding: gzip;q=0, *;q=1e9", b"Accept-Encoding: " + b"br," * 300),
    *(b"Authorization: Basic YWxpY2U6eA==", b"Authorization: Basic ====", b"Authorization: Basic " + b"QQ" * 2_000),
    *(b"Authorization: Bearer x", b"Authorization: Basic \xff", b"Authorization: Basic OnBhc3M="),
    *(b"X-Prometheus-Scrape-Timeout-Seconds: nan", b"X-Prometheus-Scrape-Timeout-Seconds: -1", b"Cookie: a=b"),
    *(
        b" folded",
        b"\tfolded",
        b"no colon",
        b": no name",
        b"X: \0",
        b"X: a\rb",
        b"X" * 2_000 + b": y",
        b"X: " + b"y" * 9_000,
    ),
    *(
        b"Range: bytes=0-",
        b"If-None-Match: *",
        b"Content-Type: multipart/form-data; boundary=x",
        b"\xf0\x9f\x94\xa5: x",
    ),
)
BODIES = (
    *(b"", b"hello", b"x" * 70_000, b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n"),
    *(
        b"ffffffffffffffff\r\nhello",
        b"-5\r\nhello\r\n",
        b"5\nhello\n0\n\n",
        b"0x5\r\nhello",
        b"5\r\nhelloo\r\n",
        b"5\r\nhel",
    ),
    *(b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"1\r\na\r\n" * 2_000, b"0" * 20_000 + b"\r\n\r\n"),
)
ENDS = (b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n", b"\n\r\n")
GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
HELLO = bytes.fromhex("16030100") + b"\xf4" + bytes.fromhex("010000f00303") + bytes(range(32))


class Nonsense:
    def __init__(self, random: Random) -> None:
        self.random = random

    def pieces(self) -> Iterator[bytes]:
        """Yield what is sent over one connection, in pieces as they are sent."""
        random = self.random
        data = b"".join(self._request() for _ in range(random.choice((1, 1, 1, 2, 5, 40))))
        if random.random() < 0.3:
            data = self._broken(data)
        if random.random() < 0.2:
            data = data[: random.randrange(len(data) + 1)]
        yield from self._cut(data)

    def records(self) -> Iterator[bytes]:
        """Yield what is sent to a port that speaks TLS, by one that does not, or not well."""
        random = self.random
        kind = random.random()
        if kind < 0.3:
            yield from self.pieces()
            return
        yield from self._cut(b"".join(self.record() for _ in range(random.choice((1, 1, 3)))))

    def record(self) -> bytes:
        """Return a TLS record, more or less."""
        random = self.random
        if random.random() < 0.4:
            return self._broken(HELLO + random.randbytes(210))[: random.randrange(1, 400)]
        kind = random.choice((0x14, 0x15, 0x16, 0x17, 0x18, 0x80, random.randrange(256)))
        body = random.randbytes(random.choice((0, 1, 2, 7, 100, 5_000)))
        length = len(body) if random.random() < 0.7 else random.randrange(65_536)
        return bytes([kind, 3, random.choice((0, 1, 3, 4, 9))]) + length.to_bytes(2, "big") + body

    def _request(self) -> bytes:
        random = self.random
        kind = random.random()
        if kind < 0.1:
            return random.randbytes(random.choice((1, 10, 300, 20_000)))
        if kind < 0.2:
            return GOOD
        end = random.choice(ENDS)
        line = b" ".join((random.choice(METHODS[:2]), random.choice(TARGETS), random.choice(VERSIONS)))
        if kind < 0.4:
            separator = random.choice((b" ", b"  ", b"\t"))
            line = separator.join((random.choice(METHODS), random.choice(TARGETS), random.choice(VERSIONS)))
        headers = random.choices(HEADERS, k=random.choice((0, 1, 2, 4, 12, 300 if kind < 0.25 else 3)))
        if random.random() < 0.6:
            headers.insert(0, b"Host: localhost")
        head = end.join((line, *headers, b"", b""))
        return head + (random.choice(BODIES) if random.random() < 0.4 else b"")

    def _broken(self, data: bytes) -> bytes:
        """Return the data with some bytes changed, left out or doubled."""
        random = self.random
        changed = bytearray(data)
        for _ in range(random.choice((1, 1, 3, 20))):
            at = random.randrange(len(changed) + 1)
            what = random.random()
            if what < 0.4 and at < len(changed):
                changed[at] = random.randrange(256)
            elif what < 0.7:
                changed[at:at] = random.choice((b"\0", b"\r", b"\n", b"\r\n", b" ", b":", b"\xff", random.randbytes(3)))
            else:
                del changed[at : at + random.choice((1, 2, 10))]
        return bytes(changed)

    def _cut(self, data: bytes) -> Iterator[bytes]:
        random = self.random
        if random.random() < 0.6:
            yield data
            return
        size = random.choice((1, 7, 1_000))
        for at in range(0, min(len(data), 200 * size), size):
            yield data[at : at + size]
