"""Who uses the GPUs of a fleet is asked with what the fleet knows, and told to it."""

import time

from exporter.config import Config
from exporter.fleet import Fleet
from exporter.supervision.attributor import Attributor
from exporter.supervision.need import TERMS, Terms


def attributor_of(fleet: Fleet, config: Config, terms: Terms = TERMS) -> Attributor:
    """Return what asks and tells; it starts nothing yet, and needs a running event loop."""
    return Attributor(
        lambda: fleet.glance(time.monotonic()),
        lambda attribution: fleet.attributed(attribution, time.monotonic()),
        config.attribution,
        config.sampling.processes_seconds,
        lambda count: fleet.abandoned(count, "agents"),
        terms=terms,
    )
