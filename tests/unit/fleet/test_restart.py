"""What a fleet takes over from the one of the daemon before."""

from typing import Any

import msgspec
import pytest

from exporter.fleet.record import FORGET_SECONDS, MOST_RECORDS, CardRecord, FleetRecord, brought_over
from exporter.model import Device, EnergyAccount, Group
from tests.unit.fleet.hosts import Host, card

GPUS = tuple(card(number) for number in (1, 2, 3))


def read(host: Host, device: Device, **values: Any) -> None:
    """Give a reading of a GPU that has always drawn 400 W."""
    average: dict[str, Any] = {"power_watts": 400.0, "power_kind": "average", "power_window_seconds": 1.0}
    host.read(device, Group.ENERGY, **{**average, "energy_counter_joules": 400.0 * host.now, **values})


def run(host: Host, seconds: int, *devices: Device, **values: Any) -> None:
    for _ in range(seconds):
        host.wait(1.0)
        for device in devices:
            read(host, device, **values)


def restarted(host: Host, *devices: Device, down: float = 0.0, rebooted: bool = False) -> Host:
    """Return the host after a restart of the exporter that took `down` seconds."""
    record = host.fleet.record(host.now)
    now = 10.0 if rebooted else host.now + down
    after = Host(now=now)
    after.fleet.restore(brought_over(record, now) if rebooted else record, now)
    if devices:
        after.fleet.enumerated("nvidia", devices, now)
    return after


def energy(host: Host, label: str = "nvidia0") -> EnergyAccount:
    account = host.cards[label].energy
    assert account is not None
    return account


def test_a_qualified_accumulator_tells_the_joules_of_the_down_time() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS)
    before = energy(host)
    after = restarted(host, *GPUS, down=600.0)
    assert energy(after).total_joules == before.total_joules
    read(after, GPUS[0])
    assert energy(after).qualified
    assert energy(after).total_joules == pytest.approx(before.total_joules + 600 * 400)
    assert energy(after).start_timestamp == before.start_timestamp
    assert energy(after).covered_seconds == pytest.approx(669)
    assert energy(after).gap_seconds == 0


def test_without_an_accumulator_the_down_time_is_a_gap() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS, energy_counter_joules=None)
    after = restarted(host, *GPUS, down=600.0)
    run(after, 2, *GPUS, energy_counter_joules=None)
    assert energy(after).total_joules == pytest.approx(70 * 400)
    assert energy(after).gap_seconds == pytest.approx(601)


def test_an_accumulator_that_was_reset_meanwhile_is_a_reset() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS)
    before = energy(host)
    after = restarted(host, *GPUS, down=600.0)
    run(after, 2, *GPUS, energy_counter_joules=5.0)
    assert energy(after).faults["reset"] == 1
    assert energy(after).total_joules == pytest.approx(before.total_joules, abs=401)


def test_of_another_boot_totals_go_on_and_nothing_else() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS)
    before = energy(host)
    after = restarted(host, *GPUS, rebooted=True)
    assert energy(after).total_joules == before.total_joules
    assert energy(after).start_timestamp == before.start_timestamp
    run(after, 11, *GPUS)
    assert not energy(after).qualified
    assert energy(after).total_joules == pytest.approx(before.total_joules + 10 * 400)
    assert energy(after).faults == before.faults
    assert (energy(after).covered_seconds, energy(after).gap_seconds) == pytest.approx((79, 0))


def test_an_accumulator_without_power_that_waits_long_in_a_new_boot_has_not_covered_the_wait() -> None:
    alone: dict[str, Any] = {"power_watts": None, "power_kind": None, "power_window_seconds": None}
    host = Host(*GPUS)
    run(host, 11, *GPUS, **alone)
    after = restarted(restarted(host, rebooted=True), down=3_600.0)
    after.fleet.enumerated("nvidia", GPUS, after.now)
    run(after, 6, *GPUS, **alone)
    assert energy(after).total_joules == pytest.approx(15 * 400)
    assert energy(after).covered_seconds == pytest.approx(16)


def test_the_module_goes_on_as_well() -> None:
    host = Host(*GPUS)
    run(host, 11, *GPUS, module_energy_counter_joules=0.0)
    run(host, 1, *GPUS, module_energy_counter_joules=900.0)
    after = restarted(host, *GPUS, down=1.0)
    read(after, GPUS[0], module_energy_counter_joules=1_500.0)
    assert after.cards["nvidia0"].module_energy_joules == pytest.approx(1_500)


def test_labels_are_pinned_over_a_restart_in_whatever_order_devices_come_back() -> None:
    host = Host(*GPUS)
    after = restarted(host)
    after.fleet.enumerated("nvidia", (GPUS[2],), after.now)
    after.fleet.enumerated("nvidia", (card(0), *GPUS), after.now)
    labels = {shown.device.key: label for label, shown in after.cards.items()}
    assert labels == {"GPU-1": "nvidia0", "GPU-2": "nvidia1", "GPU-3": "nvidia2", "GPU-0": "nvidia3"}


