"""Which device comes before another, and whether two that look the same are one."""

import math

from exporter.model import Device


def position(device: Device) -> tuple[str, float, str]:
    """Sort devices as the bus does; those without an address come last, by index."""
    index = math.inf if device.index is None else device.index
    return (device.pci_address or "~", index, device.key)


def differ(one: Device, other: Device) -> bool:
    """Tell whether two devices with the same key are two devices all the same."""
    if one.pci_address is not None and other.pci_address is not None:
        return one.pci_address != other.pci_address
    return one.index is not None and other.index is not None and one.index != other.index
