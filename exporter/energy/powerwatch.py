"""Whether the power reading is stuck.

Sensors were seen to repeat one value for minutes while the board heated by 30 K, which passes any check of range. A
value that stands is no fault by itself: AMD reads whole watts, and a capped load is steady. It is one when the load
moves meanwhile, or the temperature does after it has had time to settle from the last change.
"""

import msgspec

from exporter.energy.reading import EnergyReading

UNCHANGED_SECONDS = 60.0
LOAD_SETTLES_SECONDS = 5.0
"""Utilisation is a mean over up to a second, published later than power."""
LOAD_MOVED_RATIO = 0.5
TEMPERATURE_SETTLES_SECONDS = 180.0
TEMPERATURE_MOVED_CELSIUS = 10.0


class Spread(msgspec.Struct, frozen=True, gc=False, array_like=True):
    low: float
    high: float

    @property
    def width(self) -> float:
        return self.high - self.low


class PowerWatch(msgspec.Struct, frozen=True):
    watts: float | None = None
    since: float = 0.0
    """When the reading took this value."""
    load: Spread | None = None
    temperature: Spread | None = None
    stuck: bool = False


def watch(state: PowerWatch, reading: EnergyReading) -> PowerWatch:
    """Add one reading; one without power changes nothing."""
    if reading.power_watts is None:
        return state
    if reading.power_watts != state.watts:
        return PowerWatch(reading.power_watts, reading.at)
    if state.stuck:
        return state
    unchanged = reading.at - state.since
    load = _wider(state.load, reading.utilization_ratio) if unchanged > LOAD_SETTLES_SECONDS else None
    settled = unchanged > TEMPERATURE_SETTLES_SECONDS
    temperature = _wider(state.temperature, reading.temperature_celsius) if settled else None
    stuck = unchanged >= UNCHANGED_SECONDS and (
        (load is not None and load.width >= LOAD_MOVED_RATIO)
        or (temperature is not None and temperature.width >= TEMPERATURE_MOVED_CELSIUS)
    )
    return PowerWatch(state.watts, state.since, load, temperature, stuck)


def _wider(spread: Spread | None, value: float | None) -> Spread | None:
    if value is None:
        return spread
    if spread is None:
        return Spread(value, value)
    if spread.low <= value <= spread.high:
        return spread
    return Spread(min(spread.low, value), max(spread.high, value))
