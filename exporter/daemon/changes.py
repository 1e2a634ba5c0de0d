"""Which options differ between two configurations, and which of them can change while the daemon runs."""

from collections.abc import Iterator

import msgspec

from exporter.config import Config

LIVE = ("log", "metrics", "web.max_requests", "workers")
"""Options, and sections of them, that a reload changes. All others hold until a restart, which loses no energy."""


def changes(old: msgspec.Struct, new: msgspec.Struct, path: str = "") -> Iterator[str]:
    """Yield the key path of each option that differs."""
    for name in old.__struct_fields__:
        before, after, where = getattr(old, name), getattr(new, name), f"{path}{name}"
        if isinstance(before, msgspec.Struct):
            yield from changes(before, after, f"{where}.")
        elif before != after:
            yield where


def is_live(path: str) -> bool:
    return any(path == live or path.startswith(f"{live}.") for live in LIVE)


def held_back(old: Config, new: Config) -> list[str]:
    """Return a line for each option that differs and cannot change while the daemon runs."""
    return [
        f"{path}: cannot change while the exporter runs; restart it" for path in changes(old, new) if not is_live(path)
    ]
