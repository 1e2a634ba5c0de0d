"""Prometheus 3 refuses a page without a full media type: every answer of every path has one, whatever is asked for."""

import asyncio
import re
import zlib

import pytest

from exporter.exposition import Format, Renderer
from exporter.metrics import Block
from exporter.model import World
from exporter.web import routes
from exporter.web.messages import Request

ACCEPTS = (
    None,
    "",
    "*/*",
    "text/html",
    "application/openmetrics-text",
    "application/openmetrics-text;version=0.0.1",
    "application/openmetrics-text;version=9.9.9;escaping=nonsense",
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    "text/plain;version=0.0.4",
    "text/plain;version=1.0.0;escaping=allow-utf-8",
    "text/plain;q=0",
    (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
        "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    ),
    "application/vnd.google.protobuf;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4",
    ";;;,,,q=q",
    "\x00\xff",
)
QUERIES = ("", "collect[]=exporter", "exclude[]=energy", "&".join(f"exclude[]={block.value}" for block in Block))
EMPTY = World(snapshots=(), versions={})
RENDERER = Renderer()

MEDIA_TYPE = re.compile(
    r"application/openmetrics-text; version=1\.0\.0; charset=utf-8(; escaping=\S+)?"
    r"|text/plain; version=0\.0\.4; charset=utf-8(; escaping=\S+)?"
    r"|text/plain; version=1\.0\.0; charset=utf-8; escaping=\S+"
)


async def page(form: Format, blocks: frozenset[Block] | None, gzip: bool, _client: str = "") -> bytes:
    return RENDERER.page(EMPTY, form, blocks, gzip=gzip)


HANDLER = routes.build(page, lambda: EMPTY, lambda: 0.0)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("encoding", [None, "gzip", "zstd, gzip;q=0.5", "identity"])
@pytest.mark.parametrize("accept", ACCEPTS)
def test_a_page_says_its_format_and_version(accept: str | None, encoding: str | None, query: str) -> None:
    given = {"accept": accept, "accept-encoding": encoding}
    request = Request("GET", "/metrics", query, {name: value for name, value in given.items() if value is not None})
    response = asyncio.run(HANDLER(request))  # type: ignore[arg-type] # a handler is a coroutine function
    headers = dict(response.headers)
    assert response.status == 200
    assert MEDIA_TYPE.fullmatch(headers["Content-Type"])
    assert headers["Vary"] == "Accept, Accept-Encoding"
    body = response.body
    if headers.get("Content-Encoding") == "gzip":
        body = zlib.decompress(body, zlib.MAX_WBITS | 16)
    assert body.endswith(b"# EOF\n") == headers["Content-Type"].startswith("application/openmetrics-text")
