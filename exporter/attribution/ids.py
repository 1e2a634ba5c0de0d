"""How an id that a device plugin or a DRA driver gave to a container leads to a GPU, or to a partition of one.

Only what is certain: an id that fits two places, or whose partition is not known, fits none.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from exporter.attribution.source import Held, Question

Attributes = Mapping[str, str | int]
"""What a ResourceSlice says of a device; names of the driver's own domain without that domain."""

NOTHING: Mapping[str, "RenderNode"] = MappingProxyType({})

_REPLICA = "::"
# By minor number, as Google's device plugin names them. vgpuN is a client that shares in time, no part of the GPU.
_BY_MINOR = re.compile(r"(nvidia\d+(?:/gi\d+)?)(?:/vgpu\d+)?")
# Drivers before R470 name an instance by its GPU, GPU instance and compute instance.
_BY_INSTANCES = re.compile(r"mig-(gpu-[0-9a-f-]+)/(\d+)/(\d+)")
_ADDRESS = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
# The kernel writes a dot or an underscore before the number.
_PLATFORM = re.compile(r"amdgpu_xcp[._](\d+)")
# Intel's plugin appends the number of the share to the name of the card.
_CARD = re.compile(r"(card\d+)(?:-\d+)?")
# AMD's DRA driver names a device by its card and its render node; with automatic partitioning it has other names.
_BY_RENDER_NODE = re.compile(r"gpu-\d+-(\d+)")
_WHOLE = ("gpu", "amdgpu")


class Place(NamedTuple):
    """A device by its key, or one partition of it."""

    device: str
    partition: str | None = None


class RenderNode(NamedTuple):
    """The GPU behind a name of the kernel's: renderD128, card0, amdgpu_xcp_30."""

    address: str
    """PCI address of the GPU, with function 0 where it is one of several partitions."""
    partition: int | None = None
    """None: the GPU is not partitioned."""


class DeviceName(NamedTuple):
    """What DRA names a device by."""

    driver: str
    pool: str
    device: str


class Places:
    """All devices of a question, by all the names that they are known by. Letter case does not matter in any."""

    def __init__(self, question: Question, nodes: Mapping[str, RenderNode] = NOTHING) -> None:
        """`nodes`: of drm.render_nodes; without them partitions of AMD's GPUs are known by their UUIDs only."""
        self._places: dict[str, Place | None] = {}
        self._whole: dict[str, Held | None] = {}
        for held in question.held:
            for name, place in dict(_names(held)).items():
                self._add(name, place)
            for name in _whole_names(held):
                self._whole[name] = None if name in self._whole else held
        for name, node in nodes.items():
            found = self._behind(node)
            if found is not None:
                # The kernel's word, which takes partitions into account, is better than that of the minor number.
                self._places[name.lower()] = found

    def find(self, device_id: str) -> Place | None:
        """Return what an id of a device plugin stands for; None: nothing that is known for certain."""
        name = device_id.partition(_REPLICA)[0].lower()
        for shape in (_BY_MINOR, _CARD):
            if match := shape.fullmatch(name):
                return self._places.get(match[1])
        if match := _ADDRESS.fullmatch(name):
            return self._places.get(_address(match))
        if match := _PLATFORM.fullmatch(name):
            return self._places.get(f"amdgpu_xcp_{match[1]}")
        if name not in self._places and (match := _BY_INSTANCES.fullmatch(name)):
            parent = self._whole.get(match[1])
            return None if parent is None else _partition(parent, f"gi{match[2]}", f"gi{match[2]}ci{match[3]}")
        return self._places.get(name)

    def find_claimed(self, name: DeviceName, attributes: Attributes | None) -> Place | None:
        """Return what a device of DRA stands for; `attributes`: of its ResourceSlice, None where that is not known."""
        told = attributes or {}
        uuid, kind = told.get("uuid"), told.get("type")
        if isinstance(uuid, str) and (found := self.find(uuid)) is not None:
            return found
        if kind == "mig":
            # A device that is made when it is claimed has no UUID in its slice.
            return None if uuid else self._of_profile(told.get("parentUUID"), told.get("profile"))
        if kind not in _WHOLE and (match := _BY_RENDER_NODE.fullmatch(name.device)) and "amd.com" in name.driver:
            return self.find(f"renderD{told.get('renderIndex', match[1])}")
        address = told.get("resource.kubernetes.io/pciBusID", told.get("pciBusID", told.get("pciAddr")))
        held = self._at(address) if isinstance(address, str) else None
        if held is None or (uuid and held.device.vendor_uuid):  # another card stands there than the slice tells of
            return None
        # Of a partition the address tells only which GPU it is of.
        return Place(held.device.key) if kind in _WHOLE or not held.partitions else None

    def _at(self, address: str) -> Held | None:
        match = _ADDRESS.fullmatch(address.lower())
        return self._whole.get(_address(match)) if match else None

    def _add(self, name: str, place: Place) -> None:
        self._places[name] = None if self._places.get(name, place) != place else place

    def _behind(self, node: RenderNode) -> Place | None:
        held = self._whole.get(node.address.lower())
        if held is None:
            return None
        if node.partition is None:
            return Place(held.device.key)
        if not held.partitions and node.partition == 0:
            return Place(held.device.key)
        return _partition(held, str(node.partition))

    def _of_profile(self, parent: str | int | None, profile: str | int | None) -> Place | None:
        held = self._whole.get(parent.lower()) if isinstance(parent, str) else None
        if held is None or not isinstance(profile, str):
            return None
        fitting = [part for part in held.partitions if (part.profile or "").lower() == profile.lower()]
        return Place(held.device.key, fitting[0].partition) if len(fitting) == 1 else None


def _names(held: Held) -> Iterator[tuple[str, Place]]:
    """Name the places of one device; of two places with one name the later counts."""
    device = held.device
    whole = Place(device.key)
    # AMD's plugin names the first partition by the address of the card, which nobody is given as a whole then.
    first = (device.vendor == "amd" and _partition(held, "0")) or whole
    for name in _whole_names(held):
        yield name, whole
    if device.pci_address is not None:
        yield device.pci_address.lower(), first
    if device.minor is not None and device.vendor == "nvidia":
        yield f"nvidia{device.minor}", whole
        for part in held.partitions:
            yield f"nvidia{device.minor}/{part.partition}", Place(device.key, part.partition)
    elif device.minor is not None:
        yield f"renderd{device.minor}", first
    for part in held.partitions:
        if part.uuid:
            yield part.uuid.lower(), Place(device.key, part.partition)


def _whole_names(held: Held) -> set[str]:
    device = held.device
    return {name.lower() for name in (device.key, device.vendor_uuid, device.pci_address) if name}


def _partition(held: Held, *names: str) -> Place | None:
    there = {part.partition for part in held.partitions}
    return next((Place(held.device.key, name) for name in names if name in there), None)


def _address(match: re.Match[str]) -> str:
    # NVML writes eight digits of the domain.
    return f"{match[1][-4:] if match[1][:-4].strip('0') == '' else match[1]}:{match[2]}"
