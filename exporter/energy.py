"""The energy ledger: from readings of power and of a hardware accumulator to joules that never fall. Pure."""

import msgspec


class EnergyReading(msgspec.Struct, frozen=True, kw_only=True):
    """One read of a device's energy sensors, all of the same scope."""

    at: float
    """CLOCK_MONOTONIC seconds in the middle of the read."""
    power_watts: float | None = None
    power_window_seconds: float | None = None
    limit_watts: float | None = None
    """The larger of the current and the default power limit."""
    counter_joules: float | None = None
    counter_range_joules: float | None = None
    temperature_celsius: float | None = None
    utilization_ratio: float | None = None
