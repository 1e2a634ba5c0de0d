"""What a measurement is made of: readings, what the GPUs are, windows, and the rules by which it is judged.

Times that joules are computed from are CLOCK_MONOTONIC seconds; Unix times beside them are for people, for logs of
other tools, and to see whether the clock of the host was stepped. In a log that has only Unix times, both are the same.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from exporter.model import GpuState, Scope

MOST_WATTS = 10_000.0
"""More than any GPU or module draws. What is above, or below nothing, is of a broken sensor or in another unit."""
MOST_JOULES = 1e15
"""More than any accumulator counts in its lifetime."""
MOST_SECONDS = 1e11
"""As Unix time that is the year 5138."""


class Point(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One reading of one GPU: a row of samples.csv."""

    at: float
    """Unix seconds of the reading."""
    monotonic: float
    """CLOCK_MONOTONIC seconds in the middle of the read, of the same moment as `at`."""
    gpu: str
    """`model.Device.key`."""
    state: GpuState = GpuState.OK
    power_watts: float | None = None
    counter_joules: float | None = None
    """Hardware accumulator as read."""
    utilization_ratio: float | None = None
    """The newest one, as evidence of a power reading that stands still."""
    temperature_celsius: float | None = None
    """The newest one of the sensor that moves first, as evidence of the same."""


class Identity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU, and what its energy sensors are."""

    gpu: str
    """`model.Device.key`."""
    label: str | None = None
    """How people call it: nvidia0, amd3."""
    vendor: str | None = None
    model: str | None = None
    provider: str | None = None
    pci_address: str | None = None
    serial: str | None = None
    vendor_uuid: str | None = None
    driver_version: str | None = None
    library_version: str | None = None
    package: str | None = None
    partition_mode: str | None = None
    limit_watts: float | None = None
    """The larger of the current and the default power limit."""
    power_kind: Literal["average", "instant"] | None = None
    power_window_seconds: float | None = None
    """Averaging window of the power reading; 0: instant; None: not known."""
    power_scope: Scope = "gpu"
    counter_scope: Scope = "gpu"
    counter_range_joules: float | None = None
    """Where the accumulator wraps to 0; None: beyond any lifetime."""

    @property
    def name(self) -> str:
        return self.label or self.gpu


class Window(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A span of time whose joules are asked for, in CLOCK_MONOTONIC seconds."""

    name: str
    start: float
    end: float | None
    """None: it was begun and never ended, so that no verdict can be given."""
    output_tokens: float | None = None
    queries: float | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """What a command said about itself, at the moment at which it was read."""

    monotonic: float
    kind: Literal["start", "end", "tokens", "queries"]
    name: str | None = None
    """Of start and end: the window's."""
    count: float | None = None
    """Of tokens and queries: how many more."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to the sampling: what is between two readings around it is not known to be whole."""

    monotonic: float
    gpu: str | None
    """None: to all of them."""
    text: str
    """In words for people, without a full stop: the worker of nvidia was killed by signal 9."""


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the hardware accumulators."""

    at: float
    monotonic: float
    joules: Mapping[str, float | None]
    """By GPU."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What readings have to be like for a verdict of valid."""

    interval_seconds: float
    """Nominal time between two readings of a GPU."""
    gap_seconds: float | None = None
    """The longest time between two power readings; None: three intervals, and at least a second."""
    presence_ratio: float = 0.95
    """The least share of the expected power readings."""
    clock_seconds: float = 0.25
    """The furthest that the wall clock may move against the monotonic one, beyond what NTP's slewing does."""
    resolution_seconds: float = 0.0
    """How coarse the times of the readings are: a second in logs of amd-smi."""
    cross_check_ratio: float = 0.05
    """Beyond this the advisory comparison of accumulator and integral is marked; it is no part of the verdict."""

    @property
    def longest_gap_seconds(self) -> float:
        return max(1.0, 3 * self.interval_seconds) if self.gap_seconds is None else self.gap_seconds


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """All that was seen of one run of a command, or that a log tells."""

    points: Sequence[Point]
    """In the order in which they were taken, of all GPUs."""
    windows: tuple[Window, ...]
    policy: Policy
    gpus: tuple[Identity, ...]
    """Those at the start."""
    gpus_at_end: tuple[Identity, ...] | None = None
    """None: nobody looked, as in logs of other tools; the readings tell."""
    idle: Window | None = None
    """A window before the command in which the GPUs had nothing to do."""
    events: tuple[Event, ...] = ()
    counters_at_start: Counters | None = None
    counters_at_end: Counters | None = None
    truncated: bool = False
    """Whether the log ended within a row, which was left out."""


def settle_seconds(policy: Policy, gpus: tuple[Identity, ...]) -> float:
    """Return how long to go on reading after the end of a window, so that its edge is bracketed.

    A mean over the last second speaks of the middle of that second, and one more tick has to lie beyond it.
    """
    window = max((gpu.power_window_seconds or 0.0 for gpu in gpus), default=0.0)
    return window / 2 + 2 * policy.interval_seconds
