"""How the readings of one row of a table become the lines of one family."""

import math
import sys
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from exporter.exposition.formats import Dialect, announcement
from exporter.exposition.labels import quoted
from exporter.exposition.subjects import Base
from exporter.metrics import Kind, MetricSpec

T = TypeVar("T")

Identity = tuple[Any, ...]
"""Of a series in its family: the values of the table's labels, or these and the key under which the row gave it."""

_SPARE = 64


class Family(Generic[T]):
    """One family of the page. Remembers the text before each value, since series recur from page to page."""

    def __init__(self, spec: MetricSpec[T], base_labels: tuple[str, ...]) -> None:
        self.spec = spec
        self.announcements = {dialect: announcement(spec, dialect) for dialect in Dialect}
        names = (*base_labels, *spec.labels)
        self._order = sorted(range(len(names)), key=names.__getitem__)
        labels = ",".join(f'{names[i]}="%s"' for i in self._order)
        self._template = f"{spec.name}{{{labels}}} " if labels else f"{spec.name} "
        self._lowest = 0.0 if spec.kind is Kind.COUNTER else -sys.float_info.max
        self._texts: dict[Identity, str] = {}

    def render(self, subjects: Sequence[tuple[Base, T]]) -> tuple[str, int]:
        """Return the lines of all series, and how many were left out.

        Left out are a series that is already there, and a value that is no finite number (of a counter: or below 0).
        """
        texts, lowest = self._texts, self._lowest
        values: dict[str, float] = {}
        dropped = 0
        for identity, raw in self._readings(subjects):
            if raw is None:
                continue
            text = texts.get(identity)
            if text is None:
                text = texts[identity] = self._text(identity)
            value = raw if type(raw) is float else _number(raw)
            if text not in values and lowest <= value < math.inf:
                values[text] = value
            else:
                dropped += 1
        if len(texts) > 2 * len(values) + _SPARE:
            self._texts = {}  # most of it is of processes and devices that are gone
        return "".join([f"{text}{value!r}\n" for text, value in values.items()]), dropped

    def _readings(self, subjects: Sequence[tuple[Base, T]]) -> list[tuple[Identity, Any]]:
        read: Any = self.spec.read
        if not self.spec.labels:
            return [(base, read(subject)) for base, subject in subjects]
        return [((base, key), raw) for base, subject in subjects for key, raw in sorted((read(subject) or {}).items())]

    def _text(self, identity: Identity) -> str:
        values: Identity = identity
        if self.spec.labels:
            base, key = identity
            values = (*base, key) if isinstance(key, str) else (*base, *key)
        return self._template % tuple(quoted(values[i]) for i in self._order)


def _number(raw: object) -> float:
    """Return what is not a float as one, or NaN."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return math.nan
    try:
        return float(raw)
    except OverflowError:
        return math.nan
