"""What a vendor's library prints, as lines for the log: bounded, and each text loud only once. Pure."""

import logging
from typing import NamedTuple

_LINES_PER_MINUTE = 20
_LINE_CHARACTERS = 500
_REMEMBERED_LINES = 200
_WINDOW_SECONDS = 60.0


class Line(NamedTuple):
    level: int
    text: str


class Output:
    """Takes what the children of one provider write to standard output and standard error, in pieces of any size."""

    def __init__(self, now: float) -> None:
        self._since = now
        self._told = 0
        self._dropped = 0
        self._rest = b""
        self._overlong = False
        # In order of the last time, so that the oldest is forgotten first.
        self._seen: dict[str, None] = {}

    def feed(self, data: bytes, now: float) -> list[Line]:
        """Return the lines to be logged; those beyond 20 a minute are counted, and told as one when it is over."""
        lines = self._turned(now)
        if self._told >= _LINES_PER_MINUTE:
            self._skip(data)
            return lines
        pieces = (self._rest + data).split(b"\n")
        self._rest = pieces.pop()
        for piece in pieces:
            if self._overlong:
                self._overlong = False
                continue
            lines += self._line(piece)
        if len(self._rest) > _LINE_CHARACTERS:
            if not self._overlong:
                lines += self._line(self._rest)
            self._rest, self._overlong = b"", True
        return lines

    def end(self, now: float) -> list[Line]:
        """Return what is left when a child has ended."""
        rest, self._rest = self._rest, b""
        overlong, self._overlong = self._overlong, False
        return self._turned(now) + (self._line(rest) if rest and not overlong else [])

    def _turned(self, now: float) -> list[Line]:
        if now - self._since < _WINDOW_SECONDS:
            return []
        dropped, self._dropped, self._told, self._since = self._dropped, 0, 0, now
        return [Line(logging.WARNING, f"{dropped} more lines were printed and left out")] if dropped else []

    def _skip(self, data: bytes) -> None:
        self._dropped += data.count(b"\n")
        end = data.rfind(b"\n")
        if end >= 0:
            self._rest, self._overlong = b"", False
        # The rest of a line whose beginning is left out is left out with it.
        self._overlong |= end + 1 < len(data)

    def _line(self, raw: bytes) -> list[Line]:
        text = raw[:_LINE_CHARACTERS].decode("utf-8", "replace").strip()
        text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
        if not text:
            return []
        if self._told >= _LINES_PER_MINUTE:
            self._dropped += 1
            return []
        self._told += 1
        known = text in self._seen
        self._seen.pop(text, None)
        self._seen[text] = None
        if len(self._seen) > _REMEMBERED_LINES:
            del self._seen[next(iter(self._seen))]
        # A library that is opened again and again says the same each time.
        return [Line(logging.DEBUG if known else logging.WARNING, text)]
