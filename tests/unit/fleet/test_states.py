"""What is published of a device that answers, falls silent, hangs, sleeps, is released or lost."""

import pytest

from exporter.config import SamplingConfig
from exporter.fleet.groups import CUT_OFF_SECONDS
from exporter.model import GpuState, Group, PartitionSample, ProcessSample, Sample
from tests.unit.fleet.hosts import ALL, WALL, Host, card

READINGS = {
    "power_watts": 300.0,
    "utilization_ratio": 0.5,
    "temperature_celsius": {"gpu": 60.0},
    "processes": (ProcessSample(pid=7),),
}


def reading_host() -> Host:
    host = Host(card(1), card(2))
    for device in (card(1), card(2)):
        host.read(device, *ALL, **READINGS)
    return host


def empty(sample: Sample) -> bool:
    return sample.power_watts is None and sample.utilization_ratio is None and not sample.temperature_celsius


def test_a_group_replaces_its_readings_as_a_whole_and_leaves_the_others() -> None:
    host = reading_host()
    host.wait(1)
    host.read(card(1), Group.LOAD, memory_used_bytes=5.0)
    shown = host.cards["nvidia0"].sample
    assert (shown.memory_used_bytes, shown.utilization_ratio) == (5.0, None)
    assert (shown.power_watts, shown.temperature_celsius) == (300.0, {"gpu": 60.0})
    assert shown.taken_at[Group.LOAD] == shown.taken_at[Group.STATE] + 1


def test_readings_of_a_group_that_was_not_read_are_not_taken_over() -> None:
    host = reading_host()
    host.wait(1)
    host.read(card(1), Group.LOAD, utilization_ratio=0.75, power_watts=9.0)
    assert host.cards["nvidia0"].sample.power_watts == 300.0


def test_a_sample_that_comes_late_does_not_replace_a_newer_one() -> None:
    host = reading_host()
    host.give(Sample(device=card(1), taken_at={Group.LOAD: host.now - 1}, utilization_ratio=1.0))
    assert host.cards["nvidia0"].sample.utilization_ratio == 0.5


def test_the_time_stamp_is_that_of_the_read() -> None:
    host = reading_host()
    assert host.cards["nvidia0"].last_sample_timestamp == pytest.approx(WALL + host.now)


def test_a_group_too_old_is_withheld_while_the_others_stay() -> None:
    host = reading_host()
    for _ in range(16):
        host.wait(1)
        host.read(card(1), Group.ENERGY, Group.LOAD, power_watts=300.0, utilization_ratio=0.5)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.OK
    assert shown.sample.temperature_celsius == {}
    assert shown.sample.power_watts == 300.0
    assert shown.sample.processes == (ProcessSample(pid=7),)
    host.wait(15)
    assert host.cards["nvidia0"].sample.processes is None


def test_a_silent_device_is_stale_and_keeps_identity_and_counters() -> None:
    host = reading_host()
    host.wait(1)
    host.read(card(1), Group.ENERGY, Group.LOAD, power_watts=300.0, utilization_ratio=0.5)
    before = host.versions
    host.wait(15)
    assert host.cards["nvidia0"].state is GpuState.OK
    host.wait(0.1)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.STALE
    assert empty(shown.sample)
    assert shown.device == card(1)
    assert (shown.energy.total_joules, shown.busy_seconds) == (300, 0.5)
    assert host.bumped(before) == {"device", "energy", "load", "state", "exporter"}
    host.read(card(1), *ALL, **READINGS)
    assert host.cards["nvidia0"].state is GpuState.OK


def test_load_that_stops_makes_a_device_stale_though_energy_goes_on() -> None:
    host = reading_host()
    for _ in range(17):
        host.wait(1)
        host.read(card(1), Group.ENERGY, power_watts=300.0)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.STALE
    assert shown.sample.power_watts == 300.0
    assert shown.sample.utilization_ratio is None


NOTHING: dict[str, object] = {"failed": ("power_watts", "utilization_ratio", "temperature_celsius")}


