"""Is the machine the same for everyone at any time, and do its accumulators do what the scenario says?"""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.providers.simulated.catalogue import MODELS
from exporter.providers.simulated.device import SimulatedDevice
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.provider import BUILT_IN
from exporter.providers.simulated.scenario import load_scenario

PATTERNS = ("idle", "constant", "square", "bursts", "training", "inference")
EPOCH = 1_000.0


def machine(*devices: dict[str, object], **rest: object) -> Machine:
    return Machine(load_scenario(json.dumps({"devices": devices, **rest})), EPOCH)


def constant(watts: float, model: str = "H100-SXM", **rest: object) -> Machine:
    return machine({"model": model, "load": {"pattern": "constant", "watts": watts}, **rest})


def counted(m: Machine, t: float) -> float | None:
    return m.counter_joules(m.devices[0].key, EPOCH + t)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_energy_is_the_integral_of_power_and_power_is_within_its_limits(model: str, pattern: str) -> None:
    m = machine({"model": model, "load": {"pattern": pattern}})
    key = m.devices[0].key
    step, steps = 0.01, 20_000
    powers = [m.power_watts(key, EPOCH + 100 + (i + 0.5) * step) for i in range(steps)]
    drawn = m.energy_joules(key, EPOCH + 100 + steps * step) - m.energy_joules(key, EPOCH + 100)
    assert sum(powers) * step == pytest.approx(drawn, rel=2e-3)
    assert MODELS[model].idle_watts <= min(powers) <= max(powers) <= MODELS[model].limit_watts


def test_two_machines_of_one_text_are_the_same_at_any_time() -> None:
    text = BUILT_IN.read_text(encoding="utf-8")
    first, second = (Machine(load_scenario(text), EPOCH) for _ in range(2))
    for a, b in zip(first.devices, second.devices, strict=True):
        assert (a.key, a.texts, a.numbers, a.rows) == (b.key, b.texts, b.numbers, b.rows)
        for t in (0.0, 0.3, 17.17, 12_345.6, 1e8):
            assert a.energy(t) == b.energy(t)
            assert first.accumulated(a, t) == second.accumulated(b, t)
            assert all(a.signal(name, t) == b.signal(name, t) for name in (*a.tracks, *a.readings, *a.numbers))


def test_identities_are_those_of_different_devices() -> None:
    m = machine(*({"model": model, "count": 8} for model in MODELS))
    for name in ("uuid", "pci_address", "serial"):
        assert len({d.texts[name] for d in m.devices}) == len(m.devices)
    assert len({d.key for d in m.devices}) == len(m.devices)


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(set(MODELS) - {"RX-9070", "RX-7900-XT", "GH200"})), st.floats(0.0, 2000.0), st.floats(0, 1e7)
)
def test_an_honest_accumulator_is_the_energy_at_its_last_update_in_whole_steps(
    model: str, t: float, start: float
) -> None:
    m = machine({"model": model, "load": {"pattern": "training"}, "accumulator": {"start_joules": start}})
    device, shown = m.devices[0], counted(m, t)
    assert shown is not None
    period, step = device.accumulators["gpu"].period, device.accumulators["gpu"].resolution
    behind = start + device.energy(t) - shown
    assert -1e-6 <= behind <= MODELS[model].limit_watts * period + step + 1e-6
    assert shown / step == pytest.approx(round(shown / step), abs=1e-3)


def test_steps_of_the_accumulator_come_with_its_period() -> None:
    m = constant(500.0)
    shown = [counted(m, 10 + i * 0.01) for i in range(100)]
    steps = [b - a for a, b in pairwise(shown) if a is not None and b is not None and b != a]
    assert len(steps) in (9, 10)
    assert steps == pytest.approx([50.0] * len(steps), abs=0.002)


