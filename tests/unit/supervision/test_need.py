"""When there is an agent of attribution, second by second, beside a parent that asks it as the real one does."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.attribution.proc import REREAD_SECONDS
from exporter.attribution.source import NOT_YET
from exporter.model import SourceStatus
from exporter.supervision.need import TERMS, Need, is_complete, worn

INTERVAL = 10.0
PROC = SourceStatus(source="proc", up=True)
KUBELET = SourceStatus(source="kubelet", up=True)
SILENT = SourceStatus(source="kubelet", up=False, reason=NOT_YET)


class Parent:
    """Starts, asks and ends an agent that answers at once."""

    def __init__(self, *sources: SourceStatus) -> None:
        self.need = Need(TERMS)
        self.now = 0.0
        self.sources = sources or (PROC,)
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.there = False
        self.changed_at = 0.0
        self.told: tuple[SourceStatus, ...] = ()
        self._asked_at = 0.0

    def second(self, *, change: bool = False) -> None:
        """Let one second pass; `change`: a process comes or goes."""
        self.now += 1
        if change:
            self.changed_at = self.now
            self.need.changed(self.now)
        begins = not self.there and self.need.lasts(self.now)
        if begins:
            self.need.begun()
            self.starts.append(self.now)
            self.there = True
        if not self.there:
            return
        if begins or change or self.now - self._asked_at >= INTERVAL:
            self._asked_at = self.now
            if self.told != self.sources:
                self.changed_at = self.now
                self.need.changed(self.now)
            self.told = self.sources
            self.need.told(self.told, self.now)
        elif not self.need.lasts(self.now):
            self.need.left(self.now)
            self.ends.append(self.now)
            self.there = False

    def until_it_leaves(self) -> None:
        before = len(self.ends)
        while len(self.ends) == before:
            self.second()
            assert self.now < 1e5

    def seconds(self, count: float) -> Iterator[float]:
        until = self.now + count
        while self.now < until:
            self.second()
            yield self.now


def test_agent_leaves_when_everything_has_been_the_same_for_a_while() -> None:
    parent = Parent()
    parent.second(change=True)
    parent.until_it_leaves()
    assert TERMS.quiet_seconds < parent.now - parent.changed_at <= TERMS.quiet_seconds + INTERVAL + 1


def test_every_process_is_read_again_before_the_agent_leaves() -> None:
    assert TERMS.quiet_seconds > REREAD_SECONDS + 1


def test_another_process_calls_the_agent_back_at_once_and_for_longer() -> None:
    parent = Parent()
    parent.until_it_leaves()
    for _ in parent.seconds(50):
        assert not parent.there
    parent.second(change=True)
    assert parent.there
    parent.until_it_leaves()
    assert parent.now - parent.changed_at > TERMS.recalled_seconds


def test_agent_looks_again_every_so_often_and_leaves_as_soon_as_it_has_told_the_same() -> None:
    parent = Parent()
    parent.until_it_leaves()
    for start in range(1, 5):
        (*_, left) = parent.ends
        parent.until_it_leaves()
        assert parent.starts[start] == left + TERMS.away_seconds
        assert parent.ends[start] == parent.starts[start] + 1


def test_agent_that_finds_something_else_stays_for_a_while() -> None:
    parent = Parent()
    parent.until_it_leaves()
    parent.sources = (SourceStatus(source="proc", up=False, reason="proc hides the processes of other users"),)
    parent.until_it_leaves()
    assert parent.ends[1] - parent.starts[1] > TERMS.quiet_seconds


def test_agent_stays_while_a_source_is_there_that_changes_by_itself() -> None:
    parent = Parent(PROC, KUBELET)
    for _ in parent.seconds(2000):
        assert parent.there
    assert len(parent.starts) == 1


def test_kubelet_that_comes_is_found_at_the_next_look_and_keeps_the_agent() -> None:
    parent = Parent()
    parent.until_it_leaves()
    parent.sources = (PROC, KUBELET)
    for _ in parent.seconds(TERMS.away_seconds):
        pass
    for _ in parent.seconds(1000):
        assert parent.there


def test_agent_stays_until_every_source_has_answered() -> None:
    parent = Parent(PROC, SILENT)
    for _ in parent.seconds(200):
        assert parent.there
    assert not is_complete(parent.sources)
    parent.sources = (PROC,)
    parent.until_it_leaves()


def test_agent_that_is_gone_unasked_is_wanted_back() -> None:
    need = Need(TERMS)
    need.told([PROC], 1000.0)
    assert not need.lasts(1000.0)
    need.begun()
    assert need.lasts(1000.0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["change", "kubelet", "no kubelet", "nothing"]), st.integers(1, 400)), max_size=12
    )
)
def test_agent_is_there_for_what_changes_and_is_seldom_started(history: list[tuple[str, int]]) -> None:
    parent = Parent()
    polled_at: float | None = None
    for event, seconds in history:
        if event in ("kubelet", "no kubelet"):
            parent.sources = (PROC, KUBELET) if event == "kubelet" else (PROC,)
            polled_at = None if event == "no kubelet" else parent.now if polled_at is None else polled_at
        if event == "change":
            parent.second(change=True)
        for now in parent.seconds(seconds):
            assert parent.there or now - parent.changed_at >= TERMS.quiet_seconds
            assert parent.there or KUBELET not in parent.told
            assert parent.there or polled_at is None or now - polled_at < TERMS.away_seconds + INTERVAL
    assert len(parent.starts) <= parent.now / TERMS.away_seconds + 2


@pytest.mark.parametrize("gap", [1, 30, 64, 66, 90, 299, 301, 320, 600])
def test_processes_that_come_and_go_do_not_have_it_started_all_the_time(gap: int) -> None:
    parent = Parent()
    while parent.now < 20_000:
        parent.second(change=True)
        for _ in parent.seconds(gap - 1):
            pass
    assert len(parent.starts) <= parent.now / TERMS.recalled_seconds + 2


@pytest.mark.parametrize(
    ("age", "memory", "reason"),
    [
        (TERMS.age_seconds - 1, TERMS.memory_bytes, ""),
        (100.0, None, ""),
        (TERMS.age_seconds, None, "it is 86400 s old"),
        (100.0, TERMS.memory_bytes + 1, "it holds 256 MiB of memory"),
    ],
)
def test_agent_is_replaced_when_it_is_old_or_large(age: float, memory: int | None, reason: str) -> None:
    assert worn(TERMS, age, memory) == reason
