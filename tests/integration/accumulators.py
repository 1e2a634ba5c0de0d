"""The bad accumulators that were met in the field, as devices of one machine for each vendor, and what reads them.

tests/integration/test_bad_accumulators.py says what is expected of them.
"""

import itertools
import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from exporter.metrics import FAULTS
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration import daemon as daemons
from tests.integration.daemon import Daemon, Samples
from tests.native.amdsmi_layout import WHEELS, amdsmi_tree
from tests.native.plan import standin_environment, write_plan

WINDOW = float(os.environ.get("ACCUMULATOR_WINDOW_SECONDS", "100"))
LONG = WINDOW >= 660
"""Whether an accumulator that turns bad within two minutes is dismissed before the end."""
TURNS = 80.0
"""Seconds after the start at which accumulators that have qualified by then turn bad."""
RETURNS = WINDOW + 14.0
"""When those that stand still inside one process go on: after the window, in the next process."""
ENERGY_PAGE = "/metrics?collect[]=energy&collect[]=exporter"
PAUSE_PHASE, PAUSE_SECONDS, PAUSE_EVERY_SECONDS = 7.0, 2.0, 20.0


class Case(NamedTuple):
    name: str
    model: str
    accumulator: dict[str, Any]
    faults: frozenset[str] = frozenset()
    """Those that must be counted, and no others may be."""
    qualifies: bool = False
    """Whether it does, however it ends."""
    ends_qualified: bool = False
    update: float = 0.1
    device_faults: tuple[dict[str, Any], ...] = ()


