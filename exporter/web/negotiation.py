"""The format that a client wants, by its Accept headers. Never an error: what cannot be read is passed over."""

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.exposition import Format

_Q_VALUE = re.compile(r"(0(\.[0-9]*)?|1(\.0*)?|\.[0-9]+)\Z")

# Without a version a media type is what it was when it had none.
_MEDIA_TYPES: Mapping[tuple[str, str | None], Format] = {
    ("application/openmetrics-text", "1.0.0"): Format.OPENMETRICS_1_0_0,
    ("application/openmetrics-text", None): Format.OPENMETRICS_1_0_0,
    ("text/plain", "1.0.0"): Format.TEXT_1_0_0,
    ("text/plain", "0.0.4"): Format.TEXT_0_0_4,
    ("text/plain", None): Format.TEXT_0_0_4,
}
_WILDCARDS: Mapping[str, tuple[Format, ...]] = {
    "application/*": (Format.OPENMETRICS_1_0_0,),
    "text/*": (Format.TEXT_0_0_4, Format.TEXT_1_0_0),
    "*/*": tuple(Format),
}


_KEPT = 16
"""Answers for the headers that came last: a scraper sends the same ones always."""


class _Preference(NamedTuple):
    """What the most specific range says of a format; compared field by field, the larger is preferred."""

    quality: float
    specificity: int
    """3: type and version; 2: type; 1: its class; 0: anything."""
    rank: int
    """Between formats that the client holds equal: the newest of those it named, the oldest of those it did not."""


@functools.lru_cache(maxsize=_KEPT)
def negotiate(accept: str | None) -> Format:
    """Return the format to answer with; text 0.0.4 where the client names none that there is."""
    said: dict[Format, tuple[int, float]] = {}
    for name, parameters, quality in _elements(accept):
        version = parameters.get("version")
        if name in _WILDCARDS:
            formats = _WILDCARDS[name]
            specificity = 0 if name == "*/*" else 1
        elif (name, version) in _MEDIA_TYPES:
            formats = (_MEDIA_TYPES[name, version],)
            specificity = 2 if version is None else 3
        else:
            continue
        for format_ in formats:
            # A more specific range overrides a wider one, also to refuse; of two alike the better one counts.
            said[format_] = max(said.get(format_, (-1, 0.0)), (specificity, quality))
    order = list(Format)
    wanted = {
        format_: _Preference(quality, specificity, order.index(format_) * (1 if specificity > 1 else -1))
        for format_, (specificity, quality) in said.items()
        if quality > 0
    }
    return max(wanted, key=lambda format_: wanted[format_], default=Format.TEXT_0_0_4)


@functools.lru_cache(maxsize=_KEPT)
def accepts_gzip(accept_encoding: str | None) -> bool:
    """Tell whether to compress: gzip is named, or anything goes, and the client does not prefer plain."""
    qualities = {name: quality for name, _, quality in _elements(accept_encoding)}
    gzip = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def _elements(header: str | None) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield name, parameters and quality of each element of a list; an element with a q that is none is left out."""
    for element in (header or "").split(","):
        name, *rest = element.split(";")
        pairs = (parameter.partition("=") for parameter in rest)
        parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
        quality = parameters.pop("q", "1")
        if _Q_VALUE.match(quality):
            yield name.strip().lower(), parameters, float(quality)
