"""Of two providers that see one card, one at a time gives what is counted: joules, throttling, errors."""

import pytest

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.fleet.choice import RETURN_SECONDS
from exporter.model import ErrorEvent, GpuState, Group
from tests.unit.fleet.pair import CARD, Pair


def test_drm_serves_alone_while_the_library_is_down_and_the_total_goes_on() -> None:
    host = Pair(CARD)
    host.run(10, CARD, "amd", "drm")
    before = host.total
    assert before == pytest.approx(9 * 300)
    host.down("amd")
    host.run(4, CARD, "drm")
    assert host.card.provider == "amd", "a worker that is replaced is no outage"
    host.run(6, CARD, "drm")
    shown = host.card
    assert (shown.state, shown.provider, shown.sample.power_watts) == (GpuState.OK, "drm", 301.0)
    assert host.counted == {"amd": 0, "drm": 1, "simulated": 0}
    assert shown.energy.gap_seconds == pytest.approx(6, abs=1)
    assert host.total == pytest.approx(before + 4 * 301, abs=301)
    host.down("amd", up=True)
    host.run(1, CARD, "amd", "drm")
    shown = host.card
    assert (shown.provider, shown.sample.power_watts, shown.sample.utilization_ratio) == ("amd", 300.0, 0.5)
    assert host.counted == {"amd": 1, "drm": 0, "simulated": 0}


def test_the_ledger_goes_back_to_a_library_that_lasts() -> None:
    host = Pair(CARD)
    host.run(10, CARD, "amd", "drm")
    host.down("amd")
    host.run(20, CARD, "drm")
    host.down("amd", up=True)
    gaps = host.card.energy.gap_seconds
    host.run(int(RETURN_SECONDS), CARD, "amd", "drm")
    assert host.card.energy.gap_seconds == gaps
    assert host.fleet.relieved("drm", host.now) == frozenset(), "its readings are those that count"
    assert host.fleet.record(host.now).cards[0].provider == "drm"
    host.run(2, CARD, "amd", "drm")
    assert host.fleet.record(host.now).cards[0].provider == "amd"
    assert host.fleet.relieved("drm", host.now) == {"a1"}
    assert host.card.energy.gap_seconds <= gaps + 2


def test_a_library_that_comes_and_goes_costs_one_change() -> None:
    host = Pair(CARD)
    host.run(10, CARD, "amd", "drm")
    host.down("amd")
    host.run(10, CARD, "drm")
    gaps = host.card.energy.gap_seconds
    for _ in range(5):
        host.down("amd", up=True)
        host.run(20, CARD, "amd", "drm")
        host.down("amd")
        host.run(20, CARD, "drm")
    assert host.card.energy.gap_seconds == gaps
    assert host.total == pytest.approx(9 * 300 + (host.card.energy.covered_seconds - 9) * 301)


def test_no_step_of_energy_spans_two_accumulators() -> None:
    host = Pair(CARD)
    for second in range(80):
        host.wait(1)
        host.read(CARD, Group.ENERGY, provider="amd", power_watts=300.0, energy_counter_joules=300.0 * second)
        host.drm(CARD, energy_counter_joules=9e6 + 300.0 * second)
    host.hang("a1", "amd")
    before = host.total
    for second in range(80, 90):
        host.wait(1)
        host.drm(CARD, energy_counter_joules=9e6 + 300.0 * second)
    assert host.total == pytest.approx(before + 9 * 301, abs=302)
    assert not host.card.energy.qualified
    assert host.card.energy.faults == dict.fromkeys(host.card.energy.faults, 0)


def test_power_that_the_preferred_provider_never_gives_is_counted_by_the_other_from_the_first_reading_on() -> None:
    host = Pair(CARD)
    for _ in range(11):
        host.read(CARD, Group.ENERGY, Group.LOAD, provider="amd", utilization_ratio=0.5)
        host.drm(CARD)
        host.wait(1)
    assert host.total == pytest.approx(10 * 301)
    assert (host.card.provider, host.card.sources["power_watts"]) == ("amd", "drm")
    assert host.fleet.relieved("drm", host.now) == frozenset()


def test_the_ledger_waits_for_the_first_reading_of_the_preferred_provider() -> None:
    host = Pair(CARD)
    host.drm(CARD)
    assert host.card.energy is None
    host.wait(1)
    host.both(CARD)
    assert host.fleet.record(host.now).cards[0].provider == "amd"
    late = Pair(CARD)
    late.run(20, CARD, "drm")
    assert late.total > 0, "one that never comes is not waited for"


def test_a_reading_that_breaks_once_moves_nothing() -> None:
    host = Pair(CARD)
    host.run(10, CARD, "amd", "drm")
    host.wait(1)
    host.read(CARD, Group.ENERGY, provider="amd", failed=("power_watts",))
    host.drm(CARD)
    assert host.card.sample.power_watts == 301.0, "what is missing is filled in"
    assert host.fleet.record(host.now).cards[0].provider == "amd"
    host.run(5, CARD, "amd", "drm")
    for _ in range(17):
        host.wait(1)
        host.read(CARD, Group.ENERGY, provider="amd", failed=("power_watts",))
        host.drm(CARD)
    assert host.fleet.record(host.now).cards[0].provider == "drm"


