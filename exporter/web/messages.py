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
