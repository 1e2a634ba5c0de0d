"""How totals outlive the daemon: kept in a file before they are served, so that no crash makes a served one fall."""

from exporter.journal.gate import Journal, opened
from exporter.journal.places import Places, places

__all__ = ["Journal", "Places", "opened", "places"]
