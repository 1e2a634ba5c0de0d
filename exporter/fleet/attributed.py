"""What the whole fleet knows of who uses it: the newest answer, and what is common to the accounts of all devices."""

from operator import attrgetter

from exporter.config import AttributionConfig
from exporter.fleet.charging import Charging
from exporter.fleet.tenancy import Room, Tenancy
from exporter.fleet.tenants import NO_CLAIMS, claims
from exporter.model import Attribution

_SHOWN = attrgetter("sources", "unplaced_devices", "unplaced_processes")
"""All that the block of the exporter shows."""


class Attributed:
    def __init__(self, config: AttributionConfig) -> None:
        self.enabled = config.enabled
        self.linger_seconds = config.linger_seconds
        self.newest: Attribution | None = None
        self.claims = NO_CLAIMS
        self.divides = False
        """Whether a source has ever told anything, so that energy is divided."""
        self._room = Room()

    def take(self, attribution: Attribution) -> bool:
        """Take an answer, and tell whether it looks different."""
        before, self.newest = self.newest, attribution
        tells = any(source.up for source in attribution.sources) or attribution.allocations or attribution.owners
        self.divides = self.divides or bool(tells)
        self.claims = claims(attribution)
        return before is None or bool(_SHOWN(before) != _SHOWN(attribution))

    def charging(self) -> Charging:
        """Return the accounts of another device."""
        return Charging(Tenancy(self.linger_seconds, self._room))
