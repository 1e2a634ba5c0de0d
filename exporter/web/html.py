"""The parts that the pages for people are made of. All text in them is escaped and cut here, once."""

from collections.abc import Iterable, Sequence

from exporter.text import cleaned
from exporter.web.style import STYLE, STYLE_HASH

MAX_TEXT = 200
"""Characters shown of a string that a vendor's library or a process gave us."""

_LONG_WORD = 24
"""One with more letters may be broken anywhere."""
_PROSE = frozenset({"Why", "Value", "As read", "Asked by", "Used by", "Workload", "Workloads", "Name", "Verdict"})
"""Columns whose cells may be broken over several lines."""

_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})

HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        f"default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
)


def escape(words: str) -> str:
    """Return the words without markup, for attributes too. The module html brings all characters that have names."""
    return words.translate(_ESCAPED)


def text(value: str | None, most: int = MAX_TEXT) -> str:
    """Return a string for a person, which stays one whatever is in it: no markup, no control of the text around."""
    if value is None:
        return "-"
    said = cleaned(value)
    said = said if len(said) <= most else f"{said[:most]}…"
    plain = said.isascii() and all(len(word) <= _LONG_WORD for word in said.split())
    return escape(said) if plain else f"<bdi>{escape(said)}</bdi>"


def name(words: str) -> str:
    """Return the name of a reading, which may be broken between its words."""
    return escape(words).replace("_", "_<wbr>")


def page(title: str, parts: Iterable[str]) -> bytes:
    """Return a page. `title` is plain text, and `parts` are HTML."""
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(cleaned(title))}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
    )
    return "".join((head, *parts, "</body>\n</html>\n")).encode("utf-8", "replace")


def links(*targets: tuple[str, str]) -> str:
    """Return a line of links. Each target: words and a relative address, which is escaped already."""
    made = [f'<a href="{address}">{words}</a>' for words, address in targets]
    return f"<p>{' · '.join(made)}</p>\n"


def coloured(words: str, kind: str) -> str:
    """Return HTML in the colour of `kind`, which is good, bad, muted or empty."""
    return f'<span class="{kind}">{words}</span>' if kind else words


def small(words: str) -> str:
    """Return HTML for a line of less weight; empty: none."""
    return f"<small>{words}</small>" if words else ""


def share(ratio: float | None) -> str:
    """Return a bar for a part of a whole; empty: it is not known."""
    return "" if ratio is None else f'<meter max="1" value="{min(1.0, max(0.0, ratio)):.3f}"></meter> '


def facts(kind: str, named: Iterable[tuple[str, str]]) -> str:
    """Return named values, as HTML; those that are empty are left out. `kind`: sums or facts."""
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>\n" for name, value in named if value)
    return f'<dl class="{kind}">\n{shown}</dl>\n' if shown else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "cards") -> str:
    """Return a table, the first cell of whose rows names them. Cells are HTML; columns without any are left out.

    `kind`: cards (on a phone each row is one) or wide (on a phone it can be moved sideways).
    """
    return grouped(heads, [("", tuple(rows))], kind)


def grouped(heads: Sequence[str], groups: Iterable[tuple[str, Sequence[Sequence[str]]]], kind: str = "cards") -> str:
    """Return a table as of `table`, with a heading over each group of rows."""
    told = list(groups)
    shown = [place for place in range(len(heads)) if not place or any(row[place] for _, rows in told for row in rows)]
    columns = "".join(f'<th scope="col">{heads[place]}</th>' for place in shown)
    bodies = "".join(_body(heads, shown, heading, rows) for heading, rows in told)
    made = f'<table class="{kind}">\n<thead><tr>{columns}</tr></thead>\n{bodies}</table>\n'
    return made if kind == "cards" else f'<div role="region" aria-label="{heads[0]}" tabindex="0">\n{made}</div>\n'


def _body(heads: Sequence[str], shown: Sequence[int], heading: str, rows: Sequence[Sequence[str]]) -> str:
    top = f'<tr class="group"><th scope="rowgroup" colspan="{len(shown)}">{heading}</th></tr>\n' if heading else ""
    lines = []
    for row in rows:
        cells = "".join(
            f'<td data-label="{heads[place]}"{_PROSE_CLASS if heads[place] in _PROSE else ""}>{row[place]}</td>'
            for place in shown[1:]
        )
        lines.append(f'<tr><th scope="row">{row[0]}</th>{cells}</tr>\n')
    return f"<tbody>\n{top}{''.join(lines)}</tbody>\n"


_PROSE_CLASS = ' class="prose"'
