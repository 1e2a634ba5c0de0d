"""What of a ledger outlives a reboot: its totals, and nothing that is a time or a value of a sensor."""

import msgspec

from exporter.energy.integral import PowerTrack
from exporter.energy.ledger import Ledger, detached


def after_reboot(ledger: Ledger, now: float) -> Ledger:
    """Return the ledger as it goes on at `now` on another monotonic clock: accumulators begin anew with a boot.

    It may be applied again, later in the new boot, until the ledger has had a reading.
    """
    settled = detached(ledger)
    return msgspec.structs.replace(
        settled,
        at=now,
        power=PowerTrack(seen=ledger.power.seen),
        books=msgspec.structs.replace(settled.books, booked_at=now),
    )


def awaits_reading(ledger: Ledger) -> bool:
    """Tell whether there was no reading since `after_reboot`."""
    return ledger.power.resolved_at is None and ledger.accumulator.joules is None
