"""Which device comes before another, and which are one: of two that look the same, and of two that do not."""

import math
from collections.abc import Iterable, Mapping

from exporter.fleet.card import Card
from exporter.fleet.source import Source
from exporter.model import Device

SIMULATED = "simulated"
"""The provider whose devices are on no bus: where they are is no reason to take them for others."""


def position(device: Device) -> tuple[str, float, str]:
    """Sort devices as the bus does; those without an address come last, by index."""
    index = math.inf if device.index is None else device.index
    return (device.pci_address or "~", index, device.key)


def differ(one: Device, other: Device) -> bool:
    """Tell whether two devices with the same key are two devices all the same."""
    if one.pci_address is not None and other.pci_address is not None:
        return one.pci_address != other.pci_address
    return one.index is not None and other.index is not None and one.index != other.index


def waits(device: Device, source: Source, providers: Mapping[str, Source]) -> bool:
    """Tell whether the provider that has the name of the vendor is preferred and has not said yet what it has.

    Keys and labels are to be the same, whoever is first.
    """
    preferred = providers.get(device.vendor)
    return preferred is not None and preferred is not source and not preferred.tried and source.name != SIMULATED


def recognised(device: Device, source: Source, cards: Mapping[str, Card], providers: Iterable[Source]) -> Card | None:
    """Return the card that a provider lists under a key of which there is no card; None: it is another one.

    A card whose identity cannot be read for a time has its address for a key. And providers may know one card by
    different keys; but another key from the provider that gave the first is another card in the same slot.
    """
    there = [
        card
        for card in cards.values()
        if card.sights.device.pci_address == device.pci_address and card.sights.device.vendor == device.vendor
    ]
    for card in there:
        if device.pci_address in (device.key, card.key):
            return card
    if source.name == SIMULATED:
        return None
    others = [other for other in providers if other is not source and other.name != SIMULATED]
    known = [card for card in there if source.aliases.get(device.key) == card.key]
    new = [card for card in there if card.sights.get(source.name) is None]
    seen = [card for card in (*known, *new) if any(card.key in other.listed for other in others)]
    return next(iter((*seen, *known)), None)
