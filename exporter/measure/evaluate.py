"""From all that was read in a run to the joules of its windows, each with a verdict."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from exporter.measure import bounds, crosscheck, verdict
from exporter.measure.records import Run, Window
from exporter.measure.results import CrossCheck, GpuResult, RunResult, Source, WindowResult
from exporter.measure.verdict import Track

MINUTE_SECONDS = 60.0
MINUTE_STEP_SECONDS = 30.0


class Known(NamedTuple):
    """What is known of a GPU before any window is looked at."""

    track: Track
    disagreement: float | None
    """See `_disagreement`."""
    idle_watts: float | None


def knowledge(run: Run) -> dict[str, Known]:
    """Return what all readings of a run tell of each GPU."""
    return {key: Known(track, _disagreement(run, track), idle_watts=None) for key, track in verdict.tracks(run).items()}


def evaluate(
    run: Run,
    *,
    number: int = 1,
    exit_status: int | None = None,
    interrupted: bool = False,
    known: Mapping[str, Known] | None = None,
) -> RunResult:
    """Return the result of one run of the command, `number` of several, or of a log.

    `known`: what readings of all runs tell, where those of `run` are among them; None: what its own do.
    """
    known = knowledge(run) if known is None else known
    idle = None if run.idle is None else _window(run, run.idle, known)
    if idle is not None and idle.power_valid:
        known = {gpu.gpu: known[gpu.gpu]._replace(idle_watts=gpu.mean_watts) for gpu in idle.gpus}
    return RunResult(
        number=number,
        windows=tuple(_window(run, window, known) for window in run.windows),
        exit_status=exit_status,
        interrupted=interrupted,
        truncated=run.truncated,
        idle=idle,
        counters_at_start=run.counters_at_start,
        counters_at_end=run.counters_at_end,
    )


def _window(run: Run, window: Window, known: Mapping[str, Known]) -> WindowResult:
    found = verdict.reasons(run, window, {key: gpu.track for key, gpu in known.items()})
    start, end = window.start, window.end
    result = WindowResult(
        name=window.name,
        power_valid=not found,
        reasons=found,
        start_timestamp=_unix(known, start),
        queries=window.queries,
        output_tokens=window.output_tokens,
    )
    if end is None or end <= start:
        return result
    gpus = tuple(_gpu(run, gpu, start, end) for gpu in known.values())
    joules, seconds = _sum(gpus, lambda gpu: gpu.joules), end - start
    uncertainty = _sum(gpus, lambda gpu: gpu.uncertainty_joules)
    return msgspec.structs.replace(
        result,
        end_timestamp=_unix(known, end),
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


def _disagreement(run: Run, track: Track) -> float | None:
    """Return by what share an accumulator may be wrong, as all of the run shows; None: it may not give any joules.

    As far as the two sensors are apart over the whole run, one of them is wrong, and nobody can say which. Single
    minutes are held to what readings cannot explain: an accumulator may turn wrong in the middle.
    """
    if not track.account.qualified:
        return None
    start = max(track.power.times[0], track.counter.times[0])
    end = min(track.power.times[-1], track.counter.times[-1])
    worst = _apart(_accounts(run, track, start, end), explained=False)
    if worst is None:
        return None
    for step in range(max(0, int((end - start) / MINUTE_STEP_SECONDS) - 1)):
        minute = start + step * MINUTE_STEP_SECONDS
        found = _accounts(run, track, minute, min(end, minute + MINUTE_SECONDS))
        if found.hardware is None:
            continue
        apart = _apart(found, explained=True)
        if apart is None:
            return None
        worst = max(worst, apart)
    return worst


def _apart(found: _Accounts, *, explained: bool) -> float | None:
    """Return how far the accounts are apart as a share of the accumulator's; None: further than can be believed.

    `explained`: without what the bounds of both allow.
    """
    if not found.hardware or found.integrated is None:
        return 0.0
    allowed = found.of_integral + found.of_accumulator
    if not crosscheck.believable(found.hardware, found.integrated, allowed):
        return None
    apart = abs(found.hardware - found.integrated)
    if explained:
        return (apart + found.of_integral) / found.hardware if apart > allowed else 0.0
    return apart / found.hardware


def _gpu(run: Run, known: Known, start: float, end: float) -> GpuResult:
    track = known.track
    found = _accounts(run, track, start, end)
    joules, uncertainty = found.integrated, found.of_integral
    source: Source = "integrated"
    comparison = None
    if found.hardware is not None and found.integrated is not None:
        comparison = crosscheck.compare(found.hardware, found.integrated, run.policy)
        both = found.of_integral + found.of_accumulator
        doubt = known.disagreement
        if doubt is not None and crosscheck.believable(found.hardware, found.integrated, both):
            joules, source = found.hardware, "hardware"
            uncertainty = found.of_accumulator + doubt * found.hardware
            if (apart := abs(found.hardware - found.integrated)) > both:
                uncertainty = max(uncertainty, apart + found.of_integral)
    watts, seconds = track.power.within(start, end), end - start
    there = joules is not None
    return GpuResult(
        gpu=track.gpu.gpu,
        name=track.gpu.name,
        joules=joules,
        source=source if there else None,
        uncertainty_joules=uncertainty if there else None,
        mean_watts=_per(joules, seconds),
        peak_watts=max(watts, default=None),
        joules_above_idle=None if joules is None or known.idle_watts is None else joules - known.idle_watts * seconds,
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


def _unix(known: Mapping[str, Known], moment: float) -> float | None:
    """Return the Unix time of a moment, by a reading near to it; None: there are no readings."""
    found = (gpu.track.readings.nearest(moment) for gpu in known.values())
    nearest = next((point for point in found if point is not None), None)
    return None if nearest is None else nearest.at + moment - nearest.monotonic
