"""The files of sysfs as the boundary to the drivers behind it: what is read passes here, and may be recorded here."""

from pathlib import Path
from typing import Protocol

from exporter.kernel import leads_to, read_all, read_small
from exporter.providers.procfs import names_in


class Files(Protocol):
    """Paths are absolute, as text."""

    def read(self, path: str) -> bytes:
        """Return what a small text file says. Raises OSError as its driver answers."""

    def read_whole(self, path: str) -> bytes:
        """Return a binary file to its end, in one open: it may be handed out in pieces. Raises OSError."""

    def names(self, path: str) -> list[str]:
        """Return the names in a folder. Raises OSError."""

    def leads_to(self, path: str) -> str:
        """Return the name of what a link leads to; empty: there is no such link."""


class KernelFiles:
    """The files of the running kernel, or of a tree of files in its shape."""

    def read(self, path: str) -> bytes:
        return read_small(path)

    def read_whole(self, path: str) -> bytes:
        return read_all(path)

    def names(self, path: str) -> list[str]:
        return names_in(path)

    def leads_to(self, path: str) -> str:
        return Path(leads_to(path)).name
