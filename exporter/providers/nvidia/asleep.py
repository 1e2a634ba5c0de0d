"""Which NVIDIA GPUs are suspended, and what is known of one without a call that would wake it."""

import re
from pathlib import Path

from exporter.kernel import read_small
from exporter.model import Device
from exporter.pci import gpu_addresses
from exporter.providers.sanitise import text
from exporter.providers.sysfs import is_suspended

PCI_VENDOR = 0x10DE

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def awake_and_asleep(root: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the PCI addresses of the GPUs that are awake, and of those that are suspended."""
    addresses = gpu_addresses(PCI_VENDOR, root) or ()
    asleep = tuple(address for address in addresses if is_suspended(root, address) and _is_nvidias(root, address))
    return tuple(address for address in addresses if address not in asleep), asleep


def _is_nvidias(root: Path, address: str) -> bool:
    """Tell whether NVIDIA's module drives it: NVML knows nothing of a card that nouveau has, or nobody."""
    return (root / "sys/bus/pci/devices" / address / "driver").resolve().name == "nvidia"


def may_sleep(root: Path, address: str | None) -> bool:
    """Tell whether the kernel may suspend the GPU while nobody uses it: as a rule a laptop's.

    The kernel module says so of each GPU; where it does not, the bus's own switch does (`on`: never).
    """
    if address is None:
        return False
    said = _said(f"{root}/proc/driver/nvidia/gpus/{address}/power").get("Runtime D3 status")
    if said is not None:
        return said.startswith("Enabled")
    try:
        switch = read_small(f"{root}/sys/bus/pci/devices/{address}/power/control")
    except OSError:
        return False
    return switch.strip() != b"on"


def _said(path: str) -> dict[str, str]:
    """Return what a file of the kernel module says, by name; nothing where there is no such file."""
    try:
        said = read_small(path).decode("utf-8", "replace")
    except OSError:
        said = ""
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}


def sketch(address: str, root: Path) -> Device:
    """Return what the kernel module tells of a GPU that NVML was not asked about.

    The module knows the UUID once the GPU was in use since it was loaded. Before that the address is the key.
    """
    told = _said(f"{root}/proc/driver/nvidia/gpus/{address}/information")
    uuid = told.get("GPU UUID", "")
    minor = told.get("Device Minor", "")
    vendor_uuid = uuid if _UUID.fullmatch(uuid) else None
    return Device(
        vendor="nvidia",
        key=vendor_uuid or address,
        model=text(told.get("Model")),
        pci_address=address,
        vendor_uuid=vendor_uuid,
        minor=int(minor) if minor.isascii() and minor.isdigit() else None,
    )
