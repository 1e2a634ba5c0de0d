"""energy.json: what a measurement found. Its schema is docs/measure.schema.json; fields without a value are absent."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from exporter.measure.records import Counters, Identity, Policy
from exporter.measure.statistics import Statistic, statistic
from exporter.measure.verdict import Reason

VERSION: Final = 1

Source = Literal["hardware", "integrated"]


class _Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class GpuResult(_Record, frozen=True, kw_only=True):
    """One GPU in one window. Joules and what follows from them are absent where an edge has no reading beyond it."""

    gpu: str
    name: str
    joules: float | None = None
    """The number to use, from `source`."""
    source: Source | None = None
    uncertainty_joules: float | None = None
    """The bound of the error of `joules` by method and cadence, without the gain of the sensor."""
    mean_watts: float | None = None
    peak_watts: float | None = None
    """The highest reading in the window."""
    joules_above_idle: float | None = None
    """Without what the GPU draws with nothing to do, as measured before; absent: it was not measured."""
    integrated_joules: float | None = None
    hardware_joules: float | None = None
    """The accumulator's difference, as read; absent too where it was reset or lied in the window."""
    divergence_ratio: float | None = None
    """Accumulator against integral, minus one: advisory."""
    divergent: bool = False
    """Whether that is beyond the policy's tolerance; no part of the verdict."""
    readings: int = 0
    readings_expected: int = 0
    longest_gap_seconds: float | None = None


class CrossCheck(_Record, frozen=True, kw_only=True):
    """Accumulators against integrals over the GPUs that have both: advisory."""

    gpus: tuple[str, ...]
    hardware_joules: float
    integrated_joules: float
    divergence_ratio: float | None = None
    divergent: bool = False


class WindowResult(_Record, frozen=True, kw_only=True):
    """One window: its verdict, each GPU, and all of them. Sums are absent unless every GPU has the number."""

    name: str
    power_valid: bool
    reasons: tuple[Reason, ...] = ()
    start_timestamp: float | None = None
    """Unix seconds."""
    end_timestamp: float | None = None
    seconds: float | None = None
    gpus: tuple[GpuResult, ...] = ()
    joules: float | None = None
    uncertainty_joules: float | None = None
    uncertainty_ratio: float | None = None
    joules_above_idle: float | None = None
    mean_watts: float | None = None
    peak_watts: float | None = None
    """The sum of the highest readings of each: what a supply must give if they meet."""
    watts_per_gpu: float | None = None
    queries: float | None = None
    joules_per_query: float | None = None
    output_tokens: float | None = None
    joules_per_output_token: float | None = None
    output_tokens_per_second_per_gpu: float | None = None
    cross_check: CrossCheck | None = None


class RunResult(_Record, frozen=True, kw_only=True):
    """One run of the command, or all of a log."""

    number: int
    """From 1."""
    windows: tuple[WindowResult, ...]
    exit_status: int | None = None
    """Of the command, 128 + the signal's number where one ended it; absent: it was not run or not waited for."""
    interrupted: bool = False
    """Whether measuring was ended from outside before the command was."""
    truncated: bool = False
    """Whether the log ended within a row, which was left out."""
    idle: WindowResult | None = None
    counters_at_start: Counters | None = None
    counters_at_end: Counters | None = None


class Summary(_Record, frozen=True, kw_only=True):
    """The windows of one name over all runs: only valid ones count, of runs in which the command did not fail."""

    window: str
    runs: int
    valid: int
    """How many count."""
    failed: int = 0
    """How many do not since the command failed; 0 too where it failed in all of them, which then count."""
    gpus: int
    seconds: Statistic | None = None
    joules: Statistic | None = None
    joules_above_idle: Statistic | None = None
    watts_per_gpu: Statistic | None = None
    joules_per_query: Statistic | None = None
    joules_per_output_token: Statistic | None = None
    output_tokens_per_second_per_gpu: Statistic | None = None


class Report(_Record, frozen=True, kw_only=True):
    """The whole of energy.json."""

    version: Literal[1]
    exporter_version: str
    power_valid: bool
    """Whether every window of every run is valid, and there is one."""
    policy: Policy
    gpus: tuple[Identity, ...]
    runs: tuple[RunResult, ...]
    summary: tuple[Summary, ...]
    command: tuple[str, ...] | None = None
    log: str | None = None
    """The name of the log that was read instead of running a command."""
    notes: tuple[str, ...] = ()
    """What a reader should know, one sentence each."""


class IdentityFile(_Record, frozen=True, kw_only=True):
    """identity.json: the GPUs as they were at the start, and at the end."""

    version: Literal[1]
    gpus: tuple[Identity, ...]
    gpus_at_end: tuple[Identity, ...] | None = None


def report(
    runs: Sequence[RunResult],
    *,
    exporter_version: str,
    policy: Policy,
    gpus: Sequence[Identity],
    command: Sequence[str] | None = None,
    log: str | None = None,
    notes: Sequence[str] = (),
) -> Report:
    windows = [window for run in runs for window in run.windows]
    return Report(
        version=VERSION,
        exporter_version=exporter_version,
        power_valid=bool(windows) and all(window.power_valid for window in windows),
        policy=policy,
        gpus=tuple(gpus),
        runs=tuple(runs),
        summary=summaries(runs),
        command=None if command is None else tuple(command),
        log=log,
        notes=tuple(notes),
    )


def summaries(runs: Iterable[RunResult]) -> tuple[Summary, ...]:
    """Return one summary for each name of a window, in the order of their first appearance."""
    by_name: dict[str, list[tuple[WindowResult, bool]]] = {}
    for run in runs:
        for window in run.windows:
            by_name.setdefault(window.name, []).append((window, bool(run.exit_status)))
    return tuple(_summary(name, found) for name, found in by_name.items())


_SUMMARISED = (
    "seconds",
    "joules",
    "joules_above_idle",
    "watts_per_gpu",
    "joules_per_query",
    "joules_per_output_token",
    "output_tokens_per_second_per_gpu",
)


def _summary(name: str, found: Sequence[tuple[WindowResult, bool]]) -> Summary:
    """Summarise windows, of which each comes with whether the command failed."""
    # What a run that broke off did is not what the others did. One that is alone has no mean to spoil.
    whole = [window for window, failed in found if not failed] or [window for window, _ in found]
    valid = [window for window in whole if window.power_valid]
    statistics: dict[str, Any] = {field: statistic(getattr(window, field) for window in valid) for field in _SUMMARISED}
    gpus = max(len(window.gpus) for window, _ in found)
    return Summary(
        window=name,
        runs=len(found),
        valid=len(valid),
        failed=len(found) - len(whole),
        gpus=gpus,
        **statistics,
    )


def encode(record: Report | IdentityFile) -> bytes:
    """Return the file's content, laid out for reading, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def decode_identity(content: bytes) -> IdentityFile:
    """Return what `encode` wrote; raises msgspec.DecodeError, whose message says where."""
    return msgspec.json.decode(content, type=IdentityFile)


def decode_report(content: bytes) -> Report:
    """Return what `encode` wrote; raises msgspec.DecodeError, whose message says where."""
    return msgspec.json.decode(content, type=Report)


def schema() -> bytes:
    """Return the JSON schema of energy.json."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Report)), indent=2) + b"\n"
