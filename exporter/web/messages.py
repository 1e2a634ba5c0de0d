"""What passes between the HTTP server and the routes."""

import http
from collections.abc import Awaitable, Callable, Mapping

import msgspec


class Request(msgspec.Struct, frozen=True):
    """One request head; a body is never handed on."""

    method: str
    path: str
    """As sent, without the query."""
    query: str = ""
    headers: Mapping[str, str] = {}
    """By name in lower case; values of a repeated header are joined by a comma."""
    client: str = ""
    """The address that it comes from; empty: none, as of local sockets."""


def target_of(target: str) -> tuple[str, str]:
    """Return path and query of what a request line asks for."""
    if target[:7].lower() == "http://" or target[:8].lower() == "https://":
        # The form that proxies are asked in; servers have to take it as well.
        _, slash, rest = target.partition("://")[2].partition("/")
        target = slash + rest or "/"
    path, _, query = target.partition("?")
    return path, query


class Response(msgspec.Struct, frozen=True):
    """A complete answer. The server adds Content-Length, and leaves the body off for HEAD."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Handler = Callable[[Request], Awaitable[Response]]


def plain(status: int, message: str = "", headers: tuple[tuple[str, str], ...] = ()) -> Response:
    """One line of text; the status' own phrase where there is nothing more to say."""
    words = message or http.HTTPStatus(status).phrase
    return Response(status, (("Content-Type", "text/plain; charset=utf-8"), *headers), f"{words}\n".encode())