@pytest.mark.parametrize(
    "kept",
    [
        {},
        {"processes": (), "process_counts": {"holding": 0}},
        {"power_kind": "average", "power_scope": "gpu", "power_limit_default_watts": 700.0},
        {"partitions": (PartitionSample(partition="0", profile="cpx"),)},
    ],
    ids=["nothing", "processes from elsewhere", "what power would be", "partitions without readings"],
)
def test_a_device_every_reading_of_which_breaks_is_stale_and_not_lost(kept: dict[str, object]) -> None:
    host = reading_host()
    last = host.cards["nvidia0"].last_sample_timestamp
    provider_last = host.world.snapshots[0].last_sample_timestamp
    states = []
    for _ in range(17):
        host.wait(1)
        host.read(card(1), *ALL, **NOTHING, **kept)
        shown = host.cards["nvidia0"]
        states.append(shown.state)
        assert shown.sample.power_watts is None, "a reading that broke is absent at once"
        assert shown.last_sample_timestamp == last
        assert host.world.snapshots[0].last_sample_timestamp == provider_last
    assert states == [GpuState.OK] * 15 + [GpuState.STALE] * 2
    assert shown.device == card(1)
    assert host.world.snapshots[0].read_failures["power_watts"] == 17
    host.wait(1)
    host.read(card(1), Group.STATE, temperature_celsius={"gpu": 50.0})
    assert host.cards["nvidia0"].state is GpuState.OK


def test_a_device_that_never_gave_anything_is_stale_after_a_while() -> None:
    host = Host(card(1))
    for _ in range(17):
        host.read(card(1), *ALL, **NOTHING)
        assert host.cards["nvidia0"].last_sample_timestamp is None
        host.wait(1)
    assert host.cards["nvidia0"].state is GpuState.STALE


def test_a_device_that_gives_anything_is_not_stale_whatever_breaks() -> None:
    host = reading_host()
    for _ in range(60):
        host.wait(1)
        host.read(card(1), Group.ENERGY, Group.LOAD, failed=("power_watts",), utilization_ratio=0.5)
        host.read(card(1), Group.ENERGY, failed=("power_watts",))
        assert host.cards["nvidia0"].state is GpuState.OK
    assert host.cards["nvidia0"].sample.power_watts is None


def test_a_device_whose_readings_break_is_stale_without_a_page_in_between_and_however_slowly_it_is_read() -> None:
    host = Host(card(1), sampling=SamplingConfig(energy_seconds=10.0, load_seconds=60.0))
    host.read(card(1), *ALL, **READINGS)
    assert host.cards["nvidia0"].state is GpuState.OK
    host.wait(10)
    host.read(card(1), *ALL, **NOTHING)
    host.wait(6)
    assert host.cards["nvidia0"].state is GpuState.STALE


def test_seconds_without_a_reading_are_not_covered() -> None:
    host = reading_host()
    for number in range(1, 31):
        host.wait(1)
        host.read(card(1), *ALL, **(NOTHING if 10 < number <= 20 else READINGS))
    energy = host.cards["nvidia0"].energy
    assert energy.covered_seconds == pytest.approx(19)
    assert energy.gap_seconds == pytest.approx(11)
    assert energy.total_joules == pytest.approx(19 * 300)


def test_slow_sampling_has_time() -> None:
    host = Host(card(1), sampling=SamplingConfig(energy_seconds=20.0, load_seconds=20.0))
    host.read(card(1), *ALL, **READINGS)
    host.wait(59)
    assert host.cards["nvidia0"].state is GpuState.OK
    host.wait(2)
    assert host.cards["nvidia0"].state is GpuState.STALE


def test_a_device_that_was_never_read_is_not_stale_at_once() -> None:
    host = Host(card(1))
    assert host.cards["nvidia0"].state is GpuState.OK
    host.wait(16)
    assert host.cards["nvidia0"].state is GpuState.STALE


