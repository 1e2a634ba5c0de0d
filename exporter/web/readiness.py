"""Would a scrape give the readings of a GPU, and if not, why? It would not matter where the host has none."""

from collections import Counter
from typing import NamedTuple

from exporter.model import NOT_OPENED, DeviceSnapshot, GpuState, Snapshot, World
from exporter.validation import printable

MAX_REASON = 300
"""Characters of what a vendor's library gave as a reason."""


class Readiness(NamedTuple):
    ready: bool
    text: str
    """A verdict, and a line for each provider."""


def readiness(world: World, now: float) -> Readiness:
    """Judge the world at Unix time `now`.

    Ready: the first attempt to open each provider is over, and a GPU delivers or the host is known to have none. One
    GPU will do: a pod that is not ready holds up the update of its DaemonSet on all nodes, and what is wrong with the
    others is on the page.
    """
    reason = _unreadiness(world)
    verdict = f"not ready: {reason}" if reason else "ready"
    return Readiness(not reason, "\n".join([verdict, *(_line(snapshot, now) for snapshot in world.snapshots)]))


def age(timestamp: float | None, now: float) -> str:
    """Return how long ago that was, in words."""
    # The wall clock may have been set back since.
    return "never" if timestamp is None else f"{max(0.0, now - timestamp):.1f} s ago"


def _unreadiness(world: World) -> str:
    if world.released:
        return "the devices are released on request"
    waiting = [snapshot.provider for snapshot in world.snapshots if is_at_first_attempt(snapshot)]
    if waiting:
        return f"{', '.join(waiting)} {'is' if len(waiting) == 1 else 'are'} {NOT_OPENED}"
    if any(_delivers(device) for snapshot in world.snapshots for device in snapshot.devices):
        return ""
    return "" if all(map(_has_no_gpu, world.snapshots)) else "no GPU delivers readings"


def is_at_first_attempt(snapshot: Snapshot) -> bool:
    """Tell whether it has not been found out yet if a provider works."""
    return not snapshot.up and (snapshot.reason or NOT_OPENED) == NOT_OPENED


def _delivers(device: DeviceSnapshot) -> bool:
    """Tell whether it has readings that are not withheld for their age, or sleeps and would give some."""
    return device.state is GpuState.ASLEEP or (device.state is GpuState.OK and bool(device.sample.taken_at))


def _has_no_gpu(snapshot: Snapshot) -> bool:
    """Tell whether it is certain that the host has nothing for this provider: PCI says so, and nobody asked for it."""
    return not snapshot.wanted and snapshot.devices_expected == 0


def _line(snapshot: Snapshot, now: float) -> str:
    parts = [printable(snapshot.reason[:MAX_REASON])] if snapshot.reason else []
    if snapshot.devices:
        delivering = sum(map(_delivers, snapshot.devices))
        rest = Counter(device.state.value for device in snapshot.devices if not _delivers(device))
        also = "".join(f", {count} {state}" for state, count in sorted(rest.items()))
        parts.append(f"{delivering} of {len(snapshot.devices)} GPUs deliver readings{also}")
    elif _has_no_gpu(snapshot):
        parts.append("this host has no such GPU")
    parts.append(f"last reading: {age(snapshot.last_sample_timestamp, now)}")
    return f"{snapshot.provider}: {'; '.join(parts)}"
