"""What went over the links of a device and what went wrong there, of all links of a kind together.

The counters of a link are the driver's and begin anew when it does; links come and go, and so do single readings of
them. A sum of what is there would fall with each of these, and Prometheus would take all that is left of it for an
increase.
"""

import math
from collections.abc import Mapping

from exporter.metrics import LINK_ERRORS, LINK_KINDS
from exporter.model import LinkSample, LinkTotal

MOST_LINKS = 64
"""Of one device that are counted: no driver has half as many, and none makes the parent hold more."""
_RECEIVE, _TRANSMIT = "receive", "transmit"


class LinkCounts:
    """Sums of the steps of each link's counters: 0 at its first reading, and never less than before."""

    def __init__(self) -> None:
        self._teller = ""
        """The provider that told last."""
        self._newest: tuple[LinkSample, ...] = ()
        self._last: dict[tuple[str, str], dict[str, float]] = {}
        """Of each link, what each counter was when it was last told."""
        self._sums: dict[str, dict[str, float]] = {}
        self.totals: tuple[LinkTotal, ...] = ()
        """By kind of link."""

    def observe(self, teller: str, links: tuple[LinkSample, ...]) -> None:
        """Add a reading of the links by a provider. Each has counters of its own, so that no step spans two."""
        if teller != self._teller:
            self._teller = teller
            self._last.clear()
        elif links == self._newest:
            return
        self._newest = links
        each: dict[tuple[str, str], LinkSample] = {}
        for link in links:
            each.setdefault((link.kind, link.link), link)  # one that is told twice would begin anew with each reading
        for which, link in each.items():
            self._add(which, link)
        self.totals = tuple(
            LinkTotal(
                kind=kind,
                receive_bytes=sums.get(_RECEIVE),
                transmit_bytes=sums.get(_TRANSMIT),
                errors={error: sums[error] for error in LINK_ERRORS if error in sums},
            )
            for kind, sums in self._sums.items()
        )

    def _add(self, which: tuple[str, str], link: LinkSample) -> None:
        last = self._last.get(which)
        if last is None:
            if len(self._last) >= MOST_LINKS or link.kind not in LINK_KINDS:
                return
            last = self._last[which] = {}
        sums = self._sums.setdefault(link.kind, {})
        for name, count in _counters(link).items():
            before = last.get(name, count)
            # One that is lower began anew at 0 in the meantime.
            step = count - before if count >= before else count
            sums[name] = sums.get(name, 0.0) + step
            last[name] = count


def _counters(link: LinkSample) -> Mapping[str, float]:
    told = {_RECEIVE: link.receive_bytes, _TRANSMIT: link.transmit_bytes}
    told |= {error: count for error, count in link.errors.items() if error in LINK_ERRORS}
    return {name: count for name, count in told.items() if count is not None and 0 <= count < math.inf}
