"""How the readings of one row of a table become the lines of one family."""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from exporter.exposition.formats import Dialect, announcement
from exporter.exposition.labels import quoted
from exporter.exposition.subjects import Base
from exporter.metrics import Kind, MetricSpec

T = TypeVar("T")

Identity = tuple[Any, ...]
"""Of a series in its family: the values of the table's labels, or these and the key under which the row gave it."""

MOST_SERIES = 20_000
"""Of one family on the page."""
_SPARE = 64


class Lines(NamedTuple):
    """What one rendering of a family gave."""

    plain: str
    openmetrics: str
    """The same, with the time of creation after each series that has one."""
    dropped: int
    """Series left out."""


class Family(Generic[T]):
    """One family of the page. Remembers the text before each value, since series recur from page to page."""

    def __init__(self, spec: MetricSpec[T], base_labels: tuple[str, ...], *, created: bool = False) -> None:
        """Take a row and its table's labels. `created`: say when counters were created, where it is known."""
        self.spec = spec
        self._created = spec.created if created else None
        self.announcements = {dialect: announcement(spec, dialect) for dialect in Dialect}
        names = (*base_labels, *spec.labels)
        self._order = sorted(range(len(names)), key=names.__getitem__)
        labels = ",".join(f'{names[i]}="%s"' for i in self._order)
        self._template = f"{spec.name}{{{labels}}} " if labels else f"{spec.name} "
        self._lowest = 0.0 if spec.kind is Kind.COUNTER else -sys.float_info.max
        self._texts: dict[Identity, str] = {}
        self._dates: dict[str, tuple[Base, str]] = {}
        """By text before a value: of whom it is, and the text before the time of its creation."""

    def render(self, subjects: Sequence[tuple[Base, T]]) -> Lines:
        """Return the lines of all series.

        Left out are a series that is already there, a value that is no finite number (of a counter: or below 0), and
        what is beyond MOST_SERIES.
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
            if text not in values and lowest <= value < math.inf and len(values) < MOST_SERIES:
                values[text] = value
            else:
                dropped += 1
        plain = "".join([f"{text}{value!r}\n" for text, value in values.items()])
        lines = Lines(plain, plain if self._created is None else self._dated(subjects, values), dropped)
        if len(texts) > 2 * len(values) + _SPARE:
            self._texts, self._dates = {}, {}  # most of it is of processes and devices that are gone
        return lines

    def _dated(self, subjects: Sequence[tuple[Base, T]], values: Mapping[str, float]) -> str:
        """Return the lines, each followed by that of its creation: samples of one series must not be parted."""
        read: Any = self._created
        starts: dict[Base, str] = {}
        for base, subject in subjects:
            start = _number(read(subject))
            if 0.0 <= start < math.inf:
                starts.setdefault(base, f"{start!r}\n")
        lines = []
        for text, value in values.items():
            base, created = self._dates[text]
            lines.append(f"{text}{value!r}\n")
            if base in starts:
                lines.append(created + starts[base])
        return "".join(lines)

    def _readings(self, subjects: Sequence[tuple[Base, T]]) -> list[tuple[Identity, Any]]:
        read: Any = self.spec.read
        if not self.spec.labels:
            return [(base, read(subject)) for base, subject in subjects]
        return [((base, key), raw) for base, subject in subjects for key, raw in sorted((read(subject) or {}).items())]

    def _text(self, identity: Identity) -> str:
        values: Identity = identity
        if self.spec.labels:
            of, key = identity
            values = (*of, key) if isinstance(key, str) else (*of, *key)
        text = self._template % tuple(quoted(values[i]) for i in self._order)
        if self._created is not None and text not in self._dates:
            name = self.spec.name
            base: Base = identity[0] if self.spec.labels else identity
            self._dates[text] = base, f"{name.removesuffix('_total')}_created{text.removeprefix(name)}"
        return text


def _number(raw: object) -> float:
    """Return what is not a float as one, or NaN."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return math.nan
    try:
        return float(raw)
    except OverflowError:
        return math.nan
