"""Which physical packages AMD SMI's handles belong to, and what identifies them.

A partitioned GPU has one handle per partition, all on one PCI device. Power, energy, temperature and limits belong to
the package and are read through its first handle. An MI250 has two PCI devices in one package.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from exporter.model import Device, Scope
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone
from exporter.providers.protocol import ProviderError
from exporter.providers.sanitise import Range, Readings, is_sentinel, text

_DUAL_DIE_IDS = frozenset({0x7408, 0x740C})  # MI250X, MI250
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)
# ROCm 6.3 gives gfx9008 for gfx90a, and other wrong names for Navi.
_ARCHITECTURE = re.compile(r"gfx(9[0-9a-f]{2}|1[0-9a-f]{3})")
_MINORS = Range(1.0, 2.0**20)
_MARKETING_IS_HEX = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)


class Part(NamedTuple):
    """One handle: a partition, or the whole package where it is not partitioned."""

    number: int
    handle: Any


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU (of an MI250: one die) and the handles that lead to it."""

    key: str
    index: int
    pci_address: str | None
    parts: tuple[Part, ...]
    """By partition number; the first carries the sensors."""
    asic: Mapping[str, Any]
    group: str | None = None
    """Key of the first die where dies share a package."""

    @property
    def handle(self) -> Any:
        return self.parts[0].handle

    @property
    def partitioned(self) -> bool:
        return len(self.parts) > 1

    @property
    def scope(self) -> Scope:
        # MI250: the first die's sensor covers both dies. MI300A: the socket's covers its CPU cores.
        return "package" if self.group or "MI300A" in str(self.asic.get("market_name")) else "gpu"


class _Found(NamedTuple):
    position: int
    handle: Any
    address: str | None
    asic: Mapping[str, Any]
    partition: int


def find_packages(calls: Calls) -> tuple[Package, ...]:
    """Enumerate the packages in the order of AMD SMI. Raises ProviderError when AMD SMI cannot enumerate."""
    try:
        handles = calls("amdsmi_get_processor_handles")
    except (Absent, Broken, HandleGone) as error:
        raise ProviderError("AMD SMI cannot list its devices") from error
    groups: dict[str, list[_Found]] = {}
    for index, handle in enumerate(handles):
        found = _look_at(calls, index, handle)
        # Partitions share domain, bus and device; a serial number may be shared by cards that have none.
        place = found.address.rpartition(".")[0] if found.address else f"handle {index}"
        groups.setdefault(place, []).append(found)
    serials = Counter(_unique_id(found[0].asic) for found in groups.values())
    packages = [_package(found, serials) for found in groups.values()]
    return tuple(_pair_dies([package for package in packages if package is not None]))


def _look_at(calls: Calls, index: int, handle: Any) -> _Found:
    address = _optional(calls, "amdsmi_get_gpu_device_bdf", handle)
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    asic = _optional(calls, "amdsmi_get_gpu_asic_info", handle)
    kfd = _optional(calls, "amdsmi_get_gpu_kfd_info", handle)
    number = kfd.get("current_partition_id") if isinstance(kfd, dict) else None
    if not isinstance(number, int) or is_sentinel(number):  # guests of MI300X answer 4294967295
        number = int(match[4], 16) if match else 0
    return _Found(
        index, handle, match.group().lower() if match else None, asic if isinstance(asic, dict) else {}, number
    )


def _optional(calls: Calls, function: str, *arguments: object) -> Any:
    try:
        return calls.ask(function, *arguments).value
    except HandleGone:
        return None


def _unique_id(asic: Mapping[str, Any]) -> str | None:
    """16 hex digits as sysfs shows them; None where the card has none or says only zeros."""
    serial = text(asic.get("asic_serial"))
    digits = serial.lower().removeprefix("0x") if serial else ""
    if not digits or not set(digits) <= set("0123456789abcdef") or set(digits) <= {"0"} or set(digits) == {"f"}:
        return None
    return digits.zfill(16)


def _package(found: list[_Found], serials: Mapping[str | None, int]) -> Package | None:
    numbers = [one.partition for one in found]
    if len(set(numbers)) < len(numbers):  # before 6.3 partitions cannot be told apart but by their order
        found = [one._replace(partition=number) for number, one in enumerate(found)]
    found = sorted(found, key=lambda one: one.partition)
    first = found[0]
    unique_id = _unique_id(first.asic)
    # Several cards with one serial number: the number of none of them.
    key = unique_id if unique_id and serials[unique_id] == 1 else first.address
    if key is None:
        return None
    return Package(
        key=key,
        index=first.position,
        pci_address=first.address,
        parts=tuple(Part(one.partition, one.handle) for one in found),
        asic=first.asic,
    )