def test_devices_of_a_provider_that_is_down_are_stale_soon_and_keep_their_totals() -> None:
    host = reading_host()
    host.wait(1)
    host.read(card(1), *ALL, **READINGS)
    host.down()
    assert host.cards["nvidia0"].state is GpuState.OK
    before = host.versions
    host.wait(5.1)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.STALE
    assert empty(shown.sample)
    assert shown.sample.processes is None
    assert shown.energy.total_joules == 300
    assert host.bumped(before) == {"device", "energy", "load", "state", "processes", "exporter"}
    host.down(up=True)
    host.read(card(1), *ALL, **READINGS)
    shown = host.cards["nvidia0"]
    assert (shown.state, shown.sample.power_watts) == (GpuState.OK, 300.0)


def test_a_worker_that_is_replaced_at_once_is_no_outage_of_its_devices() -> None:
    host = reading_host()
    host.down()
    host.wait(3)
    assert host.cards["nvidia0"].sample.power_watts == 300.0
    host.down(up=True)
    host.wait(3)
    assert host.cards["nvidia0"].state is GpuState.OK


def test_a_lost_device_keeps_identity_and_totals_and_comes_back() -> None:
    host = reading_host()
    host.wait(1)
    host.read(card(1), *ALL, **READINGS)
    host.give(Sample(device=card(1), lost=True))
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.LOST
    assert shown.sample == Sample(device=card(1), lost=True)
    assert shown.energy.total_joules == 300
    assert host.cards["nvidia1"].state is GpuState.OK
    host.fleet.enumerated("nvidia", (card(1), card(2)), host.now)
    assert host.cards["nvidia0"].state is GpuState.LOST
    host.wait(1)
    host.read(card(1), Group.ENERGY, power_watts=100.0)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.OK
    assert shown.sample.power_watts == 100
    assert shown.sample.utilization_ratio is None


def test_a_device_that_is_not_enumerated_any_more_is_lost() -> None:
    host = reading_host()
    host.fleet.enumerated("nvidia", (card(2),), host.now)
    assert host.cards["nvidia0"].state is GpuState.LOST
    assert empty(host.cards["nvidia0"].sample)
    host.fleet.enumerated("nvidia", (card(1), card(2)), host.now)
    assert host.cards["nvidia0"].state is GpuState.OK


def test_a_sleeping_device_has_no_readings_and_is_not_stale() -> None:
    host = reading_host()
    host.give(Sample(device=card(1), asleep=True))
    host.wait(100)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.ASLEEP
    assert empty(shown.sample)
    assert shown.sample.asleep
    host.read(card(1), Group.ENERGY, power_watts=9.0)
    assert host.cards["nvidia0"].state is GpuState.OK


def test_a_nap_between_two_pages_leaves_no_old_readings() -> None:
    host = reading_host()
    assert host.cards["nvidia0"].state is GpuState.OK
    host.give(Sample(device=card(1), asleep=True))
    host.wait(1)
    host.read(card(1), Group.ENERGY, power_watts=9.0)
    shown = host.cards["nvidia0"]
    assert shown.state is GpuState.OK
    assert (shown.sample.power_watts, shown.sample.utilization_ratio) == (9.0, None)


def test_a_device_in_question_is_hung_until_it_is_cleared() -> None:
    host = reading_host()
    host.fleet.device_state("nvidia", "GPU-1", GpuState.HUNG)
    assert host.cards["nvidia0"].state is GpuState.HUNG
    assert empty(host.cards["nvidia0"].sample)
    host.fleet.device_state("nvidia", "GPU-1", GpuState.OK)
    assert host.cards["nvidia0"].state is GpuState.OK
    assert host.cards["nvidia0"].sample.power_watts == 300
    host.fleet.device_state("nvidia", "GPU-that-nobody-knows", GpuState.HUNG)


def test_released_devices_say_so_except_the_lost_ones() -> None:
    host = reading_host()
    host.give(Sample(device=card(2), lost=True))
    host.fleet.released(True, host.now)
    assert [shown.state for shown in host.cards.values()] == [GpuState.RELEASED, GpuState.LOST]
    assert empty(host.cards["nvidia0"].sample)
    assert host.world.released
    host.fleet.released(False, host.now)
    host.wait(1)
    host.read(card(1), *ALL, **READINGS)
    assert host.cards["nvidia0"].state is GpuState.OK
    assert not host.world.released


