"""Whether the power data of a window can be trusted, and if not, why: in words from a closed list, and in sentences."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, get_args

import msgspec

from exporter.measure.crosscheck import Account, account
from exporter.measure.frozen import Standstill, standstills
from exporter.measure.records import MOST_JOULES, MOST_WATTS, Identity, Point, Run, Window
from exporter.measure.window import CounterLine, PowerLine, Readings
from exporter.model import GpuState

Word = Literal[
    "no_gpus",
    "window",
    "gpus_changed",
    "no_power",
    "edge_start",
    "edge_end",
    "presence",
    "gap",
    "lost",
    "reset",
    "power_frozen",
    "sampler",
    "clock",
]
WORDS: tuple[str, ...] = get_args(Word)

BLIND_RATIO = 0.5
BLIND_SECONDS = 60.0
"""How much of a window, or of time, power may stand where nothing else was read: AMD reads whole watts, and an idle GPU
repeats them for a while."""
SLEW_RATIO = 0.001
"""NTP slews the wall clock by up to 500 ppm, twice that with some daemons, which steps nothing."""


class Reason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that keeps a window from being valid."""

    reason: Word
    gpu: str | None = None
    """Its key; None: the window as a whole."""
    text: str


class Track(NamedTuple):
    """All that was read of one GPU in a run, ready to be asked about windows."""

    gpu: Identity
    readings: Readings
    power: PowerLine
    counter: CounterLine
    account: Account
    standstills: tuple[Standstill, ...]


def tracks(run: Run) -> dict[str, Track]:
    """Return a track for each GPU that is known of: at the start, at the end, or by a reading."""
    identities = {gpu.gpu: gpu for gpu in (*(run.gpus_at_end or ()), *run.gpus)}
    points: dict[str, list[Point]] = {key: [] for key in identities}
    for point in run.points:
        points.setdefault(point.gpu, []).append(_believed(point))
    found = {}
    for key, own in points.items():
        gpu = identities.get(key, Identity(gpu=key))
        power, counter = PowerLine(own, gpu.power_window_seconds), CounterLine(own)
        found[key] = Track(gpu, Readings(own), power, counter, account(own, gpu, run.policy), standstills(own))
    return found


def _believed(point: Point) -> Point:
    """Return the reading without what no sensor can have measured."""
    watts, joules = point.power_watts, point.counter_joules
    if (watts is None or 0 <= watts <= MOST_WATTS) and (joules is None or 0 <= joules <= MOST_JOULES):
        return point
    return msgspec.structs.replace(
        point,
        power_watts=watts if watts is not None and 0 <= watts <= MOST_WATTS else None,
        counter_joules=joules if joules is not None and 0 <= joules <= MOST_JOULES else None,
    )


def reasons(run: Run, window: Window, known: Mapping[str, Track]) -> tuple[Reason, ...]:
    """Return why the window is not valid; none: it is. `known`: `tracks(run)`."""
    start, end = window.start, window.end
    if not known:
        return (Reason(reason="no_gpus", text="No GPU was found."),)
    if end is None:
        return (Reason(reason="window", text="The window was begun and never ended."),)
    if end <= start:
        return (Reason(reason="window", text="The window ends no later than it begins."),)
    sampler = list(_sampler(run, known, start, end))
    if not sampler:
        # A log has rows of it and no events.
        sampler = [reason for track in known.values() for reason in _unread(track, start, end)]
    found = [*_changed(run, known), *sampler]
    for track in known.values():
        found += [*_coverage(run, track, start, end), *_sensors(track, start, end)]
    return (*found, *_clock(run, known, start, end))


def expected_readings(run: Run, start: float, end: float) -> int:
    """Return how many readings of each GPU a window should have at the nominal interval."""
    return max(1, int((end - start) / run.policy.interval_seconds + 1e-6))


def _changed(run: Run, known: Mapping[str, Track]) -> Iterator[Reason]:
    before = {gpu.gpu for gpu in run.gpus}
    after = before if run.gpus_at_end is None else {gpu.gpu for gpu in run.gpus_at_end}
    for key, track in known.items():
        if key not in before:
            text = f"{track.gpu.name} was not there at the start."
        elif key not in after:
            text = f"{track.gpu.name} was not there any more at the end."
        else:
            continue
        yield Reason(reason="gpus_changed", gpu=key, text=text)


