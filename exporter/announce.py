"""What is worth a line in the log when the world has changed: GPUs that come and go, and states that change.

And in one line: how are the GPUs?
"""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.model import DeviceSnapshot, GpuState, World

MAX_LINES = 100
"""At a time: a machine that changes all over is told about in short."""
MAX_NAMED = 8


class Line(NamedTuple):
    level: int
    message: str
    fields: Mapping[str, str | int]


class Announcer:
    """Compares each world with the one before."""

    def __init__(self) -> None:
        self._known: dict[str, DeviceSnapshot] = {}

    def lines(self, world: World) -> list[Line]:
        """Return what to log, each change once.

        Devices that hang or are released are the supervisor's to tell, who knows why.
        """
        now = {device.device.key: device for snapshot in world.snapshots for device in snapshot.devices}
        lines = [*self._arrivals(now), *self._departures(now), *self._changes(now)]
        self._known = now
        if len(lines) > MAX_LINES:
            lines[MAX_LINES:] = [Line(logging.WARNING, "more has changed", {"changes": len(lines) - MAX_LINES})]
        return lines

    def _arrivals(self, now: Mapping[str, DeviceSnapshot]) -> Iterator[Line]:
        new = [device for key, device in now.items() if key not in self._known]
        for provider in dict.fromkeys(device.provider for device in new):
            models = Counter(device.device.model or "unknown" for device in new if device.provider == provider)
            named = ", ".join(f"{count} x {model}" for model, count in models.most_common(10))
            yield Line(logging.INFO, "GPUs found", {"provider": provider, "count": models.total(), "models": named})

    def _departures(self, now: Mapping[str, DeviceSnapshot]) -> Iterator[Line]:
        for key, device in self._known.items():
            if key not in now:
                yield Line(logging.WARNING, "GPU is forgotten", _identity(device))

    def _changes(self, now: Mapping[str, DeviceSnapshot]) -> Iterator[Line]:
        for key, device in now.items():
            before = self._known.get(key)
            was = GpuState.OK if before is None else before.state
            states = {device.state, was}
            if len(states) == 1 or GpuState.HUNG in states:
                continue
            if device.state is GpuState.RELEASED or (was is GpuState.RELEASED and device.state is GpuState.OK):
                continue
            bad = device.state in (GpuState.LOST, GpuState.STALE)
            yield Line(logging.WARNING if bad else logging.INFO, f"GPU is {device.state}", _identity(device))


def summary(world: World) -> str:
    """Return how many GPUs deliver readings, and which do not."""
    if world.released:
        return "the devices are released on request"
    devices = [device for snapshot in world.snapshots for device in snapshot.devices]
    text = f"{sum(device.state.answers for device in devices)} of {len(devices)} GPUs deliver readings"
    bad = [f"{device.gpu} {device.state}" for device in devices if not device.state.answers]
    if bad:
        more = f" and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
        text += f": {', '.join(bad[:MAX_NAMED])}{more}"
    down = [snapshot.provider for snapshot in world.snapshots if snapshot.wanted and not snapshot.up]
    return f"{text}; down: {', '.join(down)}" if down else text


def _identity(device: DeviceSnapshot) -> Mapping[str, str | int]:
    address = {"pci_address": device.device.pci_address} if device.device.pci_address is not None else {}
    return {"gpu": device.gpu, "uuid": device.device.key, **address, "provider": device.provider}
