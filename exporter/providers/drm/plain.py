"""GPUs whose drivers have nothing special to tell, such as nouveau's: who they are, and their sensors."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from exporter.model import Device, Group
from exporter.providers.drm.cards import Card
from exporter.providers.drm.hwmon import PWM_FULL, Hwmon, Hwmons, celsius, fan, watts
from exporter.providers.drm.names import device_of
from exporter.providers.drm.pcie import read_link
from exporter.providers.drm.reading import Reading, known

_FAN_FULL: Mapping[str, float] = {"nouveau": 100.0}
"""By driver: nouveau gives percent, the others parts of 255 as hwmon asks for."""
_LIMITS = (("shutdown", "emergency"), ("slowdown", "crit"))


class PlainReader:
    """A CardReader for the cards of any driver."""

    drivers: Collection[str] = frozenset({"nouveau", "radeon"})
    work: Collection[str] = frozenset()

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hwmons = Hwmons()

    def identify(self, card: Card, reading: Reading, *, asleep: bool) -> Device:  # noqa: ARG002 -- nothing here wakes it
        self._hwmons.renew(card)
        return device_of(self._root, card, reading.files)

    def read(self, card: Card, device: Device, group: Group, reading: Reading) -> dict[str, Any]:  # noqa: ARG002 -- of the protocol
        hwmon = next(iter(self._hwmons.of(reading).values()), None)
        if group is Group.ENERGY:
            return {} if hwmon is None else _power(reading, hwmon)
        if group is Group.STATE:
            link = read_link(reading) if card.pci_address is not None else {}
            return link if hwmon is None else {**link, **_sensors(reading, hwmon)}
        return {}

    def regions(self, device: Device) -> Collection[str]:  # noqa: ARG002 -- of the protocol
        return ("vram",)

    def interrupt(self, card: Card) -> None:
        """Nothing is counted here."""

    def forget(self, folders: Collection[str]) -> None:
        """Nothing is remembered that could be wrong of another card."""


def _power(reading: Reading, hwmon: Hwmon) -> dict[str, Any]:
    value = kind = None
    if "power1_average" in hwmon.files:
        value, kind = watts(reading, "power_watts", f"{hwmon.path}/power1_average"), "average"
    if value is None and "power1_input" in hwmon.files:
        value, kind = watts(reading, "power_watts", f"{hwmon.path}/power1_input"), "instant"
    limit = watts(reading, "power_limit_watts", f"{hwmon.path}/power1_cap") if "power1_cap" in hwmon.files else None
    return {
        "power_watts": value,
        "power_kind": None if value is None else kind,
        "power_limit_watts": limit or None,
    }


def _sensors(reading: Reading, hwmon: Hwmon) -> dict[str, Any]:
    limits = {
        measure: celsius(reading, "temperature_limit_celsius", f"{hwmon.path}/temp1_{what}", live=False) or None
        for measure, what in _LIMITS
    }
    return {
        "temperature_celsius": known({"gpu": celsius(reading, "temperature_celsius", f"{hwmon.path}/temp1_input")}),
        "temperature_limit_celsius": known(limits),
        "fan_speed_ratio": fan(reading, hwmon, _FAN_FULL.get(reading.card.driver, PWM_FULL))
        if "pwm1" in hwmon.files
        else None,
    }
