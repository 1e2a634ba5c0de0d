"""Joules of a window after the fact, from a log that somebody has."""

import os
import time
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, tzinfo
from pathlib import Path

import msgspec

from exporter import __version__
from exporter.measure import output, tables
from exporter.measure.evaluate import evaluate
from exporter.measure.logs import Log, LogError, read_log, run_of
from exporter.measure.logs.cells import moment
from exporter.measure.output import OutputError, make_directory
from exporter.measure.recorder import choose
from exporter.measure.records import Identity
from exporter.measure.results import Report, decode_identity, report
from exporter.measure.run import tell, write_results

_MOST_BYTES = 512 << 20
_USAGE = 2


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which window of which log."""

    log: str
    start: str | None = None
    """As Unix seconds or ISO 8601, in local time unless it says otherwise; None: of all of it."""
    end: str | None = None
    gpus: tuple[str, ...] = ()
    interval: float | None = None
    tokens: float | None = None
    queries: float | None = None
    output: str | None = None
    markdown: bool = False


def measure_log(request: LogRequest) -> tuple[str, int]:
    """Return the joules of the window as a table, and an exit status.

    0: they can be trusted; 1: they cannot; 2: there is no such window.
    """
    zone = local_zone()
    try:
        found = _read(request, zone)
        result = _report(request, found, zone)
        place = None if request.output is None else make_directory(request.output, time.time())
    except OSError as error:
        tell(f"{request.log}: {error.strerror}")
        return "", _USAGE
    except (LogError, OutputError, ValueError) as error:
        tell(str(error))
        return "", _USAGE
    failed = 0 if place is None else write_results(result, place, markdown=request.markdown)
    text = tables.markdown(result) if request.markdown else tables.terminal(result)
    return text, failed or int(not result.power_valid)


def _read(request: LogRequest, zone: tzinfo) -> Log:
    path = Path(request.log)
    if path.stat().st_size > _MOST_BYTES:
        raise LogError(f"{request.log}: it is larger than {_MOST_BYTES >> 20} MiB: cut it to the window")
    with path.open("rb") as file:
        # A pipe has no size.
        content = file.read(_MOST_BYTES + 1)
    log = read_log(content, zone=zone, gpus=_identities(path))
    chosen = set(choose(request.gpus, log.gpus, {}))
    return log._replace(
        points=tuple(point for point in log.points if point.gpu in chosen),
        gpus=tuple(gpu for gpu in log.gpus if gpu.gpu in chosen),
    )


def _identities(path: Path) -> Sequence[Identity]:
    """Return what lies beside a samples.csv about its GPUs; nothing, if nothing does."""
    try:
        return decode_identity(path.with_name(output.IDENTITY).read_bytes()).gpus
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise LogError(f"{path.with_name(output.IDENTITY)}: {error}") from None


def _report(request: LogRequest, log: Log, zone: tzinfo) -> Report:
    start = None if request.start is None else _moment(request.start, zone)
    end = None if request.end is None else _moment(request.end, zone)
    run = run_of(
        log, start, end, interval_seconds=request.interval, output_tokens=request.tokens, queries=request.queries
    )
    return report(
        [evaluate(run)],
        exporter_version=__version__,
        policy=run.policy,
        gpus=log.gpus,
        log=Path(request.log).name,
        notes=log.notes,
    )


def _moment(text: str, zone: tzinfo) -> float:
    found = moment(text.strip(), zone)
    if found is None:
        raise ValueError(f"{text!r} is no time: give Unix seconds, or one such as 2026-11-30T15:30:00+01:00")
    return found


def local_zone() -> tzinfo:
    """Return the time zone of this host with its changes over the year, as times of logs were written by it."""
    try:
        if name := os.environ.get("TZ", "").lstrip(":"):
            return zoneinfo.ZoneInfo(name)
        with Path("/etc/localtime").open("rb") as file:
            return zoneinfo.ZoneInfo.from_file(file)
    except (OSError, ValueError, zoneinfo.ZoneInfoNotFoundError):
        return UTC