def event(kind: str, start: float, end: float | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": kind, "from_seconds": start, **({} if end is None else {"to_seconds": end}), **more}


def _pauses() -> dict[str, Any]:
    starts = itertools.takewhile(lambda t: t < WINDOW + 60, itertools.count(PAUSE_PHASE, PAUSE_EVERY_SECONDS))
    return {"events": [event("pausing", start, start + PAUSE_SECONDS) for start in starts]}


FAR = 20_000_000.0
"""Joules by which accumulators of different GPUs differ, when theirs is an answer that is mistaken for another's."""
NONE: frozenset[str] = frozenset()


def _common(model: str, update: float) -> tuple[Case, ...]:
    """Return the cases that befall either vendor; the first is the honest one, with which one other is mixed up."""

    def case(name: str, accumulator: dict[str, Any], faults: set[str] | frozenset[str] = NONE, **more: Any) -> Case:
        return Case(name, model, accumulator, frozenset(faults), update=update, **more)

    good: dict[str, Any] = {"qualifies": True, "ends_qualified": True}
    # Of AMD's accumulators 0 is none at all: that of Radeon cards stays there.
    zero = NONE if model == "MI300X" else {"jump"}
    return (
        case("honest", {"start_joules": FAR}, **good),
        case("43 % low", {"kind": "low", "factor": 0.57}),
        case("times 100", {"kind": "scaled", "factor": 100.0}, {"jump"}),
        case("ticks for joules", {"kind": "scaled", "factor": 65_536.0}, {"jump"}),
        case("all ones", {"kind": "ones"}),
        case("zero for the first seconds", {"start_joules": FAR, "events": [event("zero", 0, 9)]}, zero, **good),
        case(
            "another GPU's value now and then",
            {"start_joules": 1_000.0, "events": [event("swap", 4, device=0, every_seconds=17.0, lasting_seconds=1.4)]},
            {"jump", "reset"},
            **good,
        ),
        case("reset", {"start_joules": FAR, "events": [event("reset", TURNS)]}, {"reset"}, **good),
        case("pauses with catch-up", _pauses(), **good),
        case(
            "turns 43 % low",
            {"events": [event("scaled", TURNS, factor=0.57)]},
            {"disqualified"} if LONG else NONE,
            qualifies=True,
            ends_qualified=not LONG,
        ),
        case("turns into 100 times", {"events": [event("scaled", TURNS, factor=100.0)]}, {"jump"}, **good),
        case("stands still from some time on", {"events": [event("pausing", TURNS, RETURNS)]}, {"frozen"}, **good),
    )


LOST: tuple[dict[str, Any], ...] = ({"kind": "lost", "from_seconds": TURNS, "to_seconds": TURNS + 2.5},)
RESET_WITH_LOSS = {"start_joules": FAR, "events": [event("reset", TURNS + 1)]}
STILL = {"events": [event("pausing", 0, RETURNS)]}

CASES: dict[str, tuple[Case, ...]] = {
    "nvidia": (
        *_common("H100-SXM", 0.1),
        Case("frozen inside one process", "H100-SXM", STILL, frozenset({"frozen"})),
        Case("lost and reset", "H100-SXM", RESET_WITH_LOSS, frozenset({"reset"}), True, True, device_faults=LOST),
        Case("module scope", "GH200", {}),
        Case("43 % low at 10 Hz", "T4", {"kind": "low", "factor": 0.57}),
        Case("honest at 10 Hz", "T4", {}, NONE, True, True),
    ),
    "amd": (
        *_common("MI300X", 0.01),
        Case("frozen inside one process", "MI210", {"start_joules": 1_000.0, **STILL}, frozenset({"frozen"})),
        Case("zero for ever", "RX-9070", {}),
        Case("zero for the first seconds, MI350X", "MI350X", {"start_joules": FAR, "events": [event("zero", 0, 9)]},
             NONE, True, True, 0.01),
    ),
}  # fmt: skip
NAMES = [(vendor, case.name) for vendor, cases in CASES.items() for case in cases]
ONE_MAY_FREEZE = frozenset({"zero for the first seconds", "zero for the first seconds, MI350X"})
"""Their first seconds are a freeze as well."""
LIMIT_WATTS = {"H100-SXM": 700, "GH200": 700, "T4": 70, "MI300X": 750, "MI350X": 1000, "MI210": 300, "RX-9070": 220}


def scenario(vendor: str, **more: Any) -> str:
    devices = []
    for number, case in enumerate(CASES[vendor]):
        high = 0.9 * LIMIT_WATTS[case.model]
        load = {"pattern": "square", "watts": high, "low_watts": 0.3 * high, "period_seconds": 2.3}
        load |= {"duty": 0.4, "phase_seconds": 0.17 * number}
        devices.append(
            {"model": case.model, "load": load, "accumulator": case.accumulator, "faults": case.device_faults}
        )
    return json.dumps({"devices": devices, **more})


class Look(NamedTuple):
    """What one page says of one device."""

    at: float
    """CLOCK_MONOTONIC of the reading."""
    joules: float
    qualified: bool


class Run:
    """One vendor's daemon and what was seen of it."""

    def __init__(self, vendor: str, place: Path) -> None:
        self.vendor = vendor
        self.plan = place / f"{vendor}.plan"
        self.epoch = time.monotonic()
        self.machine = Machine(load_scenario(scenario(vendor)), self.epoch)
        self.wall = time.time() - time.monotonic()
        self.looks: dict[str, list[Look]] = {device.key: [] for device in self.machine.devices}
        self.pages: list[Samples] = []
        self.end_of_window = 0
        """Looks up to here are of the window."""

    def start(self, stack: ExitStack, place: Path) -> None:
        write_plan(self.plan, self.machine)
        if self.vendor == "nvidia":
            environment = standin_environment(self.plan)
        else:
            tree = amdsmi_tree(WHEELS[-1], place / "rocm")
            environment = {**tree, "GPU_EXPORTER_PLAN": str(self.plan)}
        log = place / f"{self.vendor}.log"
        self.daemon: Daemon = stack.enter_context(
            daemons.running(f"--provider={self.vendor}", log=log, env=environment)
        )
        count = len(self.looks)
        self.daemon.scrape_until(
            lambda page: [value > 0 for _, value in page.all("gpu_energy_covered_seconds_total")] == [True] * count
        )

    def key(self, name: str) -> str:
        return next(d.key for d, c in zip(self.machine.devices, CASES[self.vendor], strict=True) if c.name == name)

    def look(self) -> Samples:
        page = self.daemon.scrape(ENERGY_PAGE)
        for key, looks in self.looks.items():
            at = page.value("gpu_last_sample_timestamp_seconds", uuid=key) - self.wall
            joules = page.value("gpu_energy_joules_total", uuid=key)
            looks.append(Look(at, joules, page.value("gpu_energy_qualified", uuid=key) == 1))
        self.pages.append(page)
        return page

    def drawn(self, name: str, since: Look, until: Look) -> float:
        """Return the true joules between two looks."""
        key = self.key(name)
        return self.machine.energy_joules(key, until.at) - self.machine.energy_joules(key, since.at)

    def window(self, name: str) -> list[Look]:
        return self.looks[self.key(name)][: self.end_of_window]

    def faults(self, name: str, page: int) -> dict[str, float]:
        return {
            fault: self.pages[page].value("gpu_energy_faults_total", uuid=self.key(name), fault=fault)
            for fault in FAULTS
        }
