"""All benchmarks of speed, memory and size: `python -m tests.benchmarks`; prints a page of Markdown tables.

By default it takes ten minutes, of which most is waiting. Run it on a quiet machine, as root or any user:

    python -m tests.benchmarks --output docs/performance.md
    python -m tests.benchmarks --only rates growth
    python -m tests.benchmarks --seconds 120                  # longer windows
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.benchmarks.suite.budgets import budgets
from tests.benchmarks.suite.floor import floor
from tests.benchmarks.suite.footprint import footprint
from tests.benchmarks.suite.growth import growth
from tests.benchmarks.suite.rates import rates
from tests.benchmarks.suite.scrapes import scrapes
from tests.benchmarks.suite.section import TITLE, Section, machine, merged, preface
from tests.benchmarks.suite.side_by_side import side_by_side
from tests.benchmarks.suite.sizes import sizes

SECTIONS: Mapping[str, Callable[[float], Section]] = {
    "side-by-side": side_by_side,
    "floor": floor,
    "scrapes": scrapes,
    "footprint": footprint,
    "growth": growth,
    "rates": rates,
    "sizes": sizes,
}
SECONDS = 15.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION", help="of: %(choices)s"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="length of one window (default %(default)g)")
    parser.add_argument("--output", type=Path, help="put the sections into this page, in place of the old ones")
    asked = parser.parse_args()
    described = machine()
    made: dict[str, str] = {}
    figures: dict[str, float] = {}
    for name in asked.only:
        began = time.monotonic()
        section = SECTIONS[name](asked.seconds)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        figures.update(section.figures)
        made[section.title] = str(section)
    command = "python -m tests.benchmarks" + (f" --seconds {asked.seconds:g}" if asked.seconds != SECONDS else "")
    head = {"": f"{TITLE}\n{preface(command, described)}"}
    if set(asked.only) == set(SECTIONS):
        head["Budgets"] = str(budgets(figures))
    page = {**head, **made}
    print("\n".join(page.values()))
    if asked.output is not None:
        old = asked.output.read_text() if asked.output.exists() else ""
        asked.output.write_text(merged(old, page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
