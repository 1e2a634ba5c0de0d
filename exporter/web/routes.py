"""Which path answers what."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, unquote

from exporter.config import HEALTHY, READY
from exporter.exposition import Format
from exporter.metrics import Block
from exporter.model import World
from exporter.web import status
from exporter.web.messages import Handler, Request, Response, plain
from exporter.web.negotiation import accepts_gzip, negotiate
from exporter.web.readiness import readiness

PROBES = frozenset({HEALTHY, READY})

MAX_QUERY_FIELDS = 64
MAX_NAMES = 5
MAX_NAME = 16
"""What of the unknown names is said again: enough to see the mistake."""

Page = Callable[[Format, frozenset[Block] | None, bool], Awaitable[bytes]]
"""Format, blocks (None: all), gzip -> the page as it is sent."""

_HTML_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    ("X-Content-Type-Options", "nosniff"),
)


class BadQueryError(ValueError):
    """The query asks for what there is not. The message is for the client."""


def build(
    page: Page,
    world: Callable[[], World],
    wall: Callable[[], float],
    telemetry_path: str = "/metrics",
    alive: Callable[[], bool] = lambda: True,
) -> Handler:
    """Return the handler of all paths.

    `wall` gives Unix time, against which the ages of samples are told; `alive` tells whether the daemon does its work.
    """

    async def metrics(request: Request) -> Response:
        try:
            blocks = parse_blocks(request.query)
        except BadQueryError as error:
            return plain(400, str(error))
        chosen = negotiate(request.headers.get("accept"))
        gzip = accepts_gzip(request.headers.get("accept-encoding"))
        body = await page(chosen, blocks, gzip)
        encoding = (("Content-Encoding", "gzip"),) if gzip else ()
        return Response(
            200, (("Content-Type", chosen.content_type), ("Vary", "Accept, Accept-Encoding"), *encoding), body
        )

    async def handler(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return plain(405, headers=(("Allow", "GET, HEAD"),))
        path = unquote(request.path)
        if path == telemetry_path:
            return await metrics(request)
        if path == "/":
            return Response(200, _HTML_HEADERS, status.landing_page(world(), telemetry_path, wall()))
        if path == HEALTHY:
            return plain(200, "healthy") if alive() else plain(503, "the workers are not supervised")
        if path == READY:
            ready, text = readiness(world(), wall())
            return plain(200 if ready else 503, text)
        return plain(404)

    return handler


def parse_blocks(query: str) -> frozenset[Block] | None:
    """Return the blocks that `collect[]` or `exclude[]` leave, None without either. Raises BadQueryError.

    Other parameters are passed over: scrape configurations carry their own.
    """
    try:
        fields = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as error:
        raise BadQueryError(f"the query has more than {MAX_QUERY_FIELDS} parameters") from error
    collect, exclude = fields.get("collect[]"), fields.get("exclude[]")
    if collect is not None and exclude is not None:
        raise BadQueryError("collect[] and exclude[] exclude each other; give one of them")
    names = collect if collect is not None else exclude
    if names is None:
        return None
    known = [block.value for block in Block]
    unknown = sorted(set(names) - set(known))
    if unknown:
        said = ", ".join(ascii(name[:MAX_NAME]) for name in unknown[:MAX_NAMES])
        raise BadQueryError(f"unknown: {said}; there are {', '.join(known)}")
    named = frozenset(Block(name) for name in names)
    return named if collect is not None else frozenset(Block) - named
