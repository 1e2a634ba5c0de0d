"""Which steps of a hardware accumulator are to be believed.

Accumulators update in steps of 10 to 100 ms, pause for seconds and catch up, reset with the driver, and now and then
answer for another device. A step therefore runs from the anchor, the last value that was taken over, and not from the
read before.
"""

import enum
from typing import NamedTuple

import msgspec

from exporter.energy.integral import Segment
from exporter.energy.reading import EnergyReading

FROZEN_AFTER_SECONDS = 3.0
FROZEN_ABOVE_JOULES = 0.1
LIMIT_MARGIN = 1.2
DEFAULT_LIMIT_WATTS = 5_000.0
UPDATE_SECONDS = 0.1
"""The slowest regular update that is known of (NVML)."""


class Verdict(enum.Enum):
    NONE = "none"
    """Unchanged, absent, or the first value: nothing to add."""
    ACCEPTED = "accepted"
    RESET = "reset"
    JUMP = "jump"
    AMBIGUOUS = "ambiguous"
    """The time is long enough for a whole turn of the accumulator's range."""


class Step(NamedTuple):
    """What one reading says of the accumulator. The integral is the power readings' account of the same time."""

    verdict: Verdict
    joules: float
    since: float
    """When the step began: the time of the anchor."""
    integral_joules: float
    """Since the anchor."""
    covered: bool
    """Whether power readings cover the time since the anchor without a gap."""
    spacing: float
    """The longest time between two of them, in seconds."""
    frozen: bool
    """Whether the accumulator stands still, or did until this step."""
    froze: bool
    """Whether this reading is the one that shows it."""

    @property
    def resumed(self) -> bool:
        """Whether it went on after a freeze without catching up: what the step covers is not known."""
        return self.verdict is Verdict.ACCEPTED and self.frozen and self.joules < self.integral_joules / 2


class Accumulator(msgspec.Struct, frozen=True, gc=False):
    """The anchor and what happened since."""

    joules: float | None = None
    """The anchor's raw value; None: no value was ever read."""
    at: float = 0.0
    """When the anchor was read."""
    before_at: float = 0.0
    """When the accumulator was read before that: the anchor's value is younger."""
    read_at: float = 0.0
    """When the accumulator was last read, changed or not."""
    integral_joules: float = 0.0
    gap_seconds: float = 0.0
    spacing: float = 0.0
    """The longest time between two power readings."""
    frozen: bool = False


def follow(
    accumulator: Accumulator, reading: EnergyReading, segment: Segment | None, resolved_at: float | None
) -> tuple[Accumulator, Step]:
    """Judge one reading; `segment` and `resolved_at` are what the power readings said (integral.follow)."""
    raw = reading.counter_joules
    if accumulator.joules is None:
        if raw is not None:
            # There is no read before the first value, which may stand since the start of a pause.
            before = reading.at - FROZEN_AFTER_SECONDS
            accumulator = Accumulator(raw, reading.at, before, reading.at)
        return accumulator, Step(Verdict.NONE, 0.0, reading.at, 0.0, False, 0.0, False, False)

    integral, gap, spacing = accumulator.integral_joules, accumulator.gap_seconds, accumulator.spacing
    if segment is not None:
        spacing = max(spacing, segment.end - segment.start)
    if (part := segment and segment.after(accumulator.at)) is not None:
        if part.joules is None:
            gap += part.end - part.start
        else:
            integral += part.joules
    covered = gap == 0 and resolved_at == reading.at

    if raw is None or raw == accumulator.joules:
        froze = (
            not accumulator.frozen
            and reading.at - accumulator.at >= FROZEN_AFTER_SECONDS
            and integral > FROZEN_ABOVE_JOULES
        )
        frozen = accumulator.frozen or froze
        read_at = accumulator.read_at if raw is None else reading.at
        still = Accumulator(
            accumulator.joules, accumulator.at, accumulator.before_at, read_at, integral, gap, spacing, frozen
        )
        return still, Step(Verdict.NONE, 0.0, accumulator.at, integral, covered, spacing, frozen, froze)

    verdict, joules = _judge(accumulator, raw, reading)
    step = Step(verdict, joules, accumulator.at, integral, covered, spacing, accumulator.frozen, False)
    return Accumulator(raw, reading.at, accumulator.read_at, reading.at), step


def _judge(accumulator: Accumulator, raw: float, reading: EnergyReading) -> tuple[Verdict, float]:
    assert accumulator.joules is not None  # noqa: S101 -- for the type checker: the caller has looked
    limit = reading.limit_watts or DEFAULT_LIMIT_WATTS
    bound = LIMIT_MARGIN * limit * (reading.at - accumulator.before_at + UPDATE_SECONDS)
    size = reading.counter_range_joules
    if size is not None and bound >= size:
        return Verdict.AMBIGUOUS, 0.0
    step = raw - accumulator.joules
    if step < 0:
        if size is None or step + size > bound:
            return Verdict.RESET, 0.0
        step += size
    return (Verdict.JUMP, 0.0) if step > bound else (Verdict.ACCEPTED, step)
