"""What a process costs, as the kernel counts it."""

import os
from pathlib import Path


def pss_mebibytes(pid: int) -> float:
    """Return the proportional share of memory: what it shares with others is divided among them."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def processor_seconds(pid: int) -> float:
    """Return user and system time since the process began; the kernel counts in steps of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