@pytest.mark.parametrize(
    ("accumulator", "expected"),
    [
        # (accumulator, {t: joules}) at 100 W, with one update of 10 J of slack
        ({"kind": "low"}, {100: 5_700}),
        ({"kind": "scaled", "factor": 100}, {100: 1_000_000}),
        ({"start_joules": 5000}, {0: 5_000, 100: 15_000}),
        ({"events": [{"kind": "reset", "from_seconds": 50}]}, {49.95: 4_990, 50.5: 50, 100: 5_000}),
        ({"events": [{"kind": "frozen", "from_seconds": 20, "to_seconds": 60}]}, {40: 2_000, 60: 2_000, 100: 6_000}),
        ({"events": [{"kind": "frozen", "from_seconds": 20}]}, {40: 2_000, 1_000: 2_000}),
        (
            {"events": [{"kind": "pausing", "from_seconds": 20, "to_seconds": 60}]},
            {40: 2_000, 60.2: 6_020, 100: 10_000},
        ),
        (
            {"events": [{"kind": "scaled", "factor": 0.5, "from_seconds": 20, "to_seconds": 60}]},
            {40: 3_000, 60: 4_000, 100: 8_000},
        ),
        (
            {
                "events": [
                    {"kind": "pausing", "from_seconds": 20, "to_seconds": 60},
                    {"kind": "reset", "from_seconds": 40},
                ]
            },
            {30: 2_000, 50: 0, 60.2: 2_020, 100: 6_000},
        ),
        ({"events": [{"kind": "zero", "from_seconds": 20, "to_seconds": 30}]}, {25: 0, 35: 3_500}),
    ],
)
def test_an_accumulator_does_what_its_events_say(accumulator: dict[str, object], expected: dict[float, float]) -> None:
    m = constant(100.0, accumulator=accumulator)
    factor = 100 if accumulator.get("kind") == "scaled" else 1
    for t, joules in expected.items():
        assert counted(m, t) == pytest.approx(joules, abs=10.01 * factor), t


@pytest.mark.parametrize(("kind", "shown"), [("zero", 0.0), ("ones", math.inf), ("absent", None)])
def test_an_accumulator_may_show_nothing_of_use(kind: str, shown: float | None) -> None:
    assert counted(constant(100.0, accumulator={"kind": kind}), 100.0) == shown
    now_and_then = {"kind": kind, "from_seconds": 10, "every_seconds": 10, "lasting_seconds": 2}
    m = constant(100.0, accumulator={"events": [now_and_then]})
    assert counted(m, 31.0) == shown
    assert counted(m, 35.0) == pytest.approx(3500, abs=10.01)


def test_the_accumulator_of_a_radeon_stands_at_zero() -> None:
    assert counted(constant(150.0, "RX-9070"), 1000.0) == 0


def test_a_swapped_accumulator_shows_another_device() -> None:
    swap = {"kind": "swap", "device": 1, "from_seconds": 10, "to_seconds": 20}
    back = {"kind": "swap", "device": 0, "from_seconds": 10, "to_seconds": 20}
    load = [{"pattern": "constant", "watts": watts} for watts in (100, 300)]
    m = machine(
        {"model": "MI300X", "load": load[0], "accumulator": {"events": [swap]}},
        {"model": "MI300X", "load": load[1], "accumulator": {"events": [back]}},
    )
    assert counted(m, 15) == pytest.approx(4500, abs=3.1)
    assert counted(m, 25) == pytest.approx(2500, abs=1.1)
    assert m.counter_joules(m.devices[1].key, EPOCH + 15) == pytest.approx(1500, abs=1.1)


def test_the_accumulator_of_gh200_counts_the_module() -> None:
    m = constant(300.0, "GH200")
    assert m.devices[0].texts["counter_scope"] == "module"
    assert counted(m, 100) == pytest.approx(44_000, abs=44.1)
    assert m.energy_joules(m.devices[0].key, EPOCH + 100) == pytest.approx(30_000)
    gb200 = constant(300.0, "GB200")
    assert counted(gb200, 100) == pytest.approx(30_000, abs=30.1)
    module = gb200.counter_joules(gb200.devices[0].key, EPOCH + 100, "module")
    assert module == pytest.approx(60_130, abs=60.2)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(PATTERNS), st.sampled_from(PATTERNS), st.floats(0.0, 500.0), st.floats(0.0, 100.0))
