"""Which tool wrote a log, and what run it makes."""

import itertools
from collections.abc import Sequence
from datetime import tzinfo
from statistics import median

from exporter.measure.logs import amd, nvidia
from exporter.measure.logs.log import Log, LogError
from exporter.measure.logs.table import read_table
from exporter.measure.records import Identity, Point, Policy, Run, Window
from exporter.measure.samples import VERSION_LINE, SamplesError, read_samples

MOST_BYTES = 512 << 20
_OUR_NAME = VERSION_LINE.rpartition(" ")[0].encode()
_USUAL_INTERVAL = 1.0


def read_log(content: bytes, *, zone: tzinfo, gpus: Sequence[Identity] = ()) -> Log:
    """Return the readings of a log that may be cut anywhere; raises LogError.

    `zone`: of times that do not say theirs; `gpus`: of the identity.json beside a samples.csv, if it is there.
    """
    if len(content) > MOST_BYTES:
        raise LogError(f"the log is larger than {MOST_BYTES >> 20} MiB: cut it to the window that is asked for")
    if content.startswith(_OUR_NAME):
        return _ours(content, gpus)
    if read_table(content, nvidia.is_head, str).columns:
        return nvidia.read(content, zone)
    if read_table(content, amd.is_head, str).columns:
        return amd.read(content, zone)
    raise LogError(
        "the log has no head that is known: expected samples.csv of gpu-exporter, a CSV of nvidia-smi --query-gpu with "
        "timestamp and power.draw and its head, or one of amd-smi metric --csv --watch with socket_power"
    )


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
    start: float,
    end: float,
    *,
    interval_seconds: float | None = None,
    gap_seconds: float | None = None,
    output_tokens: float | None = None,
    queries: float | None = None,
) -> Run:
    """Return the run of one window of a log, in Unix seconds; without an interval, it is the usual one of the log."""
    policy = Policy(
        interval_seconds=interval_seconds or _interval(log),
        gap_seconds=gap_seconds,
        resolution_seconds=log.resolution_seconds,
    )
    window = Window(
        name="window",
        start=_monotonic(log.points, start),
        end=_monotonic(log.points, end),
        output_tokens=output_tokens,
        queries=queries,
    )
    return Run(points=log.points, windows=(window,), policy=policy, gpus=log.gpus, truncated=log.truncated)


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
