"""Is energy.json of the form that its schema promises, and are its figures those that belong together?"""

import json
from pathlib import Path

import msgspec
import pytest

from exporter.measure import tables
from exporter.measure.evaluate import evaluate, knowledge
from exporter.measure.records import Policy
from exporter.measure.results import (
    IdentityFile,
    Report,
    decode_identity,
    decode_report,
    encode,
    report,
    schema,
)
from exporter.measure.statistics import statistic
from exporter.measure.verdict import WORDS
from tests.unit.measure.machines import LOADS, SWING, Sampler, machine, run, window

ROOT = Path(__file__).parents[3]
POLICY = Policy(interval_seconds=0.1)


def made(idle: bool = True) -> Report:
    load = {
        "pattern": "phases",
        "phases": [{"pattern": "idle", "seconds": 20.0}, LOADS["9.7 s square"] | SWING],
    }
    sampler = Sampler(machine({"model": "H100-SXM", "load": load}, {"model": "MI300X", "load": load}))
    points = sampler.read(1.0, 60.0)
    asked = window(25.0, 55.0, output_tokens=12_000.0, queries=30.0)
    result = evaluate(
        run(
            sampler,
            points,
            asked,
            idle=window(5.0, 15.0, "idle") if idle else None,
            counters_at_start=sampler.counters(3.0),
            counters_at_end=sampler.counters(58.0),
        ),
        exit_status=0,
    )
    return report(
        [result], exporter_version="1.2.3", policy=POLICY, gpus=sampler.identities(), command=("bench", "--fast")
    )


def test_it_is_read_again_as_it_was_written() -> None:
    before = made()
    assert decode_report(encode(before)) == before
    assert encode(before).endswith(b"}\n")
    identities = IdentityFile(version=1, gpus=before.gpus, gpus_at_end=before.gpus)
    assert decode_identity(encode(identities)) == identities
    with pytest.raises(msgspec.DecodeError):
        decode_identity(b'{"version": 2, "gpus": []}')


def test_the_committed_schema_is_that_of_the_code() -> None:
    """Written by python -c 'from exporter.measure.results import schema; print(schema().decode(), end="")'."""
    assert (ROOT / "docs/measure.schema.json").read_bytes() == schema()


def test_the_schema_names_every_field_and_every_reason() -> None:
    document = json.loads(schema())
    definitions = document["$defs"]
    assert set(definitions["Reason"]["properties"]["reason"]["enum"]) == set(WORDS)
    written = json.loads(encode(made()))
    (one,) = written["runs"]
    (asked,) = one["windows"]
    for name, found in (
        ("Report", written),
        ("RunResult", one),
        ("WindowResult", asked),
        ("GpuResult", asked["gpus"][0]),
    ):
        assert set(found) <= set(definitions[name]["properties"])
        assert set(definitions[name]["required"]) <= set(found)


def test_figures_of_a_window_belong_together() -> None:
    (result,) = made().runs
    (asked,) = result.windows
    assert asked.power_valid
    assert asked.joules == pytest.approx(sum(gpu.joules or 0.0 for gpu in asked.gpus))
    assert asked.mean_watts == pytest.approx((asked.joules or 0.0) / 30)
    assert asked.watts_per_gpu == pytest.approx((asked.mean_watts or 0.0) / 2)
    assert asked.joules_per_output_token == pytest.approx((asked.joules or 0.0) / 12_000)
    assert asked.joules_per_query == pytest.approx((asked.joules or 0.0) / 30)
    assert asked.output_tokens_per_second_per_gpu == pytest.approx(12_000 / 30 / 2)
    assert asked.uncertainty_ratio == pytest.approx((asked.uncertainty_joules or 0.0) / (asked.joules or 1.0))
    for gpu in asked.gpus:
        assert (gpu.mean_watts or 0.0) < (gpu.peak_watts or 0.0) <= 650.0


