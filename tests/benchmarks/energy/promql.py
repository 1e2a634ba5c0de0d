"""How far is `increase` from the joules of a window, when the counter itself is exact?

The rules of Prometheus are simulated, so that many windows cost little: `increase` as versions 2 and 3 extrapolate,
`anchored` and `smoothed` as they are documented. `rule_tests` lets promtool check the first.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

from tests.benchmarks.energy.yardstick import Error
from tests.unit.energy import sensors
from tests.unit.energy.sensors import Load

SCRAPES = (15, 60)
WINDOWS = {"1 min": 60, "5 min": 300, "1 h": 3600}
EVALUATIONS = 400
TRACE_SECONDS = 9000.0
LOADS: dict[str, Callable[[Random], Load]] = {
    "bursts 1 s, rare": lambda random: sensors.bursts(random, 1.0, 10.0, TRACE_SECONDS),
    "bursts 10 s, each minute": lambda random: sensors.bursts(random, 10.0, 50.0, TRACE_SECONDS),
    "square 31 s, 20 %": lambda _: sensors.square(31.0, 0.2, TRACE_SECONDS),
    "constant": lambda _: sensors.constant(400.0),
}
LIVES = {"45 s": 45.0, "2 min": 120.0, "10 min": 600.0}
LIFE_WATTS = 500.0
THRESHOLD = 1.1
"""Mean spacings from the edge of a window, below which Prometheus takes the samples to reach it."""

Sample = tuple[float, float]
"""Second and joules."""
Rule = Callable[[Sequence[Sample], float, float], float | None]


def increase(samples: Sequence[Sample], at: float, window: float) -> float | None:
    """Do what Prometheus does for `increase(x[window])` at a moment; None: no answer."""
    inside = [(t, value) for t, value in samples if at - window < t <= at]
    if len(inside) < 2:
        return None
    (first_at, first), (last_at, last) = inside[0], inside[-1]
    result = last - first + sum(a for (_, a), (_, b) in itertools.pairwise(inside) if b < a)
    sampled = last_at - first_at
    spacing = sampled / (len(inside) - 1)
    to_start, to_end = first_at - (at - window), at - last_at
    if to_start >= spacing * THRESHOLD:
        to_start = spacing / 2
    if result > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / result))
    if to_end >= spacing * THRESHOLD:
        to_end = spacing / 2
    return result * ((sampled + to_start + to_end) / sampled)


def anchored(samples: Sequence[Sample], at: float, window: float) -> float | None:
    """Take the last samples at or before both edges; the counter does not fall."""
    before = [value for t, value in samples if t <= at - window]
    until = [value for t, value in samples if t <= at]
    return until[-1] - before[-1] if before else None


def smoothed(samples: Sequence[Sample], at: float, window: float) -> float | None:
    """Interpolate at both edges; the counter does not fall."""
    start, end = _between(samples, at - window), _between(samples, at)
    return None if start is None or end is None else end - start


def _between(samples: Sequence[Sample], at: float) -> float | None:
    for (t, a), (after, b) in itertools.pairwise(samples):
        if t <= at <= after:
            return a + (b - a) * (at - t) / (after - t)
    return None


RULES: dict[str, Rule] = {"increase": increase, "anchored": anchored, "smoothed": smoothed}


class Case(NamedTuple):
    """One window over an exact counter that is scraped regularly."""

    samples: tuple[Sample, ...]
    at: float
    truth: float
    """Joules between the edges of the window."""


def cases(load: str, scrape: int, window: float, count: int) -> Iterator[Case]:
    for number in range(count):
        random = Random(f"promql {load} {scrape} {window} {number}")
        made = LOADS[load](random)
        offset = random.uniform(0, 60)
        at = round(random.uniform(window + 2 * scrape, 7200 + 2 * scrape), 3)
        first, last = math.floor((at - window) / scrape) - 1, math.ceil(at / scrape) + 1
        samples = tuple((float(n * scrape), made.joules(offset + n * scrape)) for n in range(max(0, first), last + 1))
        yield Case(samples, at, made.joules(offset + at) - made.joules(offset + at - window))


class WindowRow(NamedTuple):
    load: str
    scrape: int
    window: str
    errors: dict[str, Error]
    """By rule; without those that give no answer."""


def windows(count: int = EVALUATIONS) -> Iterator[WindowRow]:
    for load in LOADS:
        for scrape, (name, seconds) in itertools.product(SCRAPES, WINDOWS.items()):
            made = list(cases(load, scrape, seconds, count))
            found = {rule: _error(made, seconds, RULES[rule]) for rule in RULES}
            yield WindowRow(load, scrape, name, {rule: error for rule, error in found.items() if error is not None})


def _error(made: Sequence[Case], window: float, rule: Rule) -> Error | None:
    answers = [(rule(case.samples, case.at, window), case.truth) for case in made]
    if all(answer is None for answer, _ in answers):
        return None
    return Error.of([(answer or 0.0) / truth - 1 for answer, truth in answers])


BILLED = "bursts 10 s, each minute"


def bills(count: int = EVALUATIONS // 4) -> Iterator[WindowRow]:
    """Add up twelve increases over five minutes, as a bill of recording rules does for an hour."""
    for scrape in SCRAPES:
        errors: dict[str, list[float]] = {rule: [] for rule in RULES}
        for case in cases(BILLED, scrape, 3600, count):
            for rule, counted in errors.items():
                parts = (RULES[rule](case.samples, case.at - 300 * n, 300) or 0.0 for n in range(12))
                counted.append(sum(parts) / case.truth - 1)
        yield WindowRow(BILLED, scrape, "12 x 5 min", {rule: Error.of(e) for rule, e in errors.items()})


class LifeRow(NamedTuple):
    scrape: int
    life: str
    plain: float
    """Mean share of the joules of a short life that `increase` over an hour finds."""
    zero_sample: float
    """The same, with a sample of 0 at the start."""


def lives(count: int = EVALUATIONS) -> Iterator[LifeRow]:
    for scrape, (name, seconds) in itertools.product(SCRAPES, LIVES.items()):
        plain, zero = 0.0, 0.0
        for number in range(count):
            born = round(Random(f"life {scrape} {name} {number}").uniform(0, scrape), 3)
            scraped = [float(n * scrape) for n in range(1, 20 * 60) if born <= n * scrape <= born + seconds]
            samples = [(t, LIFE_WATTS * (t - born)) for t in scraped]
            plain += (increase(samples, 3000.0, 3600.0) or 0.0) / (LIFE_WATTS * seconds)
            zero += (increase([(born, 0.0), *samples], 3000.0, 3600.0) or 0.0) / (LIFE_WATTS * seconds)
        yield LifeRow(scrape, name, plain / count, zero / count)


def rule_tests(count: int = 5) -> dict[str, Any]:
    """Return a file for `promtool test rules` that holds `increase` here to what Prometheus evaluates."""
    tests = []
    for load, scrape, (_, window) in itertools.product(LOADS, SCRAPES, WINDOWS.items()):
        made = cases(load, scrape, window, count)
        tests += [_rule_test(case.samples, scrape, case.at, window) for case in made]
    fallen = [(0.0, 900.0), (15.0, 1700.0), (30.0, 40.0), (45.0, 1000.0), (60.0, 1900.0)]
    tests.append(_rule_test(fallen, 15, 61.0, 60))
    born = [(15.0 * n, 500.0 * (15 * n - 7)) for n in range(1, 9)]
    tests.append(_rule_test(born, 15, 125.0, 300))
    return {"rule_files": [], "evaluation_interval": "15s", "fuzzy_compare": True, "tests": tests}


def _rule_test(samples: Sequence[Sample], scrape: int, at: float, window: float) -> dict[str, Any]:
    # The series begins at 0 s; values that are not there are written as _.
    skipped = round(samples[0][0] / scrape)
    values = " ".join(["_"] * skipped + [repr(value) for t, value in samples])
    expected = increase(samples, at, window)
    answer = [] if expected is None else [{"labels": "{}", "value": expected}]
    return {
        "interval": f"{scrape}s",
        "input_series": [{"series": "joules_total", "values": values}],
        "promql_expr_test": [
            {"expr": f"increase(joules_total[{window}s])", "eval_time": f"{round(at * 1000)}ms", "exp_samples": answer}
        ],
    }