def test_a_preferred_provider_spares_the_other_while_it_delivers() -> None:
    host = Pair(CARD)
    assert host.fleet.relieved("drm", host.now) == frozenset()
    host.both(CARD)
    assert host.fleet.relieved("drm", host.now) == {"a1"}
    assert host.fleet.relieved("amd", host.now) == frozenset()
    host.down("amd")
    assert host.fleet.relieved("drm", host.now) == frozenset(), "at once: its readings are needed soon"
    host.down("amd", up=True)
    host.wait(1)
    host.both(CARD)
    assert host.fleet.relieved("drm", host.now) == {"a1"}
    host.hang("a1", "amd")
    assert host.fleet.relieved("drm", host.now) == frozenset()


def test_a_spared_reading_holds_as_long_as_state_does() -> None:
    host = Pair(CARD)
    host.fleet = Fleet([("amd", True), ("drm", False)], SamplingConfig(state_seconds=60.0))
    for provider in ("amd", "drm"):
        host.fleet.enumerated(provider, (CARD,), host.now)
    host.run(1, CARD, "amd", "drm")
    assert host.fleet.relieved("drm", host.now) == {"a1"}
    host.drm(CARD, power_limit_watts=750.0)
    host.wait(1)
    host.drm(CARD, power_limit_watts=750.0)
    host.run(100, CARD, "amd")
    assert host.card.sample.power_limit_watts == 750.0


def test_throttling_is_counted_from_one_provider_at_a_time() -> None:
    host = Pair(CARD)

    def state(provider: str, seconds: float | None, *, held: bool = True) -> None:
        counters = {} if seconds is None else {"sw_thermal": seconds}
        flags = {"sw_thermal": held}
        host.read(CARD, Group.STATE, provider=provider, throttled=flags, throttle_seconds=counters)

    for step in range(4):
        state("amd", 100.0 + step)
        state("drm", 5.0 + 3 * step)
        host.wait(5)
    assert host.card.throttle_seconds == {"sw_thermal": 3.0}
    host.hang("a1", "amd")
    for step in range(3):
        state("drm", 6.0 + step)
        host.wait(5)
    assert host.card.throttle_seconds == {"sw_thermal": 5.0}
    host.hang("a1", "amd", state=GpuState.OK)
    state("amd", 104.0)
    host.wait(5)
    state("amd", 105.0)
    assert host.card.throttle_seconds == {"sw_thermal": 6.0}


def test_seconds_are_counted_by_flag_where_the_other_provider_has_no_counter() -> None:
    host = Pair(CARD)
    for step in range(2):
        host.read(CARD, Group.STATE, provider="amd", throttle_seconds={"sw_thermal": 7.0 + step})
        host.wait(5)
    host.hang("a1", "amd")
    for _ in range(3):
        host.read(CARD, Group.STATE, provider="drm", throttled={"sw_thermal": True})
        host.wait(5)
    assert host.card.throttle_seconds == {"sw_thermal": pytest.approx(11.0)}


def test_an_error_that_both_report_is_one() -> None:
    host = Pair(CARD)
    event = ErrorEvent(kind="ras", code="umc")
    for provider in ("amd", "drm"):
        host.read(CARD, Group.STATE, provider=provider, error_event_kinds=("ras",), error_events=(event,))
    assert host.card.error_events["ras", "umc"] == 1
    host.hang("a1", "amd")
    host.read(CARD, Group.STATE, provider="drm", error_event_kinds=("ras",), error_events=(event,))
    assert host.card.error_events["ras", "umc"] == 2


def test_no_step_spans_two_providers_over_a_restart() -> None:
    host = Pair(CARD)
    host.run(70, CARD, "amd", "drm")
    record = host.fleet.record(host.now)
    assert record.cards[0].provider == "amd"
    after = Pair(now=host.now + 60, listed=())
    after.fleet.restore(record, after.now)
    after.fleet.enumerated("drm", (CARD,), after.now)
    after.fleet.enumerated("amd", (CARD,), after.now)
    after.drm(CARD, energy_counter_joules=1e9)
    assert after.fleet.record(after.now).cards[0].provider == "amd", "it is about to be read"
    after.both(CARD)
    assert after.total == pytest.approx(host.total)
    without = Pair(now=host.now + 60, listed=())
    without.fleet.restore(record, without.now)
    without.fleet.enumerated("drm", (CARD,), without.now)
    without.down("amd")
    without.run(3, CARD, "drm")
    assert without.fleet.record(without.now).cards[0].provider == "drm"
    assert without.total == pytest.approx(host.total + 2 * 301)
