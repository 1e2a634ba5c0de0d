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


class Layout(NamedTuple):
    """Which series a family has."""

    bases: Sequence[Base]
    keys: Sequence[tuple[Any, ...] | None]
    """What each reading has a value for, where the family has labels of its own; None: there is no reading."""
    orders: Sequence[Sequence[Any]]
    """The same in the order of the page."""
    texts: Sequence[str]
    """Before each value."""
    dates: Mapping[str, tuple[Base, str]]
    """By text before a value, where it is said: of whom it is, and the text before the time of its creation."""
    is_plain: bool
    """Whether no two are the same, and there is room for all."""


class Family(Generic[T]):
    """One family of the page. Remembers what is common to one page and the next: most series, and many values."""

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
        self._layout = Layout((), (), (), (), {}, is_plain=True)
        self._raws: list[Any] = []
        self._lines = Lines("", "", 0)
        """What came of these readings of the subjects of the layout."""

    def render(self, bases: Sequence[Base], subjects: Sequence[T]) -> Lines:
        """Return the lines of all series, those of before where all readings are equal to it. `bases`: of each subject.

        Left out are a series that is already there, a value that is no finite number (of a counter: or below 0), and
        what is beyond MOST_SERIES.
        """
        read: Any = self.spec.read
        raws = [read(subject) for subject in subjects]
        layout = self._laid_out(bases, raws)
        if layout is self._layout and raws == self._raws and self._created is None:
            return self._lines
        if self.spec.labels:
            values = [raw[key] for raw, order in zip(raws, layout.orders, strict=True) for key in order]
        else:
            values = raws
        lines = self._usual(layout, values) or self._checked(layout, values, subjects)
        self._layout, self._raws, self._lines = layout, raws, lines  # all or none: there may be no memory for lines
        return lines

    def _usual(self, layout: Layout, values: Sequence[Any]) -> Lines | None:
        """Return the lines where every series is shown that has a value, which is a float; None: that is not so."""
        if not layout.is_plain or self._created is not None:
            return None
        lowest, inf = self._lowest, math.inf
        lines = [
            f"{text}{value!r}\n"
            for text, value in zip(layout.texts, values, strict=True)
            if type(value) is float and lowest <= value < inf
        ]
        if len(lines) < len(values) and len(lines) < len(values) - values.count(None):
            return None
        plain = "".join(lines)
        return Lines(plain, plain, 0)

    def _checked(self, layout: Layout, raws: Sequence[Any], subjects: Sequence[T]) -> Lines:
        lowest = self._lowest
        values: dict[str, float] = {}
        dropped = 0
        for text, raw in zip(layout.texts, raws, strict=True):
            if raw is None:
                continue
            value = raw if type(raw) is float else _number(raw)
            if text not in values and lowest <= value < math.inf and len(values) < MOST_SERIES:
                values[text] = value
            else:
                dropped += 1
        plain = "".join([f"{text}{value!r}\n" for text, value in values.items()])
        dated = plain if self._created is None else self._dated(layout, subjects, values)
        return Lines(plain, dated, dropped)

    def _laid_out(self, bases: Sequence[Base], raws: Sequence[Any]) -> Layout:
        """Return which series there are, the same object while they are the same."""
        before = self._layout
        keys = [None if raw is None else tuple(raw) for raw in raws] if self.spec.labels else ()
        if keys == before.keys and bases == before.bases:
            return before
        orders = [sorted(each or ()) for each in keys]
        identities: list[Identity]
        if self.spec.labels:
            identities = [(base, key) for base, order in zip(bases, orders, strict=True) for key in order]
        else:
            identities = list(bases)
        if len(self._texts) > 2 * len(identities) + _SPARE:
            self._texts = {}  # most of it is of processes and devices that are gone
        known = self._texts
        texts = [known.get(identity) or self._text(identity) for identity in identities]
        dates: dict[str, tuple[Base, str]] = {}
        if self._created is not None:
            name = self.spec.name
            began = f"{name.removesuffix('_total')}_created"
            for identity, text in zip(identities, texts, strict=True):
                base: Base = identity[0] if self.spec.labels else identity
                dates.setdefault(text, (base, began + text.removeprefix(name)))
        return Layout(bases, keys, orders, texts, dates, is_plain=len(set(texts)) == len(texts) <= MOST_SERIES)

    def _dated(self, layout: Layout, subjects: Sequence[T], values: Mapping[str, float]) -> str:
        """Return the lines, each followed by that of its creation: samples of one series must not be parted."""
        read: Any = self._created
        starts: dict[Base, str] = {}
        for base, subject in zip(layout.bases, subjects, strict=True):
            start = _number(read(subject))
            if 0.0 <= start < math.inf:
                starts.setdefault(base, f"{start!r}\n")
        lines = []
        for text, value in values.items():
            base, created = layout.dates[text]
            lines.append(f"{text}{value!r}\n")
            if base in starts:
                lines.append(created + starts[base])
        return "".join(lines)

    def _text(self, identity: Identity) -> str:
        values: Identity = identity
        if self.spec.labels:
            of, key = identity
            values = (*of, key) if isinstance(key, str) else (*of, *key)
        text = self._template % tuple(quoted(values[i]) for i in self._order)
        self._texts[identity] = text
        return text


def _number(raw: object) -> float:
    """Return what is not a float as one, or NaN.

    True is 1, as Python holds them equal: a reading of one after the other is seen as no change.
    """
    if not isinstance(raw, int | float):
        return math.nan
    try:
        return float(raw)
    except OverflowError:
        return math.nan
