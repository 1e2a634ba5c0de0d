"""What a log of readings is, whatever tool wrote it."""

from typing import Literal, NamedTuple

from exporter.measure.records import Identity, Point

Tool = Literal["gpu-exporter", "nvidia-smi", "amd-smi"]


class LogError(ValueError):
    """The text is no log from which joules can be had; says why, and what would be one."""


class Log(NamedTuple):
    tool: Tool
    points: tuple[Point, ...]
    gpus: tuple[Identity, ...]
    """In the order of their first rows."""
    truncated: bool
    """Whether it ended within a row, which was left out."""
    resolution_seconds: float = 0.0
    """How coarse its times are."""
    notes: tuple[str, ...] = ()
    """What was left out, one sentence each."""
