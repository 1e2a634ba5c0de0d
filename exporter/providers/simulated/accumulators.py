"""What the hardware accumulators of a device show over its life, with all that a scenario makes them do."""

import math
from collections.abc import Iterator, Mapping

from exporter.providers.simulated.catalogue import Model
from exporter.providers.simulated.device import Accumulator, Replacement, Slot, Stretch
from exporter.providers.simulated.physics import Track, Window
from exporter.providers.simulated.schema import Counter, Event

MODULE = "module_watts"
"""Track of the true power of the module; its sensor is the reading module_power_watts."""

_SHOWN: Mapping[str, float] = {"zero": 0.0, "ones": math.inf, "absent": math.nan}


def accumulators(counter: Counter, model: Model, tracks: Mapping[str, Track]) -> dict[Slot, Accumulator]:
    """Return the device's own accumulator, whose scope may be its module, and the module's, where there are any."""
    if counter.kind == "absent" or model.accumulator_period is None:
        return {}
    scope = counter.scope or model.accumulator_scope
    name = MODULE if scope == "module" else "power_watts"
    result: dict[Slot, Accumulator] = {"gpu": _accumulator(counter, model, name, tracks[name])}
    if MODULE in tracks:
        result["module"] = _accumulator(counter, model, MODULE, tracks[MODULE])
    return result


def _accumulator(counter: Counter, model: Model, name: str, track: Track) -> Accumulator:
    replacements = [_replacement(event) for event in counter.events if event.kind in ("zero", "ones", "absent", "swap")]
    if counter.kind in _SHOWN or model.accumulator_zero:
        replacements.append(Replacement(Window(), _SHOWN.get(counter.kind, 0.0)))
    return Accumulator(
        track=name,
        period=counter.period_seconds or model.accumulator_period or 0.0,
        resolution=counter.resolution_joules or model.resolution,
        stretches=tuple(_stretches(counter, track)),
        replacements=tuple(replacements),
    )


def _replacement(event: Event) -> Replacement:
    if event.device is not None:
        return Replacement(event.window, device=event.device)
    return Replacement(event.window, _SHOWN[event.kind])


def _stretches(counter: Counter, track: Track) -> Iterator[Stretch]:
    usual = counter.factor if counter.kind in ("low", "scaled") else 1.0
    now = Stretch(0.0, counter.start_joules, 0.0, usual)
    yield now
    owed_since: float | None = None
    """Energy at which a pause began that will be caught up."""
    for t, event, begins in _moments(counter):
        energy = track.integral(t)
        shown = now.base + now.factor * (energy - now.energy)
        if event.kind == "reset":
            now = Stretch(t, 0.0, energy, now.factor, anew=True)
            owed_since = None if owed_since is None else energy
        elif begins:
            now = Stretch(t, shown, energy, usual * event.factor if event.kind == "scaled" else 0.0)
            owed_since = energy if event.kind == "pausing" else None
        else:
            caught_up = 0.0 if owed_since is None else usual * (energy - owed_since)
            now = Stretch(t, shown + caught_up, energy, usual)
            owed_since = None
        yield now


def _moments(counter: Counter) -> list[tuple[float, Event, bool]]:
    """Return each beginning (True) and end of an event that changes how the accumulator counts, in order."""
    moments: list[tuple[float, Event, bool]] = []
    for event in counter.events:
        if event.kind in ("reset", "frozen", "pausing", "scaled"):
            moments.append((event.from_seconds, event, True))
            if event.kind != "reset" and event.to_seconds is not None:
                moments.append((event.to_seconds, event, False))
    return sorted(moments, key=lambda moment: (moment[0], moment[2]))
