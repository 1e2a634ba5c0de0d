"""Whatever tenants do, between any two pages the parts grow by as much as the device's total, and none ever falls."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.energy.sums import Sum
from exporter.fleet.record import FleetRecord, brought_over, impossible
from exporter.model import Attribution, Device, DeviceSnapshot, Group, PartitionSample, ProcessSample, Sample
from tests.unit.fleet.hosts import Host, card
from tests.unit.fleet.tenants import attribution, grant, owner, process

GPUS = (card(1), card(2))
EXACT = 1e-9
"""Of the device's total."""
NAMES = ("a", "b", "c", "d")
PARTS = (
    PartitionSample(partition="0", memory_size_bytes=20e9, utilization_ratio=0.5),
    PartitionSample(partition="1", memory_size_bytes=40e9, utilization_ratio=0.25),
)
BUSY = st.sampled_from([None, None, 0.0, 0.1, 1 / 3, 1.0])
PIDS = st.integers(1, 5)
STARTED = st.sampled_from([None, 1, 2])
"""Few, so that a pid is another process now and then."""

processes = st.none() | st.lists(
    st.builds(process, PIDS, BUSY, started=STARTED, partition=st.sampled_from([None, "0", "1"])), max_size=4
).map(tuple)
owners = st.builds(owner, PIDS, st.sampled_from([*NAMES, None]), st.sampled_from([1, 2]))
grants = st.builds(
    grant,
    st.sampled_from(NAMES),
    st.integers(1, 2),
    st.sampled_from([1.0, 0.5, 1 / 3]),
    st.sampled_from([None, None, "0", "1", "9"]),
)
attributions = st.lists(owners | grants, max_size=6).map(lambda claims: attribution(*claims)) | st.just(Attribution())
EVENTS = st.one_of(
    st.tuples(st.just("draw"), st.integers(1, 30), st.floats(0.01, 700.0), st.sampled_from([None, 0.0, 0.0, 0.4, 1.0])),
    st.tuples(st.just("look"), processes),
    st.tuples(st.just("attribute"), attributions),
    st.tuples(st.just("partition"), st.sampled_from([None, (), PARTS, PARTS[:1], (PartitionSample(partition="0"),)])),
    st.tuples(st.just("pause"), st.sampled_from([0.05, 5.0, 40.0, 179.0, 200.0, 7_000.0])),
    st.tuples(st.sampled_from(["restart", "reboot", "lose", "move", "unlist"])),
)


class Life:
    """A host that is restarted now and then, and the page before."""

    def __init__(self) -> None:
        self.host = Host(*GPUS)
        self.provider = "nvidia"
        self.drawn = 0.0
        """Joules of each GPU since the boot."""
        self.before = self.host.cards
        self.charged: dict[str, Sum] = {gpu: Sum() for gpu in self.before}
        """All that was ever charged to anybody or nobody, by label."""

    def live(self, event: str, *arguments: Any) -> None:
        getattr(self, event)(*arguments)
        self.compare()

    def draw(self, seconds: int, watts: float, load: float | None) -> None:
        for _ in range(seconds):
            self.host.wait(1.0)
            self.drawn += watts
            for gpu in GPUS:
                self.read(gpu, Group.ENERGY, power_watts=watts, power_kind="average", power_window_seconds=1.0)
                self.read(gpu, Group.LOAD, utilization_ratio=load, memory_size_bytes=80e9)

    def look(self, found: tuple[ProcessSample, ...] | None) -> None:
        self.read(GPUS[0], Group.PROCESSES, processes=found)

    def attribute(self, claims: Attribution) -> None:
        self.host.fleet.attributed(claims, self.host.now)

    def partition(self, parts: tuple[PartitionSample, ...] | None) -> None:
        self.read(GPUS[0], Group.STATE, partitions=parts)

    def pause(self, seconds: float) -> None:
        self.host.wait(seconds)

    def restart(self, *, rebooted: bool = False) -> None:
        self.host.wait(0.01)
        record = self.host.fleet.record(self.host.now)
        assert impossible(record, self.host.now) is None
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=FleetRecord)
        now = 10.0 if rebooted else self.host.now + 3.0
        self.host = Host(now=now)
        self.host.fleet.restore(brought_over(kept, now) if rebooted else kept, now)
        self.drawn = 0.0 if rebooted else self.drawn
        self.host.down()
        self.host.fleet.enumerated(self.provider, GPUS, now)

    def reboot(self) -> None:
        self.restart(rebooted=True)

    def lose(self) -> None:
        self.host.give(Sample(device=GPUS[0], lost=True), self.provider)

    def move(self) -> None:
        """Let the other provider have the GPUs."""
        gone, self.provider = self.provider, "amd" if self.provider == "nvidia" else "nvidia"
        self.host.fleet.enumerated(gone, (), self.host.now)
        self.host.fleet.enumerated(self.provider, GPUS, self.host.now)

    def unlist(self) -> None:
        self.host.fleet.enumerated(self.provider, GPUS[1:], self.host.now)
        self.host.fleet.enumerated(self.provider, GPUS, self.host.now)

    def read(self, gpu: Device, group: Group, **values: Any) -> None:
        counter = {"energy_counter_joules": 7.0 + self.drawn} if group is Group.ENERGY and gpu is GPUS[0] else {}
        self.host.read(gpu, group, provider=self.provider, **values, **counter)

    def compare(self) -> None:
        after = self.host.cards
        for gpu, shown in after.items():
            # Labels are pinned for a boot; these two GPUs are listed in the same order in each.
            self.grow(gpu, self.before[gpu], shown)
        self.before = after

    def grow(self, gpu: str, before: DeviceSnapshot, after: DeviceSnapshot) -> None:
        assert (after.unattributed_joules is None) <= (before.unattributed_joules is None)
        if after.unattributed_joules is None or after.energy is None:
            return
        known, now = _parts(before), _parts(after)
        for part, joules in now.items():
            # What is not there yet begins at 0, on a page.
            assert joules >= known[part] if part in known else joules == 0
            self.charged[gpu] = self.charged[gpu].plus(joules - known.get(part, 0.0))
        total, earlier = after.energy.total_joules, 0.0 if before.energy is None else before.energy.total_joules
        if before.unattributed_joules is None:
            self.charged[gpu] = Sum(total)  # that of before anything was divided is nobody's
            return
        grown = sum(joules - known.get(part, 0.0) for part, joules in now.items())
        assert abs(grown - (total - earlier)) <= EXACT * total
        assert abs(self.charged[gpu].value - total) <= EXACT * total