def _sampler(run: Run, known: Mapping[str, Track], start: float, end: float) -> Iterator[Reason]:
    for event in run.events:
        if start <= event.monotonic <= end:
            whose = "" if event.gpu is None else f"{_name(known, event.gpu)}: "
            text = f"{whose}{event.text}, {event.monotonic - start:.1f} s into the window."
            yield Reason(reason="sampler", gpu=event.gpu, text=text)


def _unread(track: Track, start: float, end: float) -> Iterator[Reason]:
    states = (GpuState.STALE, GpuState.HUNG)
    unread = next((p for p in track.readings.within(start, end) if p.state in states), None)
    if unread is not None:
        text = f"{track.gpu.name} was not read for a time, {unread.monotonic - start:.1f} s into the window."
        yield Reason(reason="sampler", gpu=track.gpu.gpu, text=text)


def _name(known: Mapping[str, Track], key: str) -> str:
    return known[key].gpu.name if key in known else key


def _coverage(run: Run, track: Track, start: float, end: float) -> Iterator[Reason]:
    key, name, line, policy = track.gpu.gpu, track.gpu.name, track.power, run.policy
    if not line.times:
        yield Reason(reason="no_power", gpu=key, text=f"{name} gave no power reading at all.")
        return
    if not line.begins_by(start):
        late = line.times[0] - start
        text = f"The first power reading of {name} is {late:.2f} s after the start: nothing brackets that edge."
        yield Reason(reason="edge_start", gpu=key, text=text)
    if not line.reaches(end):
        early = end - line.times[-1]
        text = f"The last power reading of {name} is {early:.2f} s before the end: nothing brackets that edge."
        yield Reason(reason="edge_end", gpu=key, text=text)
    expected, seen = expected_readings(run, start, end), len(line.within(start, end))
    # One fewer is what a window has whose edges lie badly between two readings.
    if seen + 1 < policy.presence_ratio * expected:
        text = f"{name} has {seen} of {expected} power readings; {100 * policy.presence_ratio:.0f} % are needed."
        yield Reason(reason="presence", gpu=key, text=text)
    gap = line.longest_gap(start, end)
    if gap > policy.longest_gap_seconds:
        text = f"{name} has no power reading for {gap:.2f} s; {policy.longest_gap_seconds:.2f} s is the most."
        yield Reason(reason="gap", gpu=key, text=text)


def _sensors(track: Track, start: float, end: float) -> Iterator[Reason]:
    key, name = track.gpu.gpu, track.gpu.name
    lost = next((p for p in track.readings.within(start, end) if p.state is GpuState.LOST), None)
    if lost is not None:
        text = f"{name} was lost {lost.monotonic - start:.1f} s into the window."
        yield Reason(reason="lost", gpu=key, text=text)
    reset = next((f for f in track.account.faults if f.kind == "reset" and f.touches(start, end)), None)
    if reset is not None:
        text = f"The accumulator of {name} went back {reset.until - start:.1f} s into the window: the GPU was reset."
        yield Reason(reason="reset", gpu=key, text=text)
    for still in track.standstills:
        length = still.until - still.since
        within = min(still.until, end) - max(still.since, start)
        if still.evidence is not None and still.since < end and still.until > start:
            text = f"Power of {name} stood at {still.watts:g} W for {length:.1f} s while {still.evidence}."
        elif still.evidence is None and within >= min(BLIND_RATIO * (end - start), BLIND_SECONDS):
            text = (
                f"Power of {name} stood at {still.watts:g} W for {length:.1f} s, "
                "and there is no other reading by which to tell that it is not stuck."
            )
        else:
            continue
        yield Reason(reason="power_frozen", gpu=key, text=text)


def _clock(run: Run, known: Mapping[str, Track], start: float, end: float) -> Iterator[Reason]:
    """Hold both clocks against each other, and the order of the readings against their times."""
    for track in known.values():
        points = track.readings.around(start, end)
        back = max((p.monotonic - q.monotonic for p, q in itertools.pairwise(points)), default=0.0)
        if back > 0:
            text = f"Times of the readings of {track.gpu.name} go back by {back:.2f} s."
            yield Reason(reason="clock", gpu=track.gpu.gpu, text=text)
            return
        if not points:
            continue
        offsets = [p.at - p.monotonic for p in points]
        moved = max(offsets) - min(offsets)
        if moved > run.policy.clock_seconds + SLEW_RATIO * (points[-1].monotonic - points[0].monotonic):
            text = f"The clock of the host was stepped: it moved by {moved:.2f} s against the monotonic one."
            yield Reason(reason="clock", text=text)
            return
