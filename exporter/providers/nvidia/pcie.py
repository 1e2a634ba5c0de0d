"""PCIe: the link as it is, and the bytes that went over it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from exporter.providers.nvidia.fields import Field
from exporter.providers.nvidia.library import Known
from exporter.providers.nvidia.reading import Reading
from exporter.providers.sanitise import COUNT, LINK_GENERATION, LINK_WIDTH, Range

_BYTES: Mapping[str, Field] = {"pcie_transmit_bytes": (197, 0), "pcie_receive_bytes": (198, 0)}
BYTE_FIELDS: Mapping[Field, str] = {field: name for name, field in _BYTES.items()}
_RAW = Range(0.0, 2.0**64)
_WRAP = 1 << 32


def link(reading: Reading, fixed: Known) -> dict[str, Any]:
    """Read Sample's fields of the link, by name. `fixed`: of this GPU."""
    widest = reading.fixed(fixed, "pcie_link_width_max", "nvmlDeviceGetMaxPcieLinkWidth")
    return {
        "pcie_link_width_max": reading.number("pcie_link_width_max", widest, LINK_WIDTH),
        **{
            name: reading.number(name, reading.get(name, function), bounds)
            for name, function, bounds in (
                ("pcie_link_generation", "nvmlDeviceGetCurrPcieLinkGeneration", LINK_GENERATION),
                ("pcie_link_width", "nvmlDeviceGetCurrPcieLinkWidth", LINK_WIDTH),
                ("pcie_replays", "nvmlDeviceGetPcieReplayCounter", COUNT),
            )
        },
    }


class _Counter(msgspec.Struct):
    raw: int | None
    total: float = 0.0


class ByteCounters:
    """Widens the driver's counters, which wrap: each total begins at 0 with the first read of its GPU.

    Beginning at what the driver has counted would make the total fall to something else than 0 when the worker is
    replaced, as the wraps before are not known then, and Prometheus would count that value anew.
    """

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str], _Counter] = {}

    def read(self, reading: Reading, key: str, fields: Mapping[Field, float]) -> dict[str, float]:
        """Return the totals, in bytes, of the GPU `key`, by Sample's field."""
        totals = {}
        for name, field in _BYTES.items():
            value = reading.number(name, fields.get(field), _RAW, bits=64)
            if value is None:
                continue
            raw = int(value)
            counter = self._counters.setdefault((key, name), _Counter(raw))
            if counter.raw is not None:
                step = raw - counter.raw
                if step < 0 and counter.raw < _WRAP:
                    step += _WRAP
                # One that was beyond 32 bits and falls began anew.
                counter.total += step if step >= 0 else raw
            counter.raw = raw
            totals[name] = counter.total
        return totals

    def forget(self, key: str) -> None:
        """Take the next value of a GPU that was lost, reset or asleep for where its counters begin."""
        for (owner, _), counter in self._counters.items():
            if owner == key:
                counter.raw = None
