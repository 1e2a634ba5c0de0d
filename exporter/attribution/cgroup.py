"""What the control groups of a process tell of where it runs: pure parsing of /proc/PID/cgroup.

A shape that is not known is None, never a guess. Names below a user's own manager are that user's to choose, so neither
pods nor Slurm jobs are believed there.
"""

import enum
import re
from typing import NamedTuple

import msgspec


class Level(enum.IntEnum):
    """What a process runs in; a higher one says more."""

    ROOT = 0
    """In no group of anybody: what is known is the user that it runs as."""
    HELPER = 1
    """A container runtime's own process beside a container, which is not the workload."""
    USER = 2
    SERVICE = 3
    CONTAINER = 4
    SLURM = 5
    POD = 6


class Place(msgspec.Struct, frozen=True, kw_only=True):
    level: Level
    pod_uid: str = ""
    """With dashes where it has any."""
    container_id: str = ""
    """64 hex digits."""
    slurm_job: str = ""
    unit: str = ""
    """systemd's name of the service or scope."""
    uid: int | None = None
    """Whose session, user service, rootless container or Slurm job it is; None: of nobody in particular."""


class _Line(NamedTuple):
    """One line of the file."""

    relative: bool
    """It begins above the control group namespace of whoever reads."""
    parts: tuple[str, ...]


_HEX = r"[0-9a-f]{64}"
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
# With the systemd driver a pod's slice repeats the names of those above it, which for kind begin with `kubelet-`.
_POD = re.compile(rf"(?:(?:.+-)?kubepods-(?:burstable-|besteffort-)?)?pod({_UID})(?:\.slice)?")
_CONTAINER = re.compile(
    rf"(?:cri-containerd|containerd|crio|docker|libpod|nerdctl)-({_HEX})(?:\.scope)?|libpod-payload-({_HEX})"
)
_HELPER = re.compile(rf"(?:crio|libpod)-conmon-{_HEX}(?:\.scope)?")
_BARE = re.compile(_HEX)
_BARE_PARENTS = frozenset({"docker", "cri-containerd", "libpod", "libpod_parent"})
_SLURM_V1 = re.compile(r"slurm(?:_.+)?")
_SLURM_V2 = re.compile(r"(?:.+_)?slurmstepd\.scope")
_SLURM_UID = re.compile(r"uid_([0-9]{1,10})")
_SLURM_JOB = re.compile(r"job_([0-9]{1,10})")
_USER_SLICE = re.compile(r"user-([0-9]{1,10})\.slice")
_USER_MANAGER = re.compile(r"user@([0-9]{1,10})\.service")
# A page leaves control characters out: two names that differ in those alone would be one there.
_TEXT = r"[^\x00-\x1f\x7f-\x9f]+"
_UNIT = re.compile(rf"{_TEXT}\.(?:service|scope|socket|mount|swap)")
_USER_UNIT = re.compile(rf"{_TEXT}\.service")
_LIBVIRT = re.compile(rf"{_TEXT}\.libvirt-(?:qemu|lxc)")
# containerd on v1, where it is told a slice and does not ask systemd for a scope.
_WITH_COLONS = re.compile(rf"[^:]+\.slice:[^:]+:{_HEX}")
# What a desktop starts for its user, one unit for each start: systemd.io/DESKTOP_ENVIRONMENTS.
_DESKTOP_APP = re.compile(r"app-.+")
_NO_SERVICES_OF_A_USER = frozenset({"init.scope", "session.slice", "background.slice"})


def parse(text: str, *, private: bool = False) -> Place | None:
    """Return what the lines of /proc/PID/cgroup tell, v1, v2 or both; None: no line has a shape that is known.

    `private`: whoever read it is in a control group namespace of its own, where `/` is its own group.
    """
    best: Place | None = None
    unknown = False
    for line in text.split("\n"):  # names may hold all else that ends a line elsewhere
        path = line.partition(":")[2].partition(":")[2]
        if not path.startswith("/"):
            continue
        place = _place(_line(path), private=private)
        if place is None:
            unknown = True
        elif best is None or place.level > best.level:
            best = place
    if best is not None and best.level is Level.ROOT and unknown:
        return None
    return best


def _line(path: str) -> _Line:
    # A group that was removed while a process was still in it is marked so.
    pieces = path.removesuffix(" (deleted)").split("/")
    parts = [part for piece in pieces for part in (piece.split(":") if _WITH_COLONS.fullmatch(piece) else (piece,))]
    return _Line(relative=".." in parts, parts=tuple(part for part in parts if part not in ("", "..")))


