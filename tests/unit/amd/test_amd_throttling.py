from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.amd.throttling import Throttling
from exporter.providers.sanitise import Readings
from tests.unit.amd.vendor import ALL, FakeAmdsmi, gpu, provider

SECOND = 1_000_000_000


def table(cycles: Any, held: Any, clock: Any = None) -> dict[str, Any]:
    found = {"accumulation_counter": cycles, "ppt_residency_acc": held, "prochot_residency_acc": "N/A"}
    return found if clock is None else {**found, "system_clock_counter": clock}


def seconds(*tables: dict[str, Any], every: float = 10.0) -> Any:
    throttling, shown = Throttling(), {}
    for number, metrics in enumerate(tables):
        shown = throttling.observe(metrics, number * every, Readings())
    return shown["throttle_seconds"].get("sw_power_cap")


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([table(0, 0), table(1000, 250), table(2000, 500)], 2.5),  # the first counts no cycles: it was not read
        ([table(5, 0), table(1005, 250), table(2005, 500)], 5),
        # The time between two reads is the driver's, where it says it: the library answers from a cache.
        ([table(5, 0, 100 * SECOND), table(1005, 500, 101 * SECOND)], 0.5),
        ([table(5, 0, 100 * SECOND), table(5, 0, 100 * SECOND), table(1005, 500, 102 * SECOND)], 1),
        # Reset: what was counted stays, and counting goes on from there.
        ([table(1000, 900), table(2000, 1400), table(10, 3), table(1010, 503)], 10),
        # More cycles held than there were: all of the time, and no more.
        ([table(1000, 0), table(1001, 9000)], 10),
        # A read that broke is bridged.
        ([table(1000, 0), {}, table(3000, 500)], 5),
        # One of the two clocks is missing in between.
        ([table(1000, 0, SECOND), table(2000, 500), table(3000, 1000)], 5),
        ([table("N/A", 0), table("N/A", 500)], None),
        ([table(1000, 0)], 0),
    ],
)
def test_seconds_are_the_share_of_cycles_of_the_time_between_reads(tables: Any, expected: float | None) -> None:
    assert seconds(*tables) == (expected if expected is None else pytest.approx(expected))


def test_the_time_that_a_card_slept_is_not_counted() -> None:
    throttling = Throttling()
    throttling.observe(table(1000, 0), 0, Readings())
    throttling.observe(table(2000, 500), 10, Readings())
    throttling.interrupt()
    assert throttling.observe(table(3000, 1500), 5000, Readings()) == {
        "throttled": {},
        "throttle_seconds": {"sw_power_cap": pytest.approx(5)},
    }


steps = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 5000), st.floats(0.1, 100)), min_size=1, max_size=20)


@given(steps)
def test_seconds_never_fall_and_never_pass_the_time(moves: list[tuple[int, int, float]]) -> None:
    throttling, cycles, held, at, before = Throttling(), 1, 0, 0.0, 0.0
    throttling.observe(table(cycles, held), at, Readings())
    for cycle, hold, elapsed in moves:
        cycles, held, at = cycles + cycle, held + hold, at + elapsed
        shown = throttling.observe(table(cycles, held), at, Readings())["throttle_seconds"].get("sw_power_cap", 0.0)
        assert before <= shown <= at * (1 + 1e-9)
        before = shown


def test_the_call_that_sleeps_is_never_made() -> None:
    metrics = table(1000, 0)
    handle = gpu(gpu_metrics_info=metrics, violation_status={"acc_ppt_pwr": 5})
    module = FakeAmdsmi(handle)
    opened = provider(module)
    (device,) = opened.devices()
    opened.read(device, ALL)
    handle.answers["amdsmi_get_gpu_metrics_info"] = table(2000, 500)
    sample = opened.read(device, ALL)
    assert sample.throttled == {"sw_power_cap": True}
    assert 0 < sample.throttle_seconds["sw_power_cap"] < 100
    assert "amdsmi_get_gpu_metrics_info" in module.calls
    assert "amdsmi_get_violation_status" not in module.calls


def test_the_time_for_which_a_gpu_was_gone_is_none_of_throttling() -> None:
    handle = gpu(gpu_metrics_info=table(1000, 0))
    module = FakeAmdsmi(handle)
    opened = provider(module)
    (device,) = opened.devices()
    opened.read(device, ALL)
    module.handles = []
    assert opened.read(device, ALL).lost
    for _ in range(10):  # until it is looked for again
        opened.read(device, ALL)
    module.handles = [handle]
    handle.answers["amdsmi_get_gpu_metrics_info"] = table(2000, 500)
    back = next(sample for sample in iter(lambda: opened.read(device, ALL), None) if not sample.lost)
    assert back.throttle_seconds["sw_power_cap"] == 0
