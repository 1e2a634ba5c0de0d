"""Which GPU, or partition of one, is meant by a number that a batch system gives."""

from collections.abc import Iterator
from typing import Literal

from exporter.attribution.ids import Place
from exporter.attribution.source import Held, Question


class Ordinals:
    """A number that two GPUs of one vendor have, or that may be of either of two vendors, means none."""

    def __init__(self, question: Question, by: Literal["index", "minor"] = "index") -> None:
        """`by`: whether NVIDIA GPUs are numbered as the vendor's tools list them, or by the N of /dev/nvidiaN."""
        self._held = {held.device.key: held for held in question.held}
        self._by_vendor: dict[str, dict[int, Place | None]] = {}
        for held in question.held:
            numbers = self._by_vendor.setdefault(held.device.vendor, {})
            for number, place in _numbers(held, by):
                numbers[number] = None if number in numbers else place

    def gpu(self, number: int, vendor: str) -> Place | None:
        """Return the GPU with the number: of this vendor if it has any here, else of the only vendor that has."""
        numbers = self._by_vendor.get(vendor)
        if numbers is None and len(self._by_vendor) == 1:
            (numbers,) = self._by_vendor.values()
        return None if numbers is None else numbers.get(number)

    def gpu_instance(self, number: int, instance: int) -> list[Place]:
        """Return the partitions that a GPU instance of MIG has: itself, or its compute instances."""
        place = self.gpu(number, "nvidia")
        if place is None:
            return []
        named = f"gi{instance}"
        partitions = [partition.partition for partition in self._held[place.device].partitions]
        return [Place(place.device, name) for name in partitions if name == named or name.startswith(f"{named}ci")]

    def partitioned(self, device: str) -> bool:
        return bool(self._held[device].partitions)


def _numbers(held: Held, by: Literal["index", "minor"]) -> Iterator[tuple[int, Place]]:
    device = held.device
    first = device.index
    if device.vendor == "nvidia" and by == "minor" and device.minor is not None:
        first = device.minor
    if first is None:
        return
    names = [partition.partition for partition in held.partitions]
    if device.vendor == "amd" and len(names) > 1 and all(name.isdecimal() for name in names):
        # AMD's tools list every partition as a GPU, those of one card one after the other.
        for offset, name in enumerate(sorted(names, key=int)):
            yield first + offset, Place(device.key, name)
    else:
        yield first, Place(device.key)
