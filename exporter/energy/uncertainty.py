"""How far the joules of the newest five minutes may be off, by how they were measured.

The figure is the relative error that is expected of a window: its RMS under loads that are hard to sample stays below
it, and the worst single window below twice of it. tests/unit/energy/test_uncertainty.py holds each row of the tables to
that, by square waves of 0.26 to 31 s and Poisson bursts of 0.1 and 1 s between 80 W and 650 W. What the sensor itself
reads wrongly (-8 % to +13 %, by card) is not in it: no software can know that.
"""

import msgspec

from exporter.energy.accumulator import UPDATE_SECONDS

WINDOW_SECONDS = 300.0
SLICE_SECONDS = 30.0
AVERAGED_SECONDS = 0.5
"""From here on an averaging window is one that slow reads can tile."""

BY_ACCUMULATOR = 3 * UPDATE_SECONDS / WINDOW_SECONDS
"""One update at the edge of the window, at three times the mean power."""

COVERING = 0.005
"""Readings whose windows tile the time: a 1 s average read once a second, 0.1 s windows read ten times a second."""

_COVERED_UP_TO = 1.12
"""Periods per window: timers are late now and then, and jitter is 10 %."""

_AVERAGED = ((1.5, 0.03), (2.0, 0.05), (5.0, 0.17), (15.0, 0.30), (60.0, 0.75))
"""Averages that leave time unseen: up to so many periods per window, so much."""

_INSTANT = ((0.125, 0.01), (0.25, 0.035), (0.5, 0.04), (1.12, 0.075), (2.0, 0.135), (5.0, 0.20), (15.0, 0.40))
"""Instant readings, those that see 25 of each 100 ms, and those of unknown window: up to so many seconds, so much."""

NOTHING_KNOWN = 1.0


def of_integral(window: float | None, elapsed: float) -> float:
    """Return the error of power readings with that averaging window that are `elapsed` seconds apart."""
    if window and elapsed <= _COVERED_UP_TO * window:
        return COVERING
    averaged = window is not None and window >= AVERAGED_SECONDS
    reach = elapsed / window if averaged and window else elapsed
    return next((error for most, error in (_AVERAGED if averaged else _INSTANT) if reach <= most), NOTHING_KNOWN)


class Slice(msgspec.Struct, frozen=True, gc=False, array_like=True):
    seconds: float = 0.0
    doubted: float = 0.0
    """The sum of seconds x their error."""


class Doubt(msgspec.Struct, frozen=True):
    """What the newest minutes were measured by."""

    growing: Slice = Slice()
    slices: tuple[Slice, ...] = ()
    """Finished ones, the newest last, no more than a window has."""

    @property
    def ratio(self) -> float | None:
        """The error expected of the newest window, each second with its own; None: nothing was measured."""
        seconds, doubted = self.growing.seconds, self.growing.doubted
        for part in reversed(self.slices):
            if seconds >= WINDOW_SECONDS:
                break
            seconds, doubted = seconds + part.seconds, doubted + part.doubted
        return doubted / seconds if seconds else None

    def plus(self, seconds: float, error: float) -> "Doubt":
        """Add so many seconds with an error; those that nothing has measured have `NOTHING_KNOWN`."""
        if seconds <= 0:
            return self
        if seconds >= WINDOW_SECONDS:
            return Doubt(Slice(WINDOW_SECONDS, WINDOW_SECONDS * error))
        grown = Slice(self.growing.seconds + seconds, self.growing.doubted + seconds * error)
        if grown.seconds < SLICE_SECONDS:
            return Doubt(grown, self.slices)
        return Doubt(Slice(), (*self.slices, grown)[-round(WINDOW_SECONDS / SLICE_SECONDS) :])
