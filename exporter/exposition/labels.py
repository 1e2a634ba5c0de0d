"""How a string becomes a label value that no reader of the page trips over.

The one choke point: nothing reaches the page between quotes without passing `quoted`.
"""

from exporter.text import cleaned


def quoted(value: str) -> str:
    """Return the cleaned value, escaped as it stands between the quotes."""
    return cleaned(value).replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
