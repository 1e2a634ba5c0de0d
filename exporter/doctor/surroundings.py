"""What of this process decides how much it can see and keep: user, device nodes, pid namespace, kubelet, journal."""

import grp
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.attribution.vantage import vantage
from exporter.config import AttributionConfig, Config
from exporter.journal import places
from exporter.kernel import OURSELVES

_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/dri/renderD*")
_GROUPS = ("video", "render")


class Fact(NamedTuple):
    name: str
    value: str
    advice: str = ""
    """What to do about it, or could be done."""
    is_wrong: bool = False


def facts(
    config: Config, environment: Mapping[str, str], root: Path = Path("/"), own: str = OURSELVES
) -> tuple[Fact, ...]:
    """Return what was found out about this process and the host below `root`; `own`: our process in its own proc."""
    return (*_rights(), *_nodes(root), *_owners(config.attribution, root, own), *_journal(config, environment))


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


def _owners(config: AttributionConfig, root: Path, own: str) -> Iterator[Fact]:
    """Yield what decides whether owners are seen. What is wrong there is told by the source that meets it."""
    if not config.enabled:
        yield Fact("attribution", "off: the users of GPUs are not looked up")
        return
    proc = config.proc if root == Path("/") else str(_below(root, config.proc))
    view = vantage(proc, own)
    yield Fact("pid namespace", view.foreign or f"that of the host, by {config.proc}", PIDS if view.foreign else "")
    if config.kubelet_socket is not None:
        yield _kubelet(config.kubelet_socket, _below(root, config.kubelet_socket))


PIDS = "share that of the host (--pid=host, hostPID: true), or mount the host's /proc and set attribution.proc"
KUBELET = "mount the directory of the socket, and run as root or with CAP_DAC_OVERRIDE"


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _kubelet(shown: str, path: Path) -> Fact:
    try:
        is_socket = stat.S_ISSOCK(path.stat().st_mode)
    except PermissionError:
        return Fact("kubelet socket", f"{shown} may not be looked at", KUBELET)
    except OSError:
        return Fact("kubelet socket", f"none at {shown}: not a node of Kubernetes, or it is not mounted")
    if not is_socket:
        return Fact("kubelet socket", f"{shown} is not a socket", "name the right one: attribution.kubelet_socket")
    if not os.access(path, os.W_OK):
        return Fact("kubelet socket", f"{shown} may not be opened", KUBELET)
    return Fact("kubelet socket", f"{shown} may be asked")


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
