"""What of this process decides how much it can see and keep: its user, device nodes, the directories of the journal."""

import grp
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.config import Config
from exporter.journal import places

_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/dri/renderD*")
_GROUPS = ("video", "render")


class Fact(NamedTuple):
    name: str
    value: str
    advice: str = ""
    """What to do about it, or could be done."""
    is_wrong: bool = False


def facts(config: Config, environment: Mapping[str, str], root: Path = Path("/")) -> tuple[Fact, ...]:
    """Return what was found out about this process and the host below `root`."""
    return (*_rights(), *_nodes(root), *_journal(config, environment))


def _rights() -> Iterator[Fact]:
    names = [name for name in _GROUPS if _group(name) in os.getgroups()]
    yield Fact("user", f"uid {os.geteuid()}, groups {', '.join(names) or 'neither video nor render'}")


def _group(name: str) -> int | None:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


def _nodes(root: Path) -> Iterator[Fact]:
    found = [path for pattern in _NODES for path in sorted(root.glob(pattern)) if _is_device(path)]
    closed = [path for path in found if not os.access(path, os.R_OK | os.W_OK)]
    if not found:
        yield Fact("device nodes", "none of /dev/nvidia* and /dev/dri/renderD*")
    elif closed:
        shown = ", ".join(f"/{path.relative_to(root)}" for path in closed[:4])
        yield Fact(
            "device nodes",
            f"{len(closed)} of {len(found)} may not be opened: {shown}",
            "join the groups video and render",
            is_wrong=True,
        )
    else:
        yield Fact("device nodes", f"all {len(found)} may be opened")


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


def _journal(config: Config, environment: Mapping[str, str]) -> Iterator[Fact]:
    chosen = places(config.journal, environment)
    if chosen is None:
        yield Fact("journal", "none: totals start at 0 with each start", "name a directory: --journal.directory DIR")
        return
    for place in dict.fromkeys(chosen):
        if os.access(place, os.W_OK | os.X_OK):
            yield Fact("journal", f"{place} may be written")
        else:
            yield Fact(
                "journal", f"{place} may not be written", "let the exporter's user own that directory", is_wrong=True
            )