@pytest.mark.parametrize("seconds", [0.5, 4.0, 60.0])
def test_what_was_read_before_a_release_is_not_shown_after_it(seconds: float) -> None:
    """They are released to be reset, repartitioned, or given another driver: readings of before are of another GPU."""
    host = reading_host()
    host.wait(1)
    host.read(card(1), *ALL, **READINGS)
    host.fleet.released(True, host.now)
    host.down()
    host.wait(seconds)
    host.fleet.released(False, host.now)
    shown = host.cards["nvidia0"]
    assert empty(shown.sample)
    assert shown.sample.processes is None
    assert shown.sample.taken_at == {}
    assert shown.state is GpuState.RELEASED
    assert shown.device == card(1)
    assert (shown.energy.total_joules, shown.busy_seconds) == (300, 0.5)
    host.down(up=True)
    host.read(card(1), Group.ENERGY, power_watts=100.0)
    shown = host.cards["nvidia0"]
    assert (shown.state, shown.sample.power_watts, shown.sample.utilization_ratio) == (GpuState.OK, 100.0, None)


@pytest.mark.parametrize("up", [True, False])
def test_a_device_that_is_not_read_after_a_release_is_stale_soon(*, up: bool) -> None:
    host = reading_host()
    host.fleet.released(True, host.now)
    host.down()
    host.wait(600)
    host.fleet.released(False, host.now)
    host.down(up=up)
    host.wait(CUT_OFF_SECONDS)
    assert host.cards["nvidia0"].state is GpuState.RELEASED
    host.wait(0.1)
    assert host.cards["nvidia0"].state is GpuState.STALE
    host.wait(600)
    assert host.cards["nvidia0"].state is GpuState.STALE
    host.read(card(1), Group.LOAD, utilization_ratio=1.0)
    assert host.cards["nvidia0"].state is GpuState.OK


def test_a_release_that_is_repeated_forgets_nothing_that_was_read_since() -> None:
    host = reading_host()
    host.fleet.released(True, host.now)
    host.fleet.released(True, host.now)
    host.fleet.released(False, host.now)
    host.wait(1)
    host.read(card(1), *ALL, **READINGS)
    host.fleet.released(False, host.now)
    assert host.cards["nvidia0"].sample.power_watts == 300.0


def test_a_device_that_slept_or_was_lost_when_it_was_released() -> None:
    host = reading_host()
    host.wait(1)
    host.give(Sample(device=card(1), asleep=True))
    host.give(Sample(device=card(2), lost=True))
    host.fleet.released(True, host.now)
    host.wait(1)
    host.fleet.released(False, host.now)
    assert [shown.state for shown in host.cards.values()] == [GpuState.RELEASED, GpuState.LOST]
    host.give(Sample(device=card(1), asleep=True))
    assert host.cards["nvidia0"].state is GpuState.ASLEEP
    host.wait(600)
    assert host.cards["nvidia0"].state is GpuState.ASLEEP


@pytest.mark.parametrize("state", [GpuState.HUNG, GpuState.LOST])
def test_energy_goes_on_after_an_outage_and_names_the_gap(state: GpuState) -> None:
    host = reading_host()
    host.fleet.device_state("nvidia", "GPU-1", state)
    host.wait(60)
    host.fleet.device_state("nvidia", "GPU-1", GpuState.OK)
    for _ in range(3):
        host.read(card(1), Group.ENERGY, power_watts=300.0)
        host.wait(1)
    assert host.cards["nvidia0"].energy.total_joules == 600
    assert host.cards["nvidia0"].energy.gap_seconds == 60


def test_a_sleeping_gpu_is_no_sooner_stale_than_any_other_when_its_provider_is_replaced() -> None:
    host = reading_host()
    for _ in range(30):
        host.give(Sample(device=card(1), asleep=True))
        host.wait(1)
    host.fleet.provider_status("nvidia", up=False, reason="replaced", library_version=None)
    host.wait(CUT_OFF_SECONDS - 2)
    assert host.cards["nvidia0"].state is GpuState.ASLEEP
    host.wait(2)
    assert host.cards["nvidia0"].state is GpuState.STALE
