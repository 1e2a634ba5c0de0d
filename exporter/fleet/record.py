"""What of a fleet is kept over a restart: who has which label, and the energy of each device."""

import math
from collections.abc import Iterator, Mapping

import msgspec

from exporter.energy import Ledger
from exporter.energy.reboot import after_reboot
from exporter.model import Scope

MOST_RECORDS = 256
MOST_PREFIXES = 16
"""Of labels, such as nvidia."""
_HIGHEST_NUMBER = 2**53
FORGET_SECONDS = 30 * 86_400.0
"""A device that was not seen for so long, of the time that the exporter ran, is not kept any longer."""


class MeterRecord(msgspec.Struct, frozen=True, kw_only=True):
    start_timestamp: float
    """Unix time at which the total began at 0."""
    ledger: Ledger | None = None
    module: Ledger | None = None
    scope: Scope | None = None
    scope_of_power: bool = False


class CardRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    provider: str
    """Whose readings the ledgers hold."""
    meter: MeterRecord | None = None
    """None: nothing was counted yet."""
    order: tuple[str, int] | None = None
    """Prefix and number of the label; None: it was given in another boot, and labels are pinned for one."""
    unseen_seconds: float = 0.0
    """For how long nobody has seen the device, of the time that the exporter ran: no clock that can be set."""


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    cards: tuple[CardRecord, ...] = ()
    numbers: Mapping[str, int] = {}
    """The next number of a label, by prefix."""


def newest(cards: list[CardRecord]) -> tuple[CardRecord, ...]:
    """Return those that are kept, as many as there is room for."""
    kept = [card for card in cards if card.unseen_seconds < FORGET_SECONDS]
    if len(kept) > MOST_RECORDS:
        kept = sorted(kept, key=lambda card: card.unseen_seconds)[:MOST_RECORDS]
    return tuple(kept)


def impossible(record: FleetRecord, at: float) -> str | None:
    """Return what cannot be true of a record made at monotonic time `at`; None: it may all be."""
    cards = record.cards
    orders = [card.order for card in cards if card.order is not None]
    numbers = [*record.numbers.values(), *(number for _, number in orders)]
    meters = [card.meter for card in cards if card.meter is not None]
    ledgers = [ledger for meter in meters for ledger in (meter.ledger, meter.module) if ledger is not None]
    complaints = (
        (len(cards) > MOST_RECORDS, f"more than {MOST_RECORDS} devices"),
        (len({card.key for card in cards}) < len(cards), "a device twice"),
        (len(set(orders)) < len(orders), "a label twice"),
        (any(number < 0 for _, number in orders), "a negative label"),
        (len(record.numbers) > MOST_PREFIXES + 1, f"more than {MOST_PREFIXES} kinds of labels"),
        (not all(0 <= number <= _HIGHEST_NUMBER for number in numbers), "a label that was never given"),
        (not all(map(math.isfinite, _numbers(msgspec.to_builtins(record)))), "a number that is not finite"),
        (any(card.unseen_seconds < 0 for card in cards), "a negative time"),
    )
    found = [words for holds, words in complaints if holds] + [words for x in ledgers if (words := _impossible(x, at))]
    return found[0] if found else None


def brought_over(record: FleetRecord, now: float) -> FleetRecord:
    """Return a record of another boot as it goes on in this one: totals do, labels and anchors do not."""
    return FleetRecord(cards=tuple(_brought_over(card, now) for card in record.cards))


def _brought_over(card: CardRecord, now: float) -> CardRecord:
    meter = card.meter
    if meter is not None:
        meter = msgspec.structs.replace(
            meter,
            ledger=meter.ledger and after_reboot(meter.ledger, now),
            module=meter.module and after_reboot(meter.module, now),
        )
    return msgspec.structs.replace(card, order=None, meter=meter)


def _impossible(ledger: Ledger, at: float) -> str | None:
    books = ledger.books
    sums = (ledger.steps, ledger.integral, books.hardware, books.integrated, books.covered_seconds, books.gap_seconds)
    if any(total.value < 0 for total in sums) or books.credit < 0:
        return "a negative total"
    if ledger.at is None:
        return "a ledger without a reading"
    times = (ledger.at, ledger.power.resolved_at or 0.0, ledger.accumulator.read_at, books.booked_at)
    return "a reading from the future" if max(times) > at else None


def _numbers(tree: object) -> Iterator[float]:
    if isinstance(tree, float):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _numbers(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _numbers(value)
