"""Which processes have series of their own, and that no byte is lost on those that have none."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import ProcessesConfig, SamplingConfig
from exporter.fleet import Fleet
from exporter.fleet.processes import LEAD, OTHER, Selection, Shown
from exporter.fleet.tenants import claims
from exporter.model import Group, Owner, ProcessSample, ProcessSeries, Workload
from exporter.text import LONGEST
from tests.unit.fleet.hosts import Host, card
from tests.unit.fleet.tenants import attribution, owner, pod, process

GB = 1e9
NOBODY = claims(attribution()).owners


def selected(*processes: ProcessSample, owners: tuple[Owner, ...] = (), **config: Any) -> Shown:
    return Selection(ProcessesConfig(**config)).choose(processes, claims(attribution(*owners)).owners)


def bytes_by_pid(shown: Shown) -> dict[str, float | None]:
    return {series.pid: series.memory_used_bytes for series in shown.series}


def test_those_that_hold_the_most_are_shown_and_the_rest_is_one() -> None:
    shown = selected(*(process(pid, memory=pid * GB) for pid in range(1, 6)), top=2)
    assert bytes_by_pid(shown) == {"4": 4 * GB, "5": 5 * GB, OTHER: 6 * GB}
    assert shown.series[-1] == ProcessSeries(pid=OTHER, name=OTHER, memory_used_bytes=6 * GB)
    assert (shown.summed, shown.unnamed) == (3, 3)
    assert [one.pid for one in shown.owners] == [4, 5]


def test_without_a_rest_there_is_no_series_of_it() -> None:
    shown = selected(process(1), process(2), top=2)
    assert bytes_by_pid(shown) == {"1": GB, "2": GB}
    assert shown.summed == 0


def test_all_can_be_one() -> None:
    assert bytes_by_pid(selected(process(1), process(2), top=0)) == {OTHER: 2 * GB}


def test_small_ones_are_summed_with_the_rest() -> None:
    shown = selected(process(1, memory=5.0), process(2, memory=4.0), process(3, memory=None), minimum_bytes=5)
    assert bytes_by_pid(shown) == {"1": 5.0, OTHER: 4.0}


def test_names_that_the_page_shows_alike_are_one() -> None:
    names = ["train", "train\x01", "\x7ftrain", "n" * LONGEST + "a", "n" * LONGEST + "b", "caf\udcc3", "caf\udca9"]
    found = [process(pid, memory=GB, name=name) for pid, name in enumerate(names)]
    assert {series.name: series.memory_used_bytes for series in selected(*found, labels=("name",)).series} == {
        "train": 3 * GB,
        "n" * LONGEST: 2 * GB,
        "caf\N{REPLACEMENT CHARACTER}": 2 * GB,
    }


def test_unknown_memory_has_no_series_and_an_owner_where_there_is_room() -> None:
    shown = selected(process(1, memory=None), process(2, memory=0.0), top=2)
    assert bytes_by_pid(shown) == {"2": 0.0}
    assert [one.pid for one in shown.owners] == [1, 2]
    shown = selected(process(1, memory=None), process(2, memory=0.0), top=1)
    assert [one.pid for one in shown.owners] == [2]
    assert (shown.summed, shown.unnamed) == (0, 1)


def test_one_pid_in_two_partitions_is_one_series() -> None:
    shown = selected(process(1, memory=GB, partition="gi1"), process(1, memory=2 * GB, partition="gi2"))
    assert bytes_by_pid(shown) == {"1": 3 * GB}


@pytest.mark.parametrize(
    ("labels", "series"),
    [
        ((), {(): 6 * GB}),
        (("name",), {("python",): 3 * GB, ("blender",): 3 * GB}),
        (("user",), {("ann",): 3 * GB, ("",): 3 * GB}),
        (("workload", "user"), {("pod/lab/a/main", "ann"): GB, ("", "ann"): 2 * GB, ("", ""): 3 * GB}),
        (("name", "name"), {("python",): 3 * GB, ("blender",): 3 * GB}),
    ],
)
def test_processes_that_agree_in_the_labels_are_summed(
    labels: tuple[str, ...], series: dict[tuple[str, ...], float]
) -> None:
    shown = selected(
        process(1, memory=GB),
        process(2, memory=2 * GB),
        process(3, memory=3 * GB, name="blender"),
        owners=(owner(1, "a"), owner(2, None)),
        labels=labels,
    )
    chosen = tuple(dict.fromkeys(labels))
    found = {tuple(getattr(one, name) for name in chosen): one.memory_used_bytes for one in shown.series}
    assert found == series
    assert shown.owners == ()
    assert shown.unnamed == 0


def test_a_real_name_that_is_that_of_the_rest_is_summed_with_it() -> None:
    shown = selected(process(1, memory=9.0, name=OTHER), process(2, memory=4.0), top=1, labels=("name",))
    assert [(one.name, one.memory_used_bytes) for one in shown.series] == [(OTHER, 13.0)]


def test_an_owner_is_attached_only_to_the_process_that_started_then() -> None:
    mine = owner(1, "a")
    assert selected(process(1), owners=(mine,)).owners == (
        Owner(pid=1, started=100, name="python", user="ann", workload=pod("a")),
    )
    for started in (101, None):
        (shown,) = selected(process(1, started=started), owners=(mine,)).owners
        assert (shown.name, shown.user, shown.workload) == ("python", "", None)
    unknown = Owner(pid=1, user="ann")
    (shown,) = selected(process(1, started=None), owners=(unknown,)).owners
    assert shown.user == ""


def test_the_name_is_that_of_the_provider_else_that_of_the_owner() -> None:
    named = Owner(pid=1, started=100, name="from-proc")
    assert selected(process(1), owners=(named,)).owners[0].name == "python"
    assert selected(process(1, name=None), owners=(named,)).series[0].name == "from-proc"
    assert selected(process(1, name=None)).series[0].name == ""


def test_those_that_are_shown_stay_while_it_is_close() -> None:
    selection = Selection(ProcessesConfig(top=1))

    def look(*memory: float) -> str:
        shown = selection.choose([process(pid, memory=size) for pid, size in enumerate(memory, 1)], NOBODY)
        return shown.series[0].pid

    assert look(100.0, 100.0) == "1"
    assert look(100.0, 109.0) == "1"
    assert look(100.0, 100.0 * LEAD + 1) == "2"
    assert look(105.0, 100.0) == "2"
    assert look(112.0, 100.0) == "1"


def test_among_equals_the_lowest_pid_is_shown_whatever_the_order() -> None:
    for order in ((9, 10, 2), (2, 9, 10), (10, 2, 9)):
        assert list(bytes_by_pid(selected(*(process(pid) for pid in order), top=2))) == ["2", "9", OTHER]


processes = st.lists(
    st.builds(
        process,
        st.integers(1, 12),
        memory=st.none() | st.integers(0, 1 << 40).map(float),
        name=st.sampled_from(["python", "blender", OTHER, "", None]),
        started=st.sampled_from([None, 1, 2]),
    ),
    max_size=30,
)
owners = st.lists(
    st.builds(owner, st.integers(1, 12), st.sampled_from([None, "a", "b"]), st.integers(1, 2)), max_size=8
)
configs = st.builds(
    ProcessesConfig,
    top=st.integers(0, 5),
    labels=st.lists(st.sampled_from(["pid", "name", "user", "workload"]), max_size=4).map(tuple),
    minimum_bytes=st.sampled_from([0, 1 << 20, 1 << 39]),
)


@given(configs, st.lists(processes, min_size=1, max_size=3), owners)
def test_the_sum_of_all_series_is_the_memory_of_all_processes(
    config: ProcessesConfig, looks: list[list[ProcessSample]], whose: list[Owner]
) -> None:
    selection = Selection(config)
    for found in looks:
        shown = selection.choose(found, claims(attribution(*whose)).owners)
        assert sum(one.memory_used_bytes or 0.0 for one in shown.series) == sum(
            p.memory_used_bytes or 0.0 for p in found
        )
        labels = [tuple(getattr(one, label) for label in config.labels) for one in shown.series]
        assert len(set(labels)) == len(labels) <= config.top + 1
        assert len(shown.owners) <= config.top
        assert not any(one.memory_used_bytes is None for one in shown.series)
        assert (OTHER,) * len(config.labels) in labels or not shown.summed


@given(processes, st.randoms())
def test_the_order_of_the_list_is_irrelevant(found: list[ProcessSample], random: Any) -> None:
    by_pid = list({one.pid: one for one in found}.values())
    mixed = by_pid.copy()
    random.shuffle(mixed)
    assert selected(*by_pid, top=3) == selected(*mixed, top=3)


def test_what_is_left_out_is_counted_on_the_page() -> None:
    host = Host(card(1), card(2))
    many = tuple(process(pid, memory=pid * GB) for pid in range(1, 21))
    host.read(card(1), Group.PROCESSES, processes=many)
    host.read(card(2), Group.PROCESSES, processes=many[:17])
    assert host.world.series_dropped == {"gpu_process_memory_used_bytes": 5, "gpu_process_info": 5}
    host.wait(40.0)
    assert host.world.series_dropped == {}
    assert host.cards["nvidia0"].process_series == ()


def test_a_fleet_shows_processes_as_configured() -> None:
    host = Host(card(1))
    host.fleet = Fleet([("nvidia", True)], SamplingConfig(), ProcessesConfig(top=1, labels=("user",)))
    host.fleet.enumerated("nvidia", (card(1),), host.now)
    host.read(card(1), Group.PROCESSES, processes=(process(1), process(2, memory=5.0)))
    host.fleet.attributed(attribution(owner(1, "a"), owner(2, "b", user="bob")), host.now)
    shown = host.cards["nvidia0"]
    assert [(one.user, one.memory_used_bytes) for one in shown.process_series] == [("ann", GB), (OTHER, 5.0)]
    assert shown.process_owners == ()


def test_owners_that_become_known_change_the_page_and_nothing_else_does() -> None:
    host = Host(card(1))
    host.read(card(1), Group.PROCESSES, processes=(process(1),))
    before = host.versions
    host.fleet.attributed(attribution(owner(1, "a")), host.now)
    assert "processes" in host.bumped(before)
    assert host.cards["nvidia0"].process_owners[0].workload == pod("a")
    before = host.versions
    host.fleet.attributed(attribution(owner(1, "a"), owner(2, "b")), host.now)
    assert "processes" not in host.bumped(before)


def test_a_workload_has_a_name_only_where_there_is_one() -> None:
    nameless = Workload(key="user/ann", kind="user", user="ann")
    mine = Owner(pid=1, started=100, user="ann", workload=nameless)
    (series,) = selected(process(1), owners=(mine,), labels=("workload",)).series
    assert (series.workload, series.pid, series.user) == ("user/ann", "", "")
