"""How a string from a driver or a process becomes a label value that no reader of the page trips over.

The one choke point: nothing reaches the page between quotes without passing `quoted`.
"""

LONGEST = 256
"""Characters of a label value that are kept: a reason or a path may be long, a page of them must not be."""

_REPLACED = {
    **dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], ""),  # NUL and the other control characters
    ord("\n"): "\n",
    # Bytes that are not UTF-8 arrive as lone surrogates: names cut in the middle of a character, firmware strings.
    **dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}"),
}


def cleaned(value: str) -> str:
    """Return the value as valid UTF-8 without control characters (newline excepted), of at most LONGEST characters."""
    if not (value.isascii() and value.isprintable()):
        value = value.translate(_REPLACED)
    return value[:LONGEST]


def quoted(value: str) -> str:
    """Return the cleaned value, escaped as it stands between the quotes."""
    return cleaned(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