def test_energies_go_on_when_the_scenario_is_replaced(before: str, after: str, at: float, later: float) -> None:
    old = machine({"model": "H100-SXM", "load": {"pattern": before}, "accumulator": {"start_joules": 777}})
    plain = machine({"model": "H100-SXM", "load": {"pattern": after}})
    new = plain.continued_from(old, EPOCH + at)
    key = new.devices[0].key
    assert new.energy_joules(key, EPOCH + at) == pytest.approx(old.energy_joules(key, EPOCH + at), abs=1e-5)
    more = plain.energy_joules(key, EPOCH + at + later) - plain.energy_joules(key, EPOCH + at)
    assert new.energy_joules(key, EPOCH + at + later) == pytest.approx(
        old.energy_joules(key, EPOCH + at) + more, abs=1e-5
    )
    shown = new.counter_joules(key, EPOCH + at + later)
    assert shown == pytest.approx(777 + new.energy_joules(key, EPOCH + at + later), abs=70.1)
    capped = "throttle_sw_power_cap_seconds"
    assert new.devices[0].signal(capped, at) == pytest.approx(old.devices[0].signal(capped, at), abs=1e-6)


def test_a_reset_after_the_replacement_is_still_a_reset() -> None:
    event = {"kind": "reset", "from_seconds": 200}
    new = constant(100.0, accumulator={"events": [event]}).continued_from(constant(300.0), EPOCH + 100)
    assert counted(new, 150) == pytest.approx(35_000, abs=10.1)
    assert counted(new, 210) == pytest.approx(1_000, abs=10.1)


def test_a_machine_continues_one_of_the_same_epoch_only() -> None:
    scenario = load_scenario("devices: [{model: T4}]")
    with pytest.raises(ValueError, match="epoch"):
        Machine(scenario, 5.0).continued_from(Machine(scenario, 6.0), 10.0)


def device(**rest: object) -> SimulatedDevice:
    return machine({"model": "H100-SXM", **rest}).devices[0]


def test_memory_in_use_is_that_of_the_processes_that_are_there() -> None:
    processes = [
        {"name": "always", "memory_used_bytes": 1_000_000_000},
        {"name": "once", "memory_used_bytes": 500_000_000, "from_seconds": 10, "to_seconds": 25},
        {"name": "often", "count": 3, "memory_used_bytes": 70_000_000, "every_seconds": 12, "lasting_seconds": 5},
    ]
    d = device(processes=processes)
    for tenth in range(1000):
        t = tenth / 10 + 0.05
        rows = d.rows_at("process", t)
        held = sum(row.numbers["memory_used_bytes"] for row in rows)
        assert d.signal("memory_used_bytes", t) == pytest.approx(MODELS["H100-SXM"].memory_idle_bytes + held), t
    assert len({row.numbers["pid"] for row in d.rows}) == 5


def test_copies_of_a_device_differ_in_phase_and_chance_only() -> None:
    load = {"pattern": "square", "period_seconds": 10, "stagger_seconds": 2.5}
    m = machine({"model": "MI300X", "count": 4, "load": load})
    assert [[d.signal("power_watts", t) == 750 for d in m.devices] for t in (1, 3, 6, 9)] == [
        [True, True, False, False],
        [True, False, False, True],
        [False, False, True, True],
        [False, True, True, False],
    ]


def test_a_trace_is_replayed_and_repeats() -> None:
    points = [[0, 100], [5, 400], [8, 250]]
    m = machine({"model": "H100-SXM", "load": {"pattern": "trace", "points": points, "period_seconds": 10}})
    key = m.devices[0].key
    assert [m.power_watts(key, EPOCH + t) for t in (1, 6, 9, 11, 16, 19)] == [100, 400, 250, 100, 400, 250]
    assert m.energy_joules(key, EPOCH + 30) == pytest.approx(3 * (500 + 1200 + 500))


def test_phases_follow_each_other_and_the_last_goes_on() -> None:
    phases = [
        {"pattern": "idle", "seconds": 60},
        {"pattern": "square", "watts": 600, "low_watts": 100, "period_seconds": 4, "seconds": 30},
        {"pattern": "constant", "watts": 200},
    ]
    m = machine({"model": "H100-SXM", "load": {"pattern": "phases", "phases": phases}})
    key, idle = m.devices[0].key, MODELS["H100-SXM"].idle_watts
    assert [m.power_watts(key, EPOCH + t) for t in (59, 61, 63, 89, 91, 1000)] == [idle, 600, 100, 600, 200, 200]


