"""What identifies a package besides its key: names, versions, minor number, partition mode."""

import re
from pathlib import Path
from typing import Any, Literal

from exporter.model import Device
from exporter.providers.amd.calls import Calls, mapping
from exporter.providers.amd.packages import Package, partition_profile
from exporter.providers.sanitise import Range, Readings, text

# ROCm 6.3 gives gfx9008 for gfx90a, and other wrong names for Navi.
_ARCHITECTURE = re.compile(r"gfx(9[0-9a-f]{2}|1[0-9a-f]{3})")
_MINORS = Range(1.0, 2.0**20)
_FIRMWARE = {
    "PM": "power_management",
    "SMU": "power_management",
    "PSP_SOSDRV": "psp",
    "TA_RAS": "ras",
    "TA_XGMI": "xgmi",
    "RLC": "rlc",
    "CP_MEC1": "compute",
    "SDMA0": "sdma",
    "VCN": "video",
    "PLDM_BUNDLE": "bundle",
}
"""Component by AMD SMI's name for the block. Old releases call the firmware for power management SMU, later ones PM."""
_MARKETING_IS_HEX = re.compile(r"0x[0-9a-f]+", re.IGNORECASE)


def describe(calls: Calls, package: Package, root: Path, mode: str | None) -> Device:
    """Read what identifies a package besides its key. `mode`: as of `partition_mode`, which is too costly to repeat."""
    handle = package.handle
    board = mapping(calls.whatever("amdsmi_get_gpu_board_info", handle))
    driver = mapping(calls.whatever("amdsmi_get_gpu_driver_info", handle))
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
        firmware=_firmware(calls, handle),
    )


def partition_mode(calls: Calls, package: Package) -> str | None:
    """Return compute and memory mode such as SPX/NPS1. The driver may wake the GPU to tell, so ask once."""
    compute = text(calls.whatever("amdsmi_get_gpu_compute_partition", package.handle))
    memory = text(calls.whatever("amdsmi_get_gpu_memory_partition", package.handle))
    # ROCm 10 means to drop the first in favour of the profile.
    modes = (compute or partition_profile(calls, package.handle).mode, memory)
    return "/".join(mode for mode in modes if mode) or None


def partition_uuids(calls: Calls, package: Package) -> tuple[str | None, ...]:
    """Return the UUID of each partition that has one of its own; up to 6.4 all have that of the package."""
    uuids = [_uuid(calls, part.handle) for part in package.parts]
    return tuple(uuid if uuids.count(uuid) == 1 else None for uuid in uuids)


def _firmware(calls: Calls, handle: Any) -> dict[str, str]:
    """Return the versions of what decides about power, errors and links, by component; there are 40 more."""
    found = {"vbios": text(mapping(calls.whatever("amdsmi_get_gpu_vbios_info", handle)).get("version"))}
    listed = mapping(calls.whatever("amdsmi_get_fw_info", handle)).get("fw_list")
    for entry in map(mapping, listed if isinstance(listed, list) else ()):
        name = str(getattr(entry.get("fw_name"), "name", "")).rpartition("FW_ID_")[2]
        if name in _FIRMWARE:
            found[_FIRMWARE[name]] = text(entry.get("fw_version"))
    return {component: version for component, version in found.items() if version and set(version) - set("0.")}


def _uuid(calls: Calls, handle: Any) -> str | None:
    found = text(calls.whatever("amdsmi_get_gpu_device_uuid", handle))
    # Guests answer all zeros.
    return found if found and set(found) - set("0-") else None


def _minor(calls: Calls, package: Package, root: Path) -> int | None:
    enumerated = mapping(calls.whatever("amdsmi_get_gpu_enumeration_info", package.handle))
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
    raw = mapping(calls.whatever("amdsmi_get_gpu_vram_info", package.handle)).get("vram_type")
    name = calls.constant_name("VRAM_TYPE", raw) or ""
    if name.startswith(("HBM", "GDDR")):
        return "dedicated"
    return "unified" if name.startswith(("DDR", "LPDDR")) else None  # an APU's carve-out of host memory
