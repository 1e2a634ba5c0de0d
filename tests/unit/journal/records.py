"""Fleets that have seen readings, and what is kept of them."""

from exporter.fleet.record import FleetRecord
from exporter.model import Group
from tests.unit.fleet.hosts import Host, card

BOOT = "95e3c812-cf00-4f46-b8f4-0d6be5c4e2aa"
OTHER_BOOT = "0b8a5f3e-1111-4c0e-9b5e-6f2f7f3a9d10"


def host(devices: int = 2, seconds: int = 70, watts: float = 400.0) -> Host:
    """Return a host whose GPUs have drawn `watts` for so long, with honest accumulators."""
    cards = [card(number) for number in range(1, devices + 1)]
    made = Host(*cards)
    for _ in range(seconds):
        for device in cards:
            read(made, device.index or 0, watts)
        made.wait(1.0)
    return made


def read(made: Host, number: int, watts: float = 400.0) -> None:
    """Give a reading of a GPU that has always drawn so much."""
    made.read(
        card(number),
        Group.ENERGY,
        power_watts=watts,
        power_kind="average",
        power_window_seconds=1.0,
        energy_counter_joules=watts * made.now,
    )


def record(devices: int = 2, seconds: int = 70) -> FleetRecord:
    made = host(devices, seconds)
    return made.fleet.record(made.now)


def joules(kept: FleetRecord) -> dict[str, float]:
    """Return the totals of a record by key of the device."""
    return {
        one.key: one.meter.ledger.total_joules
        for one in kept.cards
        if one.meter is not None and one.meter.ledger is not None
    }
