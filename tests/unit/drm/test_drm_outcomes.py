"""Asleep, gone, refused, broken: what the driver says decides, and no card is woken to be asked."""

from pathlib import Path

import pytest

from exporter.model import Device, Group
from exporter.providers.drm import open_drm
from exporter.providers.protocol import OpenContext, ProviderError
from tests.drm import EIO, ENODEV, EPERM, card, write
from tests.unit.drm.bench import ALL, Bench, radeon, radeon_table
from tests.unit.drm.tables import table

ENERGY = frozenset({Group.ENERGY})
SLEEP = {"power/runtime_status": "suspended"}
WAKE = {"power/runtime_status": "active"}
# What amdgpu answers of its own memory, without asking the card.
HARMLESS = {"runtime_status", "uevent", "vendor", "device", "revision", "unique_id", "product_name", "serial_number"}
HARMLESS |= {"vbios_version", "name", "smc_fw_version", "vce_fw_version"}


@pytest.mark.parametrize("status", ["suspended", "suspending"])
def test_a_card_that_sleeps_is_asked_for_nothing_that_would_wake_it(tmp_path: Path, status: str) -> None:
    card(tmp_path, 0, radeon(current_compute_partition="SPX") | {"power/runtime_status": status})
    bench = Bench(tmp_path)
    bench.answers.asked.clear()
    sample = bench.read()
    assert sample.asleep
    assert sample.device.key == "a32343daf897162a"
    names = {path.rpartition("/")[2] for path in bench.answers.asked if "/sys/class/drm/" in path}
    assert {name for name in names if not name.endswith("_label")} <= HARMLESS


