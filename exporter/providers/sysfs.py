"""What the kernel's /sys tells of a PCI device without waking it."""

from pathlib import Path

from exporter.kernel import read_small

SUSPENDED = frozenset({b"suspended", b"suspending"})


def is_suspended(root: Path, address: str | None) -> bool:
    """Tell whether runtime power management has the device at `address` suspended: any call about it would wake it.

    False where the kernel does not say: of devices that cannot be suspended there is no file, or it says `active`.
    """
    if address is None:
        return False
    try:
        status = read_small(f"{root}/sys/bus/pci/devices/{address}/power/runtime_status")
    except OSError:
        return False
    return status.strip() in SUSPENDED
