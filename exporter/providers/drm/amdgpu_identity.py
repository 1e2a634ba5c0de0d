"""What identifies an AMD GPU, as far as its kernel driver tells without asking the firmware."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from exporter.model import Device
from exporter.providers.drm.amdgpu_partitions import nodes_of
from exporter.providers.drm.cards import Card
from exporter.providers.drm.hwmon import Hwmon
from exporter.providers.drm.names import driver_version, model_of
from exporter.providers.drm.reading import Reading
from exporter.providers.unique_id import unique_id

_DUAL_DIE_IDS = frozenset({0x7408, 0x740C})  # MI250X, MI250
_SOCKET_IDS = frozenset({0x74A0})  # MI300A: CPU cores, and one memory for both
_APU_FORMATS = frozenset({2, 3})
_NO_FIRMWARE = frozenset({"0x00000000", "0x0"})
_VERSION = "_fw_version"


def describe(
    card: Card, reading: Reading, root: Path, hwmon: Hwmon | None, mode: str | None, table: bytes | None
) -> Device:
    """Return the identity of a card. `table`: the head of its gpu_metrics, None where it sleeps or has none."""
    nodes = nodes_of(root, card, reading.files)
    return Device(
        vendor=card.vendor,
        key=unique_id(reading.text("unique_id")) or card.name,
        model=reading.text("product_name") or model_of(root, card.vendor_id, card.device_id, card.revision),
        pci_address=card.pci_address,
        serial=reading.text("serial_number"),
        minor=card.minor,
        architecture=next((node.architecture for node in nodes if node.architecture), None),
        driver_version=driver_version(root, card.driver, reading.files),
        memory_kind=_memory_kind(card, hwmon, table),
        partition_mode=mode,
        firmware=_firmware(reading),
    )


def with_packages(devices: Mapping[str, Device], cards: Mapping[str, Card]) -> dict[str, Device]:
    """Say of the dies of an MI250 that they share a package. Both by key; the order is that of the addresses.

    The dies of one package are on one board, which has a serial number, or else stand one after the other.
    """
    dies = [device for key, device in devices.items() if cards[key].device_id in _DUAL_DIE_IDS]
    package = _by_board(dies) or _by_order(dies)
    return {key: msgspec.structs.replace(device, package=package.get(key)) for key, device in devices.items()}


def _by_board(dies: Sequence[Device]) -> Mapping[str, str] | None:
    boards: dict[str | None, list[str]] = {}
    for die in dies:
        boards.setdefault(die.serial, []).append(die.key)
    if None in boards or any(len(keys) != 2 for keys in boards.values()):  # noqa: PLR2004 -- a package has two
        return None
    return {key: keys[0] for keys in boards.values() for key in keys}


def _by_order(dies: Sequence[Device]) -> Mapping[str, str]:
    keys = [die.key for die in dies]
    if len(keys) % 2:  # one cannot be told from the other
        return {key: key for key in keys}
    return {key: keys[number - number % 2] for number, key in enumerate(keys)}


def _memory_kind(card: Card, hwmon: Hwmon | None, table: bytes | None) -> Literal["dedicated", "unified"] | None:
    if card.device_id in _SOCKET_IDS:
        return "unified"
    if table is not None and len(table) > 2:  # noqa: PLR2004 -- size in two bytes, then the format
        return "unified" if table[2] in _APU_FORMATS else "dedicated"
    # Of one that sleeps, or has no such table. APUs have the voltage of the northbridge, and no limit of power.
    if hwmon is not None and "vddnb" in hwmon.labels.values():
        return "unified"
    return "dedicated" if hwmon is not None and "power1_cap" in hwmon.files else None


def _firmware(reading: Reading) -> dict[str, str]:
    found = {"vbios": reading.text("vbios_version")}
    for name in sorted(reading.names("fw_version")):
        if name.endswith(_VERSION):
            found[name.removesuffix(_VERSION)] = reading.text(f"fw_version/{name}")
    return {component: version for component, version in found.items() if version and version not in _NO_FIRMWARE}
