"""The fields of one gpu_metrics table, cleaned by the gate that all readings pass."""

from collections.abc import Iterable, Mapping

from exporter.providers.drm.gpu_metrics.layouts import Layout
from exporter.providers.sanitise import HERTZ, Range, Readings

_MEGAHERTZ = 1e6
_CLOCKS = (("graphics", "gfxclk"), ("memory", "uclk"), ("soc", "socclk"), ("fabric", "fclk"), ("video", "vclk"))


class Table:
    """`name`, in all that is asked: the field of Sample that it is for. A field that this version lacks has no value.

    The driver fills a table with ones before it writes what its chip has, so a number of ones has no value either.
    """

    def __init__(self, raw: bytes, layout: Layout) -> None:
        self.readings = Readings()
        self._raw = raw
        self._layout = layout

    def each(self, field: str, name: str, bounds: Range, scale: float = 1.0, *, per: float = 1.0) -> list[float | None]:
        """Return the numbers of a field, each in its place."""
        numbers = self._layout.numbers(self._raw, field)
        bits = self._layout.bits(field) if numbers else 0
        return [self.readings.number(name, number, bounds, scale, per=per, bits=bits) for number in numbers]

    def one(self, field: str, name: str, bounds: Range, scale: float = 1.0, *, per: float = 1.0) -> float | None:
        return next(iter(self.each(field, name, bounds, scale, per=per)), None)

    def mean(
        self, fields: Iterable[str], name: str, bounds: Range, scale: float = 1.0, *, per: float = 1.0
    ) -> float | None:
        """Return the mean of those numbers of several fields that have a value."""
        values = [value for field in fields for value in self.each(field, name, bounds, scale, per=per)]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def bits(self, field: str) -> int:
        """Return the width of a field that there is."""
        return self._layout.bits(field)

    def raw(self, field: str) -> int | None:
        """Return a number as it is."""
        numbers = self._layout.numbers(self._raw, field)
        return numbers[0] if numbers and numbers[0] != (1 << self._layout.bits(field)) - 1 else None

    def clocks(self) -> Mapping[str, float]:
        """Return clocks by domain, as of now if the chip tells them, else averages; of several dies their mean."""
        clocks = {}
        for domain, clock in _CLOCKS:
            now = self.mean((f"current_{clock}",), "clock_hertz", HERTZ, _MEGAHERTZ)
            value = self.mean((f"average_{clock}",), "clock_hertz", HERTZ, _MEGAHERTZ) if now is None else now
            if value is not None:
                clocks[domain] = value
        return clocks


def known(values: Mapping[str, float | None]) -> dict[str, float]:
    """Leave out what has no value."""
    return {name: value for name, value in values.items() if value is not None}
