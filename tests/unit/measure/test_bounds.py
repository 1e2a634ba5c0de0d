"""Are the joules of a window within what the result itself says they may be off, and does it say anything?"""

from random import Random
from typing import NamedTuple

import pytest

from exporter.measure.evaluate import evaluate
from tests.unit.measure.machines import LOADS, SWING, Sampler, machine, run, window

# A mean over 1 s, 25 ms of each 100 ms, all of each 100 ms, all of each ms: by the kind of card that has it.
MODELS = ("H100-SXM", "A100-SXM", "T4", "MI300X")
SWINGS = {"T4": {"low_watts": 10.0, "watts": 68.0}, "A100-SXM": {"low_watts": 60.0, "watts": 390.0}}
LENGTHS = (5.0, 13.0, 60.0, 300.0, 600.0)
FAST, SLOW = 0.1, 1.0


class Found(NamedTuple):
    joules: float
    true: float
    said: float
    source: str | None

    @property
    def used(self) -> float:
        """The error as a share of what was said; more than 1 breaks the promise."""
        return abs(self.joules - self.true) / self.said


def found(
    model: str, length: float, interval: float, seed: int, *, accumulator: str = "absent", before: float = 5.0
) -> list[Found]:
    """Measure one window at a random phase of each load, one GPU for each."""
    random = Random(f"{model}{length}{interval}{seed}")
    start = before + random.uniform(2, 40)
    counter = {"kind": accumulator}
    swing = SWINGS.get(model, SWING)
    devices = [{"model": model, "load": load | swing, "accumulator": counter} for load in LOADS.values()]
    sampler = Sampler(machine(*devices), interval, seed=seed)
    asked = window(start, start + length)
    points = sampler.read(start - before, start + length + 3 * interval + 1)
    result = evaluate(run(sampler, points, asked, interval=interval)).windows[0]
    assert interval > FAST or result.power_valid, result.reasons
    gathered = []
    for gpu in result.gpus:
        assert gpu.joules is not None
        assert gpu.uncertainty_joules is not None
        gathered.append(Found(gpu.joules, sampler.true_joules(asked, gpu.gpu), gpu.uncertainty_joules, gpu.source))
    assert result.joules == pytest.approx(sum(each.joules for each in gathered))
    return gathered


@pytest.mark.parametrize(
    ("model", "length"),
    # Windows that take long to make: the two sensors that are hardest to read.
    [*((model, length) for length in (5.0, 13.0, 60.0) for model in MODELS), (MODELS[1], 300.0), (MODELS[0], 600.0)],
)
def test_integrals_of_readings_at_ten_hertz(model: str, length: float) -> None:
    windows = [each for seed in range(3 if length < 60 else 1) for each in found(model, length, FAST, seed)]
    assert {each.source for each in windows} == {"integrated"}
    assert max(each.used for each in windows) <= 1
    # A bound of which hardly anything is ever used tells nobody anything.
    assert max(each.said / each.joules for each in windows) <= 0.7 * (5 / length) ** 0.5 + 0.01


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("length", LENGTHS)
def test_integrals_of_readings_once_a_second(model: str, length: float) -> None:
    windows = [each for seed in range(3 if length <= 60 else 1) for each in found(model, length, SLOW, seed)]
    assert max(each.used for each in windows) <= 1


@pytest.mark.parametrize("model", MODELS)
def test_an_accumulator_that_has_earned_it_gives_the_joules_of_short_windows_too(model: str) -> None:
    windows = [each for seed in range(2) for each in found(model, 5.0, FAST, seed, accumulator="honest", before=75.0)]
    assert {each.source for each in windows} == {"hardware"}
    assert max(each.used for each in windows) <= 1
    assert max(each.said / each.joules for each in windows) <= 0.35


def test_ten_minutes_of_an_accumulator_are_known_to_one_per_cent() -> None:
    windows = found("H100-SXM", 600.0, SLOW, 3, accumulator="honest")
    assert {each.source for each in windows} == {"hardware"}
    assert max(each.used for each in windows) <= 1
    assert max(each.said / each.joules for each in windows) <= 0.01


@pytest.mark.parametrize("accumulator", ["low", "zero"])
def test_an_accumulator_that_lies_is_not_the_source(accumulator: str) -> None:
    windows = found("H100-SXM", 60.0, FAST, 5, accumulator=accumulator, before=15.0)
    assert {each.source for each in windows} == {"integrated"}
    assert max(each.used for each in windows) <= 1


def test_an_accumulator_that_is_a_little_low_is_not_said_to_be_better_than_it_is() -> None:
    load = {"pattern": "constant", "watts": 400.0}
    counter = {"kind": "scaled", "factor": 0.92}
    sampler = Sampler(machine({"model": "H100-SXM", "load": load, "accumulator": counter}))
    asked = window(75.0, 135.0)
    gpu = evaluate(run(sampler, sampler.read(2.0, 137.0), asked)).windows[0].gpus[0]
    assert gpu.source == "hardware"
    assert gpu.divergent
    assert gpu.joules == pytest.approx(0.92 * 400 * 60, rel=0.01)
    assert abs((gpu.joules or 0.0) - 400 * 60) <= (gpu.uncertainty_joules or 0.0)
