"""What of a fleet is kept over a restart: who has which label, and the energy of each device."""

import math
from collections.abc import Iterator, Mapping

import msgspec

from exporter.energy import Ledger
from exporter.energy.reboot import after_reboot
from exporter.model import Scope, Workload

MOST_RECORDS = 256
MOST_PREFIXES = 16
"""Of labels, such as nvidia."""
MOST_WORKLOADS = 64
"""Of one device."""
MOST_WORKLOADS_IN_ALL = 4096
ROUNDING = 1e-9
"""Relative to a total: what parts of it may differ by."""
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


class WorkloadRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    workload: Workload
    active_joules: float = 0.0
    idle_joules: float = 0.0
    busy_seconds: float = 0.0
    allocated_seconds: float = 0.0
    start_timestamp: float | None = None


class TenancyRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    divided_joules: float | None = None
    """The device's total as far as it has been divided; None: it showed no energy yet."""
    covered_seconds: float = 0.0
    unattributed_joules: float = 0.0
    idle_watts: float | None = None
    workloads: tuple[WorkloadRecord, ...] = ()


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
    tenancy: TenancyRecord | None = None
    """None: nothing of it is divided."""


class FleetRecord(msgspec.Struct, frozen=True, kw_only=True):
    cards: tuple[CardRecord, ...] = ()
    numbers: Mapping[str, int] = {}
    """The next number of a label, by prefix."""


def newest(cards: list[CardRecord]) -> tuple[CardRecord, ...]:
    """Return those that are kept, as many as there is room for, and of their workloads also."""
    kept = [card for card in cards if card.unseen_seconds < FORGET_SECONDS]
    if len(kept) > MOST_RECORDS:
        kept = sorted(kept, key=lambda card: card.unseen_seconds)[:MOST_RECORDS]
    if sum(len(card.tenancy.workloads) for card in kept if card.tenancy) > MOST_WORKLOADS_IN_ALL:
        kept = [without_workloads(card) if card.unseen_seconds else card for card in kept]
    return tuple(kept)


def without_workloads(card: CardRecord) -> CardRecord:
    """Return the record without those that used the device: they are gone for longer than they are remembered."""
    if card.tenancy is None or not card.tenancy.workloads:
        return card
    return msgspec.structs.replace(card, tenancy=msgspec.structs.replace(card.tenancy, workloads=()))


def impossible(record: FleetRecord, at: float) -> str | None:
    """Return what cannot be true of a record made at monotonic time `at`; None: it may all be."""
    cards = record.cards
    orders = [card.order for card in cards if card.order is not None]
    numbers = [*record.numbers.values(), *(number for _, number in orders)]
    meters = [card.meter for card in cards if card.meter is not None]
    ledgers = [ledger for meter in meters for ledger in (meter.ledger, meter.module) if ledger is not None]
    tenancies = [card.tenancy for card in cards if card.tenancy is not None]
    complaints = (
        (len(cards) > MOST_RECORDS, f"more than {MOST_RECORDS} devices"),
        (len({card.key for card in cards}) < len(cards), "a device twice"),
        (len(set(orders)) < len(orders), "a label twice"),
        (any(number < 0 for _, number in orders), "a negative label"),
        (len(record.numbers) > MOST_PREFIXES + 1, f"more than {MOST_PREFIXES} kinds of labels"),
        (not all(0 <= number <= _HIGHEST_NUMBER for number in numbers), "a label that was never given"),
        (not all(map(math.isfinite, _numbers(msgspec.to_builtins(record)))), "a number that is not finite"),
        (any(card.unseen_seconds < 0 for card in cards), "a negative time"),
        (sum(len(kept.workloads) for kept in tenancies) > MOST_WORKLOADS_IN_ALL, "too many workloads"),
    )
    found = [words for holds, words in complaints if holds] + [words for x in ledgers if (words := _impossible(x, at))]
    found += [words for card in cards if (words := _wrongly_divided(card))]
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


def _wrongly_divided(card: CardRecord) -> str | None:
    kept, ledger = card.tenancy, card.meter.ledger if card.meter else None
    if kept is None:
        return None
    total, divided = ledger.total_joules if ledger else 0.0, kept.divided_joules or 0.0
    charged = [amount for one in kept.workloads for amount in (one.active_joules, one.idle_joules)]
    seconds = [amount for one in kept.workloads for amount in (one.busy_seconds, one.allocated_seconds)]
    amounts = [divided, kept.covered_seconds, kept.unattributed_joules, kept.idle_watts or 0.0, *charged, *seconds]
    complaints = (
        (len(kept.workloads) > MOST_WORKLOADS, f"more than {MOST_WORKLOADS} workloads of a device"),
        (len({one.workload.key for one in kept.workloads}) < len(kept.workloads), "a workload twice"),
        (any(amount < 0 for amount in amounts), "a negative amount of a workload"),
        (divided > total * (1 + ROUNDING), "more joules divided than there were"),
        (
            math.fsum([kept.unattributed_joules, *charged]) > divided * (1 + ROUNDING),
            "more joules charged than divided",
        ),
    )
    return next((words for holds, words in complaints if holds), None)


def _numbers(tree: object) -> Iterator[float]:
    if isinstance(tree, float):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _numbers(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _numbers(value)
