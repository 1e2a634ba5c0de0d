"""Where are a card's sensors? The kernel numbers its hwmon folders anew at each boot, and labels what is in them."""

from collections.abc import Mapping

import msgspec

from exporter.providers.drm.cards import Card
from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import CELSIUS, RATIO, WATTS, is_sentinel

MICRO = 1e6
MILLI = 1e3
PWM_FULL = 255.0
_U32 = 32


class Hwmon(msgspec.Struct, frozen=True):
    """One folder of sensors."""

    path: str
    """Relative to the card's folder."""
    files: frozenset[str]
    """Names in it."""
    labels: Mapping[str, str]
    """In lower case, by sensor: temp1 is the junction, freq1 sclk."""

    def labelled(self, kind: str) -> Mapping[str, str]:
        """Return the sensors of a kind (temp, freq, in, ...) that have a label, by label."""
        return {label: sensor for sensor, label in self.labels.items() if sensor.rstrip("0123456789") == kind}


class Hwmons:
    """The folders of each card, remembered until `renew`."""

    def __init__(self) -> None:
        self._found: dict[str, Mapping[str, Hwmon]] = {}

    def of(self, reading: Reading) -> Mapping[str, Hwmon]:
        """Return the card's folders by the name that the driver gave them: amdgpu, i915, i915_gt0, ..."""
        folder = reading.card.folder
        if folder not in self._found:
            found: dict[str, Hwmon] = {}
            for name in sorted(reading.names("hwmon")):
                path = f"hwmon/{name}"
                chip = reading.text(f"{path}/name")
                if chip is not None:
                    found.setdefault(chip, _hwmon(reading, path))
            if not found:  # its driver may be about to make it
                return {}
            self._found[folder] = found
        return self._found[folder]

    def renew(self, card: Card) -> None:
        """Look for a card's folders anew at its next read."""
        self._found.pop(card.folder, None)


def watts(reading: Reading, name: str, path: str, *, live: bool = True) -> float | None:
    """Read microwatts. Drivers give them 32 bits, and all of those for "no value"."""
    said = reading.raw(name, path, live=live)
    if said is None:
        return None
    digits = said.decode("ascii", "replace").strip()
    value: object = int(digits) if digits.isdecimal() else digits
    if isinstance(value, int) and is_sentinel(value, _U32):
        return None
    return reading.note(name, reading.readings.number(name, value, WATTS, per=MICRO, bits=64), "hwmon")


def celsius(reading: Reading, name: str, path: str, *, live: bool = True) -> float | None:
    """Read thousandths of a degree."""
    return reading.number(name, path, CELSIUS, per=MILLI, source="hwmon", live=live)


def fan(reading: Reading, hwmon: Hwmon, full: float = PWM_FULL) -> float | None:
    """Read how far the fan is opened; None on a passive card. `full`: what the driver says of all the way."""
    return reading.number("fan_speed_ratio", f"{hwmon.path}/pwm1", RATIO, per=full, source="hwmon")


def _hwmon(reading: Reading, path: str) -> Hwmon:
    files = frozenset(reading.names(path))
    named = sorted(name for name in files if name.endswith("_label"))
    labels = {name.removesuffix("_label"): reading.text(f"{path}/{name}") for name in named}
    return Hwmon(path, files, {sensor: label.lower() for sensor, label in labels.items() if label is not None})
