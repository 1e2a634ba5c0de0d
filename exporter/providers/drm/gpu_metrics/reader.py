"""Read the table of one card whole: a torn one is read again once."""

from collections.abc import Callable

from exporter.providers.drm.gpu_metrics.decoding import decode
from exporter.providers.drm.gpu_metrics.record import Metrics, RefusedError


class TableReader:
    """Remembers the table before, of one card.

    The file may be longer than a page, and the driver may make it anew between two pieces of it: then it does not fit
    its own size, or what only grows has fallen.
    """

    def __init__(self) -> None:
        self._before: Metrics | None = None

    def read(self, ask: Callable[[], bytes | None], *, whole: bool = True) -> Metrics | None:
        """Return the table; None where there is none. `ask`: reads the file to its end, in one open.

        `whole`: as of `decode`. Raises RefusedError for what is no table, and whatever `ask` raises.
        """
        raw = ask()
        if raw is None:
            return None
        try:
            metrics = decode(raw, whole=whole)
            torn = self._before is not None and _has_fallen(self._before, metrics)
        except RefusedError as refused:
            if not refused.torn:
                raise
            torn = True
        if torn:
            raw = ask()
            if raw is None:
                return None
            metrics = decode(raw, whole=whole)  # counts, whatever it is: a reset lets counters fall too
        self._before = metrics
        return metrics


def _has_fallen(before: Metrics, after: Metrics) -> bool:
    pairs = (
        (before.energy_counter_joules, after.energy_counter_joules),
        (before.energy_counter_at, after.energy_counter_at),
    )
    return any(old is not None and new is not None and new < old for old, new in pairs)
