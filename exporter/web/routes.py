"""Which path answers what."""

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, unquote

from exporter.config import DEVICES, HEALTHY, READY
from exporter.exposition import Format
from exporter.fleet.explain import Explanation
from exporter.metrics import Block
from exporter.model import World
from exporter.web import html
from exporter.web.device import device_page
from exporter.web.messages import Handler, Request, Response, plain
from exporter.web.negotiation import accepts_gzip, negotiate
from exporter.web.readiness import readiness
from exporter.web.status import REFRESH_SECONDS, landing_page

PROBES = frozenset({HEALTHY, READY})

MAX_QUERY_FIELDS = 64
MAX_NAMES = 5
MAX_NAME = 16
"""What of the unknown names is said again: enough to see the mistake."""

_OF_DEVICE = f"{DEVICES}/"
_STATUS_HEADERS = (*html.HEADERS, ("Refresh", str(REFRESH_SECONDS)))

Page = Callable[[Format, frozenset[Block] | None, bool, str], Awaitable[bytes]]
"""Format, blocks (None: all), gzip, client -> the page as it is sent."""


class BadQueryError(ValueError):
    """The query asks for what there is not. The message is for the client."""


def build(
    page: Page,
    world: Callable[[], World],
    wall: Callable[[], float],
    telemetry_path: str = "/metrics",
    alive: Callable[[], bool] = lambda: True,
    explain: Callable[[str], Explanation | None] = lambda gpu: None,  # noqa: ARG005 -- of the one that explains
    host: str = "",
) -> Handler:
    """Return the handler of all paths.

    `wall` gives Unix time, against which the ages of samples are told; `alive` tells whether the daemon does its work;
    `explain` gives what is to be said of the GPU with a label; `host`: its name, for people with several.
    """

    def for_people(path: str) -> Response:
        if path == "/":
            return Response(200, _STATUS_HEADERS, landing_page(world(), telemetry_path, wall(), host))
        explained = explain(path.removeprefix(_OF_DEVICE)) if path.startswith(_OF_DEVICE) else None
        return plain(404) if explained is None else Response(200, html.HEADERS, device_page(explained, wall()))

    async def handler(request: Request) -> Response:
        if request.method not in {"GET", "HEAD"}:
            return plain(405, headers=(("Allow", "GET, HEAD"),))
        path = unquote(request.path)
        if path == telemetry_path:
            return await _metrics(page, request)
        if path == HEALTHY:
            return plain(200, "healthy") if alive() else plain(503, "the workers are not supervised")
        if path == READY:
            ready, text = readiness(world(), wall())
            return plain(200 if ready else 503, text)
        return for_people(path)

    return handler


async def _metrics(page: Page, request: Request) -> Response:
    try:
        blocks = parse_blocks(request.query)
    except BadQueryError as error:
        return plain(400, str(error))
    chosen = negotiate(request.headers.get("accept"))
    gzip = accepts_gzip(request.headers.get("accept-encoding"))
    body = await page(chosen, blocks, gzip, request.client)
    encoding = (("Content-Encoding", "gzip"),) if gzip else ()
    return Response(200, (("Content-Type", chosen.content_type), ("Vary", "Accept, Accept-Encoding"), *encoding), body)


def parse_blocks(query: str) -> frozenset[Block] | None:
    """Return the blocks that `collect[]` or `exclude[]` leave, None without either. Raises BadQueryError.

    Other parameters are passed over: scrape configurations carry their own.
    """
    if not query:
        return None
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
