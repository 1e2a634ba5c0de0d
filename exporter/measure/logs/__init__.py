"""Readings out of logs that people have: of nvidia-smi, of amd-smi, and our own."""

from exporter.measure.logs.log import Log, LogError
from exporter.measure.logs.read import read_log, run_of

__all__ = ["Log", "LogError", "read_log", "run_of"]
