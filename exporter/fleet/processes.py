"""Which processes of a device have series of their own: those that hold the most memory; the others share one."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from exporter.config import ProcessesConfig
from exporter.fleet.tenants import Owners, owner_of
from exporter.model import Owner, ProcessSample, ProcessSeries
from exporter.text import cleaned

OTHER = "other"
"""Value of all labels of the series of the rest."""
LEAD = 1.1
"""By how much more memory takes the place of one that is shown: processes of one program hold much the same."""

Labels = tuple[str, ...]


class Shown(NamedTuple):
    series: tuple[ProcessSeries, ...] = ()
    owners: tuple[Owner, ...] = ()
    """Of the pids that have a series of their own."""
    summed: int = 0
    """Series that were not shown, but summed."""
    unnamed: int = 0
    """Pids that `owners` has no room for."""


class _Held:
    """What the processes that agree in all labels hold."""

    __slots__ = ("bytes", "known", "order", "owner")

    def __init__(self, order: tuple[int, Labels], owner: Owner) -> None:
        self.order = order
        self.owner = owner
        self.bytes = 0.0
        self.known = False

    def add(self, memory: float | None) -> None:
        if memory is not None:
            self.bytes += memory
            self.known = True


class Selection:
    """Chooses anew at each look, and lets those that are shown keep their place while it is close."""

    def __init__(self, config: ProcessesConfig) -> None:
        self._config = config
        self._labels = tuple(dict.fromkeys(config.labels))
        self._names_pids = "pid" in self._labels
        self._shown: frozenset[Labels] = frozenset()

    def choose(self, processes: Iterable[ProcessSample], owners: Owners) -> Shown:
        """Return what is published of these processes. What is not known of one is an empty label."""
        held: dict[Labels, _Held] = {}
        small: dict[Labels, _Held] = {}
        for process in processes:
            owner = owner_of(process, owners) or Owner(pid=process.pid)
            owner = _named(owner, process)
            values = self._values(owner)
            memory = process.memory_used_bytes
            among = small if memory is not None and memory < self._config.minimum_bytes else held
            among.setdefault(values, _Held((owner.pid if self._names_pids else 0, values), owner)).add(memory)
        ranked = sorted(held, key=lambda values: self._rank(values, held[values]))
        top = self._config.top
        self._shown = frozenset(ranked[:top])
        own = sorted(ranked[:top], key=lambda values: held[values].order)
        rest = [held[values] for values in ranked[top:]] + list(small.values())
        return Shown(
            series=self._series([(values, held[values]) for values in own], rest),
            owners=tuple(held[values].owner for values in own) if self._names_pids else (),
            summed=sum(one.known for one in rest),
            unnamed=len(rest) if self._names_pids else 0,
        )

    def _series(self, own: Sequence[tuple[Labels, _Held]], rest: Sequence[_Held]) -> tuple[ProcessSeries, ...]:
        sums = {values: one.bytes for values, one in own if one.known}
        left = [one.bytes for one in rest if one.known]
        if left:
            other = (OTHER,) * len(self._labels)
            sums[other] = sums.get(other, 0.0) + sum(left)
        return tuple(
            ProcessSeries(**dict(zip(self._labels, values, strict=True)), memory_used_bytes=memory)
            for values, memory in sums.items()
        )

    def _values(self, owner: Owner) -> Labels:
        """Return the labels as the page shows them, so that what looks the same there is one series."""
        known = {
            "pid": str(owner.pid),
            "name": owner.name,
            "user": owner.user,
            "workload": "" if owner.workload is None else owner.workload.key,
        }
        return tuple(cleaned(known[label]) for label in self._labels)

    def _rank(self, values: Labels, one: _Held) -> tuple[bool, float, tuple[int, Labels]]:
        """Most memory first, then those of which it is not known."""
        return not one.known, -one.bytes * (LEAD if values in self._shown else 1.0), one.order


def _named(owner: Owner, process: ProcessSample) -> Owner:
    """Return the owner with the name that the provider gives, which has seen the process last."""
    if not process.name or process.name == owner.name:
        return owner
    return Owner(pid=owner.pid, started=owner.started, name=process.name, user=owner.user, workload=owner.workload)
