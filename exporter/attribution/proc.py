"""Which process is behind a pid that a driver tells, for all of them at once, remembering what was read."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from exporter.attribution.processes import Missing, Seen, is_of_another_user, look_at, started_at
from exporter.attribution.source import Process, Question
from exporter.attribution.users import Users
from exporter.attribution.vantage import HIDDEN, Vantage, vantage

MOST_PROCESSES = 20_000
"""The rest of a question is left out and counted with those that could not be placed."""
REREAD_SECONDS = 60.0
"""A process may take another name, and be moved into another control group."""


class Sights(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the processes of one question."""

    seen: Mapping[Process, Seen] = {}
    """By how they were asked for."""
    users: Mapping[int, str] = {}
    """Names of all users that `seen` mentions."""
    ended: frozenset[Process] = frozenset()
    """Of these nothing needs to be known any more."""
    trouble: str = ""
    """Why not all of them could be looked at, in words without counts."""


class _Known(NamedTuple):
    seen: Seen
    at: float


class Proc:
    """The source "proc". Not to be shared between threads."""

    name = "proc"

    def __init__(self, proc: str, root: str = "/", clock: Callable[[], float] = time.monotonic) -> None:
        """Take where the host's proc is mounted, the root below which we are, and a monotonic clock."""
        self._proc = proc.rstrip("/") or "/"
        # The first is the host's own, for those who may look through it; a proc of a host is often mounted beside its
        # other directories; and the root is the host's where there is no container.
        beside = os.path.dirname(self._proc)  # noqa: PTH120 -- paths are text here, as in all of /proc
        self._users = Users(*(f"{at.rstrip('/')}/etc/passwd" for at in (f"{self._proc}/1/root", beside or "/", root)))
        self._clock = clock
        self._known: dict[Process, _Known] = {}

    def look(self, question: Question) -> Sights:
        """Look at every process of the question. Never raises."""
        asked = dict.fromkeys(process for held in question.held for process in held.processes)
        view = vantage(self._proc)
        if view.foreign:
            self._known.clear()
            return Sights(trouble=view.foreign)
        now = self._clock()
        known: dict[Process, _Known] = {}
        missing: dict[Process, Missing] = {}
        for process in list(asked)[:MOST_PROCESSES]:
            found = self._find(process, view, now)
            if isinstance(found, Missing):
                missing[process] = found
            else:
                known[process] = found
        self._known = known  # what is not asked for any more is forgotten
        self._users.refresh()
        seen = {process: entry.seen for process, entry in known.items()}
        return Sights(
            seen=seen,
            users={uid: self._users.name(uid) for uid in _uids(seen.values())},
            # Where processes may be hidden, one that is not there may be alive.
            ended=frozenset(p for p, why in missing.items() if why is not Missing.DENIED and not view.hiding),
            trouble=_trouble(view, seen.values(), missing.values(), left_out=len(asked) > MOST_PROCESSES),
        )

    def _find(self, process: Process, view: Vantage, now: float) -> _Known | Missing:
        entry = self._known.get(process)
        if entry is not None and now - entry.at < REREAD_SECONDS and self._same(process, entry.seen):
            return entry
        found = look_at(self._proc, process.pid, process.started, private=view.private)
        if found is Missing.ENDED and view.hiding and is_of_another_user(process.pid):
            found = Missing.HIDDEN
        return found if isinstance(found, Missing) else _Known(found, now)

    def _same(self, process: Process, seen: Seen) -> bool:
        """Whether the pid is still of the process that was seen, where whoever asks could not tell when it started."""
        return process.started is not None or started_at(self._proc, process.pid) == seen.started


def _uids(seen: Iterable[Seen]) -> set[int]:
    found = set()
    for process in seen:
        found.add(process.uid)
        if process.place is not None:
            found.add(process.place.uid)
    return {uid for uid in found if uid is not None}


def _trouble(view: Vantage, seen: Collection[Seen], missing: Collection[Missing], *, left_out: bool) -> str:
    # A capability shows what hidepid hides: who sees one process of another user sees those that are asked for.
    others = any(process.uid != os.geteuid() for process in seen)
    if Missing.HIDDEN in missing or (view.hiding and not others):
        return HIDDEN
    if Missing.DENIED in missing:
        return "some processes may not be looked at: permission denied"
    return f"there are more than {MOST_PROCESSES} processes" if left_out else ""
