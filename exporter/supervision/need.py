"""Whether the agent of attribution has anything to do, or is to be replaced by a new one: pure.

It has while a source tells what may change by itself, and for a while after a change of the question or of the answer.
Otherwise what it told stands without it until the question is another one, or it is time to look again. Times are
monotonic seconds.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from exporter.attribution.source import NOT_YET
from exporter.model import SourceStatus

PROC = "proc"
"""The source whose answer depends on the processes alone, and is the same as long as they are."""


class Terms(NamedTuple):
    tick_seconds: float = 1.0
    """Between two questions at least: new processes and devices are asked about as soon as one of them is over."""
    quiet_seconds: float = 65.0
    """After a change: a process takes its name, and is moved into its control group, soon after its start. More than
    attribution.proc takes for granted what it has read of one, so that each is looked at once more."""
    recalled_seconds: float = 300.0
    """The same of an agent that a change has called back: a start takes a tenth of a second of a processor, and where
    processes come and go there is to be one in five minutes at most."""
    away_seconds: float = 300.0
    """A control group, the name of a user, or a first pod that uses no GPU may be new without another question."""
    age_seconds: float = 86400.0
    measure_seconds: float = 600.0
    """How often the memory of an agent is measured: one that needs much from the start on is not replaced sooner."""
    memory_bytes: int = 2**28
    """Resident, and backed by no file. 20,000 processes take 40 MiB."""
    kept_seconds: float = 60.0
    """How long what was said last is published while there should be an agent that answers, and is none."""


TERMS = Terms()


class Need:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._changed_at = -math.inf
        self._asked_at: float | None = None
        """When the newest question was asked that all sources have answered; None: this agent was asked none yet."""
        self._polled = False
        self._left_at: float | None = None
        """None: it is there, or it should be."""
        self._recalled = False

    def changed(self, now: float) -> None:
        """Note that the question, or the answer, is another one."""
        self._changed_at = now
        self._recalled = self._recalled or self._left_at is not None

    def told(self, sources: Iterable[SourceStatus], asked_at: float) -> None:
        """Take who answered the newest question, and when that was asked."""
        sources = tuple(sources)
        if is_complete(sources):
            self._asked_at = asked_at
            self._polled = any(status.source != PROC for status in sources)

    def left(self, now: float) -> None:
        """Note that the agent has nothing to do and is ended."""
        self._left_at, self._recalled = now, False

    def begun(self) -> None:
        """Note that an agent is started, or has to be: it is to be heard first."""
        self._left_at = self._asked_at = None

    def lasts(self, now: float) -> bool:
        """Tell whether there is to be an agent."""
        terms = self._terms
        if self._left_at is not None:
            return self._recalled or now - self._left_at >= terms.away_seconds
        if self._asked_at is None or self._polled:
            return True
        return self._asked_at - self._changed_at < (terms.recalled_seconds if self._recalled else terms.quiet_seconds)


def is_complete(sources: Iterable[SourceStatus]) -> bool:
    """Tell whether every source has answered at least once."""
    return all(status.reason != NOT_YET for status in sources)


def worn(terms: Terms, age: float, memory_bytes: int | None) -> str:
    """Return why another agent is to take the place of one; empty: it need not. `memory_bytes` None: not known."""
    if age >= terms.age_seconds:
        return f"it is {age:.0f} s old"
    if memory_bytes is not None and memory_bytes > terms.memory_bytes:
        return f"it holds {memory_bytes / 2**20:.0f} MiB of memory"
    return ""
