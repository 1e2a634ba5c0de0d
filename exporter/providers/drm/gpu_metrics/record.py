"""What a gpu_metrics table says, in base units and in the words of `Sample`."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from exporter.model import LinkSample, Scope


class RefusedError(ValueError):
    """The bytes are no table that can be read; its text is the reason. Nothing in them is to be used."""

    def __init__(self, reason: str, *, torn: bool = False) -> None:
        super().__init__(reason)
        self.torn = torn
        """Whether it may be the driver's writing while it was read, so that a second look may help."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One table. A field named as one of `Sample` has its meaning; None or empty: the table has no value."""

    table: str
    """v1_3, ..."""
    power_watts: float | None = None
    power_kind: Literal["average", "instant"] | None = None
    power_scope: Scope = "gpu"
    """`package` in the tables of APUs: the socket's power is that of the CPU cores too."""
    energy_counter_joules: float | None = None
    energy_counter_range_joules: float | None = None
    energy_counter_at: float | None = None
    """The driver's clock when it made the table, in seconds since boot."""

    utilization_ratio: float | None = None
    memory_controller_utilization_ratio: float | None = None
    engine_utilization_ratio: Mapping[str, float] = {}

    temperature_celsius: Mapping[str, float] = {}
    clock_hertz: Mapping[str, float] = {}
    fan_rpm: float | None = None
    throttled: Mapping[str, bool] = {}
    """From the throttle status that means the same for all chips (v1_3, v2_2 and later of v2)."""
    residencies: Mapping[str, int] = {}
    """By reason: what the firmware has counted while it held clocks down; see `Throttling`."""
    accumulations: int | None = None
    """What the firmware has counted in all, in the unit of `residencies`."""
    pcie_link_generation: float | None = None
    pcie_link_width: float | None = None
    pcie_replays: float | None = None
    links: tuple[LinkSample, ...] | None = None
    partition_count: int | None = None
    partition_utilization_ratio: Mapping[str, float] = {}
    """By number of the partition, of those that the firmware counts."""

    rejected: tuple[str, ...] = ()
    """As of `Sample`."""
