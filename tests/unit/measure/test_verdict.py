"""Is a window whose power data cannot be trusted never called valid, and is the reason the right one?"""

from datetime import UTC
from pathlib import Path

import msgspec
import pytest

from exporter.measure.evaluate import evaluate
from exporter.measure.logs import read_log, run_of
from exporter.measure.records import Event, Identity, Point, Policy, Run, Window
from exporter.measure.results import WindowResult
from exporter.measure.samples import HEADER, row
from exporter.measure.verdict import WORDS, Word
from exporter.model import GpuState
from tests.unit.measure.machines import EPOCH, LOADS, SWING, UNIX, Sampler, machine, run, window

SQUARE = LOADS["9.7 s square"] | SWING
H100: dict[str, object] = {"model": "H100-SXM", "load": SQUARE}
START, END = 20.0, 50.0
ASKED = window(START, END)


def sampled(*devices: dict[str, object], until: float = END + 3.0, **rest: object) -> Run:
    sampler = Sampler(machine(*(devices or (H100, H100)), **rest))
    return run(sampler, sampler.read(START - 3.0, until), ASKED)


def judged(measured: Run) -> WindowResult:
    return evaluate(measured).windows[0]


def words(measured: Run) -> set[Word]:
    result = judged(measured)
    assert result.power_valid == (not result.reasons)
    assert all(reason.text.endswith(".") for reason in result.reasons)
    return {reason.reason for reason in result.reasons}


def without(measured: Run, start: float, end: float, gpu: int | None = None) -> Run:
    """Take out readings between two times after the epoch, of one GPU or of all."""
    key = None if gpu is None else measured.gpus[gpu].gpu
    kept = [p for p in measured.points if not (EPOCH + start <= p.monotonic < EPOCH + end and key in (None, p.gpu))]
    return msgspec.structs.replace(measured, points=tuple(kept))


def test_good_readings_are_valid() -> None:
    result = judged(sampled())
    assert result.power_valid
    assert result.reasons == ()
    assert result.start_timestamp == pytest.approx(UNIX + EPOCH + START)
    assert result.seconds == END - START
    assert len(result.gpus) == 2


def test_an_edge_without_a_reading_beyond_it_is_not() -> None:
    good = sampled()
    late, early = without(good, 0.0, START + 1.0), without(good, END - 0.5, 99.0)
    assert words(late) == {"edge_start"}
    assert words(early) == {"edge_end"}
    assert judged(late).joules is None
    assert judged(early).gpus[0].joules is None


def test_a_mean_over_a_second_has_to_be_read_half_a_second_beyond_the_end() -> None:
    good = sampled()
    assert words(without(good, END + 0.4, 99.0)) == {"edge_end"}
    assert words(without(good, END + 0.8, 99.0)) == set()


def test_one_gpu_of_many_that_has_no_edge_makes_the_window_invalid() -> None:
    measured = without(sampled(), END - 0.5, 99.0, gpu=1)
    result = judged(measured)
    assert [reason.gpu for reason in result.reasons] == [measured.gpus[1].gpu]
    assert result.gpus[0].joules is not None
    assert result.joules is None, "a sum without one of them is no sum"


def test_a_lost_gpu_is_not_valid() -> None:
    lost = sampled(H100, H100 | {"faults": [{"kind": "lost", "from_seconds": 35.0}]})
    assert words(lost) == {"lost", "edge_end", "presence"}


def test_a_gpu_that_was_lost_and_came_back_is_not_valid() -> None:
    fault = {"kind": "lost", "from_seconds": 35.0, "to_seconds": 35.5}
    assert words(sampled(H100, H100 | {"faults": [fault]})) == {"lost"}


@pytest.mark.parametrize("counter", ["honest", "absent"])
def test_a_frozen_sensor_is_not_valid(counter: str) -> None:
    stuck = {"kind": "stuck", "from_seconds": 10.0, "readings": ["power_watts"], "values": {"power_watts": 46.19}}
    found = judged(sampled(H100 | {"faults": [stuck], "accumulator": {"kind": counter}}))
    assert {reason.reason for reason in found.reasons} == {"power_frozen"}
    assert "46.19 W" in found.reasons[0].text


def test_a_sensor_that_freezes_for_a_part_of_the_window_is_not_valid() -> None:
    stuck = {"kind": "stuck", "from_seconds": 30.0, "to_seconds": 44.0, "values": {"power_watts": 46.19}}
    assert words(sampled(H100 | {"faults": [stuck]})) == {"power_frozen"}


def only(points: tuple[Point, ...], **values: float | None) -> tuple[Point, ...]:
    return tuple(msgspec.structs.replace(point, **values) for point in points)


def test_power_that_stands_and_cannot_be_checked_against_anything_is_not_valid() -> None:
    good = sampled({"model": "MI300X", "load": {"pattern": "constant", "watts": 400.0}})
    assert words(good) == set(), "the load says that it is steady"
    blind = only(good.points, utilization_ratio=None, temperature_celsius=None, counter_joules=None)
    assert words(msgspec.structs.replace(good, points=blind)) == {"power_frozen"}


