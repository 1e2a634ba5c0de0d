"""Names of users by their number, from the passwd file of the host."""

import os
import re

from exporter.attribution.files import read_regular

_MOST_BYTES = 4 * 1024 * 1024
_MOST_NAMES = 65_536
_MOST_CHARACTERS = 64
_NUMBER = re.compile(r"[0-9]{1,10}")


class Users:
    """Reads the file again when it has changed. Never raises: a user without a name is `uid N`."""

    def __init__(self, *candidates: str) -> None:
        """Take paths in order of preference: the first that can be read is taken."""
        self._candidates = candidates
        self._version: tuple[str, int, int] | None = None
        self._names: dict[int, str] = {}

    def refresh(self) -> None:
        """Look whether the file has changed."""
        for path in self._candidates:
            try:
                found = os.stat(path)  # noqa: PTH116 -- paths are text here, as in all of /proc
                version = (path, found.st_mtime_ns, found.st_ino)
                if version != self._version:
                    self._names = _parsed(read_regular(path, _MOST_BYTES))
                    self._version = version
            except OSError:
                continue
            return
        self._names, self._version = {}, None

    def name(self, uid: int) -> str:
        return self._names.get(uid, f"uid {uid}")


def _parsed(data: bytes) -> dict[int, str]:
    names: dict[int, str] = {}
    for line in data.decode("utf-8", "replace").split("\n"):
        name, _, rest = line.partition(":")
        number = rest.partition(":")[2].partition(":")[0]
        # Of two lines with one number the first counts, as it does for the C library.
        if name and _NUMBER.fullmatch(number):
            names.setdefault(int(number), name[:_MOST_CHARACTERS])
            if len(names) >= _MOST_NAMES:
                break
    return names
