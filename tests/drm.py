"""Trees of files in the shape of DRM's part of sysfs, as the kernel lays them out."""

import errno
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from exporter.providers.drm.files import KernelFiles
from exporter.providers.simulated.device import SimulatedDevice
from exporter.providers.simulated.machine import Machine
from tests.kernel import write_kfd
from tests.unit.drm.tables import STRUCTURES, table

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
    """A tree whose drivers answer errors, or say something else: by the end of the path. What is read is kept."""

    def __init__(self) -> None:
        self.errors: Mapping[str, int] = {}
        self.said: Mapping[str, bytes] = {}
        self.asked: list[str] = []
        self.before: Callable[[str], object] = lambda _: None
        """Called with each path, before it is read."""

    def read(self, path: str) -> bytes:
        return self._answer(path, super().read)

    def read_whole(self, path: str) -> bytes:
        return self._answer(path, super().read_whole)

    def _answer(self, path: str, read: Callable[[str], bytes]) -> bytes:
        self.asked.append(path)
        self.before(path)
        for end, code in self.errors.items():
            if path.endswith(end):
                raise OSError(code, os.strerror(code), path)
        for end, said in self.said.items():
            if path.endswith(end):
                return said
        return read(path)


EPERM, ENODEV, EIO, EINVAL, EOPNOTSUPP = errno.EPERM, errno.ENODEV, errno.EIO, errno.EINVAL, errno.EOPNOTSUPP


def write_cards(root: Path, machine: Machine, t: float) -> None:
    """Write what amdgpu and KFD show of a machine's AMD GPUs, `t` seconds after its epoch.

    Where a call of AMD SMI has a fault of kind `error`, the file that says the same cannot be read.
    """
    for number, device in enumerate(one for one in machine.devices if one.vendor == "amd"):
        its = {
            name: int(device.numbers[f"pci_{name}"]) for name in ("domain", "bus", "device", "function", "device_id")
        }
        folder = card(
            root,
            number,
            ids=(0x1002, its["device_id"]),
            address=f"{its['domain']:04x}:{its['bus']:02x}:{its['device']:02x}.{its['function']}",
            minor=128 + 8 * number,
        )
        for path, value in _files(machine, device, t).items():
            if any(fault.kind == "error" for fault in device.faults_at(t, _CALLS.get(path, path))):
                (folder / path).mkdir(parents=True)
            elif value is not None:
                write(folder, {path: value})
    write_kfd(root, machine, t)


def _files(machine: Machine, device: SimulatedDevice, t: float) -> dict[str, Any]:
    def whole(name: str, scale: float = 1.0) -> int | None:
        value = device.signal(name, t)
        return None if value is None else round(value * scale)

    def power(kind: str) -> int | None:
        window = device.numbers.get(f"power_{kind}_window_seconds")
        if window is None:
            return None
        return round(device.power(t, window, device.numbers[f"power_{kind}_period_seconds"]) * 1e6)

    sensors: dict[str, Any] = {
        "power1_average": power("average"),
        "power1_input": power("instant"),
        "power1_cap": whole("power_limit_watts", 1e6),
        "power1_cap_default": whole("power_limit_default_watts", 1e6),
        "pwm1": whole("fan_ratio", 255),
    }
    for number, (label, sensor) in enumerate((("edge", "edge"), ("junction", "hotspot"), ("mem", "memory")), 1):
        value = whole(f"temperature_{sensor}_celsius", 1e3)
        sensors |= {f"temp{number}_label": None if value is None else label, f"temp{number}_input": value}
    for number, (label, domain) in enumerate((("sclk", "graphics"), ("mclk", "memory")), 1):
        sensors |= {f"freq{number}_label": label, f"freq{number}_input": whole(f"clock_{domain}_hertz")}
    return {
        "unique_id": device.texts.get("unique_id", "").removeprefix("0x").lower(),
        "product_name": device.texts.get("name"),
        "serial_number": device.texts.get("serial"),
        "vbios_version": device.texts.get("vbios_version"),
        "current_compute_partition": device.texts.get("compute_partition"),
        "current_memory_partition": device.texts.get("memory_partition"),
        "gpu_busy_percent": whole("utilization_ratio", 100),
        "mem_busy_percent": whole("memory_controller_utilization_ratio", 100),
        "mem_info_vram_total": whole("memory_size_bytes"),
        "mem_info_vram_used": whole("memory_used_bytes"),
        "mem_info_gtt_total": whole("gtt_size_bytes"),
        "mem_info_gtt_used": whole("gtt_used_bytes"),
        "current_link_speed": f"{_SPEEDS[int(device.numbers['pcie_generation'])]} GT/s PCIe",
        "current_link_width": whole("pcie_width"),
        "max_link_width": whole("pcie_width_max"),
        "ras/umc_err_count": f"ue: {whole('ecc_uncorrected')}\nce: {whole('ecc_corrected')}\n",
        "gpu_metrics": _table(machine, device, t),
    } | hwmon("amdgpu", **{name: value for name, value in sensors.items() if value is not None})


def _table(machine: Machine, device: SimulatedDevice, t: float) -> bytes:
    form, content = (int(part) for part in device.texts.get("metrics_table", "1.3").split("."))
    joules = machine.accumulated(device, t)
    told: dict[str, int] = {"system_clock_counter": round((device.counter_time(t) or t) * 1e9)}
    if joules is not None:
        told["energy_accumulator"] = round(joules * 65536)
    media = device.signal("media_utilization_ratio", t)
    if media is not None and "average_mm_activity" in dir(STRUCTURES[form, content]):
        told["average_mm_activity"] = round(media * 100)
    return table(form, content, **told)


_CALLS = {"ras/umc_err_count": "amdsmi_get_gpu_total_ecc_count", "mem_info_vram_used": "amdsmi_get_gpu_vram_usage"}
_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
