"""Whether an amdsmi package and a libamd_smi.so belong together.

The package reads the library's structs by the layout of one ROCm release. With another the reads are silently wrong
or end the process: the package of 6.3.3 imports on the libraries of 6.4 and 7.0, and dies of its first power call.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.providers.sanitise import text

Version = tuple[int, ...]

# The package is numbered as ROCm is (PyPI) or as the library is (the copy that ROCm installs). ROCm has reached 10, the
# library counts from the year 23.
_FIRST_LIBRARY_ERA = 20

# ROCm release of the package -> lowest and highest library version that has its layouts (both included, compared over
# as many numbers as are given). 6.1.2 doubled the error counts and replaced the process list within library 24.5;
# 7.1 and 7.2 widened the process records of 7.0, and 10.0 the metrics.
_FAMILIES: Sequence[tuple[Version, Version, Version, Version]] = (
    ((6, 0), (6, 0), (23, 0), (24, 0)),
    ((6, 1, 0), (6, 1, 1), (24, 1), (24, 5, 1)),
    ((6, 1, 2), (6, 1), (24, 5, 2), (24, 5)),
    ((6, 2), (6, 2), (24, 6), (24, 6)),
    ((6, 3), (6, 3), (24, 7), (24, 99)),
    ((6, 4), (6, 4), (25, 0), (25, 99)),
    ((7, 0), (7, 0), (26, 0), (26, 0)),
    ((7, 1), (7, 1), (26, 1), (26, 2)),
    ((7, 2), (9,), (26, 2), (26, 99)),
    ((10,), (19,), (27,), (99,)),
)

_LIBRARY_FILE = re.compile(r"libamd_smi(?:_python)?\.so\.(\d+)\.(\d+)(?:\.(\d+))?")


def numbers(version: str) -> Version:
    """Return the leading numbers of a version such as `24.7.1+0012a68` or `6.2.2.post0`."""
    match = re.match(r"\d+(?:\.\d+)*", version.strip())
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def spoken(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version)) or "unknown"


def package_version(module: Any) -> str:
    """Return the version of an imported amdsmi package: its own word, its metadata, else the release without either."""
    stated = text(getattr(module, "__version__", None))
    if stated and numbers(stated):
        return stated
    folder = Path(getattr(module, "__file__", None) or "/").parent.parent
    for metadata in sorted(folder.glob("amdsmi-*.dist-info")):
        return metadata.name.removeprefix("amdsmi-").removesuffix(".dist-info")
    return "6.0"  # 6.1 brought __version__


def library_version(answer: Mapping[str, object]) -> Version:
    """Return the version in an answer of amdsmi_get_lib_version; () where it has none.

    The first number is the era in every release: the year (`year`, up to 6.3), then `major`. `build` is left out.
    """
    parts = [answer[name] for name in ("year", "major", "minor", "release") if name in answer]
    found = tuple(part for part in parts if isinstance(part, int))
    return found[:3] if found and found[0] >= _FIRST_LIBRARY_ERA else ()


def version_of_file(maps: str) -> Version:
    """Return the version in the file name of the loaded library, from the text of /proc/self/maps; () if there is none.

    ROCm names the file libamd_smi.so.24.7.60300: era, minor, and the ROCm release, which is left out.
    """
    match = _LIBRARY_FILE.search(maps)
    return (int(match[1]), int(match[2])) if match else ()


def match(package: str, library: Version) -> bool:
    """Tell whether a package of this version has the layouts of this library version."""
    wanted = numbers(package)
    if not wanted or not library:
        return False
    if wanted[0] >= _FIRST_LIBRARY_ERA:
        return wanted[:2] == library[:2]
    for first, last, low, high in _FAMILIES:
        if _within(wanted, first, last):
            return _within(library, low, high)
    return False


def _within(version: Version, low: Version, high: Version) -> bool:
    return version[: len(low)] >= low[: len(version)] and version[: len(high)] <= high
