"""Two providers see one card: AMD SMI is preferred, and DRM fills in, or serves alone."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.fleet.choice import RETURN_SECONDS
from exporter.fleet.groups import CUT_OFF_SECONDS
from exporter.model import Device, DeviceSnapshot, ErrorEvent, GpuState, Group, ProcessSample, Sample
from tests.unit.fleet.hosts import ALL, Host, sample

NOW = 1_000.0


def gpu(number: int = 1, **identity: object) -> Device:
    fields = {"vendor": "amd", "key": f"a{number}", "pci_address": f"0000:{number:02x}:00.0", **identity}
    return Device(**fields)


class Pair(Host):
    """A host on which both are open, and both list the cards, unless `only` one does."""

    def __init__(self, *devices: Device, now: float = NOW, listed: tuple[str, ...] = ("amd", "drm")) -> None:
        super().__init__(now=now)
        self.fleet = Fleet([("amd", True), ("drm", False), ("simulated", False)], SamplingConfig())
        for provider in listed:
            self.fleet.enumerated(provider, devices, now)
            self.down(provider, up=True)

    def both(self, device: Device, watts: float = 300.0, **of_drm: object) -> None:
        """Have both read energy and load, DRM with other values."""
        self.read(device, Group.ENERGY, Group.LOAD, provider="amd", power_watts=watts, utilization_ratio=0.5)
        self.drm(device, watts, **of_drm)

    def drm(self, device: Device, watts: float = 300.0, **more: object) -> None:
        readings = {"power_watts": watts + 1, "utilization_ratio": 0.75, **more}
        self.read(device, Group.ENERGY, Group.LOAD, provider="drm", **readings)

    def run(self, seconds: int, device: Device, *providers: str, watts: float = 300.0) -> None:
        for _ in range(seconds):
            self.wait(1.0)
            if "amd" in providers:
                self.read(device, Group.ENERGY, Group.LOAD, provider="amd", power_watts=watts, utilization_ratio=0.5)
            if "drm" in providers:
                self.drm(device, watts)

    @property
    def card(self) -> DeviceSnapshot:
        (shown,) = self.cards.values()
        return shown

    @property
    def total(self) -> float:
        return self.card.energy.total_joules

    @property
    def counted(self) -> dict[str, int]:
        return {snapshot.provider: len(snapshot.devices) for snapshot in self.world.snapshots}


CARD = gpu()


def test_missing_readings_are_filled_in_and_say_where_they_are_from() -> None:
    host = Pair(CARD)
    host.read(CARD, Group.LOAD, Group.STATE, provider="amd", utilization_ratio=0.5)
    host.read(
        CARD,
        Group.LOAD,
        Group.STATE,
        provider="drm",
        utilization_ratio=0.75,
        memory_used_bytes=5.0,
        fan_speed_ratio=0.25,
        sources={"fan_speed_ratio": "hwmon"},
    )
    shown = host.card
    assert (shown.sample.utilization_ratio, shown.sample.memory_used_bytes) == (0.5, 5.0)
    assert shown.sample.fan_speed_ratio == 0.25
    assert shown.sources["utilization_ratio"] == "amd"
    assert shown.sources["memory_used_bytes"] == "drm"
    assert shown.sources["fan_speed_ratio"] == "drm/hwmon"
    assert host.counted == {"amd": 1, "drm": 0, "simulated": 0}


def test_nothing_is_said_of_sources_where_there_is_one() -> None:
    host = Pair(CARD, listed=("amd",))
    host.read(CARD, *ALL, provider="amd", power_watts=9.0)
    assert host.card.sources == {}
    host.read(CARD, Group.ENERGY, provider="amd", power_watts=9.0)
    host = Pair(CARD, listed=("drm",))
    host.down("amd")
    host.read(CARD, Group.ENERGY, provider="drm", power_watts=9.0, sources={"power_watts": "hwmon"})
    assert host.card.sources["power_watts"] == "drm/hwmon"


def test_a_reading_that_grows_too_old_gives_way_to_that_of_the_other() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.run(16, CARD, "drm")
    shown = host.card
    assert shown.state is GpuState.OK
    assert (shown.provider, shown.sample.utilization_ratio, shown.sample.power_watts) == ("drm", 0.75, 301.0)


@pytest.mark.parametrize("first", ["amd", "drm"])
def test_cards_wait_for_the_preferred_provider_so_that_labels_are_the_same(first: str) -> None:
    host = Pair(listed=())
    seen = {"amd": (gpu(2), gpu(3)), "drm": (gpu(2, key="d2"), gpu(3, key="d3"), gpu(1, key="d1"))}
    for provider in (first, "drm" if first == "amd" else "amd"):
        host.fleet.enumerated(provider, seen[provider], host.now)
        if provider == "drm" and first == "drm":
            host.read(gpu(2, key="d2"), Group.ENERGY, provider="drm", power_watts=1.0)
            assert host.cards == {}
        host.down(provider, up=True)
    keys = {label: shown.device.key for label, shown in host.cards.items()}
    assert keys == {"amd0": "a2", "amd1": "a3", "amd2": "d1"}
    host.read(gpu(3, key="d3"), Group.LOAD, provider="drm", utilization_ratio=0.25)
    assert host.cards["amd1"].sample.utilization_ratio == 0.25


def test_cards_that_a_library_serves_are_not_expected_of_drm() -> None:
    host = Pair(CARD)
    host.fleet.enumerated("drm", (CARD, Device(vendor="intel", key="i")), host.now)
    host.fleet.expected("amd", 1)
    host.fleet.expected("drm", 2)
    host.both(CARD)

    def expected() -> dict[str, int | None]:
        return {snapshot.provider: snapshot.devices_expected for snapshot in host.world.snapshots}

    assert expected() == {"amd": 1, "drm": 1, "simulated": None}
    host.hang("a1", "amd")
    before = host.versions
    assert expected() == {"amd": 1, "drm": 2, "simulated": None}
    host.hang("a1", "amd", state=GpuState.OK)
    assert expected()["drm"] == 1
    assert "exporter" in host.bumped(before)


def test_cards_of_a_library_that_cannot_be_opened_are_those_of_drm() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("drm", (gpu(2), gpu(1)), host.now)
    host.down("drm", up=True)
    assert host.cards == {}
    host.down("amd")
    assert {label: shown.device.key for label, shown in host.cards.items()} == {"amd0": "a1", "amd1": "a2"}
    assert host.counted == {"amd": 0, "drm": 2, "simulated": 0}


def test_other_vendors_and_simulated_cards_wait_for_nobody() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("drm", (Device(vendor="intel", key="i", pci_address="0000:05:00.0"), CARD), host.now)
    host.fleet.enumerated("simulated", (gpu(1, key="s"),), host.now)
    assert list(host.cards) == ["intel0", "sim0"]
    host.fleet.enumerated("amd", (CARD,), host.now)
    assert {label: shown.device.key for label, shown in host.cards.items()} == {
        "amd0": "a1",
        "intel0": "i",
        "sim0": "s",
    }


def test_one_card_under_two_keys_is_one_card() -> None:
    host = Pair(listed=())
    host.fleet.enumerated("amd", (CARD,), host.now)
    other = gpu(key="d1", minor=128)
    host.fleet.enumerated("drm", (other,), host.now)
    host.both(CARD)
    host.drm(other)
    assert (host.card.device.key, host.card.device.minor) == ("a1", 128)
    host.hang("d1", "drm")
    assert host.card.state is GpuState.OK, "the other provider does not hang"
    assert host.fleet.relieved("drm", host.now) == {"d1"}


def test_another_card_in_the_slot_is_one_for_both_whoever_sees_it_first() -> None:
    for first, second in (("amd", "drm"), ("drm", "amd")):
        host = Pair(listed=())
        host.fleet.enumerated("amd", (CARD,), host.now)
        host.fleet.enumerated("drm", (gpu(key="d1"),), host.now)
        swapped = {"amd": gpu(key="a9"), "drm": gpu(key="d9")}
        for _ in range(2):
            for provider in (first, second):
                host.fleet.enumerated(provider, (swapped[provider],), host.now)
        assert {label: shown.device.key for label, shown in host.cards.items()} == {
            "amd0": "a1",
            "amd1": swapped[first].key,
        }
        assert host.cards["amd0"].state is GpuState.LOST


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


def test_a_worker_that_starts_and_crashes_again_and_again_gives_no_reading() -> None:
    host = Pair(CARD)
    host.run(3, CARD, "amd", "drm")
    host.down("amd")
    host.run(6, CARD, "drm")
    assert host.card.provider == "drm"
    for _ in range(3):
        host.fleet.enumerated("amd", (CARD,), host.now)
        host.down("amd", up=True)
        assert (host.card.provider, host.card.sample.power_watts) == ("drm", 301.0)
        host.down("amd")
        host.run(2, CARD, "drm")
    host.down("amd", up=True)
    host.run(1, CARD, "amd", "drm")
    assert host.card.provider == "amd"


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


@pytest.mark.parametrize("state", [GpuState.HUNG, GpuState.LOST])
def test_what_a_library_says_is_masked_by_power_load_or_memory_and_by_nothing_less(state: GpuState) -> None:
    def broken(**of_drm: object) -> DeviceSnapshot:
        host = Pair(CARD)
        host.both(CARD)
        host.wait(1)
        if state is GpuState.HUNG:
            host.hang("a1", "amd")
        else:
            host.give(Sample(device=CARD, lost=True), "amd")
        host.read(CARD, *ALL, provider="drm", **of_drm)
        return host.card

    bare = broken(pcie_link_width=16.0, temperature_celsius={"edge": 40.0})
    assert (bare.state, bare.provider) == (state, "amd")
    assert (bare.sample.pcie_link_width, bare.sample.temperature_celsius) == (None, {})
    for readings in ({"power_watts": 9.0}, {"utilization_ratio": 0.0}, {"memory_used_bytes": 1.0}):
        shown = broken(**readings)
        assert (shown.state, shown.provider) == (GpuState.OK, "drm")


def test_a_card_that_only_the_library_has_lost_sight_of_is_drms() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.fleet.enumerated("amd", (), host.now)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "drm")
    host.fleet.enumerated("drm", (), host.now)
    assert host.card.state is GpuState.LOST
    host.fleet.enumerated("amd", (CARD,), host.now)
    host.read(CARD, Group.LOAD, provider="amd", utilization_ratio=0.5)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "amd")


def test_of_a_library_that_is_down_and_a_driver_that_says_it_is_gone_the_driver_is_believed() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.down("amd")
    host.wait(CUT_OFF_SECONDS + 1)
    host.drm(CARD)
    assert host.card.state is GpuState.OK
    host.give(Sample(device=CARD, lost=True), "drm")
    assert host.card.state is GpuState.LOST


def test_a_sleeping_card_sleeps_for_both() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.give(Sample(device=CARD, asleep=True), "amd")
    assert host.card.state is GpuState.ASLEEP
    host.hang("a1", "amd")
    host.give(Sample(device=CARD, asleep=True), "drm")
    assert host.card.state is GpuState.ASLEEP, "it was not woken, and so nothing hangs"


def test_released_and_taken_up_again() -> None:
    host = Pair(CARD)
    host.both(CARD)
    host.fleet.released(True, host.now)
    assert (host.card.state, host.card.sample.power_watts) == (GpuState.RELEASED, None)
    host.fleet.released(False, host.now)
    host.wait(1)
    assert host.card.state is GpuState.RELEASED
    host.drm(CARD)
    assert host.card.state is GpuState.OK
    host.both(CARD)
    assert (host.card.state, host.card.provider) == (GpuState.OK, "amd")


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


WATTS = {"amd": 100.0, "drm": 200.0}
PROVIDERS = st.sampled_from(["amd", "drm"])
STEPS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0.05, 1.0, 4.0, 6.0, 16.0, 70.0])),
    st.tuples(st.just("run"), st.sampled_from([("amd",), ("drm",), ("amd", "drm")]), st.integers(1, 70)),
    st.tuples(st.just("read"), PROVIDERS, st.frozensets(st.sampled_from(ALL)), st.booleans()),
    st.tuples(st.just("late"), PROVIDERS, st.floats(0, 30)),
    st.tuples(
        st.sampled_from(["lost", "asleep", "hang", "clear", "down", "up", "list", "unlist", "rename"]), PROVIDERS
    ),
    st.tuples(st.sampled_from(["release", "take up", "restart"])),
)


class Story:
    """A host that is told anything, and what must hold after each step."""

    def __init__(self) -> None:
        self.host = Pair(listed=())
        self.totals = (0.0, 0.0)
        self.names = {"amd": CARD, "drm": gpu(key="d1")}
        """The card as each provider names it."""
        self._list()

    def _list(self) -> None:
        for provider in ("drm", "amd"):
            self.host.fleet.enumerated(provider, (self.names[provider],), self.host.now)

    def live(self, step: tuple[object, ...]) -> None:  # noqa: C901, PLR0912 -- one case for each kind of step
        host = self.host
        match step:
            case ("wait", seconds):
                host.wait(seconds)
            case ("run", providers, seconds):
                for _ in range(seconds):
                    host.wait(1.0)
                    for provider in providers:
                        self._read(provider, ALL, has_power=True)
                    self._hold()
            case ("read", provider, groups, has_power):
                self._read(provider, tuple(groups), has_power=has_power)
            case ("late", provider, seconds):
                device = self.names[provider]
                host.give(sample(device, host.now - seconds, Group.ENERGY, power_watts=WATTS[provider]), provider)
            case ("lost" | "asleep" as what, provider):
                host.give(Sample(device=self.names[provider], **{what: True}), provider)
            case ("hang" | "clear" as what, provider):
                host.hang(self.names[provider].key, provider, state=GpuState.HUNG if what == "hang" else GpuState.OK)
            case ("down" | "up" as what, provider):
                host.down(provider, up=what == "up")
            case ("list" | "unlist" as what, provider):
                listed = (self.names[provider],) if what == "list" else ()
                host.fleet.enumerated(provider, listed, host.now)
            case ("rename", provider):  # its identity cannot be read for a time
                key = {"amd": "a1", "drm": "d1"}[provider]
                known = self.names[provider].key == key
                self.names[provider] = gpu(key="0000:01:00.0" if known else key)
                self.host.fleet.enumerated(provider, (self.names[provider],), host.now)
            case ("release" | "take up" as what,):
                host.fleet.released(what == "release", host.now)
            case ("restart",):
                record = host.fleet.record(host.now)
                self.host = Pair(now=host.now + 1, listed=())
                self.host.fleet.restore(record, self.host.now)
                self.names = {"amd": CARD, "drm": gpu(key="d1")}
                self._list()
        self._hold()

    def _read(self, provider: str, groups: tuple[Group, ...], *, has_power: bool) -> None:
        host, watts = self.host, WATTS[provider]
        host.read(
            self.names[provider],
            *groups,
            provider=provider,
            power_watts=watts if has_power else None,
            energy_counter_joules={"amd": 1e6, "drm": 9e9}[provider] + watts * host.now if has_power else None,
            utilization_ratio=watts / 1_000,
            memory_used_bytes=None if provider == "amd" else watts,
            processes=(ProcessSample(pid=int(watts)),),
        )

    def _hold(self) -> None:
        host = self.host
        shown = host.card  # listed once, whatever happens
        assert sum(host.counted.values()) == 1
        assert shown.device.key == "a1"
        account = shown.energy
        total, seconds = (0.0, 0.0) if account is None else (account.total_joules, account.covered_seconds)
        step, lasted = total - self.totals[0], seconds - self.totals[1]
        assert step >= 0
        assert lasted >= -1e-6
        # Of either alone: their accumulators are far apart.
        assert WATTS["amd"] * lasted - 1e-3 <= step <= WATTS["drm"] * lasted + 1e-3
        self.totals = (total, seconds)


@settings(deadline=None, max_examples=150)
@given(st.lists(STEPS, max_size=25))
@example(
    [("run", ("amd", "drm"), 70), ("down", "amd"), ("run", ("drm",), 10), ("up", "amd"), ("run", ("amd", "drm"), 70)]
)
def test_whatever_comes_in_whatever_order_a_card_is_one_and_its_total_never_falls(
    steps: list[tuple[object, ...]],
) -> None:
    story = Story()
    for step in steps:
        story.live(step)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=15))
def test_what_is_published_is_that_of_the_first_that_has_it(steps: list[tuple[object, ...]]) -> None:
    story = Story()
    for step in steps:
        story.live(step)
        host = story.host
        for provider in ("amd", "drm"):
            story.live(("clear", provider))
            story.live(("list", provider))
            story.live(("up", provider))
        host.fleet.released(False, host.now)
        host.wait(0.5)
        for provider in ("drm", "amd"):
            story._read(provider, ALL, has_power=True)
        shown = host.card
        assert (shown.state, shown.provider) == (GpuState.OK, "amd")
        assert (shown.sample.power_watts, shown.sample.utilization_ratio) == (100.0, 0.1)
        assert shown.sample.memory_used_bytes == 200.0
        assert shown.sample.processes == (ProcessSample(pid=100),)
        story._hold()
