"""What is known of every GPU of the host: merged, pinned, counted. No I/O, and time is an argument."""

from exporter.fleet.fleet import MOST_DEVICES, Fleet

__all__ = ["MOST_DEVICES", "Fleet"]
