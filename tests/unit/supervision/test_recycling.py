"""Which figures and which readings have a worker replaced, and how often."""

import itertools
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.config import WorkersConfig
from exporter.model import Device, Group, Sample
from exporter.supervision.recycling import BROKEN_PASSES, OVERGROWN, Recycling, Usage, Verdict

LIMITS = WorkersConfig(max_age_seconds=86400.0, max_memory_bytes=2**30, max_descriptors=512)
EVERY = dict.fromkeys(Group, 1.0)
A, B = Device(vendor="test", key="a"), Device(vendor="test", key="b")
SMALL = Usage(2**26, 40)


def recycling(workers: WorkersConfig = LIMITS) -> Recycling:
    made = Recycling(workers, Random(1), 0.0)
    made.enumerated(["a", "b"])
    return made


def broken(device: Device, groups: dict[Group, float] = EVERY) -> Sample:
    return Sample(device=device, taken_at=groups, failed=("power_watts", "utilization_ratio"))


@pytest.mark.parametrize(
    ("usage", "age", "verdict", "reason"),
    [
        (SMALL, 100.0, Verdict.KEEP, ""),
        (Usage(), 100.0, Verdict.KEEP, ""),
        (Usage(2**30, 512), 100.0, Verdict.KEEP, ""),
        (Usage(2**30 + 1, 512), 100.0, Verdict.REPLACE, "the worker holds 1024 MiB of memory"),
        (Usage(None, 513), 100.0, Verdict.REPLACE, "the worker holds 513 open descriptors"),
        (SMALL, 86400.0, Verdict.REPLACE, "the worker is 86400 s old"),
        (Usage(2**31 + 1, 40), 100.0, Verdict.END, "the worker holds 2048 MiB of memory"),
        (Usage(2**26, 1025), 100.0, Verdict.END, "the worker holds 1025 open descriptors"),
    ],
)
def test_a_worker_is_judged_by_its_age_and_size(usage: Usage, age: float, verdict: Verdict, reason: str) -> None:
    assert recycling().judge(usage, age) == (verdict, reason)


def test_without_limits_a_worker_lives_for_ever() -> None:
    free = recycling(WorkersConfig(max_age_seconds=None, max_memory_bytes=None, max_descriptors=None))
    assert free.judge(Usage(2**45, 10**6), 1e9) == (Verdict.KEEP, "")


def test_replacements_that_do_not_help_become_rare() -> None:
    """A library that grows beyond the limit within a minute of its start, whatever is done."""
    judge, now, times = recycling(), 0.0, []
    while now < 86400:
        now += 10
        if judge.judge(Usage(2**30 + 1, 40), now)[0] is Verdict.REPLACE:
            judge.begun(now)
            judge.born(now)
            times.append(now)
    assert times[0] == 10
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert min(gaps) >= 50
    assert gaps[:4] == sorted(gaps[:4])
    assert 3200 < gaps[-1] < 4000
    assert len(times) < 32


def test_a_worker_that_lived_long_is_replaced_without_waiting() -> None:
    judge = recycling(msgspec.structs.replace(LIMITS, max_age_seconds=60.0))
    now = 0.0
    for _ in range(20):
        now += 70.0
        assert judge.judge(SMALL, now)[0] is Verdict.REPLACE
        judge.begun(now)
        judge.born(now)


def test_a_successor_that_fails_is_tried_again_with_back_off() -> None:
    judge, now, times = recycling(), 86400.0, []
    while now < 2 * 86400:
        if judge.judge(SMALL, now)[0] is Verdict.REPLACE:
            judge.begun(now)
            times.append(now)
        now += 10
    assert 24 < len(times) < 34


def test_a_library_that_fails_every_read_of_every_device_is_opened_anew() -> None:
    judge = recycling()
    for _ in range(BROKEN_PASSES):
        assert judge.judge(SMALL, 50.0) == (Verdict.KEEP, "")
        judge.sampled(broken(A))
        judge.sampled(broken(B))
    verdict, reason = judge.judge(SMALL, 50.0)
    assert verdict is Verdict.END
    assert "every reading of every device" in reason
    judge.begun(50.0)
    judge.born(51.0)
    judge.enumerated(["a", "b"])
    for _ in range(BROKEN_PASSES):
        judge.sampled(broken(A))
        judge.sampled(broken(B))
    assert judge.judge(SMALL, 60.0) == (Verdict.KEEP, ""), "not again and again"
    assert judge.judge(SMALL, 150.0)[0] is Verdict.END


@pytest.mark.parametrize(
    "sample",
    [
        Sample(device=B, taken_at=EVERY, power_watts=0.0, failed=("utilization_ratio",)),
        Sample(device=B, taken_at=EVERY, temperature_celsius={"gpu": 0.0}, failed=("utilization_ratio",)),
        Sample(device=B, taken_at=EVERY),
        broken(B, {Group.ENERGY: 1.0}),
    ],
    ids=["one answers", "a temperature", "nothing is supported", "energy alone"],
)
def test_one_device_that_gives_something_is_proof_that_the_library_works(sample: Sample) -> None:
    judge = recycling()
    for _ in range(3 * BROKEN_PASSES):
        judge.sampled(broken(A))
        judge.sampled(sample)
    assert judge.judge(SMALL, 50.0) == (Verdict.KEEP, "")


def test_what_is_known_without_the_driver_is_no_proof_that_the_library_works() -> None:
    judge = recycling()
    kept = {"processes": (), "partitions": (), "power_limit_default_watts": 700.0, "power_kind": "average"}
    for _ in range(BROKEN_PASSES):
        judge.sampled(Sample(device=B, taken_at=EVERY, failed=("utilization_ratio",), **kept))
        judge.sampled(broken(A))
    assert judge.judge(SMALL, 50.0)[0] is Verdict.END


def test_a_lost_device_neither_accuses_nor_excuses_the_library() -> None:
    judge = recycling()
    for _ in range(BROKEN_PASSES):
        judge.sampled(Sample(device=A, lost=True))
    assert judge.judge(SMALL, 50.0) == (Verdict.KEEP, "")
    for _ in range(BROKEN_PASSES):
        judge.sampled(broken(B))
    assert judge.judge(SMALL, 50.0)[0] is Verdict.END
    judge.enumerated([])
    assert judge.judge(SMALL, 50.0) == (Verdict.KEEP, "")


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "strange"]), st.booleans(), st.booleans()), max_size=60))
def test_what_was_not_enumerated_is_not_remembered(history: list[tuple[str, bool, bool]]) -> None:
    judge = recycling()
    for key, lost, fails in history:
        device = Device(vendor="test", key=key)
        judge.sampled(Sample(device=device, lost=True) if lost else broken(device) if fails else Sample(device=device))
    # Strange devices alone never condemn a library, and cost no memory.
    judge.enumerated([])
    for _ in range(BROKEN_PASSES):
        judge.sampled(broken(Device(vendor="test", key="strange")))
    assert judge.judge(SMALL, 50.0) == (Verdict.KEEP, "")


@given(st.integers(0, 2**45), st.integers(0, 10**6))
def test_the_bound_holds_while_replacements_have_to_wait(memory: int, descriptors: int) -> None:
    judge = recycling()
    judge.begun(0.0)
    verdict, _ = judge.judge(Usage(memory, descriptors), 1.0)
    assert (verdict is Verdict.END) == (memory > OVERGROWN * 2**30 or descriptors > OVERGROWN * 512)