def test_an_accumulator_that_changes_its_pace_tells_of_power_that_is_stuck() -> None:
    load = LOADS["31 s square"] | SWING
    stuck = {"kind": "stuck", "values": {"power_watts": 120.0}}
    measured = sampled({"model": "H100-SXM", "load": load, "faults": [stuck]})
    blind = only(measured.points, utilization_ratio=None, temperature_celsius=None)
    result = judged(msgspec.structs.replace(measured, points=blind))
    assert [reason.reason for reason in result.reasons] == ["power_frozen"]
    assert "accumulator" in result.reasons[0].text


@pytest.mark.parametrize(
    ("watts", "valid"), [(46.19, False), (290.0, False), (310.0, True), (600.0, True), (1220.0, False)]
)
def test_power_that_stood_before_a_steady_load_began_is_known_by_the_accumulator(watts: float, valid: bool) -> None:
    stuck = {"kind": "stuck", "values": {"power_watts": watts}}
    load = {"pattern": "constant", "watts": 600.0}
    result = judged(sampled({"model": "H100-SXM", "load": load, "faults": [stuck]}))
    assert result.power_valid is valid
    assert [reason.reason for reason in result.reasons] == ([] if valid else ["power_frozen"])


def test_power_that_stands_while_the_board_heats_up_is_not_valid() -> None:
    points = tuple(
        Point(at=float(t), monotonic=float(t), gpu="a", power_watts=46.19, temperature_celsius=32 + t * 31 / 700)
        for t in range(701)
    )
    measured = Run(
        points=points,
        windows=(Window(name="w", start=10.0, end=690.0),),
        policy=Policy(interval_seconds=1.0),
        gpus=(Identity(gpu="a"),),
    )
    assert words(measured) == {"power_frozen"}


@pytest.mark.parametrize("watts", [-5.0, 15_000.0, 1e308])
def test_power_that_no_gpu_draws_is_no_reading(watts: float) -> None:
    good = sampled()
    odd = tuple(
        msgspec.structs.replace(p, power_watts=watts) if 30 < p.monotonic - EPOCH < 34 else p for p in good.points
    )
    assert words(msgspec.structs.replace(good, points=odd)) == {"gap", "presence"}
    assert words(msgspec.structs.replace(good, points=only(good.points, power_watts=watts))) == {"no_power"}


def test_a_killed_sampler_is_not_valid_even_if_readings_go_on() -> None:
    event = Event(monotonic=EPOCH + 33.0, gpu=None, text="the worker of nvidia was ended by signal 9")
    killed = msgspec.structs.replace(sampled(), events=(event,))
    result = judged(killed)
    assert [reason.reason for reason in result.reasons] == ["sampler"]
    assert result.reasons[0].text == "the worker of nvidia was ended by signal 9, 13.0 s into the window."
    before = msgspec.structs.replace(event, monotonic=EPOCH + 3.0)
    assert words(msgspec.structs.replace(killed, events=(before,))) == set()


def test_a_sampler_that_was_killed_and_is_gone_leaves_no_edge() -> None:
    assert words(without(sampled(), 33.0, 99.0)) == {"edge_end", "presence"}


def test_a_gap_beyond_the_policy_is_not_valid() -> None:
    good = sampled()
    assert words(without(good, 30.0, 30.8)) == set()
    assert words(without(good, 30.0, 31.2)) == {"gap"}


def test_a_gap_over_an_edge_is_not_valid() -> None:
    good = sampled()
    # The edge is bracketed, by readings that are too far away to tell where in between it lies.
    assert words(without(good, START - 0.8, START + 1.2)) == {"gap"}


