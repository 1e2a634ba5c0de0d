"""Which GPUs does the kernel's DRM subsystem show? Read from /sys/class/drm, which wakes none of them.

Left out is what is no GPU of this host: display controllers of servers' management chips and of virtual machines,
framebuffers of the firmware, and slices of a card that is listed itself. NVIDIA's own driver tells sysfs nothing.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from exporter.providers.drm.files import Files, KernelFiles

AMD, INTEL, NVIDIA = 0x1002, 0x8086, 0x10DE

VENDORS: Mapping[int, str] = MappingProxyType({AMD: "amd", INTEL: "intel", NVIDIA: "nvidia"})

_CARD = re.compile(r"card(\d+)")
_RENDER = re.compile(r"renderD(\d+)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PARTITION_DRIVER = "amdgpu_xcp"
_GPU_DRIVERS = frozenset({"amdgpu", "radeon", "i915", "xe", "nouveau"})
_NO_GPU = frozenset(
    {
        *("nvidia", "nvidia-drm", "nv_platform"),  # no reading of it is in sysfs
        *("simple-framebuffer", "simpledrm", "efidrm", "vesadrm", "ofdrm", "efi-framebuffer", "vesa-framebuffer"),
        *("ast", "mgag200", "hibmc-drm", "hibmc", "gma500"),  # management chips of servers, and display alone
        *("virtio_gpu", "virtio-pci", "virtio-gpu", "bochs-drm", "cirrus", "cirrus-qemu", "qxl"),
        *("vmwgfx", "vboxvideo", "hyperv_drm", "xen-drm-front"),
        *("vgem", "vkms", "evdi", "udl", "gud", "gm12u320"),  # made of software, or on USB
        *("drm", "tegra-drm", "tegra"),  # the display of a Jetson, of which the GPU is beside it
    }
)
"""Names of kernel drivers: of some devices that of the module, of others that of the bus."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, as the kernel lists it."""

    number: int
    """N of cardN; another one after its driver was bound anew."""
    folder: str
    """Path of its device's files, without a slash at the end."""
    name: str
    """Of its device on its bus."""
    driver: str
    """Of the kernel."""
    pci_address: str | None = None
    """dddd:bb:dd.f in lower case; None: it is on no PCI bus."""
    vendor_id: int | None = None
    device_id: int | None = None
    revision: int | None = None
    minor: int | None = None
    """N of renderDN."""

    @property
    def vendor(self) -> str:
        """Who made it, in lower case; of one that is not known, its driver."""
        return VENDORS.get(self.vendor_id or 0) or self.driver.lower()


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A platform device that stands for one partition of an AMD GPU, besides its first."""

    name: str
    minor: int | None


def find_cards(root: Path, files: Files | None = None) -> tuple[Card, ...]:
    """List the GPUs in the order of their addresses; empty where DRM has none."""
    files = KernelFiles() if files is None else files
    cards = []
    for number in sorted(_numbers(root, files)):
        card = _card(root, number, files)
        if card is not None and is_served(card, files):
            cards.append(card)
    return tuple(sorted(cards, key=lambda card: (card.pci_address is None, card.pci_address or "", card.number)))


def count_cards(root: Path = Path("/")) -> int | None:
    """Return how many GPUs DRM shows; None: this host has no sysfs."""
    return len(find_cards(root)) if (root / "sys").is_dir() else None


def find_partitions(root: Path, files: Files) -> tuple[Partition, ...]:
    """List the platform devices of partitions. They have no sensors and no memory counts of their own."""
    found = []
    for number in sorted(_numbers(root, files)):
        folder = f"{root}/sys/class/drm/card{number}/device"
        name = files.leads_to(folder)
        if name.startswith(_PARTITION_DRIVER) or files.leads_to(f"{folder}/driver") == _PARTITION_DRIVER:
            found.append(Partition(name=name or f"card{number}", minor=_minor(folder, files)))
    return tuple(found)


def is_served(card: Card, files: Files) -> bool:
    """Tell whether a card of DRM is a GPU of this host that sysfs tells of."""
    if card.driver in _NO_GPU or card.driver == _PARTITION_DRIVER or card.name.startswith(_PARTITION_DRIVER):
        return False
    if files.leads_to(f"{card.folder}/physfn"):  # a virtual function: a slice of a card that is listed
        return False
    # A display controller that cannot render has no render node.
    return card.driver in _GPU_DRIVERS or card.minor is not None


def has_its_number(card: Card, files: Files) -> bool:
    """Tell whether the card is still where it was found: when drivers are bound anew, another one may have its number.

    One that is gone has: to read it says so.
    """
    name = files.leads_to(card.folder).lower()
    if not name or name == card.name.lower():
        return True
    return card.pci_address is not None and not _ADDRESS.fullmatch(name)


def _numbers(root: Path, files: Files) -> Iterator[int]:
    try:
        names = files.names(f"{root}/sys/class/drm")
    except OSError:  # no driver with DRM is loaded
        return
    for name in names:
        if match := _CARD.fullmatch(name):  # connectors are cardN-HDMI-A-1 and such
            yield int(match[1])


def _card(root: Path, number: int, files: Files) -> Card | None:
    folder = f"{root}/sys/class/drm/card{number}/device"
    name, driver = files.leads_to(folder), files.leads_to(f"{folder}/driver")
    # Some kernels (6.10) let it wait while the driver starts on the device or leaves it, and so would its readers.
    told = {} if driver and _ADDRESS.fullmatch(name.lower()) else _uevent(folder, files)
    address = next(
        (one for one in (name.lower(), told.get("PCI_SLOT_NAME", "").lower()) if _ADDRESS.fullmatch(one)), None
    )
    driver = driver or told.get("DRIVER", "")
    if not driver and address is None and not name:
        return None
    vendor, _, device = told.get("PCI_ID", "").partition(":")
    return Card(
        number=number,
        folder=folder,
        name=address or name or f"card{number}",
        driver=driver,
        pci_address=address,
        vendor_id=_hexadecimal(f"{folder}/vendor", files, vendor),
        device_id=_hexadecimal(f"{folder}/device", files, device),
        revision=_hexadecimal(f"{folder}/revision", files),
        minor=_minor(folder, files),
    )


def _uevent(folder: str, files: Files) -> Mapping[str, str]:
    try:
        lines = files.read(f"{folder}/uevent").decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def _minor(folder: str, files: Files) -> int | None:
    try:
        names = files.names(f"{folder}/drm")
    except OSError:
        return None
    return min((int(match[1]) for name in names if (match := _RENDER.fullmatch(name))), default=None)


def _hexadecimal(path: str, files: Files, otherwise: str = "") -> int | None:
    try:
        raw = files.read(path).decode("ascii", "replace")
    except OSError:
        raw = otherwise
    try:
        return int(raw, 16)
    except ValueError:
        return None
