"""What holds the clocks down, and for how long? The firmware tells by flags or by counters of its own cycles."""

from collections.abc import Mapping
from typing import Any

from exporter.providers.drm.gpu_metrics.record import Metrics
from exporter.providers.drm.gpu_metrics.table import Table

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

_WRAP = 1 << 32
"""Of the counters up to v1_8; those of v1_9 may be of 64 bits."""


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
    """Makes of successive tables of one card whether and how long each reason held its clocks down.

    The unit in which the firmware counts is not documented. Against all that it has counted meanwhile, it is a share of
    the time between the driver's clocks of two tables.
    """

    def __init__(self) -> None:
        self._before: Metrics | None = None
        self._seconds: dict[str, float] = {}

    def step(self, metrics: Metrics) -> tuple[Mapping[str, bool], Mapping[str, float]]:
        """Return what held them down since the table before, and for how many seconds in all since the first one.

        Both are empty where the card does not tell; the seconds where it does not tell them.
        """
        before, self._before = self._before, metrics
        if before is None or before.table != metrics.table:
            self._seconds = {} if metrics.accumulations is None else dict.fromkeys(metrics.residencies, 0.0)
            return metrics.throttled, dict(self._seconds)
        throttled = dict(metrics.throttled)
        share = _seconds_per_count(before, metrics)
        for reason, count in metrics.residencies.items():
            if reason not in before.residencies:
                continue
            step = _step(before.residencies[reason], count)
            if step < 0:  # it was reset
                continue
            throttled[reason] = step > 0
            if share is not None and reason in self._seconds:
                self._seconds[reason] += step * share
        return throttled, dict(self._seconds)


def _seconds_per_count(before: Metrics, after: Metrics) -> float | None:
    if before.accumulations is None or after.accumulations is None:
        return None
    if before.energy_counter_at is None or after.energy_counter_at is None:
        return None
    counted = _step(before.accumulations, after.accumulations)
    seconds = after.energy_counter_at - before.energy_counter_at
    if counted <= 0 or seconds <= 0:
        return None
    return seconds / counted


def _step(before: int, after: int) -> int:
    """Return how far a counter went, over its wrap too; negative: it was reset."""
    step = after - before
    if step < -_WRAP // 2 and before < _WRAP:
        step += _WRAP
    return step
