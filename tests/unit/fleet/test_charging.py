"""Accounts are looked at when there is something to charge or to forget, and otherwise not."""

import math
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.fleet.charging import Charging, Seen
from exporter.fleet.tenancy import REFRESH_SECONDS, Room, Tenancy
from exporter.fleet.tenants import NO_CLAIMS, Claims, claims
from exporter.model import Group, PartitionSample, ProcessSample
from tests.unit.fleet.hosts import Host, card
from tests.unit.fleet.tenants import attribution, grant, owner, process

LINGER = 100.0
LIFETIME = 15.0
PROCESSES = (process(1), process(2))
CLAIMS = (
    NO_CLAIMS,
    claims(attribution(owner(1, "a"), owner(2, "b"))),
    claims(attribution(owner(2, "b"), grant("c"))),
    claims(attribution(grant("c", share=0.5, partition="0"))),
)


class Gpu:
    """What is read of one GPU, and its accounts, charged after each reading and claim as a card does."""

    def __init__(self) -> None:
        self.charging = Charging(Tenancy(LINGER, Room()))
        self.now = 1_000.0
        self.joules = self.covered = 0.0
        self.taken = dict.fromkeys(Group, -math.inf)
        self.processes: tuple[ProcessSample, ...] | None = None

    def seen(self) -> Seen:
        """As it is known at this moment: what was read too long ago is not known."""
        known = {group: self.now - at <= LIFETIME for group, at in self.taken.items()}
        return Seen(
            key="GPU-1",
            now=self.now,
            wall=self.now,
            progress=(self.joules, self.covered),
            load=0.5 if known[Group.LOAD] else None,
            busy_seconds=self.joules / 1_000,
            memory_size=80e9 if known[Group.LOAD] else None,
            partitions=(PartitionSample(partition="0"),) if known[Group.STATE] else (),
            processes=self.processes if known[Group.PROCESSES] else None,
            processes_until=self.taken[Group.PROCESSES] + LIFETIME,
        )

    def read(self, group: Group, processes: tuple[ProcessSample, ...] | None = None) -> None:
        self.taken[group] = self.now
        if group is Group.ENERGY:
            self.joules, self.covered = self.joules + 100.0, self.now
        if group is Group.PROCESSES:
            self.processes = processes
        self.charging.sampled([group], self.taken, self.seen())
        self.catch_up()

    def attribute(self, told: Claims) -> None:
        self.charging.attribute(told, self.seen())
        self.catch_up()

    def forget(self) -> None:
        self.charging.forget()

    @property
    def accounts(self) -> tuple[object, ...]:
        tenancy = self.charging.tenancy
        return tenancy.record(), tenancy.snapshots(), tenancy.unattributed_joules

    def catch_up(self) -> bool:
        changed = self.charging.catch_up(self.seen())
        if changed:
            self.charging.tenancy.advance(self.now)
        return changed


EVENTS = st.one_of(
    st.tuples(st.just("read"), st.sampled_from([Group.ENERGY, Group.LOAD, Group.STATE])),
    st.tuples(st.just("read"), st.just(Group.PROCESSES), st.sampled_from([None, (), PROCESSES, PROCESSES[:1]])),
    st.tuples(st.just("attribute"), st.sampled_from(CLAIMS)),
    st.tuples(st.just("forget")),
)
WAITS = st.sampled_from([0.0, 0.25, REFRESH_SECONDS, LIFETIME, LIFETIME + 0.25, LINGER - 1.0, LINGER])


@given(st.lists(st.tuples(EVENTS, st.lists(WAITS, min_size=1, max_size=4)), max_size=12))
def test_time_alone_changes_something_exactly_when_that_is_awaited(
    history: list[tuple[tuple[Any, ...], list[float]]],
) -> None:
    gpu = Gpu()
    for (event, *arguments), waits in history:
        getattr(gpu, event)(*arguments)
        for seconds in waits:
            gpu.now += seconds
            before = gpu.accounts
            awaited = gpu.charging.awaits(gpu.now)
            assert gpu.catch_up() is awaited
            assert awaited or gpu.accounts == before


def calls_of_a_world(host: Host) -> int:
    """How many functions of Python one more page takes."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    earlier = sys.getprofile()
    sys.setprofile(note)
    try:
        host.fleet.world(host.now)
    finally:
        sys.setprofile(earlier)
    return count


@pytest.mark.parametrize("workloads", [1, 50])
def test_a_page_on_which_nothing_changes_takes_no_work_on_accounts(workloads: int) -> None:
    alone, shared = Host(card(1)), Host(card(1))
    shared.fleet.attributed(attribution(*(owner(pid, f"pod-{pid}") for pid in range(workloads))), shared.now)
    for host in (alone, shared):
        host.read(
            card(1),
            *(Group.ENERGY, Group.LOAD, Group.PROCESSES),
            power_watts=300.0,
            utilization_ratio=0.5,
            processes=tuple(map(process, range(workloads))),
        )
    published = shared.cards["nvidia0"]
    assert len(published.workloads) == workloads
    alone.fleet.world(alone.now)
    questions = calls_of_a_world(shared) - calls_of_a_world(alone)
    assert 0 <= questions <= 4  # whether anything is awaited, of whom and since when
    assert shared.cards["nvidia0"] is published