def test_the_label_of_a_card_that_did_not_come_back_is_not_given_to_another() -> None:
    after = restarted(restarted(Host(*GPUS), GPUS[0]), GPUS[0], card(9))
    assert {shown.device.key: label for label, shown in after.cards.items()} == {"GPU-1": "nvidia0", "GPU-9": "nvidia3"}


def test_a_boot_gives_labels_anew() -> None:
    after = restarted(Host(*GPUS), GPUS[2], rebooted=True)
    assert list(after.cards) == ["nvidia0"]


def test_a_device_that_comes_back_after_two_restarts_goes_on() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS)
    before = energy(host, "nvidia2")
    after = restarted(restarted(host, *GPUS[:2], down=60.0), *GPUS, down=60.0)
    read(after, GPUS[2])
    assert energy(after, "nvidia2").total_joules == pytest.approx(before.total_joules + 120 * 400)


def test_no_step_spans_two_providers_over_a_restart() -> None:
    host = Host(*GPUS)
    run(host, 70, *GPUS)
    before = energy(host)
    after = restarted(host, down=60.0)
    after.down()
    after.fleet.enumerated("amd", GPUS, after.now)
    after.read(GPUS[0], Group.ENERGY, provider="amd", energy_counter_joules=400.0 * after.now, power_watts=400.0)
    assert energy(after).total_joules == pytest.approx(before.total_joules)
    assert not energy(after).qualified


def test_devices_that_are_not_seen_for_long_are_dropped_by_time_that_the_exporter_ran() -> None:
    host = Host(*GPUS)
    run(host, 3, *GPUS)
    host.fleet.enumerated("nvidia", GPUS[:2], host.now)
    half = restarted(host, *GPUS[:1])
    half.wait(FORGET_SECONDS / 2)
    assert {kept.key for kept in half.fleet.record(half.now).cards} == {"GPU-1", "GPU-2", "GPU-3"}
    later = restarted(half, *GPUS[:1])
    later.wait(FORGET_SECONDS / 2)
    assert {kept.key for kept in later.fleet.record(later.now).cards} == {"GPU-1"}


def test_a_record_is_bounded_and_keeps_what_was_seen_last() -> None:
    awaited = tuple(
        CardRecord(key=f"old-{n}", provider="nvidia", unseen_seconds=float(n), order=("nvidia", n))
        for n in range(MOST_RECORDS)
    )
    host = Host()
    host.fleet.restore(FleetRecord(cards=awaited, numbers={"nvidia": MOST_RECORDS}), host.now)
    host.fleet.enumerated("nvidia", GPUS, host.now)
    kept = [one.key for one in host.fleet.record(host.now).cards]
    assert len(kept) == MOST_RECORDS
    assert {"GPU-1", "GPU-2", "GPU-3", "old-0"} <= set(kept)
    assert f"old-{MOST_RECORDS - 1}" not in kept


def test_a_label_that_cannot_be_is_given_anew() -> None:
    host = Host(now=1_000.0)
    strange = CardRecord(key="GPU-1", provider="nvidia", order=("nvidia", 7))
    host.fleet.restore(FleetRecord(cards=(strange,), numbers={"nvidia": 3}), host.now)
    host.fleet.enumerated("nvidia", GPUS[:1], host.now)
    assert list(host.cards) == ["nvidia3"]


def test_whether_there_is_a_journal_is_shown_when_it_changes() -> None:
    host = Host(*GPUS)
    assert host.world.journal_up is None
    for up in (True, False, None):
        before = host.versions
        host.fleet.journaled(up)
        assert host.bumped(before) == {"exporter"}
        assert host.world.journal_up is up
        host.fleet.journaled(up)
        assert host.bumped(host.versions) == set()


def test_a_record_holds_what_is_shown() -> None:
    host = Host(*GPUS)
    run(host, 7, *GPUS)
    shown = energy(host)
    (first, *_) = host.fleet.record(host.now).cards
    assert first.meter is not None
    assert first.meter.ledger is not None
    assert first.meter.ledger.total_joules == shown.total_joules
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(first), type=CardRecord) == first


def test_no_joule_counts_under_two_keys_when_the_identity_cannot_be_read_after_a_restart() -> None:
    known, anonymous = GPUS[0], card(1, key="0000:01:00.0")
    host = Host(known)
    run(host, 70, known)
    for _ in range(2):
        host = restarted(host, anonymous)
        run(host, 30, anonymous)
        host.fleet.enumerated("nvidia", (known,), host.now)
        run(host, 30, known)
        assert len(host.fleet.record(host.now).cards) == 1
        began = host.now
        host = restarted(host, known)
        run(host, 10, known)
        (label,) = host.cards
        assert energy(host, label).total_joules <= (host.now - began) * 400
        assert len(host.fleet.record(host.now).cards) == 1
