"""A simulated device: what it is, and what each of its sensors shows at a time.

A device is records that `assembly` makes of a scenario; each answer is a pure function of the seconds since the epoch.
tests/native/plan.c does the same in C.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from exporter.providers.simulated.physics import Track, Window, last_update

Slot = Literal["gpu", "module"]
FaultKind = Literal[
    "hang",
    "crash",
    "exit",
    "abort",
    "delay",
    "error",
    "lost",
    "removed",
    "asleep",
    "flood",
    "leak_memory",
    "leak_descriptors",
    "raw",
]


@dataclass(frozen=True, slots=True)
class Mean:
    """A reading: the mean of a track over a sensor's window."""

    track: str
    window: float
    period: float


@dataclass(frozen=True, slots=True)
class Integral:
    """A reading: a counter that grows with a track."""

    track: str
    start: float = 0.0


@dataclass(frozen=True, slots=True)
class Override:
    """A reading that shows `value` while `window` is open. Infinite: the all-ones value of the raw type."""

    name: str
    window: Window
    value: float


@dataclass(frozen=True, slots=True)
class Stretch:
    """The accumulator from `start` on shows `base` + `factor` x (energy - `energy`), until the next stretch."""

    start: float
    base: float
    energy: float
    factor: float
    anew: bool = False
    """It was reset here: nothing from before carries over."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The accumulator shows another value while `window` is open: that of the device at index `device`, else `value`.

    Not a number: there is none for the time. Infinite: all ones.
    """

    window: Window
    value: float = 0.0
    device: int = -1


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A hardware energy counter over `track`: in steps of `resolution` joules, renewed each `period` seconds."""

    track: str
    period: float
    resolution: float
    stretches: tuple[Stretch, ...]
    replacements: tuple[Replacement, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A partition or process that exists while `window` is open."""

    kind: str
    window: Window
    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to a vendor call named `call` (a trailing * stands for anything) while `window` is open."""

    kind: FaultKind
    window: Window
    call: str = "*"
    status: int = 0
    seconds: float = 0.0
    bytes: float = 0.0
    raw: int = 0
    """Bits of every number in the answer, whatever its type; only stand-ins have such answers."""

    def meant(self, call: str) -> bool:
        return call.startswith(self.call[:-1]) if self.call.endswith("*") else call == self.call


@dataclass(frozen=True, slots=True)
class SimulatedDevice:
    key: str
    vendor: str
    texts: Mapping[str, str] = field(default_factory=dict)
    numbers: Mapping[str, float] = field(default_factory=dict)
    tracks: Mapping[str, Track] = field(default_factory=dict)
    readings: Mapping[str, Mean | Integral] = field(default_factory=dict)
    """A reading of a name replaces the bare track of that name; `tracks["power_watts"]` is the true power."""
    overrides: tuple[Override, ...] = ()
    accumulators: Mapping[Slot, Accumulator] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    faults: tuple[Fault, ...] = ()
    energy_offset: float = 0.0

    def energy(self, t: float) -> float:
        """Return the true joules drawn from the epoch to `t`."""
        return self.energy_offset + self.tracks["power_watts"].integral(t)

    def signal(self, name: str, t: float) -> float | None:
        """Return the reading called `name` at `t`; None: this device has none."""
        shown = self._overridden(name, t)
        if shown is not None:
            return shown
        reading = self.readings.get(name)
        if isinstance(reading, Mean):
            return self.tracks[reading.track].mean(t, reading.window, reading.period)
        if isinstance(reading, Integral):
            return reading.start + self.tracks[reading.track].integral(t)
        track = self.tracks.get(name)
        return self.numbers.get(name) if track is None else track.value(t)

    def power(self, t: float, window: float, period: float) -> float:
        """Return what the power sensor with that window and period shows at `t`."""
        shown = self._overridden("power_watts", t)
        return self.tracks["power_watts"].mean(t, window, period) if shown is None else shown

    def counter_time(self, t: float) -> float | None:
        """Return the sensor's own time of what the accumulator shows at `t`, in seconds since the epoch."""
        accumulator = self.accumulators.get("gpu")
        return None if accumulator is None else last_update(t, accumulator.period)

    def rows_at(self, kind: str, t: float) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.kind == kind and row.window.open_at(t))

    def faults_at(self, t: float, call: str) -> tuple[Fault, ...]:
        return tuple(f for f in self.faults if f.window.open_at(t) and f.meant(call))

    def suffers(self, kind: FaultKind, t: float) -> bool:
        return any(f.kind == kind and f.window.open_at(t) for f in self.faults)

    def _overridden(self, name: str, t: float) -> float | None:
        return next((o.value for o in self.overrides if o.name == name and o.window.open_at(t)), None)
