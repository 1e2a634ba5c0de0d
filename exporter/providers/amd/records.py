"""Which errors did the driver record of a package since the exporter looks at it.

From ROCm 6.4 AMD SMI lists the records (CPER) that the driver keeps of errors in a ring, and knows the numbers of AMD's
field guide (AFID) in each. Only root may read the ring, and reading does not empty it.
"""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from exporter.model import ErrorEvent
from exporter.providers.amd.calls import Absent, Broken, Calls, code_of, mapping
from exporter.providers.amd.packages import Package
from exporter.providers.sanitise import Readings

KINDS = ("afid", "ras")
"""Of metrics.EVENT_KINDS: what went wrong, and how bad each record is."""
_SEVERITIES = frozenset({"fatal", "non_fatal_uncorrected", "non_fatal_corrected"})
_ANY_SEVERITY = 0b111
_BUFFER_BYTES = 1 << 16
_MOST_CALLS = 256
_MOST_REMEMBERED = 8192
_FILE_ERROR = 14
"""Not root, and up to ROCm 7.13 also: the ring is empty."""
_TIME = "%Y/%m/%d %H:%M:%S"
_AFIDS = range(1, 1 << 16)


class _Record(NamedTuple):
    digest: bytes
    severity: str
    at: float | None
    raw: bytes


class Heard(NamedTuple):
    events: tuple[ErrorEvent, ...] = ()
    kinds: tuple[str, ...] = ()
    """Empty where the records cannot be read."""


class Records:
    """The records of one package: each is an event once, and those from before `since` (Unix time) are none.

    `wall`: Unix time.
    """

    def __init__(self, wall: Callable[[], float], since: float) -> None:
        self._wall = wall
        self._since = since
        self._seen: dict[bytes, None] | None = None
        self._next = 0
        """Where the ring was read to."""
        self._last = b""

    def read(self, calls: Calls, package: Package, readings: Readings) -> Heard:
        """Return what is new. Raises HandleGone."""
        try:
            records = self._fetch(calls, package)
        except Absent:
            return Heard()
        except Broken as error:
            if code_of(error.__cause__) != _FILE_ERROR:
                readings.fail("error_events")
            return Heard()
        first, seen = self._seen is None, self._seen or {}
        fresh = [record for record in records if record.digest not in seen]
        seen |= dict.fromkeys(record.digest for record in fresh)
        self._seen = dict.fromkeys(list(seen)[-_MOST_REMEMBERED:])
        if first:
            fresh = [record for record in fresh if self._is_news(record)]
        return Heard(tuple(event for record in fresh for event in _events(calls, record)), KINDS)

    def _fetch(self, calls: Calls, package: Package) -> list[_Record]:
        """Return the records from where the read before ended; all of them where the ring was overwritten since."""
        page = _page(calls, package, max(self._next - 1, 0))
        if self._next and (not page.records or page.records[0].digest != self._last):
            page = _page(calls, package, 0)
        found = list(page.records)
        for _ in range(_MOST_CALLS):
            if not page.more:
                break
            page = _page(calls, package, page.after)
            found += page.records
        self._next, self._last = (page.after, found[-1].digest) if found else (0, b"")
        return found

    def _is_news(self, record: _Record) -> bool:
        """Tell whether it is of the time since the start; a record from the future is of a clock that was wrong."""
        return record.at is not None and self._since <= record.at <= self._wall() + 1


class _Page(NamedTuple):
    records: list[_Record]
    after: int
    """Where the next begins."""
    more: bool


def _page(calls: Calls, package: Package, cursor: int) -> _Page:
    """Return the records of one call: the package has room for 20 of them, or for what fits into the buffer."""
    answer = calls("amdsmi_get_gpu_cper_entries", package.handle, _ANY_SEVERITY, _BUFFER_BYTES, cursor)
    try:
        entries, after, blobs, status = answer
        after = int(after)
    except (TypeError, ValueError) as error:
        raise Broken("amdsmi_get_gpu_cper_entries") from error
    # Both are in the order of the ring; `entries` is a dict that counts from 0.
    pairs = zip(mapping(entries).values(), blobs if isinstance(blobs, list) else [], strict=False)
    records = [_record(mapping(entry), mapping(blob)) for entry, blob in pairs]
    return _Page(records, after, more=status != 0 and bool(records))


def _record(entry: Mapping[str, Any], blob: Mapping[str, Any]) -> _Record:
    numbers = blob.get("bytes")
    # They are signed, which the package's own decoder of them refuses.
    raw = bytes([number & 0xFF for number in numbers]) if isinstance(numbers, list) else b""
    severity = entry.get("error_severity")
    return _Record(
        digest=hashlib.blake2b(raw, digest_size=16).digest(),
        severity=severity if severity in _SEVERITIES else "unknown",
        at=_unix_time(entry.get("timestamp")),
        raw=raw,
    )


def _unix_time(said: object) -> float | None:
    """Return the Unix time of a time in UTC, as the kernel fills it in; None where it is none."""
    try:
        return datetime.strptime(str(said), _TIME).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _events(calls: Calls, record: _Record) -> list[ErrorEvent]:
    answer = calls.ask("amdsmi_get_afids_from_cper", record.raw).value
    afids = answer[0] if isinstance(answer, tuple) and answer and isinstance(answer[0], list) else []
    return [
        ErrorEvent(kind="ras", code=record.severity, at=record.at),
        *(ErrorEvent(kind="afid", code=str(afid), at=record.at) for afid in afids if afid in _AFIDS),
    ]
