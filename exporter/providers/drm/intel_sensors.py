"""What the sensors of discrete Intel GPUs say: energy, power limits, temperatures. Integrated ones have no hwmon.

Energy is counted in 64 bits by the driver, from the day it was loaded. xe has two counters, that of the card and that
of the GPU's package alone, and not every card has both; i915 has one, and one for each tile where there are several.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from exporter.model import Scope
from exporter.providers.drm.hwmon import MICRO, Hwmon, celsius, fan, watts
from exporter.providers.drm.reading import Reading, known
from exporter.providers.sanitise import JOULES

_CARD = ("xe", "i915")
_TILE = re.compile(r"i915_gt\d+")
_COUNTERS: tuple[tuple[str, Scope], ...] = (("energy1_input", "gpu"), ("energy2_input", "package"))
_LIMITS = ("power1_max", "power2_max", "power1_cap", "power2_cap")
"""Sustained before burst, the card's before that of its package; 0: it is not set."""
_DEFAULT_LIMITS = ("power1_rated_max", "power2_rated_max")
_POWERS = ("power1_input", "power1_average")
_PLACES: Mapping[str, tuple[str, ...]] = {"gpu": ("pkg", "temp2", "temp1"), "memory": ("vram", "temp3")}
"""Labels of sensors and, on kernels without labels, the sensors, by ours."""


class EnergySource(msgspec.Struct, frozen=True):
    """Where a card's energy is counted: kept for as long as the driver has the card, as no two count the same."""

    paths: tuple[str, ...]
    """Counters that are added up."""
    scope: Scope


def choose_energy(reading: Reading, hwmons: Mapping[str, Hwmon]) -> EnergySource | None:
    """Return the first counter that counts: of the card, of its package, of its tiles; None: none does."""
    main = _main(hwmons)
    for name, scope in _COUNTERS if main is not None else ():
        if main is not None and name in main.files and _joules(reading, f"{main.path}/{name}"):
            return EnergySource((f"{main.path}/{name}",), scope)
    tiles = [hwmons[name] for name in sorted(hwmons) if _TILE.fullmatch(name)]
    paths = tuple(f"{tile.path}/energy1_input" for tile in tiles)
    if paths and all(_joules(reading, path) for path in paths):
        return EnergySource(paths, "package")
    return None


def read_energy(reading: Reading, hwmons: Mapping[str, Hwmon], source: EnergySource | None) -> dict[str, Any]:
    """Read the counter, and power where a kernel tells it, as fields of Sample."""
    counter: float | None = None
    if source is not None:
        parts = [_joules(reading, path) for path in source.paths]
        told = [part for part in parts if part is not None]
        counter = sum(told) if len(told) == len(parts) else None
    main = _main(hwmons)
    path = next((name for name in _POWERS if main is not None and name in main.files), None)
    power = None if main is None or path is None else watts(reading, "power_watts", f"{main.path}/{path}")
    scope: Scope = "gpu" if source is None else source.scope
    return {
        "power_watts": power,
        "power_kind": None if power is None else "average" if path == "power1_average" else "instant",
        "power_scope": "gpu" if power is not None else scope,
        "energy_counter_joules": reading.note("energy_counter_joules", counter, "hwmon"),
        "energy_counter_scope": scope,
    }


def read_limits(reading: Reading, hwmons: Mapping[str, Hwmon], default: float | None) -> dict[str, float | None]:
    """Read the limits, as fields of Sample. `default`: what is known of that already, which does not change."""
    name, name_of_default = "power_limit_watts", "power_limit_default_watts"
    main = _main(hwmons)
    if main is None:
        return {name: None, name_of_default: None}
    if default is None:
        default = _first(reading, name_of_default, main, _DEFAULT_LIMITS)
    return {
        name: _first(reading, name, main, _LIMITS),
        name_of_default: reading.note(name_of_default, default, "hwmon"),
    }


def read_sensors(reading: Reading, hwmons: Mapping[str, Hwmon]) -> dict[str, Any]:
    """Read temperatures and the fan, as fields of Sample."""
    main = _main(hwmons)
    if main is None:
        return {}
    name, name_of_limit = "temperature_celsius", "temperature_limit_celsius"
    places = {place: sensor for place in _PLACES if (sensor := _sensor(main, place)) is not None}
    measures = (("shutdown", "gpu", "emergency"), ("slowdown", "gpu", "crit"), ("memory", "memory", "crit"))
    limits = {
        measure: celsius(reading, name_of_limit, f"{main.path}/{file}", live=False) or None
        for measure, place, what in measures
        if (file := f"{places.get(place)}_{what}") in main.files
    }
    return {
        name: known({place: celsius(reading, name, f"{main.path}/{sensor}_input") for place, sensor in places.items()}),
        name_of_limit: known(limits),
        # As a part of 255, where the driver has one: rounds a minute are no ratio.
        "fan_speed_ratio": fan(reading, main) if "pwm1" in main.files else None,
    }


def _main(hwmons: Mapping[str, Hwmon]) -> Hwmon | None:
    return next((hwmons[name] for name in _CARD if name in hwmons), None)


def _joules(reading: Reading, path: str) -> float | None:
    return reading.number("energy_counter_joules", path, JOULES, per=MICRO, source="hwmon")


def _first(reading: Reading, name: str, hwmon: Hwmon, files: tuple[str, ...]) -> float | None:
    """Return the first limit that is set."""
    for file in files:
        value = watts(reading, name, f"{hwmon.path}/{file}", live=False) if file in hwmon.files else None
        if value:
            return value
    return None


def _sensor(hwmon: Hwmon, place: str) -> str | None:
    """Return the sensor of a place, such as temp2."""
    label, *numbers = _PLACES[place]
    labelled = hwmon.labelled("temp")
    if labelled:
        return labelled.get(label)
    return next((sensor for sensor in numbers if f"{sensor}_input" in hwmon.files), None)
