"""How is the card connected? Asked of PCI, which answers from the card's own registers."""

from typing import Any

from exporter.providers.drm.reading import Reading
from exporter.providers.sanitise import COUNT, LINK_WIDTH

_GENERATIONS = {"2.5": 1.0, "5": 2.0, "5.0": 2.0, "8": 3.0, "8.0": 3.0, "16.0": 4.0, "32.0": 5.0, "64.0": 6.0}
"""By GT/s, as kernels write it: before 5.7 some without a fraction."""
_SWITCHES = frozenset(
    {
        *((0x1002, device) for device in (0x1470, 0x1471, 0x1478, 0x1479, 0x14A0, 0x14A1)),
        *((0x8086, device) for device in (0x4FA0, 0x4FA1, 0x4FA4, 0xE2FF, 0xE2F0, 0xE2F1)),
    }
)
"""Vendor and device of the switches that are on cards: behind one, the GPU's own link is inside the card."""


def read_link(reading: Reading) -> dict[str, Any]:
    """Read the link between the card and its slot, as fields of Sample."""
    outside = outermost(reading)
    speed = reading.raw("pcie_link_generation", f"{outside}current_link_speed", live=False)
    generation = None
    if speed is not None:
        # "16.0 GT/s PCIe", or "Unknown" while the link is down
        generation = _GENERATIONS.get(next(iter(speed.decode("ascii", "replace").split()), ""))
    return {
        "pcie_link_generation": reading.note("pcie_link_generation", generation, "sysfs"),
        "pcie_link_width": _width(reading, "pcie_link_width", f"{outside}current_link_width"),
        "pcie_link_width_max": _width(reading, "pcie_link_width_max", f"{outside}max_link_width"),
        "pcie_replays": reading.number("pcie_replays", "pcie_replay_count", COUNT),
    }


def outermost(reading: Reading) -> str:
    """Return the path from the card's folder to that of its side of the link to the slot."""
    path = ""
    while (reading.hexadecimal(f"{path}../vendor"), reading.hexadecimal(f"{path}../device")) in _SWITCHES:
        path += "../"
    return path


def _width(reading: Reading, name: str, path: str) -> float | None:
    width = reading.number(name, path, LINK_WIDTH, live=False)
    if width == 0:  # it is down
        reading.sources.pop(name, None)
    return width or None