def test_what_the_gpus_draw_when_idle_is_taken_off() -> None:
    (result,) = made().runs
    (asked,) = result.windows
    assert result.idle is not None
    idle = {gpu.gpu: gpu.mean_watts for gpu in result.idle.gpus}
    for gpu in asked.gpus:
        assert gpu.joules_above_idle == pytest.approx((gpu.joules or 0.0) - 30 * (idle[gpu.gpu] or 0.0))
    assert asked.joules_above_idle == pytest.approx(sum(gpu.joules_above_idle or 0.0 for gpu in asked.gpus))
    assert made(idle=False).runs[0].windows[0].joules_above_idle is None


def test_an_idle_baseline_that_is_not_valid_takes_nothing_off() -> None:
    load = {"pattern": "constant", "watts": 300.0}
    sampler = Sampler(machine({"model": "H100-SXM", "load": load}))
    early = run(sampler, sampler.read(5.0, 30.0), window(10.0, 20.0), idle=window(1.0, 9.0, "idle"))
    result = evaluate(early)
    assert result.idle is not None
    assert not result.idle.power_valid
    assert result.windows[0].power_valid
    assert result.windows[0].joules_above_idle is None


def test_runs_can_be_judged_by_what_is_known_of_all_of_them() -> None:
    sampler = Sampler(machine({"model": "H100-SXM", "load": LOADS["9.7 s square"] | SWING}))
    points = sampler.read(1.0, 100.0)
    first, second = (run(sampler, points, window(start, start + 30.0)) for start in (20.0, 60.0))
    known = knowledge(first)
    for one in (first, second):
        assert evaluate(msgspec.structs.replace(one, points=()), known=known) == evaluate(one)


def test_a_report_without_windows_is_not_valid() -> None:
    assert not report([], exporter_version="0", policy=POLICY, gpus=()).power_valid


def test_mean_and_variation() -> None:
    found = statistic([98.0, 100.0, 102.0])
    assert found is not None
    assert (found.count, found.mean, found.variation_ratio) == (3, 100.0, pytest.approx(0.02))
    assert statistic([]) is None
    assert statistic([1.0, None]) is None
    zero = statistic([0.0, 0.0])
    assert zero is not None
    assert zero.variation_ratio is None


def test_the_table_for_a_terminal_shows_verdict_figures_and_reasons() -> None:
    text = tables.terminal(made())
    lines = text.splitlines()
    assert lines[0] == "window, 30.00 s: power valid"
    assert lines[1].split() == ["GPU", "J", "+-", "W", "peak", "W", "readings", "from", "accumulator/integral"]
    assert lines[2].startswith("sim0")
    assert any(line.startswith("all ") for line in lines)
    assert "J/out-tok" in text
    assert "POWER NOT VALID" not in text

    sampler = Sampler(machine({"model": "H100-SXM", "load": LOADS["9.7 s square"] | SWING}))
    bad = evaluate(run(sampler, sampler.read(1.0, 20.0), window(5.0, 30.0)))
    shown = tables.terminal(report([bad], exporter_version="0", policy=POLICY, gpus=sampler.identities()))
    assert "window, 25.00 s: POWER NOT VALID" in shown
    assert "not valid (edge_end): The last power reading of sim0 is" in shown


def test_the_table_for_a_terminal_tells_of_several_runs() -> None:
    once = made()
    (result,) = once.runs
    again = msgspec.structs.replace(result, number=2)
    text = tables.terminal(report([result, again], exporter_version="0", policy=POLICY, gpus=once.gpus))
    assert "window, run 2 of 2, 30.00 s: power valid" in text
    assert "window, 2 of 2 runs valid, mean (variation in %):" in text
    assert "(0.00) J/out-tok" in text
    assert "left out" not in text


def test_the_table_for_a_terminal_tells_that_a_log_was_cut() -> None:
    (result,) = made().runs
    cut = msgspec.structs.replace(result, truncated=True)
    text = tables.terminal(report([cut], exporter_version="0", policy=POLICY, gpus=(), notes=["A note."]))
    assert text.endswith("\nThe log ends within a row, which was left out.\nA note.\n")
