"""From all that was read in a run to the joules of its windows, each with a verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from exporter.measure import bounds, crosscheck, verdict
from exporter.measure.records import Run, Window
from exporter.measure.results import CrossCheck, GpuResult, RunResult, Source, WindowResult
from exporter.measure.verdict import Track


def evaluate(run: Run, *, number: int = 1, exit_status: int | None = None, interrupted: bool = False) -> RunResult:
    """Return the result of one run of the command, `number` of several, or of a log."""
    known = verdict.tracks(run)
    idle = None if run.idle is None else _window(run, run.idle, known, {})
    watts = {} if idle is None or not idle.power_valid else {gpu.gpu: gpu.mean_watts for gpu in idle.gpus}
    return RunResult(
        number=number,
        windows=tuple(_window(run, window, known, watts) for window in run.windows),
        exit_status=exit_status,
        interrupted=interrupted,
        truncated=run.truncated,
        idle=idle,
        counters_at_start=run.counters_at_start,
        counters_at_end=run.counters_at_end,
    )


def _window(run: Run, window: Window, known: Mapping[str, Track], idle: Mapping[str, float | None]) -> WindowResult:
    found = verdict.reasons(run, window, known)
    start, end = window.start, window.end
    result = WindowResult(
        name=window.name,
        power_valid=not found,
        reasons=found,
        start_timestamp=_unix(run, start),
        queries=window.queries,
        output_tokens=window.output_tokens,
    )
    if end is None or end <= start:
        return result
    gpus = tuple(_gpu(run, track, start, end, idle.get(track.gpu.gpu)) for track in known.values())
    joules, seconds = _sum(gpus, lambda gpu: gpu.joules), end - start
    uncertainty = _sum(gpus, lambda gpu: gpu.uncertainty_joules)
    return msgspec.structs.replace(
        result,
        end_timestamp=_unix(run, end),
        seconds=seconds,
        gpus=gpus,
        joules=joules,
        uncertainty_joules=uncertainty,
        uncertainty_ratio=_per(uncertainty, joules),
        joules_above_idle=_sum(gpus, lambda gpu: gpu.joules_above_idle),
        mean_watts=_per(joules, seconds),
        peak_watts=_sum(gpus, lambda gpu: gpu.peak_watts),
        watts_per_gpu=_per(joules, seconds * len(gpus)),
        joules_per_query=_per(joules, window.queries),
        joules_per_output_token=_per(joules, window.output_tokens),
        output_tokens_per_second_per_gpu=_per(window.output_tokens, seconds * len(gpus)),
        cross_check=_cross_check(run, gpus),
    )


class _Accounts(NamedTuple):
    """What both sensors of a GPU say of one span of time, in joules, and how far each may be off."""

    integrated: float | None
    of_integral: float
    hardware: float | None
    of_accumulator: float


def _accounts(run: Run, track: Track, start: float, end: float) -> _Accounts:
    interval, gpu = run.policy.interval_seconds, track.gpu
    highest = bounds.highest_watts(gpu.limit_watts, track.power)
    faulty = any(fault.touches(start, end) for fault in track.account.faults)
    return _Accounts(
        track.power.joules(start, end),
        bounds.of_integral(
            track.power,
            start,
            end,
            window=gpu.power_window_seconds,
            interval=interval,
            highest=highest,
            resolution=run.policy.resolution_seconds,
        ),
        None if faulty else track.counter.joules(start, end),
        bounds.of_accumulator(
            track.counter,
            start,
            end,
            interval=interval,
            highest=highest,
            resolution=run.policy.resolution_seconds,
        ),
    )


def _contradiction(run: Run, track: Track) -> float:
    """Return by what share a qualified accumulator may be wrong, as all of the run shows; 0: nothing contradicts it."""
    if not track.account.qualified:
        return 0.0
    start = max(track.power.times[0], track.counter.times[0])
    end = min(track.power.times[-1], track.counter.times[-1])
    found = _accounts(run, track, start, end)
    if not found.integrated or found.hardware is None:
        return 0.0
    apart = abs(found.hardware - found.integrated)
    if apart <= found.of_integral + found.of_accumulator:
        return 0.0
    return (apart + found.of_integral) / found.integrated


def _gpu(run: Run, track: Track, start: float, end: float, idle_watts: float | None) -> GpuResult:
    found = _accounts(run, track, start, end)
    joules, uncertainty = found.integrated, found.of_integral
    source: Source = "integrated"
    comparison = None
    if found.hardware is not None and found.integrated is not None:
        comparison = crosscheck.compare(found.hardware, found.integrated, run.policy)
        both = found.of_integral + found.of_accumulator
        if track.account.qualified and crosscheck.believable(found.hardware, found.integrated, both):
            joules, source = found.hardware, "hardware"
            # Where the two contradict each other one of them is wrong, and nobody can say which.
            uncertainty = found.of_accumulator + _contradiction(run, track) * found.hardware
            if (apart := abs(found.hardware - found.integrated)) > both:
                uncertainty = max(uncertainty, apart + found.of_integral)
    watts, seconds = track.power.within(start, end), end - start
    known = joules is not None
    return GpuResult(
        gpu=track.gpu.gpu,
        name=track.gpu.name,
        joules=joules,
        source=source if known else None,
        uncertainty_joules=uncertainty if known else None,
        mean_watts=_per(joules, seconds),
        peak_watts=max(watts, default=None),
        joules_above_idle=None if joules is None or idle_watts is None else joules - idle_watts * seconds,
        integrated_joules=found.integrated,
        hardware_joules=found.hardware,
        divergence_ratio=None if comparison is None else comparison.divergence_ratio,
        divergent=comparison is not None and comparison.beyond,
        readings=len(watts),
        readings_expected=verdict.expected_readings(run, start, end),
        longest_gap_seconds=track.power.longest_gap(start, end),
    )


def _cross_check(run: Run, gpus: Sequence[GpuResult]) -> CrossCheck | None:
    both = [gpu for gpu in gpus if gpu.hardware_joules is not None and gpu.integrated_joules is not None]
    if not both:
        return None
    hardware = sum(gpu.hardware_joules or 0.0 for gpu in both)
    found = crosscheck.compare(hardware, sum(gpu.integrated_joules or 0.0 for gpu in both), run.policy)
    return CrossCheck(
        gpus=tuple(gpu.gpu for gpu in both),
        hardware_joules=found.hardware_joules,
        integrated_joules=found.integrated_joules,
        divergence_ratio=found.divergence_ratio,
        divergent=found.beyond,
    )


def _sum(gpus: Iterable[GpuResult], value: Callable[[GpuResult], float | None]) -> float | None:
    total = 0.0
    for gpu in gpus:
        if (part := value(gpu)) is None:
            return None
        total += part
    return total


def _per(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None


def _unix(run: Run, moment: float) -> float | None:
    """Return the Unix time of a moment, by the reading nearest to it; None: there are no readings."""
    nearest = min(run.points, key=lambda point: abs(point.monotonic - moment), default=None)
    return None if nearest is None else nearest.at + moment - nearest.monotonic
