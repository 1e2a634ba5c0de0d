"""Errors that a simulated driver reports, links, fabric, recovery, profiling, and bytes over PCIe."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.model import ErrorEvent, Fabric, Group, Sample
from exporter.providers.protocol import OpenContext
from exporter.providers.simulated.events import event_rows, happened
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import open_machine
from exporter.providers.simulated.scenario import ScenarioError, load_scenario

STATE, ENERGY, PROFILING = (frozenset({group}) for group in (Group.STATE, Group.ENERGY, Group.PROFILING))


class Bench:
    """The first device of a scenario, at a time that is set by hand."""

    def __init__(self, scenario: str, *, at: float = 0.0, pcie_bytes: bool = False) -> None:
        self.at = at
        self.machine = Machine(load_scenario(scenario), epoch=0.0)
        context = OpenContext(between_calls=lambda: None, pcie_bytes=pcie_bytes)
        self.provider = open_machine(self.machine, context, clock=lambda: self.at).provider
        self.device = self.provider.devices()[0]

    def read(self, at: float, groups: frozenset[Group] = STATE) -> Sample:
        self.at = at
        return self.provider.read(self.device, groups)


def xid(code: int, count: int = 1) -> ErrorEvent:
    return ErrorEvent(kind="xid", code=str(code), count=count)


def test_errors_are_handed_out_once_and_none_from_before_the_start() -> None:
    faults = "[{kind: event, code: 13, from_seconds: 5}, {kind: event, code: 31, from_seconds: 20}]"
    bench = Bench(f"devices: [{{model: H100-SXM, faults: {faults}}}]", at=10.0)
    assert bench.read(19.0) == bench.read(19.0)
    assert bench.read(19.0).error_event_kinds == ("xid",)
    assert bench.read(20.0, ENERGY).error_events == (xid(31),)
    assert bench.read(21.0).error_events == ()


def test_errors_that_are_repeated_are_counted() -> None:
    repeated = "{kind: event, code: 94, from_seconds: 10, to_seconds: 40, every_seconds: 10, lasting_seconds: 1}"
    bench = Bench(f"devices: [{{model: H100-SXM, faults: [{repeated}]}}]")
    assert bench.read(25.0).error_events == (xid(94, 2),)
    assert bench.read(100.0).error_events == (xid(94),)


def test_a_gpu_that_is_lost_says_why() -> None:
    faults = "[{kind: event, code: 79, from_seconds: 9}, {kind: lost, from_seconds: 10}]"
    bench = Bench(f"devices: [{{model: H100-SXM, faults: {faults}}}]")
    sample = bench.read(11.0)
    assert (sample.lost, sample.error_events) == (True, (xid(79),))
    assert bench.read(12.0).error_events == ()


def test_errors_of_amd_have_kinds_of_their_own() -> None:
    faults = "[{kind: event, code: 4, from_seconds: 1}, {kind: event, event: afid, code: 30, from_seconds: 1}]"
    bench = Bench(f"devices: [{{model: MI300X, faults: {faults}}}]")
    sample = bench.read(2.0)
    assert sample.error_event_kinds == ("afid", "ras")
    assert sample.error_events == (ErrorEvent(kind="ras", code="4"), ErrorEvent(kind="afid", code="30"))


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("{kind: event}", "code: needed by the fault event"),
        ("{kind: lost, code: 79}", "code: used only by the fault event"),
        ("{kind: lost, event: xid}", "event: used only by the fault event"),
        ("{kind: event, code: -1}", "code: expected"),
    ],
)
def test_an_error_needs_a_code_and_nothing_else_has_one(fault: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load_scenario(f"devices: [{{model: H100-SXM, faults: [{fault}]}}]")


def test_an_error_is_of_a_device() -> None:
    with pytest.raises(ScenarioError, match="event is a fault of a device"):
        load_scenario("faults: [{kind: event, code: 79}]\ndevices: [{model: H100-SXM}]")


times = st.floats(0, 200)


@given(times, st.lists(times, min_size=1, max_size=8), st.integers(0, 50), st.none() | st.integers(1, 20))
def test_every_error_is_in_one_reading(start: float, reads: list[float], at: int, every: int | None) -> None:
    repeat = f", every_seconds: {every}, lasting_seconds: 0.5, to_seconds: 120" if every else ""
    text = f"devices: [{{model: H100-SXM, faults: [{{kind: event, code: 8, from_seconds: {at}{repeat}}}]}}]"
    scenario = load_scenario(text)
    (device,) = Machine(scenario, epoch=0.0).devices
    assert list(event_rows(scenario.devices[0].faults, "nvidia")) == [r for r in device.rows if r.kind == "event"]
    moments = [start, *sorted(start + later for later in reads)]
    counted = sum(e.count for a, b in pairwise(moments) for e in happened(device, a, b))
    # The brute force: each whole second at which it happens.
    all_of_it = [at] if every is None else list(range(at, 120, every))
    assert counted == sum(moments[0] < moment <= moments[-1] for moment in all_of_it)


@pytest.mark.parametrize(
    ("model", "kind", "count", "errors"),
    [
        ("H100-SXM", "nvlink", 18, {"crc", "recovery", "replay"}),
        ("A100-SXM", "nvlink", 12, {"crc", "recovery", "replay"}),
        ("GB200", "nvlink", 18, {"recovery", "replay", "symbol"}),
        ("MI300X", "xgmi", 7, set()),
    ],
)
def test_links_carry_bytes_with_the_load(model: str, kind: str, count: int, errors: set[str]) -> None:
    bench = Bench(f"devices: [{{model: {model}, load: {{pattern: constant}}, values: {{links_down: 1}}}}]")
    first, second = bench.read(10.0).links, bench.read(20.0).links
    assert first is not None
    assert second is not None
    assert [link.up for link in second] == [True] * (count - 1) + [False]
    assert {(link.kind, *link.errors) for link in second} == {(kind, *sorted(errors))}
    for before, after in zip(first, second, strict=True):
        assert (after.receive_bytes or 0) - (before.receive_bytes or 0) == pytest.approx(6e10, rel=0.01)
        assert (after.transmit_bytes or 0) > (before.transmit_bytes or 0)


def test_a_card_without_links_does_not_tell() -> None:
    assert Bench("devices: [{model: T4}]").read(1.0).links is None
    assert Bench("devices: [{model: T4, values: {link_count: 0}}]").read(1.0).links == ()


def test_fabric_and_recovery() -> None:
    sample = Bench("devices: [{model: GB200, values: {recovery_action: 1}}]").read(1.0)
    cluster = "a3f1c2d4-5b60-4a7e-8c91-0d2e3f4a5b6c"
    assert sample.fabric == Fabric(state="completed", cluster_uuid=cluster, clique=32766)
    assert sample.recovery_action == "gpu_reset"
    assert Bench("devices: [{model: H100-SXM, values: {fabric_state: 1}}]").read(1.0).fabric == Fabric(
        state="not_started"
    )
    assert Bench("devices: [{model: A100-SXM}]").read(1.0).fabric is None
    assert Bench("devices: [{model: H100-SXM, values: {recovery_action: 99}}]").read(1.0).recovery_action is None


def test_profiling_follows_the_load() -> None:
    load = "load: {pattern: constant, watts: 735}"
    sample = Bench(f"devices: [{{model: H100-SXM, {load}, partitions: [{{profile: 1g.10gb}}]}}]").read(10, PROFILING)
    assert (sample.sm_active_ratio, sample.dram_active_ratio) == (0.94, 0.6)
    assert sample.partition_sm_active_ratio == {"gi1": 0.94}
    assert Bench("devices: [{model: H100-SXM}]").read(10, PROFILING).sm_active_ratio == 0.0
    assert Bench(f"devices: [{{model: A100-SXM, {load}}}]").read(10, PROFILING).sm_active_ratio is None


def test_bytes_over_pcie_are_told_where_they_are_asked_for() -> None:
    scenario = "devices: [{model: H100-SXM, load: {pattern: constant}}]"
    assert Bench(scenario).read(10.0).pcie_receive_bytes is None
    sample = Bench(scenario, pcie_bytes=True).read(10.0)
    assert sample.pcie_receive_bytes == sample.pcie_transmit_bytes == pytest.approx(2e10, rel=0.01)


def test_a_record_of_amds_driver_is_named_by_its_severity() -> None:
    faults = "[{kind: event, code: 1, from_seconds: 5}, {kind: event, code: 0, from_seconds: 6}]"
    machine = Machine(load_scenario(f"devices: [{{model: MI300X, faults: {faults}}}]\n", name="one.yaml"), 0.0)
    (device,) = machine.devices
    assert {event.code for event in happened(device, 0.0, 10.0)} == {"fatal", "non_fatal_uncorrected"}
    assert {event.kind for event in happened(device, 0.0, 10.0)} == {"ras"}
