"""Which loads, which sensors and which accumulators are the joules measured on?

Loads switch between 80 and 650 W. Sensors and accumulators are those of tests/unit/energy/sensors.py; they renew their
value on a grid of their own, and a window begins at a random moment of both.
"""

from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple

from tests.unit.energy import sensors
from tests.unit.energy.sensors import Counter, Load, Power

HIGH_WATTS = 650.0
WINDOW_SECONDS = 300.0
WARM_SECONDS = 100.0
"""Before a window; an honest accumulator has then qualified."""
LONGEST_PERIOD = 31.0
TRACE_SECONDS = WARM_SECONDS + LONGEST_PERIOD + WINDOW_SECONDS + 10.0

MakeLoad = Callable[[Random], Load]
SeePower = Callable[[Load], Power]
SeeCounter = Callable[[Load], Counter]


def _square(period: float, duty: float) -> MakeLoad:
    made = sensors.square(period, duty, TRACE_SECONDS)
    return lambda _: made


LOADS: dict[str, MakeLoad] = {
    "square 0.263 s, 30 %": _square(0.263, 0.3),
    "square 1.04 s, 50 %": _square(1.04, 0.5),
    "square 2.13 s, 30 %": _square(2.13, 0.3),
    "square 9.7 s, 50 %": _square(9.7, 0.5),
    "square 31 s, 20 %": _square(31.0, 0.2),
    "bursts 1 s, rare": lambda random: sensors.bursts(random, 1.0, 10.0, TRACE_SECONDS),
    "bursts 0.1 s, frequent": lambda random: sensors.bursts(random, 0.1, 0.4, TRACE_SECONDS),
}

LOCKED: dict[str, MakeLoad] = {
    "square 0.1 s, 50 %": _square(0.1, 0.5),
    "square 2.1 s, 30 %": _square(2.1, 0.3),
}
"""Whole multiples of the 100 ms of a sensor that looks at 25 ms of them: it always sees the same part of an edge."""


class Sensor(NamedTuple):
    """How a GPU shows its power."""

    see: SeePower
    kind: Literal["average", "instant"]
    """As providers name it."""
    window: float
    """Averaging window in seconds, as the ledger is told it; 0: instant."""


AVERAGE = "average over 1 s"
FULL = "instant, 100 of 100 ms"
QUARTER = "instant, 25 of 100 ms"
SENSORS: dict[str, Sensor] = {
    AVERAGE: Sensor(sensors.averaged, "average", 1.0),
    FULL: Sensor(lambda load: sensors.averaged(load, 0.1, 0.1), "instant", 0.0),
    QUARTER: Sensor(lambda load: sensors.averaged(load, 0.025, 0.1), "instant", 0.0),
}

Spoil = Callable[[Counter, float], Counter]
"""Make an accumulator as a faulty one shows it; the time is the start of the window."""


class Meter(NamedTuple):
    """An accumulator: how often it is renewed, how finely, and what is wrong with it."""

    update: float
    resolution: float
    spoil: Spoil | None = None

    def see(self, load: Load, start: float) -> Counter:
        honest = sensors.accumulator(load, self.update, self.resolution)
        return honest if self.spoil is None else self.spoil(honest, start)


HONEST: dict[str, Meter] = {
    "renewed each 10 ms, 2^-16 J": Meter(0.01, 2**-16),
    "renewed each 20 ms, 1 mJ": Meter(0.02, 1e-3),
    "renewed each 100 ms, 2^-16 J": Meter(0.1, 2**-16),
    "renewed each 100 ms, 1 mJ": Meter(0.1, 1e-3),
}


def _scaled_from(counter: Counter, factor: float, moment: float) -> Counter:
    def read(t: float) -> float | None:
        raw, then = counter(t), counter(moment)
        return raw if t < moment or raw is None or then is None else then + (raw - then) * factor

    return read


FAULTY: dict[str, Meter] = {
    "counts 43 % low": Meter(0.1, 1e-3, lambda honest, _: sensors.scaled(honest, 0.57)),
    "counts 100 times too much": Meter(0.1, 1e-3, lambda honest, _: sensors.scaled(honest, 100.0)),
    "counts in ticks instead of joules": Meter(0.1, 1e-3, lambda honest, _: sensors.scaled(honest, 65_536.0)),
    "stands still for ever": Meter(0.1, 1e-3, lambda _honest, _: lambda _t: 20_909_145.914),
    "stands still from the middle of the window": Meter(
        0.1, 1e-3, lambda honest, start: sensors.frozen(honest, start + 150.0)
    ),
    "pauses 2 s in every 20 s, then catches up": Meter(0.1, 1e-3, lambda honest, _: sensors.paused(honest)),
    "is set to 0 in the middle (driver reload)": Meter(
        0.1, 1e-3, lambda honest, start: sensors.reset_at(honest, start + 150.0)
    ),
    "now and then shows the value of another GPU": Meter(
        0.1, 1e-3, lambda honest, _: sensors.sometimes(honest, lambda t: 9e6 + 300.0 * t)
    ),
    "counts 43 % low from the start of the window, having been right": Meter(
        0.1, 1e-3, lambda honest, start: _scaled_from(honest, 0.57, start)
    ),
}


class Trace(NamedTuple):
    """One window of one load, as sensors see it."""

    load: Load
    power: Power
    counter: Counter | None
    sensor: Sensor
    start: float
    blind: tuple[float, float] | None = None
    """When nothing can be read."""

    @property
    def end(self) -> float:
        return self.start + WINDOW_SECONDS

    @property
    def truth(self) -> float:
        return self.load.joules(self.end) - self.load.joules(self.start)

    def readable(self, t: float) -> bool:
        return self.blind is None or not self.blind[0] <= t < self.blind[1]
