"""What a person at a terminal sees while a measurement runs: one line at the bottom, below what the command prints."""

import os
import select
import time
from collections.abc import Sequence

from exporter.measure.records import Point

_FEWEST_ROWS = 4
_SAVE, _RESTORE, _CLEAR = "\x1b7", "\x1b8", "\x1b[2K"


class Tally:
    """The power of now and the joules so far, for the eye: no edge is interpolated and no reading judged. Pure."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._newest: dict[str, tuple[float, float]] = {}

    def take(self, points: Sequence[Point]) -> None:
        for point in points:
            before = self._newest.pop(point.gpu, None)
            if point.power_watts is None:
                continue
            self._newest[point.gpu] = (point.monotonic, point.power_watts)
            if before is not None:
                self.joules += (point.monotonic - before[0]) * (point.power_watts + before[1]) / 2

    @property
    def watts(self) -> float | None:
        """The sum over the GPUs that gave power at their last reading; None: none did."""
        return sum(watts for _, watts in self._newest.values()) if self._newest else None

    def text(self, what: str, seconds: float, gpus: int, columns: int) -> str:
        watts = self.watts
        parts = (
            "gpu-exporter",
            what,
            f"{seconds:.0f} s",
            f"{gpus} GPU{'' if gpus == 1 else 's'}",
            "no power" if watts is None else scaled(watts, "W"),
            scaled(self.joules, "J"),
        )
        return "  ".join(parts)[: max(0, columns - 1)]


def scaled(value: float, unit: str) -> str:
    """Return four digits and a unit that suits: 3210 W is 3.210 kW."""
    for factor, prefix in ((1e6, "M"), (1e3, "k")):
        if value >= factor:
            value, unit = value / factor, prefix + unit
            break
    return f"{value:.4g} {unit}" if value < 1000 else f"{value:.0f} {unit}"  # noqa: PLR2004 -- as many digits


class LiveLine:
    """Keeps the last row of the terminal to itself: the command's lines scroll above it.

    Nothing is drawn where the terminal is held (Ctrl-S) or is somebody else's at the moment.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._rows = self._columns = 0

    @property
    def columns(self) -> int:
        return self._columns

    def draw(self, text: str) -> None:
        if not self._is_ours():
            return
        size = os.get_terminal_size(self._descriptor)
        if (size.lines, size.columns) != (self._rows, self._columns):
            self._rows, self._columns = size.lines, size.columns
            if self._rows >= _FEWEST_ROWS:
                # A line more, so that the row of the cursor is not the one that is kept.
                self._write(f"\n{_SAVE}\x1b[1;{self._rows - 1}r{_RESTORE}\x1b[1A")
        if self._rows >= _FEWEST_ROWS:
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_CLEAR}{text[: self._columns - 1]}{_RESTORE}")

    def close(self) -> None:
        """Give the row back."""
        if self._rows >= _FEWEST_ROWS:
            self._write(f"{_SAVE}\x1b[{self._rows};1H{_CLEAR}\x1b[r{_RESTORE}")
        self._rows = self._columns = 0

    def _is_ours(self) -> bool:
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False

    def _write(self, text: str) -> None:
        if self._poll.poll(0):
            try:
                os.write(self._descriptor, text.encode())
            except OSError:
                self._rows = 0


def live_line(descriptor: int, terminal: str | None) -> LiveLine | None:
    """Return a line for this descriptor; None: nobody would see it. `terminal`: what $TERM says."""
    return LiveLine(descriptor) if terminal not in (None, "", "dumb") and os.isatty(descriptor) else None


class Progress:
    """Says what is going on, on the live line if there is one."""

    def __init__(self, line: LiveLine | None) -> None:
        self.tally = Tally()
        self.gpus = 0
        self._line = line
        self._what = ""
        self._since = time.monotonic()

    @property
    def is_shown(self) -> bool:
        return self._line is not None

    def begin(self, what: str) -> None:
        """Name what happens from here on; its seconds and joules begin at 0."""
        self._what, self._since, self.tally.joules = what, time.monotonic(), 0.0
        self.draw()

    def draw(self) -> None:
        if self._line is not None:
            seconds = time.monotonic() - self._since
            self._line.draw(self.tally.text(self._what, seconds, self.gpus, columns=1000))

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
