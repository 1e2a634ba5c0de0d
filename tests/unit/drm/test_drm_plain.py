"""What is there of a card whose driver tells nothing special."""

from pathlib import Path

from exporter.model import Device
from tests.drm import ENODEV, card, hwmon, platform_card, write
from tests.unit.drm.bench import Bench

NOUVEAU = hwmon(
    "nouveau",
    temp1_input=41_000,
    temp1_crit=95_000,
    temp1_emergency=105_000,
    pwm1=40,
    in0_input=1_050,
    power1_input=38_500_000,
    power1_crit=180_000_000,
)


def test_nouveau(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.12.3"})
    write(tmp_path, {"usr/share/misc/pci.ids": "10de  NVIDIA\n\t1b80  GP104 [GeForce GTX 1080]\n"})
    link = {"current_link_speed": "8.0 GT/s PCIe", "current_link_width": 16, "max_link_width": 16}
    card(tmp_path, 0, NOUVEAU | link, driver="nouveau", address="0000:01:00.0")
    sample = Bench(tmp_path).read()
    assert sample.device == Device(
        vendor="nvidia",
        key="0000:01:00.0",
        model="GeForce GTX 1080",
        pci_address="0000:01:00.0",
        minor=128,
        driver_version="6.12.3",
    )
    assert (sample.power_watts, sample.power_kind) == (38.5, "instant")
    assert sample.temperature_celsius == {"gpu": 41}
    assert sample.temperature_limit_celsius == {"shutdown": 105, "slowdown": 95}
    assert sample.fan_speed_ratio == 0.4
    assert (sample.pcie_link_generation, sample.pcie_link_width) == (3, 16)
    assert sample.sources["temperature_celsius"] == "hwmon"
    assert sample.failed == sample.rejected == ()


def test_a_fan_that_is_given_in_parts_of_255(tmp_path: Path) -> None:
    card(tmp_path, 0, hwmon("radeon", pwm1=102), driver="radeon")
    assert Bench(tmp_path).read().fan_speed_ratio == 0.4


def test_a_card_without_a_sensor_says_that_there_is_no_such_device(tmp_path: Path) -> None:
    card(tmp_path, 0, NOUVEAU, driver="nouveau")
    bench = Bench(tmp_path)
    bench.answers.errors = {"temp1_input": ENODEV}
    sample = bench.read()
    assert (sample.lost, sample.temperature_celsius, sample.failed) == (False, {}, ())


def test_a_gpu_that_tells_nothing_is_listed(tmp_path: Path) -> None:
    platform_card(tmp_path, 0, "fd000000.gpu", "panthor", minor=128)
    sample = Bench(tmp_path).read()
    assert sample.device == Device(vendor="panthor", key="fd000000.gpu", minor=128)
    assert not sample.lost
    assert sample.power_watts is None
