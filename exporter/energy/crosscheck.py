"""Whether the accumulator has earned its place, and how far it is from the power readings.

Time covered by both is cut into slices of half a minute. Two slices that agree qualify it; the newest ten give the
divergence; twenty, as two windows running beyond the limit, disqualify it. Slices keep a window from being blind to a
fault that begins in the middle of it.
"""

import msgspec

SLICE_SECONDS = 30.0
SLICES_TO_QUALIFY = 2
SLICES_PER_WINDOW = 10
ALARM_BEYOND = 0.05
"""Honest pairs of sensors agree within 1.6 % over a window."""
QUALIFY_WITHIN = 0.10
DISQUALIFY_BEYOND = 0.20
LEAST_WATTS = 0.1
"""Below this mean power the two agree on nothing: neither evidence for nor against."""
COMPARABLE_SHARE = 0.9
"""Of a window's time: single reads that are late do not spoil it."""


class Slice(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Joules of the same seconds by accumulator and by integral."""

    seconds: float = 0.0
    hardware: float = 0.0
    integrated: float = 0.0
    comparable_seconds: float = 0.0
    """In which the power readings saw the load well enough."""


class CrossCheck(msgspec.Struct, frozen=True):
    qualified: bool = False
    divergence: float | None = None
    """Accumulator against integral, minus one, over the newest window; None: there is no full one that tells."""
    growing: Slice = Slice()
    slices: tuple[Slice, ...] = ()
    """Finished ones, the newest last, as many as two windows have."""
    judged: int = 0
    """How many of the newest count for the next verdict: those since the last one."""


def compare(check: CrossCheck, seconds: float, hardware: float, integrated: float, *, comparable: bool) -> CrossCheck:
    """Add a step of which both accounts are known.

    `comparable`: whether the power readings saw the load well enough (their window is at least the time between them,
    or they came at about 10 Hz). Where they did not, divergence is withheld, nothing is disqualified, and it takes a
    whole window to qualify: instant power at 1 Hz strays by 18 % RMS in a minute, and by 8 % in five.
    """
    old = check.growing
    grown = Slice(
        old.seconds + seconds,
        old.hardware + hardware,
        old.integrated + integrated,
        old.comparable_seconds + seconds * comparable,
    )
    if grown.seconds < SLICE_SECONDS:
        return CrossCheck(check.qualified, check.divergence, grown, check.slices, check.judged)

    slices = (*check.slices, grown)[-2 * SLICES_PER_WINDOW :]
    judged = min(check.judged + 1, 2 * SLICES_PER_WINDOW)
    newest = _divergence(slices, SLICES_PER_WINDOW)
    qualified = check.qualified
    if not qualified:
        needed = SLICES_TO_QUALIFY if _comparable(slices[-SLICES_TO_QUALIFY:]) else SLICES_PER_WINDOW
        found = _divergence(slices, needed) if judged >= needed else None
        qualified = found is not None and abs(found) <= QUALIFY_WITHIN
        judged = needed if qualified else judged
    elif judged == 2 * SLICES_PER_WINDOW and _comparable(slices):
        before = _divergence(slices[:SLICES_PER_WINDOW], SLICES_PER_WINDOW)
        if _beyond(newest) and _beyond(before):
            qualified, judged = False, 0
    divergence = newest if _comparable(slices[-SLICES_PER_WINDOW:]) else None
    return CrossCheck(qualified, divergence, Slice(), slices, judged)


def _comparable(slices: tuple[Slice, ...]) -> bool:
    return sum(part.comparable_seconds for part in slices) >= COMPARABLE_SHARE * sum(part.seconds for part in slices)


def _divergence(slices: tuple[Slice, ...], count: int) -> float | None:
    window = slices[-count:]
    integrated = sum(part.integrated for part in window)
    seconds = sum(part.seconds for part in window)
    if len(window) < count or integrated < LEAST_WATTS * seconds:
        return None
    return sum(part.hardware for part in window) / integrated - 1


def _beyond(divergence: float | None) -> bool:
    return divergence is not None and abs(divergence) > DISQUALIFY_BEYOND
