"""What reads the cards of a kernel driver: the seam between the walk over all cards and what one driver tells."""

from collections.abc import Collection
from typing import Any, Protocol

from exporter.model import Device, Group
from exporter.providers.drm.cards import Card
from exporter.providers.drm.reading import Reading


class CardReader(Protocol):
    """Reads all cards of some drivers. What it remembers of one is kept by `Card.folder`.

    A question to the driver (`Reading.number`, `Reading.raw`) may be interrupted by a read of the energy group of the
    same card, so nothing is left half made.
    """

    @property
    def drivers(self) -> Collection[str]:
        """Names of the kernel's drivers."""

    @property
    def work(self) -> Collection[str]:
        """Engines in fdinfo whose time counts as work of a process."""

    def identify(self, card: Card, reading: Reading, *, asleep: bool) -> Device:
        """Return who it is: vendor, key, and what sysfs tells of the rest. Of one asleep, nothing that would wake it.

        The key is the PCI address where there is nothing better, else the name of the device.
        """

    def read(self, card: Card, device: Device, group: Group, reading: Reading) -> dict[str, Any]:
        """Return the fields of Sample of one group, but those of processes, which are found without the card.

        The source of each reading is noted in `reading.sources`, what breaks in `reading.readings`.
        """

    def regions(self, device: Device) -> Collection[str]:
        """Return the regions of memory in fdinfo that count as held on a device."""

    def interrupt(self, card: Card) -> None:
        """Take that a card sleeps, or is gone for a while: what it counts over that time says nothing."""

    def forget(self, folders: Collection[str]) -> None:
        """Drop what is remembered of cards that are not in these folders any more."""