def _place(line: _Line, *, private: bool) -> Place | None:
    if not line.parts:
        return None if private and not line.relative else Place(level=Level.ROOT)
    if private and not line.relative:
        return None  # below our own group, whose name is not shown
    user = _user(line.parts)
    return _in_system(line.parts) if user is None else _of_user(line.parts[user:])


def _user(parts: tuple[str, ...]) -> int | None:
    """Return where the names begin that a user chooses, or that belong to a user's session."""
    for position, part in enumerate(parts):
        if _USER_MANAGER.fullmatch(part) or _USER_SLICE.fullmatch(part):
            return position
        if _POD.fullmatch(part) or _container_id(parts, position):
            return None
    return None


def _of_user(parts: tuple[str, ...]) -> Place:
    match = _USER_MANAGER.fullmatch(parts[0]) or _USER_SLICE.fullmatch(parts[0])
    uid = int(match[1]) if match else None
    unit = ""
    managed = False
    for position, part in enumerate(parts):
        managed = managed or _USER_MANAGER.fullmatch(part) is not None
        if _HELPER.fullmatch(part):
            return Place(level=Level.HELPER, uid=uid)
        if found := _container_id(parts, position):
            return Place(level=Level.CONTAINER, container_id=found, unit=unit, uid=uid)
        if managed and _USER_UNIT.fullmatch(part) and not _USER_MANAGER.fullmatch(part) and not unit:
            unit = part
    if unit and not _DESKTOP_APP.fullmatch(unit) and _NO_SERVICES_OF_A_USER.isdisjoint(parts):
        return Place(level=Level.SERVICE, unit=unit, uid=uid)
    return Place(level=Level.USER, uid=uid)


def _in_system(parts: tuple[str, ...]) -> Place | None:
    found = _Found()
    for position, part in enumerate(parts):
        if not found.takes_of_runtime(parts, position) and not (found.pod or found.container):
            found.take_of_host(part)
    return found.place()


class _Found:
    """What the parts of a path said so far."""

    def __init__(self) -> None:
        self.pod = self.container = self.unit = self.job = ""
        self.uid: int | None = None
        self.helper = self.slurm = False

    def takes_of_runtime(self, parts: tuple[str, ...], position: int) -> bool:
        """Note what a container runtime or the kubelet called a part; tells whether it did."""
        if match := _POD.fullmatch(parts[position]):
            # Of pods in pods the inner one is the owner: a node of kind is a container, or a pod, itself.
            self.pod, self.container, self.helper = match[1].replace("_", "-"), "", False
        elif _HELPER.fullmatch(parts[position]):
            self.helper = True
        elif found := _container_id(parts, position):
            # What runs in a container may run containers: whoever looks from outside knows the outer one.
            self.container = self.container or found
        else:
            return False
        return True

    def take_of_host(self, part: str) -> None:
        """Note what Slurm or systemd called a part."""
        if _SLURM_V1.fullmatch(part) or _SLURM_V2.fullmatch(part):
            self.slurm = True
            self.unit = part if part.endswith(".scope") else ""
        elif self.slurm and not self.job:
            if match := _SLURM_UID.fullmatch(part):
                self.uid = int(match[1])
            elif match := _SLURM_JOB.fullmatch(part):
                self.job = match[1]
        elif not self.unit and (_UNIT.fullmatch(part) or _LIBVIRT.fullmatch(part)):
            self.unit = part

    def place(self) -> Place | None:
        if self.helper and not self.container:
            return Place(level=Level.HELPER, pod_uid=self.pod)
        if self.pod:
            return Place(level=Level.POD, pod_uid=self.pod, container_id=self.container)
        if self.job:
            return Place(
                level=Level.SLURM,
                slurm_job=self.job,
                container_id=self.container,
                uid=self.uid,
            )
        if self.container:
            return Place(level=Level.CONTAINER, container_id=self.container, unit=self.unit)
        return Place(level=Level.SERVICE, unit=self.unit) if self.unit else None


def _container_id(parts: tuple[str, ...], position: int) -> str:
    """Return the id of the container that a part of the path names. A bare number is one where a runtime puts them."""
    part = parts[position]
    if match := _CONTAINER.fullmatch(part):
        return str(match[1] or match[2])
    if not position or not _BARE.fullmatch(part):
        return ""
    parent = parts[position - 1]
    in_task = position > 1 and parts[position - 2] == "ecs"
    return part if parent in _BARE_PARENTS or in_task or _POD.fullmatch(parent) else ""
