"""Which physical packages AMD SMI's handles belong to.

A partitioned GPU has one handle per partition, all on one PCI device. Power, energy, temperature and limits belong to
the package and are read through its first handle. An MI250 has two PCI devices in one package.
"""

import re
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, NamedTuple

import msgspec

from exporter.model import Scope
from exporter.providers.amd.calls import Absent, Broken, Calls, HandleGone, mapping
from exporter.providers.amd.dies import Die, Pairs, is_dual_die, pair
from exporter.providers.protocol import ProviderError
from exporter.providers.sanitise import is_sentinel, text
from exporter.providers.unique_id import Named, keys, unique_id

_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])", re.IGNORECASE)


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


def find_packages(
    calls: Calls,
    remembered: MutableMapping[str, Mapping[str, Any]],
    asleep: Callable[[str], Mapping[str, Any] | None],
    proven: MutableMapping[frozenset[str], Pairs],
) -> tuple[Package, ...]:
    """Enumerate the packages in the order of AMD SMI. Raises ProviderError when AMD SMI cannot enumerate.

    `asleep`: what is known, without a call, about the ASIC at an address that is suspended; None: it is not.

    `remembered`: what each address answered about its ASIC. The key comes of it, so a call that fails for once (busy,
    time out) must not make a second GPU of a known one. `proven`: as of `dies.pair`.
    """
    try:
        handles = calls("amdsmi_get_processor_handles")
    except (Absent, Broken, HandleGone) as error:
        raise ProviderError("AMD SMI cannot list its devices") from error
    groups: dict[str, list[_Found]] = {}
    for index, handle in enumerate(handles):
        found = _look_at(calls, index, handle, remembered, asleep)
        # Partitions share domain, bus and device; a serial number may be shared by cards that have none.
        place = found.address.rpartition(".")[0] if found.address else f"handle {index}"
        groups.setdefault(place, []).append(found)
    cards = [_in_order(calls, found) for found in groups.values()]
    named = keys([Named(unique_id(found[0].asic.get("asic_serial")), found[0].address) for found in cards])
    packages = [_package(key, found) for key, found in zip(named, cards, strict=True) if key is not None]
    if handles and not packages:
        # What is left of a driver that was unloaded: the list is the library's own memory.
        raise ProviderError(f"AMD SMI lists {len(handles)} devices and none answers")
    return _with_groups(calls, packages, asleep, proven)


def _look_at(
    calls: Calls,
    index: int,
    handle: Any,
    remembered: MutableMapping[str, Mapping[str, Any]],
    asleep: Callable[[str], Mapping[str, Any] | None],
) -> _Found:
    answer = calls.whatever("amdsmi_get_gpu_device_bdf", handle)
    match = _ADDRESS.fullmatch(answer) if isinstance(answer, str) else None
    address = match.group().lower() if match else None
    known = asleep(address) if address else None
    if known is not None and match is not None and address is not None:
        return _Found(index, handle, address, remembered.get(address, known), int(match[4], 16))
    asic = mapping(calls.whatever("amdsmi_get_gpu_asic_info", handle))
    if address is not None and asic:
        remembered[address] = asic
    elif address is not None:
        asic = remembered.get(address, {})
    kfd = calls.whatever("amdsmi_get_gpu_kfd_info", handle)
    number = kfd.get("current_partition_id") if isinstance(kfd, dict) else None
    if not isinstance(number, int) or is_sentinel(number):  # guests of MI300X answer 4294967295
        number = int(match[4], 16) if match else 0
    return _Found(index, handle, address, asic, number)


def _in_order(calls: Calls, found: list[_Found]) -> list[_Found]:
    """Return the partitions of one package by number, which no two of them share."""
    if len({one.partition for one in found}) < len(found):
        # Before 6.3 KFD's number is not told and the address is that of the package.
        numbers = [partition_profile(calls, one.handle).number for one in found]
        if None in numbers or len(set(numbers)) < len(found):
            numbers = list(range(len(found)))
        found = [one._replace(partition=number or 0) for number, one in zip(numbers, found, strict=True)]
    return sorted(found, key=lambda one: one.partition)


def _package(key: str, found: list[_Found]) -> Package:
    first = found[0]
    return Package(
        key=key,
        index=first.position,
        pci_address=first.address,
        parts=tuple(Part(one.partition, one.handle) for one in found),
        asic=first.asic,
    )


def _with_groups(
    calls: Calls,
    packages: list[Package],
    asleep: Callable[[str], object],
    proven: MutableMapping[frozenset[str], Pairs],
) -> tuple[Package, ...]:
    dies = [
        Die(package.key, package.handle, package.pci_address is not None and asleep(package.pci_address) is not None)
        for package in packages
        if is_dual_die(package.asic)
    ]
    groups = pair(calls, dies, proven)
    return tuple(msgspec.structs.replace(package, group=groups.get(package.key)) for package in packages)


class Profile(NamedTuple):
    number: int | None
    mode: str | None


def partition_profile(calls: Calls, handle: Any) -> Profile:
    """Read number and compute mode of a partition from its profile, which costs what `partition_mode` does."""
    answer = mapping(calls.whatever("amdsmi_get_gpu_accelerator_partition_profile", handle))
    number = answer.get("partition_id")
    if isinstance(number, list):  # from 6.4
        number = number[0] if number else None
    mode = mapping(answer.get("partition_profile")).get("profile_type")  # 6.3: a number without a name
    return Profile(number if isinstance(number, int) and not is_sentinel(number) else None, text(mode))
