"""Whether an amdsmi package and a libamd_smi.so belong together.

The package reads the library's structs by the layout of one ROCm release. With another the reads are silently wrong
or end the process: the package of 6.3.3 imports on the libraries of 6.4 and 7.0, and dies of its first power call.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from exporter.providers.sanitise import text

Version = tuple[int, ...]

# The package is numbered as ROCm is (PyPI) or as the library is (the copy that ROCm installs). ROCm has reached 10, the
# library counts from the year 23.
_FIRST_ERA = 20

# First ROCm release of a family -> first library version, in order: a family ends where the next begins. 6.1.2 doubled
# the error counts and replaced the process list; the 6.3.3 library says 25.1, and 6.4.0 is 25.3; 7.1 and 7.2 widened
# the process records, 10.0 the metrics.
_FAMILIES: Sequence[tuple[Version, Version]] = (
    ((6, 0), (23,)),
    ((6, 1), (24,)),
    ((6, 1, 2), (24, 5, 2)),
    ((6, 2), (24, 6)),
    ((6, 3), (24, 7)),
    ((6, 4), (25, 3)),
    ((7, 0), (26, 0)),
    ((7, 1), (26, 1)),
    ((10,), (27,)),
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


def package_release(module: Any) -> Version:
    """Return the first ROCm release of the family that an imported amdsmi package belongs to; () if it is not known."""
    version = numbers(package_version(module))
    if not version or version[0] < _FIRST_ERA:
        return _family(version, 0)
    release = _family(version, 1)
    if release[:2] == (6, 1):
        # The copies in 6.1.1 and 6.1.2 both say 24.5.1; the later one has no handles of processes.
        return (6, 1) if hasattr(module, "amdsmi_get_gpu_process_info") else (6, 1, 2)
    return release


def library_version(answer: Mapping[str, object]) -> Version:
    """Return the version in an answer of amdsmi_get_lib_version; () where it has none.

    Era, then two numbers: up to 6.3 the era is the year, from 6.4 it is `major`. `build` is left out.
    """
    found = [answer.get(name) for name in ("year", "major", "minor", "release")]
    parts = [part for part in found if isinstance(part, int)]
    while parts and parts[0] < _FIRST_ERA:
        del parts[0]
    return tuple(parts[:3])


def version_of_file(maps: str) -> Version:
    """Return the version in the file name of the loaded library, from the text of /proc/self/maps; () if there is none.

    ROCm names the file libamd_smi.so.24.7.60300: era, minor, and the ROCm release, which is left out.
    """
    match = _LIBRARY_FILE.search(maps)
    return (int(match[1]), int(match[2])) if match else ()


def match(release: Version, library: Version) -> bool:
    """Tell whether a package of that family (see `package_release`) has the layouts of this library version."""
    return bool(release) and release == _family(library, 1)


def _family(version: Version, column: Literal[0, 1]) -> Version:
    """Return the first release of the family of a version of ROCm (`column` 0) or of the library (1)."""
    if column and version and version[0] > _FAMILIES[-1][1][0]:
        return version[:1]  # an era that is not known here fits itself alone
    begun = [family for family in _FAMILIES if version and family[column] <= version]
    return begun[-1][0] if begun else ()
