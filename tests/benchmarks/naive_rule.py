"""What does a rule that compares each reading of an accumulator with the next make of honest ones, and what ours?

Run as `python -m tests.benchmarks.naive_rule [HOURS]`. Both see the same readings; all accumulators are honest, so each
verdict is a false one. The naive rule takes a value that did not change for a freeze, for which it counts the integral,
and a step above 1.2 x limit x time for a jump, for which it counts the integral too.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from exporter.energy import EnergyReading, Ledger, advance
from tests.unit.energy import sensors
from tests.unit.energy.sensors import LIMIT_WATTS, Counter, Load

SETTLED_SECONDS = 90.0
"""After this ours has qualified the accumulator; both are compared from there on."""
PAUSE_PHASE, PAUSE_SECONDS, PAUSE_EVERY_SECONDS = 7.0, 2.0, 20.0


class Naive:
    """Compares each reading with the one before."""

    def __init__(self) -> None:
        self.joules = 0.0
        self.frozen = 0
        self.jumps = 0
        self._last: EnergyReading | None = None

    def observe(self, reading: EnergyReading) -> None:
        before, self._last = self._last, reading
        if before is None or before.counter_joules is None or reading.counter_joules is None:
            return
        elapsed = reading.at - before.at
        integral = ((before.power_watts or 0.0) + (reading.power_watts or 0.0)) / 2 * elapsed
        step = reading.counter_joules - before.counter_joules
        if step == 0:
            self.frozen += 1
            self.joules += integral
        elif step > 1.2 * LIMIT_WATTS * elapsed:
            self.jumps += 1
            self.joules += integral
        else:
            self.joules += step


class Row(NamedTuple):
    """Of one way to read one accumulator; false verdicts are per hour, errors are of the joules of that time."""

    accumulator: str
    way: str
    naive_frozen: float
    naive_jumps: float
    naive_error: float
    our_faults: int
    our_error: float


WAYS: Mapping[str, float] = MappingProxyType({"1 Hz": 1.0, "10 Hz": 0.1, "10 Hz, three scrapers": 0.1})
ACCUMULATORS: Mapping[str, Callable[[Load], Counter]] = MappingProxyType(
    {
        "updates each 100 ms": sensors.accumulator,
        "pauses and catches up": lambda load: sensors.paused(
            sensors.accumulator(load), PAUSE_SECONDS, PAUSE_EVERY_SECONDS, PAUSE_PHASE
        ),
    }
)


def moments(way: str, random: Random, seconds: float) -> list[float]:
    period = WAYS[way]
    times = list(sensors.regular(seconds, period) if period == 1.0 else sensors.jittered(random, seconds, period))
    if "scrapers" in way:
        times = sensors.scraped(random, times, seconds)
    # The last reading is outside a pause, where the accumulator owes nothing.
    return [t for t in times if t <= seconds - (seconds - PAUSE_PHASE) % PAUSE_EVERY_SECONDS - 1.0]


def compare(accumulator: str, way: str, hours: float) -> Row:
    """Return how both rules fare with it."""
    random, seconds = Random(f"{accumulator}{way}"), 3_600.0 * hours
    load = sensors.bursts(random, 1.0, 7.0, seconds)
    power = sensors.averaged(load) if way == "1 Hz" else sensors.instant(load)
    times = moments(way, random, seconds)
    stream: Iterable[EnergyReading] = sensors.readings(
        times, power, ACCUMULATORS[accumulator](load), period=WAYS[way], window=1.0 if way == "1 Hz" else 0.0
    )
    naive, ours = Naive(), Ledger.start()
    settled: tuple[float, float, float] | None = None
    for reading in stream:
        naive.observe(reading)
        ours = advance(ours, reading)
        if settled is None and reading.at >= SETTLED_SECONDS and ours.qualified:
            settled = reading.at, naive.joules, ours.total_joules
    assert settled is not None, "an honest accumulator qualifies"
    true = load.joules(times[-1]) - load.joules(settled[0])
    return Row(
        accumulator,
        way,
        naive.frozen / hours,
        naive.jumps / hours,
        (naive.joules - settled[1]) / true - 1,
        sum(getattr(ours.faults, name) for name in ours.faults.__struct_fields__),
        (ours.total_joules - settled[2]) / true - 1,
    )


def main(arguments: list[str]) -> int:
    """Print the table."""
    hours = float(arguments[1]) if len(arguments) > 1 else 1.0
    print(f"{'':24}{'':24}{'naive: frozen/h':>16}{'jumps/h':>9}{'error':>10}{'ours: faults':>15}{'error':>10}")
    for accumulator in ACCUMULATORS:
        for way in WAYS:
            row = compare(accumulator, way, hours)
            print(
                f"{row.accumulator:24}{row.way:24}{row.naive_frozen:16.0f}{row.naive_jumps:9.0f}{row.naive_error:+10.3%}"
                f"{row.our_faults:15}{row.our_error:+10.3%}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
