"""Which files of /sys does a provider read, and what do they say? Copied as they are read, with the links on the way.

A file is kept under its real path, so that a replay has the kernel's own layout: what is reached through a link there
is reached through the same link here.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from exporter.captures.files import Entry, Folder, Link, Unreadable, error_name

_MOST_FILES = 5_000
_MOST_LINKS = 40
_TOPS = ("sys", "proc")
_OF_A_DEVICE = ("class", "vendor", "device", "power/runtime_status", "power/control")


class Copier:
    """Copies files below `root`, those of processes excepted."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = os.path.realpath(root)
        self._given = str(root).rstrip("/")
        self.files: dict[str, Entry] = {}
        """Path below the root, and what is there; of this moment."""
        self.cut = False
        """Whether there were too many."""

    def keep(self, path: str, entry: Entry) -> None:
        """Keep what a path as the provider names it leads to, and the links on the way."""
        folder, name = os.path.split(self._below(path))
        place = f"{self._trace(folder)}/{name}"
        if place.split("/", maxsplit=1)[0] in _TOPS:
            self._add(place, entry)

    def folder(self, path: str, names: Iterable[str]) -> None:
        """Keep the folders that are in a folder; its files are kept when they are read."""
        for name in names:
            if Path(f"{path}/{name}").is_dir():
                self._trace(f"{self._below(path)}/{name}", hollow=True)

    def devices(self, addresses: Iterable[str]) -> None:
        """Keep what PCI tells of devices, which providers with a library of their own read as well."""
        for address in addresses:
            above = f"{self._given}/sys/bus/pci/devices/{address}"
            for name in _OF_A_DEVICE:
                self._copy(f"{above}/{name}")
            self.link(f"{above}/driver")

    def link(self, path: str) -> None:
        """Keep a link, whether there is something at its end or not."""
        folder, name = os.path.split(self._below(path))
        place = f"{self._trace(folder)}/{name}"
        end = self._end(place)
        if end:
            self._add(place, Link(_relative(end, place)))

    def _copy(self, path: str) -> None:
        try:
            self.keep(path, Path(path).read_bytes())
        except OSError as error:
            if Path(path).exists():
                self.keep(path, Unreadable(error_name(error)))

    def _below(self, path: str) -> str:
        return path.removeprefix(self._given).strip("/")

    def _trace(self, path: str, *, hollow: bool = False) -> str:
        """Return where a path really is, below the root, and keep the links on the way."""
        real = ""
        for part in path.split("/"):
            if part == "..":  # what was passed has no links left
                real = os.path.dirname(real)  # noqa: PTH120 -- text, as in all of this
                continue
            place = f"{real}/{part}".strip("/")
            for _ in range(_MOST_LINKS):
                end = self._end(place)
                if not end:
                    break
                self._add(place, Link(_relative(end, place)))
                place = end
            real = place
        if hollow and real not in self.files and real.split("/")[0] in _TOPS:
            self._add(real, Folder())
        return real

    def _end(self, place: str) -> str:
        """Return where the link at `place` leads, below the root; empty: it is none, or leads elsewhere."""
        try:
            target = os.readlink(f"{self._root}/{place}")  # noqa: PTH115 -- text, as in all of this
        except OSError:
            return ""
        end = os.path.normpath(os.path.join(self._root, os.path.dirname(place), target))  # noqa: PTH118, PTH120 -- as above
        below = end.removeprefix(f"{self._root.rstrip('/')}/")
        return below if below != end and below.split("/")[0] in _TOPS else ""

    def _add(self, place: str, entry: Entry) -> None:
        if place not in self.files and len(self.files) >= _MOST_FILES:
            self.cut = True
            return
        self.files[place] = entry


class CopiedFiles:
    """Stands for the Files of the DRM provider: it reads the same, and the copier of the moment keeps what it read."""

    def __init__(self, copier: Callable[[], Copier], files: Any) -> None:
        self._copier = copier
        self._files = files

    def read(self, path: str) -> bytes:
        return self._kept(path, self._files.read)

    def read_whole(self, path: str) -> bytes:
        return self._kept(path, self._files.read_whole)

    def names(self, path: str) -> list[str]:
        names: list[str] = self._files.names(path)
        self._copier().folder(path, names)
        return names

    def leads_to(self, path: str) -> str:
        self._copier().link(path)
        name: str = self._files.leads_to(path)
        return name

    def _kept(self, path: str, read: Any) -> bytes:
        try:
            data: bytes = read(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            self._copier().keep(path, Unreadable(error_name(error)))
            raise
        self._copier().keep(path, data)
        return data


def _relative(end: str, place: str) -> str:
    """Return how a link at `place` is written; with the name of its end, which is what some are read for."""
    above, name = os.path.split(end)
    return f"{os.path.relpath(f'/{above}', f'/{os.path.dirname(place)}')}/{name}".removeprefix("./")  # noqa: PTH120 -- as above
