"""What goes wrong when: the faults of a scenario, as what vendor calls suffer and as what readings show instead."""

import math
from collections.abc import Iterator, Mapping
from typing import get_args

import msgspec

from exporter.providers.simulated.device import Fault, FaultKind, Override, SimulatedDevice
from exporter.providers.simulated.schema import FaultSpec

LOST_STATUS: Mapping[str, int] = {"nvidia": 15, "amd": 12}
"""GPU_IS_LOST of NVML, IO of AMD SMI."""

GARBAGE: Mapping[str, float] = {
    "power_watts": 60_000.0,
    "utilization_ratio": 42.0,
    "memory_controller_utilization_ratio": 42.0,
    "memory_used_bytes": 2.0**59,
    "temperature_gpu_celsius": 9_999.0,
    "temperature_hotspot_celsius": 9_999.0,
    "temperature_memory_celsius": 9_999.0,
    "clock_graphics_hertz": 9e11,
    "fan_ratio": 90.0,
}
"""What readings show that are garbage, unless the scenario says so: none of it is physical."""


def call_faults(specs: tuple[FaultSpec, ...], vendor: str) -> tuple[Fault, ...]:
    """Return the faults that vendor calls suffer; `vendor` decides the status of a device that is gone."""
    kinds: Mapping[str, FaultKind] = {kind: kind for kind in get_args(FaultKind)}
    return tuple(
        Fault(
            kind=kinds[spec.kind],
            window=spec.window,
            call=spec.call,
            status=spec.status or (LOST_STATUS.get(vendor, 0) if spec.kind in ("lost", "removed") else 0),
            seconds=spec.seconds,
            bytes=spec.bytes,
        )
        for spec in specs
        if spec.kind in kinds
    )


def overrides(specs: tuple[FaultSpec, ...], device: SimulatedDevice) -> Iterator[Override]:
    """Yield what readings of the device show instead of what they would, the first that is in force wins."""
    for spec in specs:
        window = spec.window
        given = {name: value for name, value in msgspec.structs.asdict(spec.values).items() if value is not None}
        match spec.kind:
            case "ones":
                values = dict.fromkeys(spec.readings or ("power_watts",), math.inf)
            case "garbage":
                values = given or {n: v for n, v in GARBAGE.items() if device.signal(n, 0.0) is not None}
            case "stuck":
                values = given or {n: _shown(device, n, window.start) for n in spec.readings or ("power_watts",)}
            case _:
                continue
        for name, value in values.items():
            yield Override(name, window, float(value))


def _shown(device: SimulatedDevice, name: str, t: float) -> float:
    """Return what the reading shows at `t`; power as the device's main sensor does."""
    if name == "power_watts":
        kind = "average" if "power_average_window_seconds" in device.numbers else "instant"
        window = device.numbers.get(f"power_{kind}_window_seconds", 0.0)
        return device.power(t, window, device.numbers.get(f"power_{kind}_period_seconds", 0.0))
    return device.signal(name, t) or 0.0