def test_too_few_readings_are_not_valid() -> None:
    good = sampled()
    thinned = [p for number, p in enumerate(good.points) if number // 2 % 10]
    assert words(msgspec.structs.replace(good, points=tuple(thinned))) == {"presence"}


def test_readings_without_power_do_not_count() -> None:
    good = sampled()
    none = tuple(
        msgspec.structs.replace(p, power_watts=None) if 30 < p.monotonic - EPOCH < 34 else p for p in good.points
    )
    assert words(msgspec.structs.replace(good, points=none)) == {"gap", "presence"}
    assert words(msgspec.structs.replace(good, points=only(good.points, power_watts=None))) == {"no_power"}


def test_a_reset_inside_is_not_valid_and_one_before_is() -> None:
    reset = {"kind": "honest", "start_joules": 5e6, "events": [{"kind": "reset", "from_seconds": 35.0}]}
    assert words(sampled(H100 | {"accumulator": reset})) == {"reset"}
    early = {"kind": "honest", "start_joules": 5e6, "events": [{"kind": "reset", "from_seconds": 18.5}]}
    assert words(sampled(H100 | {"accumulator": early})) == set()


@pytest.mark.parametrize("step", [-3600.0, -0.5, 0.6, 3600.0])
def test_a_clock_that_was_stepped_is_not_valid(step: float) -> None:
    good = sampled()
    stepped = [msgspec.structs.replace(p, at=p.at + step * (p.monotonic > EPOCH + 40.0)) for p in good.points]
    assert words(msgspec.structs.replace(good, points=tuple(stepped))) == {"clock"}


def test_a_clock_that_is_slewed_is_valid() -> None:
    good = sampled()
    slewed = [msgspec.structs.replace(p, at=p.at + 0.0005 * (p.monotonic - EPOCH)) for p in good.points]
    assert words(msgspec.structs.replace(good, points=tuple(slewed))) == set()


def test_a_log_with_one_clock_shows_a_step_back() -> None:
    good = sampled(H100)
    wall = [(p, p.at - 20.0 * (p.at > UNIX + EPOCH + 40.0)) for p in good.points]
    points = [msgspec.structs.replace(p, at=at, monotonic=at) for p, at in wall]
    asked = Window(name="w", start=UNIX + EPOCH + START, end=UNIX + EPOCH + END - 20.0)
    measured = msgspec.structs.replace(good, points=tuple(points), windows=(asked,))
    assert "clock" in words(measured)


def test_a_set_of_gpus_that_changed_is_not_valid() -> None:
    good = sampled()
    one = msgspec.structs.replace(good, gpus_at_end=good.gpus[:1])
    assert words(one) == {"gpus_changed"}
    assert "any more" in judged(one).reasons[0].text
    more = msgspec.structs.replace(good, gpus=good.gpus[:1])
    assert words(more) == {"gpus_changed"}


def test_a_gpu_that_appears_in_the_middle_is_not_valid() -> None:
    measured = without(sampled(), 0.0, 30.0, gpu=1)
    assert words(msgspec.structs.replace(measured, gpus=measured.gpus[:1])) == {
        "gpus_changed",
        "edge_start",
        "presence",
    }


def test_a_window_that_was_never_ended_or_is_empty_is_not_valid() -> None:
    good = sampled()
    for end in (None, EPOCH + START, EPOCH):
        asked = Window(name="w", start=EPOCH + START, end=end)
        found = judged(msgspec.structs.replace(good, windows=(asked,)))
        assert [reason.reason for reason in found.reasons] == ["window"]
        assert found.joules is None


def test_no_gpus_is_not_valid() -> None:
    none = Run(points=(), windows=(ASKED,), policy=Policy(interval_seconds=0.1), gpus=(), gpus_at_end=())
    assert words(none) == {"no_gpus"}


def test_gpus_without_any_reading_are_not_valid() -> None:
    measured = msgspec.structs.replace(sampled(), points=())
    assert words(measured) == {"no_power"}


def test_a_log_that_was_truncated_inside_the_window_is_not_valid() -> None:
    good = sampled()
    content = (HEADER + "".join(map(row, good.points))).encode()
    start, end = UNIX + EPOCH + START, UNIX + EPOCH + END

    def read(part: bytes) -> Run:
        return run_of(read_log(part, zone=UTC, gpus=good.gpus), start, end, interval_seconds=0.1)

    assert words(read(content)) == set()
    cut = content[: len(content) * 2 // 3 + 7]
    assert words(read(cut)) == {"edge_end", "presence"}
    assert evaluate(read(cut)).truncated


def test_a_gpu_that_hung_is_not_valid() -> None:
    good = sampled()
    hung = tuple(
        msgspec.structs.replace(p, state=GpuState.HUNG, power_watts=None, counter_joules=None)
        if 30 < p.monotonic - EPOCH < 32
        else p
        for p in good.points
    )
    assert words(msgspec.structs.replace(good, points=hung)) == {"gap", "presence", "sampler"}


def test_the_cross_check_is_advisory() -> None:
    low = sampled(H100 | {"accumulator": {"kind": "low"}})
    result = judged(low)
    assert result.power_valid
    assert result.gpus[0].divergent
    assert result.cross_check is not None
    assert result.cross_check.divergence_ratio == pytest.approx(-0.43, abs=0.02)
    assert result.gpus[0].source == "integrated"


def test_the_cross_check_takes_only_gpus_that_have_both() -> None:
    result = judged(sampled(H100, H100 | {"accumulator": {"kind": "absent"}}))
    assert result.cross_check is not None
    assert result.cross_check.gpus == (result.gpus[0].gpu,)
    assert abs(result.cross_check.divergence_ratio or 1.0) < 0.02
    assert judged(sampled(H100 | {"accumulator": {"kind": "absent"}})).cross_check is None


def test_every_word_is_met_in_these_tests() -> None:
    source = Path(__file__).read_text()
    assert [word for word in WORDS if f'"{word}"' not in source] == []
