"""Do joules stay within what is said of them whatever an accumulator does, and is no honest window called invalid?"""

from random import Random

import pytest

from exporter.measure.evaluate import evaluate
from tests.unit.measure.machines import LOADS, SWING, Sampler, machine, run, window

FIRST, LAST = 5.0, 165.0


def event(kind: str, start: float = 80.0, end: float | None = None, **rest: object) -> dict[str, object]:
    return {"kind": kind, "from_seconds": start, "to_seconds": end, **rest}


PAUSES = [event("pausing", at, at + 2.0) for at in range(7, 160, 20)]
FAULTS: dict[str, dict[str, object]] = {
    "pauses for two seconds and catches up": {"events": PAUSES},
    "stands still from the middle on": {"events": [event("frozen")]},
    "stands still for half a minute": {"events": [event("frozen", end=110.0)]},
    "stands still for half a minute and catches up": {"events": [event("pausing", end=110.0)]},
    "counts 43 % low from the middle on": {"events": [event("scaled")]},
    "is not there for ten seconds": {"events": [event("absent", end=90.0)]},
    "counts 43 % low": {"kind": "low"},
    "counts 9 % too much": {"kind": "scaled", "factor": 1.09},
    "counts 5 % too little": {"kind": "scaled", "factor": 0.95},
    "is renewed once a second": {"period_seconds": 1.0},
    "counts in steps of 100 J": {"resolution_joules": 100.0},
    "goes back": {"start_joules": 5e6, "events": [event("reset")]},
    "shows 0 for a second": {"start_joules": 5e6, "events": [event("zero", end=81.0)]},
    "shows another GPU's value for a second": {"events": [event("swap", end=81.0, device=0)]},
}
GOES_BACK = ("goes back", "shows 0 for a second", "shows another GPU's value for a second")


@pytest.mark.parametrize("interval", [0.1, 1.0])
@pytest.mark.parametrize("fault", FAULTS)
def test_joules_are_within_what_is_said_of_them(fault: str, interval: float) -> None:
    random = Random(f"{fault}{interval}")
    other = {"model": "H100-SXM", "load": {"pattern": "constant", "watts": 690.0}}
    faulty = [
        {"model": "H100-SXM", "load": LOADS[load] | SWING, "accumulator": FAULTS[fault]}
        for load in ("2.1 s square", "31 s square", "rare bursts of 1 s")
    ]
    sampler = Sampler(machine(other, *faulty), interval, seed=fault)
    starts = [random.uniform(FIRST + 3, LAST - 10) for _ in range(12)]
    asked = [window(start, min(LAST - 5, start + random.choice([5, 10, 30, 60]))) for start in starts]
    result = evaluate(run(sampler, sampler.read(FIRST, LAST), *asked, interval=interval))
    for one, found in zip(asked, result.windows, strict=True):
        assert one.end is not None
        words = {reason.reason for reason in found.reasons}
        assert words <= ({"reset"} if fault in GOES_BACK else set()), found.reasons
        for gpu in found.gpus:
            error = abs((gpu.joules or 0.0) - sampler.true_joules(one, gpu.gpu))
            assert error <= (gpu.uncertainty_joules or 0.0), (gpu, one)


def test_an_honest_accumulator_is_the_source_and_one_that_is_not_never_where_it_lies() -> None:
    load = LOADS["2.1 s square"] | SWING
    faults = [{}, *(FAULTS[name] for name in ("stands still from the middle on", "counts 43 % low"))]
    sampler = Sampler(machine(*({"model": "H100-SXM", "load": load, "accumulator": fault} for fault in faults)))
    windows = (window(20.0, 70.0), window(90.0, 150.0))
    result = evaluate(run(sampler, sampler.read(FIRST, LAST), *windows))
    before, after = ([gpu.source for gpu in found.gpus] for found in result.windows)
    assert before == ["hardware", "hardware", "integrated"]
    assert after == ["hardware", "integrated", "integrated"]


def test_an_accumulator_that_has_just_frozen_is_not_the_source() -> None:
    fault = {"events": [event("frozen", 100.0)]}
    sampler = Sampler(machine({"model": "H100-SXM", "load": LOADS["2.1 s square"] | SWING, "accumulator": fault}))
    result = evaluate(run(sampler, sampler.read(FIRST, 130.0), window(80.0, 99.0), window(90.0, 101.5)))
    assert [found.gpus[0].source for found in result.windows] == ["hardware", "integrated"]


def test_one_that_turns_wrong_late_in_a_long_run_is_the_source_of_nothing() -> None:
    fault = {"events": [event("scaled", 290.0, factor=0.5)]}
    sampler = Sampler(machine({"model": "H100-SXM", "load": LOADS["2.1 s square"] | SWING, "accumulator": fault}))
    result = evaluate(run(sampler, sampler.read(FIRST, 350.0), window(100.0, 200.0), window(300.0, 305.0)))
    assert [found.gpus[0].source for found in result.windows] == ["integrated", "integrated"]
