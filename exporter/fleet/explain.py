"""Why does a GPU show what it shows? Each reading as each provider gave it last, and what the ledger made of it."""

import enum
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from exporter.fleet.groups import FIELDS
from exporter.fleet.merge import has
from exporter.fleet.sight import READABLE, Sight
from exporter.fleet.trail import Decision
from exporter.model import DeviceSnapshot, Group, Sample

GROUPS = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES, Group.PROFILING)
"""In the order in which they are shown."""
ABOUT_ANOTHER = frozenset(
    {"power_kind", "power_window_seconds", "power_scope", "energy_counter_scope", "energy_counter_range_joules"}
    | {"energy_counter_at"}
)
"""What other readings are, and no readings themselves."""


class Verdict(enum.Enum):
    OK = "ok"
    """It is what is published."""
    PASSED_OVER = "passed over"
    """Another provider is preferred, and gives it."""
    WITHHELD = "withheld"
    """It is too old."""
    FAILED = "failed"
    """The driver answered with an error."""
    REJECTED = "rejected"
    """The value was outside what is physically possible."""
    NOT_TOLD = "not told"
    """The device or its driver does not tell it."""


class Told(NamedTuple):
    """One reading as one provider gave it last."""

    reading: str
    """Field of Sample."""
    group: Group
    provider: str
    source: str
    """Of metrics.READING_SOURCES; empty: the provider has one source only."""
    value: Any
    """As it was read, in the base unit; None or empty: there was none."""
    age_seconds: float
    lifetime_seconds: float
    """The age from which it is withheld."""
    verdict: Verdict


class Explanation(NamedTuple):
    device: DeviceSnapshot
    readings: tuple[Told, ...]
    """By group and reading, and by preference of their providers. None of a device that is gone, or asleep."""
    decisions: tuple[Decision, ...]
    """Of its own ledger, the newest first."""
    now: float
    """The monotonic time of all this."""


def explain(device: DeviceSnapshot, sights: Iterable[Sight], decisions: Iterable[Decision], now: float) -> Explanation:
    """Explain what is published of a device. `sights`: in order of preference."""
    seen = tuple(sights)
    readings = tuple(told for group in GROUPS for told in _group(device, seen, group, now))
    return Explanation(device, readings, tuple(decisions), now)


def readings_of(group: Group) -> Iterator[str]:
    """Yield the fields of Sample that are readings of a group."""
    return (name for name in FIELDS[group] if name not in ABOUT_ANOTHER)


def _group(device: DeviceSnapshot, sights: tuple[Sight, ...], group: Group, now: float) -> Iterator[Told]:
    read = [(sight, sample) for sight in sights if (sample := _last(sight, group)) is not None]
    for name in readings_of(group):
        given = [one for one in read if has(getattr(one[1], name)) or name in (*one[1].failed, *one[1].rejected)]
        # Where somebody gives it, those who never do are not worth a line.
        for sight, sample in given or read[:1]:
            value = getattr(sample, name)
            yield Told(
                name,
                group,
                sight.provider,
                sample.sources.get(name, ""),
                value,
                max(0.0, now - sample.taken_at[group]),
                sight.readings.lifetime(group),
                _verdict(device, sight, sample, group, name),
            )


def _last(sight: Sight, group: Group) -> Sample | None:
    try:
        return sight.readings.last(group)
    except KeyError:
        return None


def _verdict(device: DeviceSnapshot, sight: Sight, sample: Sample, group: Group, name: str) -> Verdict:
    if name in sample.failed:
        return Verdict.FAILED
    if name in sample.rejected:
        return Verdict.REJECTED
    if not has(getattr(sample, name)):
        return Verdict.NOT_TOLD
    if device.state not in READABLE or group not in sight.shown:
        return Verdict.WITHHELD
    named = device.sources.get(name, device.provider)
    chosen = {source.partition("/")[0] for source in named.split("+")}
    return Verdict.OK if sight.provider in chosen else Verdict.PASSED_OVER
