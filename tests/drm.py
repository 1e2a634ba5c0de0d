"""Trees of files in the shape of DRM's part of sysfs, as the kernel lays them out."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.providers.drm.files import KernelFiles

_IDS = {"amdgpu": (0x1002, 0x744C), "i915": (0x8086, 0x56A0), "xe": (0x8086, 0x0BD5), "nouveau": (0x10DE, 0x1B80)}


def card(
    root: Path,
    number: int = 0,
    files: Mapping[str, Any] | None = None,
    *,
    driver: str = "amdgpu",
    address: str = "0000:03:00.0",
    ids: tuple[int, int] | None = None,
    minor: int | None = 128,
    behind: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Put a card on PCI and return the folder of its device. `files`: what is in it, by path; a Path is linked to.

    `behind`: the bridges between it and its slot, the outermost first, by address. `minor` None: it does not render.
    """
    place = root / "sys/devices/pci0000:00"
    for bridge, its_files in (behind or {}).items():
        place = place / bridge
        write(place, its_files)
    device = place / address
    vendor, model = ids or _IDS.get(driver, (0x1234, 0x1111))
    _expose(root, device, number, minor)
    link(root / "sys/bus/pci/devices" / address, device)
    link(device / "driver", root / "sys/bus/pci/drivers" / driver)
    about = {
        "uevent": f"DRIVER={driver}\nPCI_CLASS=30000\nPCI_ID={vendor:04X}:{model:04X}\nPCI_SLOT_NAME={address}\n",
        "vendor": f"0x{vendor:04x}\n",
        "device": f"0x{model:04x}\n",
        "class": "0x030000\n",
        "revision": "0xcc\n",
        "config": bytes((vendor & 0xFF, vendor >> 8, model & 0xFF, model >> 8)) + bytes(60),
        "power/runtime_status": "active\n",
    }
    write(device, about)
    write(device, files or {})
    return device


def platform_card(
    root: Path, number: int, name: str, driver: str, files: Mapping[str, Any] | None = None, minor: int | None = None
) -> Path:
    """Put a card on no bus, such as a partition's (amdgpu_xcp.0) or the firmware's framebuffer."""
    device = root / "sys/devices/platform" / name
    _expose(root, device, number, minor)
    write(device, {"uevent": f"DRIVER={driver}\nMODALIAS=platform:{driver}\n"})
    write(device, files or {})
    return device


def write(folder: Path, files: Mapping[str, Any]) -> None:
    """Write files by path: bytes as they are, a Path as a link to it, anything else as a line of text."""
    for path, value in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, Path):
            link(place, value)
        elif isinstance(value, bytes):
            place.write_bytes(value)
        else:
            text = str(value)
            place.write_text(text if text.endswith("\n") else f"{text}\n")


def link(place: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def hwmon(name: str, number: int = 3, **files: Any) -> dict[str, Any]:
    """Return files of a folder of sensors."""
    return {f"hwmon/hwmon{number}/name": name} | {f"hwmon/hwmon{number}/{path}": value for path, value in files.items()}


def _expose(root: Path, device: Path, number: int, minor: int | None) -> None:
    device.mkdir(parents=True, exist_ok=True)
    drm = root / "sys/class/drm"
    link(drm / f"card{number}/device", device)
    (drm / "version").write_text("drm 1.1.0 20060810\n")
    (device / f"drm/card{number}").mkdir(parents=True)
    (drm / f"card{number}-HDMI-A-1").mkdir()
    if minor is not None:
        (device / f"drm/renderD{minor}").mkdir(parents=True)
        link(drm / f"renderD{minor}/device", device)


class Answers(KernelFiles):
    """A tree whose drivers answer errors: by the end of the path. What is read is kept, in order."""

    def __init__(self, errors: Mapping[str, int] | None = None) -> None:
        self.errors = dict(errors or {})
        self.asked: list[str] = []
        self.before: Callable[[str], object] = lambda _: None
        """Called with each path, before it is read."""

    def read(self, path: str) -> bytes:
        self._answer(path)
        return super().read(path)

    def read_whole(self, path: str) -> bytes:
        self._answer(path)
        return super().read_whole(path)

    def _answer(self, path: str) -> None:
        self.asked.append(path)
        self.before(path)
        for end, code in self.errors.items():
            if path.endswith(end):
                raise OSError(code, os.strerror(code), path)


EPERM, ENODEV, EIO, EINVAL, EOPNOTSUPP = errno.EPERM, errno.ENODEV, errno.EIO, errno.EINVAL, errno.EOPNOTSUPP
