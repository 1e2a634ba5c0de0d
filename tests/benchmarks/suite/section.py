"""The page that the benchmarks print: sections of tables, and which machine they are of."""

import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TITLE = "# Performance\n"


@dataclass
class Section:
    """One heading with its text and tables. `figures` are what the budgets are held to, by name."""

    title: str
    parts: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def say(self, text: str) -> None:
        self.parts.append(text)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self.parts.append(table(header, rows))

    def __str__(self) -> str:
        return "\n\n".join([f"## {self.title}", *self.parts]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose columns but the first are of numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def machine() -> str:
    """Return one sentence: processors, memory, kernel, interpreter, load."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} processors ({processor[1] if processor else platform.machine()}), {memory:.0f} GiB, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}, "
        f"load average {load:.1f} before the first measurement"
    )


def preface(command: str, described: str) -> str:
    return f"Measured on {time.strftime('%Y-%m-%d')} by `{command}`: {described}.\n"


def merged(old: str, sections: Mapping[str, str]) -> str:
    """Return the page with these sections, by heading, in place of the old ones, and the other sections as they were.

    The heading "" is what comes before the first section.
    """
    pieces = re.split(r"^(?=## )", old, flags=re.MULTILINE)
    kept = {_heading(piece): piece.strip() + "\n" for piece in pieces if piece.strip()}
    return "\n".join({**kept, **sections}.values())


def _heading(piece: str) -> str:
    return piece.splitlines()[0][3:] if piece.startswith("## ") else ""
