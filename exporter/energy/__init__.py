"""The energy ledger: from readings of power and of a hardware accumulator to joules that never fall. Pure."""

from exporter.energy.ledger import Ledger, advance, detached
from exporter.energy.reading import EnergyReading

__all__ = ["EnergyReading", "Ledger", "advance", "detached"]