def test_a_capped_device_throttles_and_gives_up_clock() -> None:
    m = machine({"model": "H100-SXM", "load": {"pattern": "constant"}, "values": {"power_limit_watts": 400}})
    d = m.devices[0]
    free = device(load={"pattern": "constant", "level": 0.5})
    assert d.signal("power_watts", 50) == 400
    assert d.signal("throttle_sw_power_cap", 50) == 1
    assert d.signal("throttle_sw_power_cap_seconds", 50) == pytest.approx(50)
    assert d.signal("power_limit_default_watts", 50) == 700
    assert free.signal("throttle_sw_power_cap", 50) == 0
    assert (d.signal("clock_graphics_hertz", 50) or 0) < (free.signal("clock_graphics_hertz", 50) or 0)


def test_given_values_stand_and_absent_ones_are_gone() -> None:
    d = device(
        load={"pattern": "training"},
        values={"power_watts": 356, "utilization_ratio": 0.9, "memory_used_bytes": 5, "throttle_sw_power_cap": 1},
        absent=["temperature_gpu_celsius", "power_average_window_seconds", "serial", "memory_power_watts"],
    )
    for t in (0.0, 1.234, 99.0):
        assert d.signal("power_watts", t) == 356
        assert d.power(t, 1.0, 0.1) == pytest.approx(356)
        assert d.signal("utilization_ratio", t) == 0.9
        assert d.signal("memory_used_bytes", t) == 5
        assert d.signal("throttle_sw_power_cap", t) == 1
        assert d.signal("temperature_gpu_celsius", t) is None
        assert d.signal("memory_power_watts", t) is None
    assert "power_average_window_seconds" not in d.numbers
    assert "serial" not in d.texts
    assert d.energy(100) == pytest.approx(35_600)


def test_a_stuck_reading_shows_what_it_showed_while_the_truth_moves_on() -> None:
    load = {"pattern": "phases", "phases": [{"pattern": "idle", "seconds": 50}, {"pattern": "constant", "watts": 600}]}
    d = device(load=load, faults=[{"kind": "stuck", "from_seconds": 40, "to_seconds": 90}])
    assert d.power(60, 1.0, 0.1) == MODELS["H100-SXM"].idle_watts
    assert d.energy(90) - d.energy(60) == pytest.approx(18_000)
    assert (d.signal("temperature_gpu_celsius", 85) or 0) > (d.signal("temperature_gpu_celsius", 45) or 0) + 20
    assert d.power(95, 1.0, 0.1) == pytest.approx(600)


def test_partitions_take_utilisation_from_their_parent_and_own_processes() -> None:
    d = device(
        load={"pattern": "training"},
        partitions=[{"profile": "3g.40gb"}, {"profile": "1g.10gb", "gi": 9, "from_seconds": 100}],
        processes=[{"partition": 0, "memory_used_bytes": 1e9}],
    )
    assert d.signal("utilization_ratio", 5) is None
    assert d.signal("encoder_utilization_ratio", 5) is None
    assert d.numbers["mig_enabled"] == 1
    (row,) = d.rows_at("partition", 5)
    assert (row.texts["profile"], row.numbers["gi"], row.numbers["slices"]) == ("3g.40gb", 1, 3)
    assert row.numbers["memory_used_bytes"] > 1e9
    assert len(d.rows_at("partition", 150)) == 2
    assert d.rows_at("process", 5)[0].numbers["gi"] == 1


def test_an_amd_package_is_split_as_its_mode_says() -> None:
    m = machine({"model": "MI300X", "texts": {"compute_partition": "CPX"}})
    rows = m.devices[0].rows_at("partition", 0)
    assert [row.numbers["partition_id"] for row in rows] == list(range(8))
    assert sum(row.numbers["memory_size_bytes"] for row in rows) == MODELS["MI300X"].memory_size_bytes
