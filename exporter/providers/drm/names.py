"""What are a card and its driver called? The kernel knows numbers; names are in lists that distributions install."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from exporter.model import Device
from exporter.providers.drm.cards import Card
from exporter.providers.drm.files import Files
from exporter.providers.sanitise import text

_AMDGPU_IDS = "usr/share/libdrm/amdgpu.ids"
_PCI_IDS = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "var/lib/pciutils/pci.ids")
_BRACKETS = re.compile(r".*\[(.+)\]")
_MOST_LINES = 200_000


def device_of(root: Path, card: Card, files: Files) -> Device:
    """Return the identity that every card has, whatever its driver tells."""
    return Device(
        vendor=card.vendor,
        key=card.name,
        model=model_of(root, card.vendor_id, card.device_id, card.revision),
        pci_address=card.pci_address,
        minor=card.minor,
        driver_version=driver_version(root, card.driver, files),
    )


@functools.lru_cache(maxsize=64)
def model_of(root: Path, vendor: int | None, device: int | None, revision: int | None) -> str | None:
    """Return the name of a card by its PCI numbers, or these in the form of lspci; None: it has none.

    AMD's list comes first: it tells models apart that share a chip, by their revision.
    """
    if vendor is None or device is None:
        return None
    amds = _of_amd(root, device, revision) if vendor == 0x1002 and revision is not None else None  # noqa: PLR2004 -- AMD
    return amds or _of_pci(root, vendor, device) or f"{vendor:04x}:{device:04x}"


def driver_version(root: Path, driver: str, files: Files) -> str | None:
    """Return the version of a driver's module, which one built apart from the kernel has, else that of the kernel."""
    for path in (f"sys/module/{driver}/version", "proc/sys/kernel/osrelease"):
        try:
            version = text(files.read(f"{root}/{path}"))
        except OSError:
            continue
        if version is not None:
            return version
    return None


def _of_amd(root: Path, device: int, revision: int) -> str | None:
    start = f"{device:04X},\t{revision:02X},\t"
    return next((line[len(start) :].strip() for line in _lines(root / _AMDGPU_IDS) if line.startswith(start)), None)


def _of_pci(root: Path, vendor: int, device: int) -> str | None:
    """Read names such as `Navi 31 [Radeon RX 7900 XT/7900 XTX]`: what is in brackets is what it is sold as."""
    for path in _PCI_IDS:
        inside = False
        for line in _lines(root / path):
            if inside and line.startswith(f"\t{device:04x}  "):
                name = line[7:].strip()
                match = _BRACKETS.fullmatch(name)
                return match[1] if match else name
            if line[:1] not in ("\t", "#", "\n"):
                if inside:
                    break
                inside = line.startswith(f"{vendor:04x}  ")
    return None


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as opened:
            for _, line in zip(range(_MOST_LINES), opened, strict=False):
                yield line
    except OSError:
        return
