"""How busy a device is: each load pattern as a track of the power that it asks for.

Patterns with chance in them are drawn once from their seed: a scenario means the same on every host, at each start.
"""

import math
import random
from collections.abc import Iterator

from exporter.providers.simulated.catalogue import Model
from exporter.providers.simulated.physics import Segment, Track, merged
from exporter.providers.simulated.schema import Load, Pattern, Phase

# How long a drawn pattern lasts before it repeats: long beside the windows over which energies are compared.
_DRAWN_SECONDS = 600.0

TINY = 1e-9
MAX_DRAWN = 2_000
"""Bursts that are drawn before a pattern repeats."""


def demand(load: Load, model: Model, index: int = 0) -> Track:
    """Return the power in watts that the load asks for, before any limit. `index` varies copies of a device."""
    if load.pattern != "phases":
        return _demand(load, load.pattern, model, index)
    prefix: list[Segment] = []
    *earlier, last = load.phases
    for phase in earlier:
        prefix += first(_demand(phase, phase.pattern, model, index), phase.seconds or 0.0)
    end = _demand(last, last.pattern, model, index)
    return Track(merged((*prefix, *end.prefix)), end.period)


def share(model: Model, watts: float) -> float:
    """Return what share of the model's full load a power is, 0 to 1."""
    return min(1.0, max(0.0, round((watts - model.idle_watts) / (model.full_watts - model.idle_watts), 9)))


def _demand(load: Pattern, pattern: str, model: Model, index: int) -> Track:
    track = Track((), merged(_segments(load, pattern, index)))
    if pattern == "trace" and load.unit == "watts":
        low, span = 0.0, 1.0
    elif load.watts is not None and pattern not in ("idle", "trace"):
        low = model.idle_watts if load.low_watts is None else load.low_watts
        span = load.watts - low
    else:
        swing = model.full_watts - model.idle_watts
        bottom, top = (0.0, 1.0) if pattern in ("idle", "trace") else (load.low_level, load.level)
        low, span = model.idle_watts + swing * bottom, swing * (top - bottom)
    watts = track.map(lambda x: low + span * x)
    return _shifted(watts, load.phase_seconds + index * load.stagger_seconds)


def _segments(load: Pattern, pattern: str, index: int) -> Iterator[Segment]:
    chance = random.Random(f"{load.seed} {index}")  # noqa: S311 -- a repeatable load, no secret
    match pattern:
        case "square":
            period = 10.0 if load.period_seconds is None else load.period_seconds
            yield Segment(period * load.duty, 1.0)
            yield Segment(period * (1 - load.duty), 0.0)
        case "trace":
            yield from _trace(load)
        case "bursts":
            yield from _bursts(load, chance)
        case "training":
            yield from _training(load, chance)
        case "inference":
            yield from _inference(chance)
        case "idle":
            yield Segment(1.0, 0.0)
        case _:
            yield Segment(1.0, 1.0)


def _bursts(load: Pattern, chance: random.Random) -> Iterator[Segment]:
    passed = 0.0
    length = min(_DRAWN_SECONDS, MAX_DRAWN * (load.gap_seconds + load.burst_seconds))
    while passed < length:
        gap = _exponential(chance, load.gap_seconds)
        yield Segment(gap, 0.0)
        yield Segment(load.burst_seconds, 1.0)
        passed += gap + load.burst_seconds


def _training(load: Pattern, chance: random.Random) -> Iterator[Segment]:
    """Compute, then exchange gradients, step by step; now and then a checkpoint is written and the GPU waits."""
    step = 1.6 if load.period_seconds is None else load.period_seconds
    for _ in range(min(2000, max(1, round(load.checkpoint_seconds / step)))):
        yield Segment(0.78 * step, 0.94 + 0.06 * chance.random())
        yield Segment(0.22 * step, 0.55 + 0.1 * chance.random())
    yield Segment(8.0, 0.06)


def _inference(chance: random.Random) -> Iterator[Segment]:
    """Serve requests at random: a short prefill at full load, then a decode that takes longer and less power."""
    passed = 0.0
    while passed < _DRAWN_SECONDS / 2:
        parts = (
            Segment(_exponential(chance, 0.35), 0.0),
            Segment(0.05 + 0.25 * chance.random(), 0.9 + 0.1 * chance.random()),
            Segment(0.3 + 1.6 * chance.random(), 0.4 + 0.25 * chance.random()),
        )
        passed += sum(p.seconds for p in parts)
        yield from parts


def changes(phase: Phase) -> float:
    """Return how often the load changes during a phase; 0 for the last, which has no end."""
    if phase.seconds is None or (phase.pattern == "trace" and not phase.points):
        return 0.0
    period = list(_segments(phase, phase.pattern, 0))
    lasts = sum(s.seconds for s in period)
    return (phase.seconds / lasts + 1) * len(period) if lasts > 0 else 0.0


def first(track: Track, seconds: float) -> list[Segment]:
    """Return the segments of the first `seconds` of a track without a prefix."""
    laps, rest = divmod(seconds, track.period_seconds)
    cut = list(track.period) * int(laps)
    for s in track.period:
        if rest <= TINY:
            break
        cut.append(Segment(min(s.seconds, rest), s.value))
        rest -= s.seconds
    return cut


def _shifted(track: Track, seconds: float) -> Track:
    """Begin a track without a prefix at a later point of its period."""
    seconds = math.fmod(seconds, track.period_seconds)
    skipped: list[Segment] = []
    kept: list[Segment] = []
    for s in track.period:
        before = min(s.seconds, max(0.0, seconds))
        seconds -= s.seconds
        if before > TINY:
            skipped.append(Segment(before, s.value))
        if s.seconds - before > TINY:
            kept.append(Segment(s.seconds - before, s.value))
    return Track((), (*kept, *skipped))


def _trace(load: Pattern) -> Iterator[Segment]:
    """Each point holds until the next; the last for a second, or until the period is over."""
    times = [point[0] for point in load.points]
    end = times[-1] + 1.0 if load.period_seconds is None else load.period_seconds
    for point, following in zip(load.points, [*times[1:], end], strict=True):
        yield Segment(following - point[0], point[1])


def _exponential(chance: random.Random, mean: float) -> float:
    return max(0.005, -mean * math.log(1.0 - chance.random()))
