"""What a process costs, as the kernel counts it, and what a row of figures comes to."""

import math
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


def pss_mebibytes(pid: int) -> float:
    """Return the proportional share of memory: what it shares with others is divided among them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def processor_seconds(pid: int) -> float:
    """Return user and system time since the process began, of all its threads, those that are gone included.

    Raises ProcessLookupError when it is gone itself.
    """
    try:
        # The clock that clock_getcpuclockid(3) gives of any process: /proc counts in steps of 10 ms.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError as error:
        raise ProcessLookupError(error.errno, f"process {pid}: {error.strerror}") from None


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Fit(NamedTuple):
    """A line through points by least squares."""

    base: float
    slope: float
    r2: float
    """Share of the variance that the line explains."""
    exponent: float
    """Of the growth of what is above the first point, from the second point to the last: 1 is linear."""


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """Fit at least five points whose x rise."""
    assert len(points) >= 5, points
    xs, ys = zip(*points, strict=True)
    line = statistics.linear_regression(xs, ys)
    r2 = statistics.correlation(xs, ys) ** 2
    above = [(math.log(x - xs[0]), math.log(y - ys[0])) for x, y in points[1:] if y > ys[0]]
    exponent = statistics.linear_regression(*zip(*above, strict=True)).slope if len(above) > 1 else 0.0
    return Fit(line.intercept, line.slope, r2, exponent)
