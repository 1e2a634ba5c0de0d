"""Which GPUs of a vendor does this host have? Asked of PCI, which needs no driver and wakes none of them."""

from pathlib import Path

from exporter.kernel import read_small

# VGA, 3D and other display controllers, and processing accelerators, as which AMD's Instinct cards announce themselves.
_GPU_CLASSES = (b"0x0300", b"0x0302", b"0x0380", b"0x1200")
# A GPU that is lent to a virtual machine is not this host's to read.
_LENT = ("vfio-pci", "pci-stub", "xen-pciback")


def count_gpus(vendor: int, root: Path = Path("/")) -> int | None:
    """Return how many GPUs with this PCI vendor id are there; None: this host does not show PCI devices."""
    addresses = gpu_addresses(vendor, root)
    return None if addresses is None else len(addresses)


def gpu_addresses(vendor: int, root: Path = Path("/")) -> tuple[str, ...] | None:
    """Return where they are (dddd:bb:dd.f, in order); None as of `count_gpus`."""
    devices = root / "sys/bus/pci/devices"
    try:
        return tuple(sorted(device.name for device in devices.iterdir() if _is_gpu(device, vendor)))
    except OSError:
        return None


def _is_gpu(device: Path, vendor: int) -> bool:
    try:
        # Hosts with virtual functions have hundreds of devices, and pages wait while they are looked at.
        if int(read_small(f"{device}/vendor"), 16) != vendor:
            return False
        if not read_small(f"{device}/class").startswith(_GPU_CLASSES):
            return False
    except (OSError, ValueError):  # taken out while we looked
        return False
    if (device / "physfn").exists():  # a virtual function: a slice of a GPU that is counted already
        return False
    return (device / "driver").resolve().name not in _LENT