def test_the_state_of_power_is_asked_first(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.asked.clear()
    bench.provider.read(device, ALL)
    assert bench.answers.asked[0].endswith("power/runtime_status")


def test_one_that_slept_when_it_was_listed_is_described_once_it_is_awake(tmp_path: Path) -> None:
    device = card(tmp_path, 0, radeon(current_compute_partition="SPX", current_memory_partition="NPS1") | SLEEP)
    bench = Bench(tmp_path)
    (sketch,) = bench.provider.devices()
    assert (sketch.key, sketch.memory_kind, sketch.partition_mode) == ("a32343daf897162a", "dedicated", None)
    write(device, WAKE)
    assert bench.provider.read(sketch, ALL).device.partition_mode == "SPX/NPS1"
    write(device, SLEEP)
    (kept,) = bench.provider.devices()
    assert kept.partition_mode == "SPX/NPS1"
    assert bench.provider.read(kept, ALL).asleep


def test_a_driver_that_refuses_its_sensors_says_that_the_card_sleeps(tmp_path: Path) -> None:
    # From Linux 6.15; the state of power may have changed since it was read.
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    sensors = ("power1_average", "power1_input", "power1_cap", "power1_cap_default", "_busy_percent", "gpu_metrics")
    more = (
        "temp1_input",
        "temp2_input",
        "temp3_input",
        "freq1_input",
        "freq2_input",
        "pwm1",
        "_err_count",
        "replay_count",
    )
    bench.answers.errors = dict.fromkeys((*sensors, *more), EPERM)
    for groups in (ENERGY, ALL):
        sample = bench.provider.read(device, groups)
        assert sample.asleep
        assert sample.failed == ()
        assert sample.power_watts is None


def test_one_that_fell_asleep_under_the_read_is_asleep(tmp_path: Path) -> None:
    device = card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    bench.answers.errors = {"temp1_input": EPERM}
    bench.answers.before = lambda path: write(device, SLEEP) if path.endswith("temp1_input") else None
    assert bench.provider.read(known, ALL).asleep


def test_a_single_reading_that_is_forbidden_on_a_card_that_gives_others_failed(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.answers.errors = {"umc_err_count": EPERM}
    sample = bench.read()
    assert not sample.asleep
    assert sample.failed == ("ecc_errors",)
    assert sample.power_watts == 97


def test_without_permission_is_not_asleep(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.answers.errors = {"hwmon3/power1_average": 13, "hwmon3/power1_input": 13}
    sample = bench.read()
    assert not sample.asleep
    assert "power_watts" in sample.failed


def test_no_such_device_to_all_questions_is_a_card_that_is_gone(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.errors = {"": ENODEV}
    assert bench.provider.read(device, ALL).lost


def test_no_such_device_to_one_question_is_a_sensor_that_it_does_not_have(tmp_path: Path) -> None:
    # nouveau says so of the temperature of cards without a sensor.
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.answers.errors = {"temp1_input": ENODEV}
    sample = bench.read()
    assert not sample.lost
    assert sample.temperature_celsius == {"hotspot": 61, "memory": 70}
    assert sample.failed == ()


def test_a_card_off_the_bus_is_lost(tmp_path: Path) -> None:
    device = card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    bench.answers.errors = {"gpu_metrics": EIO, "power1_average": EIO}
    assert not bench.provider.read(known, ALL).lost
    (device / "config").write_bytes(b"\xff" * 64)
    assert bench.provider.read(known, ALL).lost


def test_a_card_whose_folder_is_gone_is_lost_and_comes_back(tmp_path: Path) -> None:
    write(tmp_path, {"other": ""})
    device = card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    away = device.with_name("away")
    link, gone = tmp_path / "sys/class/drm/card0", tmp_path / "sys/class/gone"
    device.rename(away)
    link.rename(gone)
    sample = bench.provider.read(known, ALL)
    assert sample.lost
    assert sample.device == known
    assert bench.provider.devices() == (known,)
    away.rename(device)
    # It is another card of the kernel's by then.
    gone.rename(tmp_path / "sys/class/drm/card7")
    bench.now += 6
    again = bench.provider.read(known, ALL)
    assert not again.lost
    assert again.power_watts == 97


def test_one_that_is_gone_is_looked_for_now_and_then(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    stranger = Device(vendor="amd", key="0000:ff:1f.0", pci_address="0000:ff:1f.0")
    assert bench.provider.read(stranger, ENERGY).lost
    bench.answers.asked.clear()
    bench.now += 4
    assert bench.provider.read(stranger, ENERGY).lost
    assert bench.answers.asked == []
    bench.now += 2
    assert bench.provider.read(stranger, ENERGY).lost
    assert bench.answers.asked != []


def test_one_card_that_is_lost_costs_the_others_nothing(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(), address="0000:03:00.0")
    card(tmp_path, 1, radeon(unique_id="b32343daf897162a"), address="0000:83:00.0", minor=129)
    bench = Bench(tmp_path)
    first, second = bench.provider.devices()
    bench.answers.errors = {f"card0/device/{path}": ENODEV for path in radeon()}
    assert bench.provider.read(first, ALL).lost
    assert bench.provider.read(second, ALL).power_watts == 97


def test_a_request_for_energy_is_served_in_the_middle_of_a_read(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    served = []

    def serve(path: str) -> None:
        if path.endswith("gpu_busy_percent"):
            served.append(bench.provider.read(device, ENERGY))

    bench.answers.before = serve
    sample = bench.provider.read(device, ALL)
    assert [one.power_watts for one in served] == [97]
    assert sample.power_watts == 97
    assert sample.failed == sample.rejected == ()


def test_a_host_that_has_no_cards_any_more_lists_those_that_are_lost(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    known = bench.provider.devices()
    (tmp_path / "sys/class/drm").rename(tmp_path / "sys/class/away")
    assert bench.provider.devices() == known
    assert bench.read().lost
    bench.provider.close()
    bench.provider.close()
    with pytest.raises(ProviderError, match="no device"):
        open_drm(OpenContext(between_calls=lambda: None, root=tmp_path))


def test_a_number_that_cannot_be_read_for_once_makes_no_second_card(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    bench.answers.errors = {"unique_id": EIO}
    assert [device.key for device in bench.provider.devices()] == [known.key]
    assert bench.provider.read(known, ENERGY).power_watts == 97


def test_whether_one_that_sleeps_is_on_the_bus_is_not_asked(tmp_path: Path) -> None:
    # To read its registers would wake it.
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.errors = {"hwmon3/power1_average": EPERM, "hwmon3/power1_input": EPERM, "power1_cap": EPERM}
    bench.answers.errors |= {"power1_cap_default": EPERM, "gpu_metrics": EPERM}
    bench.answers.asked.clear()
    assert bench.provider.read(device, ENERGY).asleep
    assert not [path for path in bench.answers.asked if path.endswith("config")]


def test_one_that_has_nothing_to_tell_is_not_asked_for_its_registers(tmp_path: Path) -> None:
    card(tmp_path, 0, {})
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.asked.clear()
    assert not bench.provider.read(device, ENERGY).lost
    assert not [path for path in bench.answers.asked if path.endswith("config")]


def _renumber(root: Path) -> None:
    """Give two cards each other's number, as binding their driver anew in another order does."""
    cards = root / "sys/class/drm"
    (cards / "card0").rename(cards / "meanwhile")
    (cards / "card1").rename(cards / "card0")
    (cards / "meanwhile").rename(cards / "card1")


def _two(root: Path, **files: object) -> None:
    other = {"gpu_metrics": radeon_table(energy_accumulator=70 * 65536), "unique_id": "b32343daf897162a", **files}
    card(root, 0, radeon(), address="0000:03:00.0")
    card(root, 1, radeon(**other), address="0000:83:00.0", minor=129)


def test_a_card_is_never_read_under_the_number_of_another(tmp_path: Path) -> None:
    _two(tmp_path)
    bench = Bench(tmp_path)
    first, second = bench.provider.devices()
    _renumber(tmp_path)
    # Within the time for which cards are not looked for again, nobody knows where they are.
    assert bench.provider.read(first, ENERGY).lost
    assert bench.provider.read(second, ENERGY).lost
    bench.now += 6
    for device, joules in ((first, 5), (second, 70)):
        assert bench.provider.read(device, ENERGY).energy_counter_joules == joules


def test_what_is_remembered_of_a_number_is_not_that_of_the_next_card_with_it(tmp_path: Path) -> None:
    def residencies(cycles: int, held: int) -> bytes:
        counted = {"accumulation_counter": cycles, "prochot_residency_acc": held}
        return table(1, 6, curr_socket_power=97, system_clock_counter=cycles * 1_000_000, **counted)

    _two(tmp_path, gpu_metrics=residencies(9000, 8000))
    write(tmp_path / "sys/class/drm/card0/device", {"gpu_metrics": residencies(1000, 0)})
    bench = Bench(tmp_path)
    for device in bench.provider.devices():
        assert bench.provider.read(device, ALL).throttle_seconds["processor_hot"] == 0
    _renumber(tmp_path)
    bench.now += 6
    for device in bench.provider.devices():
        assert bench.provider.read(device, ALL).throttle_seconds["processor_hot"] == 0


def test_many_cards_that_are_gone_are_looked_for_together(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.provider.devices()
    strangers = [Device(vendor="amd", key=f"0000:ff:1{n}.0", pci_address=f"0000:ff:1{n}.0") for n in range(3)]
    bench.now += 6
    for stranger in strangers:
        assert bench.provider.read(stranger, ENERGY).lost
    asked = len(bench.answers.asked)
    bench.now += 1
    for stranger in strangers:
        assert bench.provider.read(stranger, ENERGY).lost
    assert len(bench.answers.asked) == asked


@pytest.mark.parametrize("away", ["asleep", "lost"])
def test_the_time_for_which_a_card_was_away_is_none_of_throttling(tmp_path: Path, away: str) -> None:
    def residencies(cycles: int, held: int, seconds: int) -> dict[str, bytes]:
        counted = {"accumulation_counter": cycles, "prochot_residency_acc": held}
        return {"gpu_metrics": table(1, 6, curr_socket_power=97, system_clock_counter=seconds * 10**9, **counted)}

    device = card(tmp_path, 0, radeon(**residencies(1000, 0, 10)))
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    assert bench.provider.read(known, ALL).throttle_seconds["processor_hot"] == 0
    if away == "asleep":
        write(device, SLEEP)
    else:
        bench.answers.errors = {"": ENODEV}
    sample = bench.provider.read(known, ALL)
    assert (sample.asleep, sample.lost) == (away == "asleep", away == "lost")
    bench.answers.errors = {}
    bench.now += 6
    write(device, WAKE | residencies(2000, 500, 10_000))
    assert bench.provider.read(known, ALL).throttle_seconds["processor_hot"] == 0
    write(device, residencies(3000, 1500, 10_001))
    assert bench.provider.read(known, ALL).throttle_seconds["processor_hot"] == 1
