"""What a scrape gets: a World and the tables of metrics become cached blocks, and blocks become a page."""

from exporter.exposition.formats import Format
from exporter.exposition.renderer import Renderer

__all__ = ["Format", "Renderer"]
