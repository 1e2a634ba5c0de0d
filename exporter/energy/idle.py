"""Which part of a device's joules it would have used with nothing to do.

At zero load all of them are idle: a context that keeps the clocks up is nobody's work. Under load it is the lowest
power that was seen at zero load, for as long; the rest is active.
"""

import msgspec

BLOCK_SECONDS = 10.0
"""The lowest power is that of a mean over so long: readings that are too low once do not count, and averages over a
second, or an accumulator that pauses for two, have caught up with the load."""


class IdlePower(msgspec.Struct, frozen=True, gc=False):
    """The lowest power at zero load, and the block of zero load that is growing."""

    watts: float | None = None
    """None: there was no zero load for long enough yet."""
    joules: float = 0.0
    seconds: float = 0.0


def follow(idle: IdlePower, joules: float, seconds: float, load: float | None) -> IdlePower:
    """Add joules of so many covered seconds at `load`, a ratio; None: the load is not known."""
    if load != 0:
        return IdlePower(idle.watts) if idle.seconds else idle
    joules, seconds = idle.joules + joules, idle.seconds + seconds
    if seconds < BLOCK_SECONDS:
        return IdlePower(idle.watts, joules, seconds)
    mean = joules / seconds
    # A card that tells 0 W for so long does not tell its power.
    lower = mean > 0 and (idle.watts is None or mean < idle.watts)
    return IdlePower(mean if lower else idle.watts)


def idle_part(idle: IdlePower, joules: float, seconds: float, load: float | None) -> float:
    """Return how many of the joules, booked for so many seconds at `load`, are idle: none while that is not known."""
    if load == 0:
        return joules
    return 0.0 if idle.watts is None else min(joules, idle.watts * seconds)
