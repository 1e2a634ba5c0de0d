"""The one gate between what a vendor's library says and a reading: sentinels, types, ranges, units.

Nothing else decides what is "no value". 255 is a legal reading: some libraries treat it as missing, we do not.
"""

import math
from typing import Any, NamedTuple

_ABSENT_TEXT = frozenset({"", "n/a", "na", "none", "unknown", "[n/a]", "not supported", "[not supported]"})

_ALL_ONES = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_HUGE = 2**65
# Blanks that drivers were seen to return as values: 2^47, the DCGM family around 2^63 - 16, and signed maxima.
_BLANKS = (0x7FFFFFFF, 0x7FFFFFF0, 2**47, 2**63 - 1, *range(2**63 - 16, 2**63 - 12))
_SENTINELS = frozenset({*_ALL_ONES, *_BLANKS})


class Range(NamedTuple):
    """Physical bounds in base units, both included."""

    low: float
    high: float


RATIO = Range(0.0, 1.0)
FAN_RATIO = Range(0.0, 2.0)  # NVML: percent of the design maximum, may exceed 100
WATTS = Range(0.0, 5_000.0)
JOULES = Range(0.0, 1e14)
CELSIUS = Range(-60.0, 200.0)
HERTZ = Range(0.0, 2e10)
BYTES = Range(0.0, 2.0**50)
COUNT = Range(0.0, 2.0**53)
LINK_WIDTH = Range(0.0, 64.0)
LINK_GENERATION = Range(0.0, 10.0)
PERFORMANCE_STATE = Range(0.0, 15.0)


class Readings:
    """Cleans the readings of one read and keeps the names of those that broke or were out of range."""

    BITS = 0
    """Width of a raw field of which `number` is not told."""

    def __init__(self) -> None:
        self._failed: dict[str, None] = {}
        self._rejected: dict[str, None] = {}

    @property
    def failed(self) -> tuple[str, ...]:
        return tuple(self._failed)

    @property
    def rejected(self) -> tuple[str, ...]:
        return tuple(self._rejected)

    def broke(self, name: str) -> bool:
        return name in self._failed

    def fail(self, name: str) -> None:
        """Note that a reading broke: an error that does not mean "not supported"."""
        self._failed[name] = None

    def number(
        self, name: str, raw: Any, bounds: Range, scale: float = 1.0, *, per: float = 1.0, bits: int | None = None
    ) -> float | None:
        """Return `raw` x `scale` / `per`, or None when it is absent, a sentinel, or outside `bounds` (rejected).

        `name`: the field of Sample that it is for. Hundredths and thousandths are given as `per`: 35 / 100 is 0.35, and
        35 x 0.01 is 0.35000000000000003.

        `bits`: width of the raw field where only its own all-ones value means missing; 0: any width's does; None: BITS.
        """
        if raw is None:
            return None
        if type(raw) is not int and type(raw) is not float:  # nearly always it is, and this is asked a thousand times
            if isinstance(raw, str) and raw.strip().lower() in _ABSENT_TEXT:
                return None
            if isinstance(raw, bool) or not isinstance(raw, (int, float)):
                self._rejected[name] = None
                return None
        if bits is None:
            bits = self.BITS
        if raw == (1 << bits) - 1 if bits else raw in _SENTINELS:
            return None
        # Compared before scaling: an integer may be too large to become a float at all.
        value = raw * scale / per if -_HUGE < raw < _HUGE else math.inf
        low, high = bounds
        if low <= value <= high:
            return float(value)
        if not (isinstance(raw, float) and math.isnan(raw)):
            self._rejected[name] = None
        return None


def is_sentinel(raw: float, bits: int = 0) -> bool:
    """Tell whether a raw number is one of the values that mean "no value" (see `Readings.number` for `bits`)."""
    if bits:
        return raw == (1 << bits) - 1
    return raw in _SENTINELS


def text(raw: object) -> str | None:
    """Return an identity string without padding, or None. Bytes that are not UTF-8 are replaced, never raised."""
    if isinstance(raw, bytes):
        raw = raw.decode("utf-8", "replace")
    if not isinstance(raw, str):
        return None
    cleaned = raw.replace("\0", "").strip()
    return None if cleaned.lower() in _ABSENT_TEXT else cleaned