def _parts(shown: DeviceSnapshot) -> dict[tuple[str, str], float]:
    parts = {("nobody", ""): shown.unattributed_joules or 0.0}
    for one in shown.workloads:
        parts[one.workload.key, "active"] = one.active_joules or 0.0
        parts[one.workload.key, "idle"] = one.idle_joules or 0.0
    return parts


@settings(deadline=None, max_examples=300)
@given(st.lists(EVENTS, max_size=30))
@example(
    [
        ("draw", 30, 90.0, 0.0),
        ("attribute", attribution(owner(1, "a", 1), owner(2, "b", 1), grant("a"), grant("b", 1, 0.5))),
        ("look", (process(1, 1 / 3, started=1), process(2, 0.1, started=1))),
        ("draw", 70, 400.0, 1.0),
        ("look", (process(1, 1 / 3, started=2), process(2, 0.1, started=1))),
        ("restart",),
        ("draw", 5, 300.0, 0.4),
        ("attribute", attribution(owner(1, "c", 2), grant("c", 1, 1.0, "0"))),
        ("pause", 7_000.0),
        ("draw", 2, 300.0, None),
        ("move",),
        ("reboot",),
        ("draw", 30, 100.0, 0.0),
    ]
)
def test_the_parts_grow_by_as_much_as_the_total(events: list[tuple[Any, ...]]) -> None:
    life = Life()
    for event in events:
        life.live(*event)


@settings(deadline=None, max_examples=100)
@given(st.lists(EVENTS, max_size=30), st.integers(1, 5))
def test_no_process_is_charged_to_the_owner_of_another_start(events: list[tuple[Any, ...]], pid: int) -> None:
    """Of one pid only: it is A's with one start time, and never B's, who has it with another."""
    life = Life()
    for event in events:
        match event:
            case ("attribute", _):
                life.live("attribute", attribution(owner(pid, "a", 1), owner(pid, "b", 2)))
            case ("look", found):
                as_a = (msgspec.structs.replace(one, pid=pid) for one in found or () if one.started != 2)
                life.live("look", tuple(as_a))
            case _:
                life.live(*event)
        shown = life.host.cards["nvidia0"]
        assert "pod/lab/b/main" not in {one.workload.key for one in shown.workloads}
        assert not any(one.workload and one.workload.key == "pod/lab/b/main" for one in shown.process_owners)


def test_pages_a_minute_apart_add_up_though_more_come_and_go_than_there_is_room_for() -> None:
    life = Life()
    pages = []
    for minute in range(8):
        for turn in range(6):
            names = (f"{minute}-{turn}-{number}" for number in range(20))
            life.attribute(attribution(*(grant(name, 1, 1 / 20) for name in names)))
            life.draw(10, 100.0, 0.0)
        pages.append(life.host.cards["nvidia0"])
    for before, after in pairwise(pages):
        known, now = _parts(before), _parts(after)
        assert all(joules >= known.get(part, 0.0) for part, joules in now.items())
        assert before.energy is not None
        assert after.energy is not None
        grown = sum(joules - known.get(part, 0.0) for part, joules in now.items())
        assert grown == pytest.approx(after.energy.total_joules - before.energy.total_joules)
    assert {one.workload.k8s_pod[:2] for one in pages[-1].workloads} & {"6-", "7-"}


def test_many_small_steps_stay_exact() -> None:
    """Sums that are carried on for long lose nothing."""
    life = Life()
    life.live("attribute", attribution(owner(1, "a", 1), owner(2, "b", 1), grant("c", 1, 1 / 3)))
    life.live("look", (process(1, 1 / 3, started=1), process(2, 0.1, started=1)))
    for step in range(1_000):
        life.host.wait(1.0)
        for gpu in GPUS:
            life.read(gpu, Group.ENERGY, power_watts=0.1 + step % 7 / 3)
        if step % 10 == 0:
            life.look((process(1, 1 / 3, started=1), process(2, 0.1 + step % 3, started=1)))
        life.compare()
