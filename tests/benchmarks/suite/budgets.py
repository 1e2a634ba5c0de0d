"""What each figure may be at most, and what it is."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.benchmarks.suite.footprint import DEFAULT
from tests.benchmarks.suite.peers import NODE, NVITOP
from tests.benchmarks.suite.section import Section


class Budget(NamedTuple):
    what: str
    figure: str
    """Name of the figure, or of all that it matches: the worst counts."""
    most: float
    form: str = ".2f"


BUDGETS = (
    Budget("scrape p50, 64 GPUs, by a clock of 1 s, by node_exporter's of the same page", f"64 {NODE} spaced", 0.25),
    Budget("the same, back to back", f"64 {NODE} burst", 0.1),
    Budget("scrape p50, 8 GPUs, by a clock of 1 s, by nvitop-exporter's", f"8 {NVITOP} spaced", 0.2),
    Budget("processor time, 8 GPUs, of one core", f"processor {DEFAULT}", 0.01, ".2%"),
    Budget("the same by nvitop-exporter's", f"8 {NVITOP} processor", 1.0),
    Budget("memory, 8 GPUs, parent and worker, MiB", f"memory {DEFAULT}", 50.0, ".1f"),
    Budget("memory of all processes, 8 GPUs, settled, by nvitop-exporter's", f"8 {NVITOP} settled", 1.25),
    Budget("start to first full page, 8 GPUs, s", "start 8", 1.5),
    Budget("growth with devices and processes: the largest exponent", "growth .*", 1.15),
)
NEAR_LINEAR = (
    "An exponent up to 1.15 counts as linear: caches fill as the numbers grow, and points are of a few milliseconds."
)


def budgets(figures: Mapping[str, float]) -> Section:
    section = Section("Budgets")
    rows = []
    for budget in BUDGETS:
        found = [value for name, value in figures.items() if re.fullmatch(budget.figure, name) or name == budget.figure]
        if not found:
            rows.append([budget.what, f"{budget.most:{budget.form}}", "", "not measured"])
            continue
        worst = max(found)
        said = "met" if worst <= budget.most else f"missed by {worst / budget.most - 1:.0%}"
        rows.append([budget.what, f"{budget.most:{budget.form}}", f"{worst:{budget.form}}", said])
    section.say(NEAR_LINEAR)
    section.table(("", "at most", "measured", ""), rows)
    return section
