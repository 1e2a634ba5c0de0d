"""What the ledger is told about one read of a device's energy sensors."""

import msgspec


class EnergyReading(msgspec.Struct, frozen=True, kw_only=True):
    """One read of a device's energy sensors, all of the same scope."""

    at: float
    """CLOCK_MONOTONIC seconds in the middle of the read."""
    period_seconds: float = 1.0
    """Nominal time between reads; extra reads between them do not shorten it."""
    power_watts: float | None = None
    power_window_seconds: float | None = None
    """Averaging window of the power reading; 0: instant; None: not known."""
    limit_watts: float | None = None
    """The larger of the current and the default power limit."""
    counter_joules: float | None = None
    counter_range_joules: float | None = None
    """Where the accumulator wraps to 0; None: beyond any lifetime."""
    temperature_celsius: float | None = None
    utilization_ratio: float | None = None
