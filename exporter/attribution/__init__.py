"""Whose process it is, and who was given a GPU: looked up in a process of its own, source by source."""
