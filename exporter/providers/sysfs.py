"""What the kernel's /sys tells of a PCI device without waking it."""

from pathlib import Path

_SUSPENDED = frozenset({b"suspended", b"suspending"})


def is_suspended(root: Path, address: str | None) -> bool:
    """Tell whether runtime power management has the device at `address` suspended: any call about it would wake it.

    False where the kernel does not say: of devices that cannot be suspended there is no file, or it says `active`.
    """
    if address is None:
        return False
    try:
        # Asked before each read: joining paths piece by piece took a fifth of the time of reading a GPU's energy.
        with open(f"{root}/sys/bus/pci/devices/{address}/power/runtime_status", "rb", buffering=0) as file:  # noqa: PTH123
            status = file.read(64)
    except OSError:
        return False
    return status.strip() in _SUSPENDED
