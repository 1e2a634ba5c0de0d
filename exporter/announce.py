"""What is worth a line in the log when the world has changed: GPUs that come and go, and states that change."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from exporter.model import DeviceSnapshot, GpuState, World

MAX_LINES = 100
"""At a time: a machine that changes all over is told about in short."""


class Line(NamedTuple):
    level: int
    message: str
    fields: Mapping[str, str | int]


class Announcer:
    """Compares each world with the one before."""

    def __init__(self) -> None:
        self._known: dict[str, DeviceSnapshot] = {}

    def lines(self, world: World) -> list[Line]:
        """Return what to log, each change once. Hung devices are the supervisor's to tell, who knows why."""
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
            states = {device.state, GpuState.OK if before is None else before.state}
            if len(states) == 1 or GpuState.HUNG in states:
                continue
            bad = device.state in (GpuState.LOST, GpuState.STALE)
            yield Line(logging.WARNING if bad else logging.INFO, f"GPU is {device.state}", _identity(device))


def _identity(device: DeviceSnapshot) -> Mapping[str, str | int]:
    address = {"pci_address": device.device.pci_address} if device.device.pci_address is not None else {}
    return {"gpu": device.gpu, "uuid": device.device.key, **address, "provider": device.provider}
