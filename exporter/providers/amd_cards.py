"""What is true of AMD's cards however they are read: what identifies one, and which dies share a package."""

from collections.abc import Iterable, Mapping, Sequence

from exporter.providers.sanitise import text

DUAL_DIE_IDS = frozenset({0x7408, 0x740C})
"""PCI device ids of MI250X and MI250: two GPUs in one package, of which the first carries the sensor of both."""
SOCKET_IDS = frozenset({0x74A0})
"""MI300A: a socket with CPU cores, which its sensor covers, and one memory for both."""


def unique_id(raw: object) -> str | None:
    """Return 16 hex digits as sysfs shows them, of those or of AMD SMI's serial number; None: the card has none.

    Zeros alone, and ones, are no number of a card.
    """
    serial = text(raw)
    digits = serial.lower().removeprefix("0x") if serial else ""
    if not digits or not set(digits) <= set("0123456789abcdef") or set(digits) <= {"0"} or set(digits) == {"f"}:
        return None
    return digits.zfill(16)


def key_of(own: str | None, all_ids: Iterable[str | None], address: str | None) -> str | None:
    """Return the key of a card. A number that several cards have is that of none of them: then it is the address."""
    return own if own is not None and list(all_ids).count(own) == 1 else address


def packages_of_dies(keys: Sequence[str]) -> Mapping[str, str]:
    """Return the package of each die, named by its first. `keys`: of all dies, in the order of their addresses.

    Dies of one package stand one after the other; an odd number of dies cannot be paired.
    """
    if len(keys) % 2:
        return {key: key for key in keys}
    return {key: keys[number - number % 2] for number, key in enumerate(keys)}
