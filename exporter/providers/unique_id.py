"""By which key is an AMD GPU known? The same through AMD SMI and through sysfs, so that both see one card."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from exporter.providers.sanitise import text

_DIGITS = frozenset("0123456789abcdef")
_WIDTH = 16


class Named(NamedTuple):
    """What a card says of itself."""

    unique_id: str | None
    """As of `unique_id`."""
    address: str | None
    """dddd:bb:dd.f in lower case, of the PCI device itself: partitions of it are not cards."""


def unique_id(raw: object) -> str | None:
    """Return 16 hexadecimal digits in lower case, as sysfs shows them; None where the card has none.

    `raw`: the text of the file `unique_id`, or the asic_serial of AMD SMI (0xB1D2..., without the prefix in ROCm 6.0).
    Guests and APUs answer only zeros, nothing, or text that is no number.
    """
    said = text(raw)
    digits = said.lower().removeprefix("0x") if said else ""
    if not digits or not set(digits) <= _DIGITS:
        return None
    number = digits.zfill(_WIDTH)
    return None if len(number) > _WIDTH or set(number) in ({"0"}, {"f"}) else number


def keys(cards: Sequence[Named]) -> tuple[str | None, ...]:
    """Return the key of each card: its unique_id, else its address; None where it has neither.

    Several cards with one unique_id: it is that of none of them.
    """
    seen = Counter(card.unique_id for card in cards)
    return tuple(card.unique_id if card.unique_id and seen[card.unique_id] == 1 else card.address for card in cards)
