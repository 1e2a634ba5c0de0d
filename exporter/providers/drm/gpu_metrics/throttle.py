"""What holds the clocks down, and for how long? The firmware tells by flags or by counters of its own cycles."""

from collections.abc import Mapping
from typing import Any

from exporter.providers.drm.gpu_metrics.record import Metrics
from exporter.providers.drm.gpu_metrics.table import Table
from exporter.providers.residency import Cycles, Residency

# Bits of the throttle status that means the same for all chips: SMU_THROTTLER_* of the kernel's amdgpu_smu.h. Left out
# are PPM and FIT (56 and 57), for which there is no reason of ours.
_BITS_OF_REASON: Mapping[str, tuple[int, ...]] = {
    "sw_power_cap": tuple(range(8)),  # PPT0 to PPT3, SPL, FPPT, SPPT, SPPT_APU
    "board_limit": tuple(range(16, 24)),  # TDC, EDC, APCC: currents
    "hw_thermal": (32, 33, 35, 36, 37, 42, 43),  # GPU, core, edge, hotspot, SoC, liquid
    "memory_thermal": (34,),
    "voltage_regulator_thermal": (38, 39, 40, 41, 44, 45),
    "processor_hot": (46, 47),
}
_MASKS = {reason: sum(1 << bit for bit in bits) for reason, bits in _BITS_OF_REASON.items()}

_FIELDS_OF_REASON: Mapping[str, tuple[str, ...]] = {
    "processor_hot": ("prochot_residency",),
    "sw_power_cap": ("ppt_residency", "spl_residency", "fppt_residency", "sppt_residency"),
    "hw_thermal": ("socket_residency", "core_residency", "gfx_residency", "soc_residency"),
    "voltage_regulator_thermal": ("vr_residency",),
    "memory_thermal": ("hbm_residency",),
}
"""v1_6 and later have one of each reason, v3_0 several."""


def read_throttling(table: Table) -> dict[str, Any]:
    """Return fields of Metrics."""
    status = table.raw("throttle_status")
    residencies = {}
    for reason, fields in _FIELDS_OF_REASON.items():
        counts = [count for field in fields if (count := table.raw(field)) is not None]
        if counts:
            residencies[reason] = sum(counts)
    return {
        "throttled": {} if status is None else {reason: bool(status & mask) for reason, mask in _MASKS.items()},
        "residencies": residencies,
        "accumulations": table.raw("accumulations"),
    }


class Throttling:
    """Makes of successive tables of one card whether, and for how long, each reason held its clocks down."""

    def __init__(self) -> None:
        self._residency = Residency()

    def step(self, metrics: Metrics) -> tuple[Mapping[str, bool], Mapping[str, float]]:
        """Return what held them down since the table before, and for how many seconds in all since the first one.

        Both are empty where the card does not tell; the seconds alone where it has no counter of all cycles.
        """
        at = metrics.energy_counter_at
        every = None if at is None else metrics.accumulations
        throttled, seconds = self._residency.observe(
            Cycles(at=at or 0.0, by_driver=True, every=every, held=metrics.residencies)
        )
        return {**metrics.throttled, **throttled}, seconds

    def interrupt(self) -> None:
        """As of `Residency`."""
        self._residency.interrupt()
