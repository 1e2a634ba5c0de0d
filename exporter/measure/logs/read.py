"""Which tool wrote a log, and what run it makes."""

import codecs
import itertools
from collections.abc import Sequence
from datetime import tzinfo
from statistics import median

from exporter.measure.logs import amd, nvidia
from exporter.measure.logs.log import Log, LogError
from exporter.measure.logs.table import Table
from exporter.measure.records import Identity, Point, Policy, Run, Window
from exporter.measure.samples import VERSION_LINE, SamplesError, read_samples

MOST_BYTES = 512 << 20
_OUR_NAME = VERSION_LINE.rpartition(" ")[0].encode()
_USUAL_INTERVAL = 1.0
_INSET_SECONDS = 0.001
"""More than the times of two clocks, read one after the other, are apart."""
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
"""How gzip, zstd, xz, bzip2 and zip begin."""


def read_log(content: bytes, *, zone: tzinfo, gpus: Sequence[Identity] = ()) -> Log:
    """Return the readings of a log that may be cut anywhere; raises LogError.

    `zone`: of times that do not say theirs; `gpus`: of the identity.json beside a samples.csv, if it is there.
    """
    if len(content) > MOST_BYTES:
        raise LogError(f"the log is larger than {MOST_BYTES >> 20} MiB: cut it to the window that is asked for")
    if content.startswith(_COMPRESSED):
        raise LogError("the log is compressed: unpack it first")
    content = _utf8(content)
    if content.startswith(_OUR_NAME):
        return _ours(content, gpus)
    if Table(content, nvidia.is_head).has_head:
        return nvidia.read(content, zone)
    if Table(content, amd.is_head).has_head:
        return amd.read(content, zone)
    raise LogError(
        "the log has no head that is known: expected samples.csv of gpu-exporter, a CSV of nvidia-smi --query-gpu with "
        "timestamp and power.draw and its head, or one of amd-smi metric --csv --watch with socket_power"
    )


def _utf8(content: bytes) -> bytes:
    """Return the text without a mark of byte order: PowerShell writes UTF-16 when output is redirected."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16", errors="replace").encode(errors="replace")
    return content.removeprefix(codecs.BOM_UTF8)


def _ours(content: bytes, gpus: Sequence[Identity]) -> Log:
    try:
        samples = read_samples(content)
    except SamplesError as error:
        raise LogError(str(error)) from None
    described = {gpu.gpu: gpu for gpu in gpus}
    keys = dict.fromkeys((*described, *(point.gpu for point in samples.points)))
    identities = tuple(described.get(key, Identity(gpu=key)) for key in keys)
    return Log("gpu-exporter", samples.points, identities, samples.truncated)


def run_of(
    log: Log,
    start: float | None,
    end: float | None,
    *,
    interval_seconds: float | None = None,
    gap_seconds: float | None = None,
    output_tokens: float | None = None,
    queries: float | None = None,
) -> Run:
    """Return the run of one window of a log, in Unix seconds; without an interval, it is the usual one of the log.

    None: where the log begins or ends. Raises LogError when it has no power.
    """
    policy = Policy(
        interval_seconds=interval_seconds or _interval(log),
        gap_seconds=gap_seconds,
        resolution_seconds=log.resolution_seconds,
    )
    if start is None or end is None:
        first, last = _edges(log, policy.longest_gap_seconds)
        start, end = first if start is None else start, last if end is None else end
    window = Window(
        name="window",
        start=_monotonic(log.points, start),
        end=_monotonic(log.points, end),
        output_tokens=output_tokens,
        queries=queries,
    )
    return Run(points=log.points, windows=(window,), policy=policy, gpus=log.gpus, truncated=log.truncated)


def _edges(log: Log, gap: float) -> tuple[float, float]:
    """Return the Unix times from and until which all that the log has is known.

    GPUs are read one after the other, and begin and end a little apart. One that does so by more than a `gap` is
    missing there, which is for the verdict to say and not for the window to leave out.
    """
    windows = {gpu.gpu: gpu.power_window_seconds or 0.0 for gpu in log.gpus}
    spans: dict[str, tuple[float, float]] = {}
    for point in log.points:
        if point.power_watts is not None:
            first, last = spans.get(point.gpu, (point.at, point.at))
            spans[point.gpu] = min(first, point.at), max(last, point.at)
    if not spans:
        raise LogError(" ".join(("there is no power reading in the log.", *log.notes)))
    began, ended = min(point.at for point in log.points), max(point.at for point in log.points)
    starts = [first for first, _ in spans.values() if first - began <= gap]
    ends = [last - windows.get(key, 0.0) / 2 for key, (_, last) in spans.items() if ended - last <= gap]
    return max(starts, default=began) + _INSET_SECONDS, min(ends, default=ended) - _INSET_SECONDS


def _interval(log: Log) -> float:
    """Return the median time between two readings of a GPU."""
    times: dict[str, list[float]] = {}
    for point in log.points:
        times.setdefault(point.gpu, []).append(point.monotonic)
    spacings = [t - s for own in times.values() for s, t in itertools.pairwise(own) if t > s]
    return median(spacings) if spacings else _USUAL_INTERVAL


def _monotonic(points: Sequence[Point], unix: float) -> float:
    """Return the moment by the clock that readings are ordered by, from the reading nearest to it."""
    nearest = min(points, key=lambda point: abs(point.at - unix), default=None)
    return unix if nearest is None else nearest.monotonic + unix - nearest.at