def _pair_dies(packages: list[Package]) -> list[Package]:
    """Pair the dies of MI250-class cards, which stand one after the other. An odd number of dies cannot be paired."""
    dies = [package for package in packages if _dual_die(package)]
    if len(dies) % 2:
        group = {die.key: die.key for die in dies}
    else:
        group = {die.key: dies[number - number % 2].key for number, die in enumerate(dies)}
    return [msgspec.structs.replace(package, group=group.get(package.key)) for package in packages]


def _dual_die(package: Package) -> bool:
    raw = package.asic.get("device_id")
    try:
        device = int(raw, 16) if isinstance(raw, str) else raw
    except ValueError:
        device = None
    return device in _DUAL_DIE_IDS or "MI250" in str(package.asic.get("market_name"))


def describe(calls: Calls, package: Package, root: Path, mode: str | None) -> Device:
    """Read what identifies a package besides its key. `mode`: as of `partition_mode`, which is too costly to repeat."""
    handle = package.handle
    board = _dict(_optional(calls, "amdsmi_get_gpu_board_info", handle))
    driver = _dict(_optional(calls, "amdsmi_get_gpu_driver_info", handle))
    vbios = text(_dict(_optional(calls, "amdsmi_get_gpu_vbios_info", handle)).get("version"))
    model = text(package.asic.get("market_name"))
    if model is None or _MARKETING_IS_HEX.fullmatch(model):
        model = text(board.get("product_name")) or model
    architecture = text(package.asic.get("target_graphics_version"))
    return Device(
        vendor="amd",
        key=package.key,
        model=model,
        pci_address=package.pci_address,
        serial=text(board.get("product_serial")),
        vendor_uuid=_uuid(calls, handle),
        index=package.index,
        minor=_minor(calls, package, root),
        architecture=architecture if architecture and _ARCHITECTURE.fullmatch(architecture) else None,
        driver_version=text(driver.get("driver_version")),
        memory_kind=_memory_kind(calls, package),
        partition_mode=mode,
        package=package.group,
        firmware={"vbios": vbios} if vbios else {},
    )


def partition_mode(calls: Calls, package: Package) -> str | None:
    """Return compute and memory mode such as SPX/NPS1. The driver may wake the GPU to tell, so ask once."""
    modes = [
        text(_optional(calls, f"amdsmi_get_gpu_{kind}_partition", package.handle)) for kind in ("compute", "memory")
    ]
    return "/".join(mode for mode in modes if mode) or None


def partition_uuids(calls: Calls, package: Package) -> tuple[str | None, ...]:
    """Return the UUID of each partition that has one of its own; up to 6.4 all have that of the package."""
    uuids = [_uuid(calls, part.handle) for part in package.parts]
    return tuple(uuid if uuids.count(uuid) == 1 else None for uuid in uuids)


def _uuid(calls: Calls, handle: Any) -> str | None:
    found = text(_optional(calls, "amdsmi_get_gpu_device_uuid", handle))
    # Guests answer all zeros.
    return found if found and set(found) - set("0-") else None


def _minor(calls: Calls, package: Package, root: Path) -> int | None:
    enumerated = _dict(_optional(calls, "amdsmi_get_gpu_enumeration_info", package.handle))
    minor = Readings().number("minor", enumerated.get("drm_render"), _MINORS)
    if minor is not None:
        return int(minor)
    if package.pci_address:
        nodes = (root / "sys/bus/pci/devices" / package.pci_address / "drm").glob("renderD*")
        found = sorted(int(node.name.removeprefix("renderD")) for node in nodes if node.name[7:].isdigit())
        return found[0] if found else None
    return None


def _memory_kind(calls: Calls, package: Package) -> Literal["dedicated", "unified"] | None:
    if "MI300A" in str(package.asic.get("market_name")):
        return "unified"
    raw = _dict(_optional(calls, "amdsmi_get_gpu_vram_info", package.handle)).get("vram_type")
    name = calls.constant_name("VRAM_TYPE", raw) or ""
    if name.startswith(("HBM", "GDDR")):
        return "dedicated"
    return "unified" if name.startswith(("DDR", "LPDDR")) else None  # an APU's carve-out of host memory


def _dict(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, dict) else {}
