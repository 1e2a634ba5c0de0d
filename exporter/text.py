"""Which text a label value may be, whatever a driver or a process calls itself."""

import re

LONGEST = 256
"""Characters that are kept: a reason or a path may be long, a page of them must not be."""

_REPLACED = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], ""),  # NUL and the other control characters
    ord("\n"): "\n",
}
_UNDECODED = re.compile("[\ud800-\udfff]")
"""Bytes that are not UTF-8 arrive as lone surrogates: names cut in the middle of a character, firmware strings."""


def cleaned(value: str) -> str:
    """Return the value as valid UTF-8 without control characters (newline excepted), of at most LONGEST characters."""
    if not (value.isascii() and value.isprintable()):
        value = _UNDECODED.sub("\N{REPLACEMENT CHARACTER}", value.translate(_REPLACED))
    return value[:LONGEST]
