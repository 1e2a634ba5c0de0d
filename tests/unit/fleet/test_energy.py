"""Which readings reach a ledger, and what is published of it."""

import pytest

from exporter.config import SamplingConfig
from exporter.model import EnergyAccount, Group, Sample
from tests.unit.fleet.hosts import WALL, Host, card


def account(host: Host, *rows: dict[str, object], period: float = 1.0) -> EnergyAccount | None:
    for row in rows:
        host.read(card(1), Group.ENERGY, **row)
        host.wait(period)
    return host.cards["nvidia0"].energy


def steady(count: int, **values: object) -> list[dict[str, object]]:
    """Return so many readings of 400 W at 1 Hz with an honest accumulator, changed by `values`."""
    average = {"power_kind": "average", "power_window_seconds": 1.0}
    return [
        {"power_watts": 400.0, **average, "energy_counter_joules": 1e6 + 400.0 * index, **values}
        for index in range(count)
    ]


def test_a_device_without_sensors_has_no_energy_rather_than_none_used() -> None:
    host = Host(card(1))
    assert account(host, {}, {}, {"power_limit_watts": 700.0}) is None
    assert host.cards["nvidia0"].module_energy_joules is None


def test_the_ledger_starts_with_the_first_reading_of_a_sensor_and_says_when() -> None:
    host = Host(card(1))
    account(host, {}, {})
    began = host.now
    energy = account(host, *steady(3))
    assert energy is not None
    assert energy.total_joules == 800
    assert energy.start_timestamp == pytest.approx(WALL + began)


def test_a_qualified_accumulator_is_the_source() -> None:
    energy = account(Host(card(1)), *steady(100))
    assert energy is not None
    assert energy.qualified
    assert energy.by_source_joules == {"hardware": pytest.approx(39 * 400), "integrated": 60 * 400}
    assert energy.hardware_joules == energy.integrated_joules == pytest.approx(99 * 400)
    assert energy.faults == {"reset": 0, "jump": 0, "frozen": 0, "disqualified": 0, "power_frozen": 0}
    assert (energy.covered_seconds, energy.gap_seconds) == (99, 0)


def test_readings_that_fail_now_and_then_leave_the_ledger_there() -> None:
    host = Host(card(1))
    account(host, *steady(3))
    energy = account(host, {}, {})
    assert energy is not None
    assert energy.total_joules == 800


def test_the_larger_limit_bounds_a_step() -> None:
    for limits, jumps in (({"power_limit_watts": 300.0, "power_limit_default_watts": 700.0}, 0), ({}, 0)):
        energy = account(Host(card(1)), *steady(10, **limits))
        assert energy is not None
        assert energy.faults["jump"] == jumps
    energy = account(Host(card(1)), *steady(10, power_limit_watts=100.0))
    assert energy is not None
    assert energy.faults["jump"] > 0


def test_an_accumulator_that_wraps_is_told_where() -> None:
    rows = [{"energy_counter_joules": (65_000.0 + 400 * index) % 65_536} for index in range(10)]
    energy = account(Host(card(1)), *({**row, "energy_counter_range_joules": 65_536.0} for row in rows))
    assert energy is not None
    assert energy.hardware_joules == pytest.approx(3_600)


def test_the_accumulator_of_a_module_is_not_compared_and_feeds_the_module() -> None:
    host = Host(card(1))
    rows = steady(120, energy_counter_scope="module", module_power_watts=900.0)
    energy = account(host, *({**row, "energy_counter_joules": 900.0 * index} for index, row in enumerate(rows)))
    assert energy is not None
    assert energy.hardware_joules is None
    assert energy.divergence_ratio is None
    assert not energy.qualified
    assert energy.total_joules == pytest.approx(119 * 400)
    assert host.cards["nvidia0"].module_energy_joules == pytest.approx(119 * 900)


def test_a_module_with_an_accumulator_of_its_own_stands_beside_that_of_the_gpu() -> None:
    host = Host(card(1))
    rows = steady(100)
    energy = account(host, *({**row, "module_energy_counter_joules": 900.0 * i} for i, row in enumerate(rows)))
    assert energy is not None
    assert energy.qualified
    assert host.cards["nvidia0"].module_energy_joules == pytest.approx(99 * 900)


def test_a_module_alone_is_not_the_energy_of_the_gpu() -> None:
    host = Host(card(1))
    row = {"power_watts": 900.0, "power_scope": "module", "energy_counter_scope": "module"}
    energy = account(host, *({**row, "energy_counter_joules": 900.0 * index} for index in range(10)))
    assert energy is None
    assert host.cards["nvidia0"].module_energy_joules == pytest.approx(9 * 900)


def test_a_package_is_compared_with_itself_only() -> None:
    energy = account(Host(card(1)), *steady(100, power_scope="package", energy_counter_scope="package"))
    assert energy is not None
    assert energy.qualified
    energy = account(Host(card(1)), *steady(100, power_scope="package"))
    assert energy is not None
    assert energy.hardware_joules is None
    assert energy.total_joules == pytest.approx(99 * 400)


def test_an_accumulator_of_a_package_counts_while_there_is_no_power_and_gives_way_to_power_of_the_gpu() -> None:
    host = Host(card(1))
    alone = {"energy_counter_scope": "package"}
    energy = account(host, *({**alone, "energy_counter_joules": 500.0 * index} for index in range(11)))
    assert energy is not None
    assert energy.total_joules == 5_000
    energy = account(host, *steady(11, energy_counter_scope="package"))
    assert energy is not None
    assert energy.total_joules == pytest.approx(5_000 + 10 * 400)


def test_power_that_stands_still_while_the_load_moves_is_named() -> None:
    host = Host(card(1))
    for index in range(200):
        load = float(index % 40 < 20)
        host.read(card(1), Group.LOAD, Group.ENERGY, utilization_ratio=load, power_watts=46.19)
        host.wait(1)
    energy = host.cards["nvidia0"].energy
    assert energy is not None
    assert energy.faults["power_frozen"] == 1


def test_power_that_stands_still_while_the_temperature_climbs_is_named() -> None:
    host = Host(card(1))
    for index in range(700):
        if index % 5 == 0:
            # One sensor is missing now and then: another one, hotter, is no change.
            sensors = {"hotspot": 90.0} if index % 35 == 0 and index else {"gpu": 32 + index / 20, "hotspot": 90.0}
            host.read(card(1), Group.STATE, temperature_celsius=sensors)
        host.read(card(1), Group.ENERGY, power_watts=46.19)
        host.wait(1)
    energy = host.cards["nvidia0"].energy
    assert energy is not None
    assert energy.faults["power_frozen"] == 1


def test_the_gap_rule_knows_how_often_the_device_is_read() -> None:
    slow = SamplingConfig(energy_seconds=10.0)
    energy = account(Host(card(1), sampling=slow), *steady(3), period=10.0)
    assert energy is not None
    assert (energy.covered_seconds, energy.gap_seconds) == (20, 0)
    energy = account(Host(card(1)), *steady(3), period=10.0)
    assert energy is not None
    assert (energy.covered_seconds, energy.gap_seconds) == (0, 20)
    averaged = account(Host(card(1)), *steady(3), period=4.0)
    assert averaged is not None
    assert averaged.gap_seconds == 0
    instant = account(Host(card(1)), *steady(3, power_kind="instant", power_window_seconds=0.0), period=4.0)
    assert instant is not None
    assert instant.gap_seconds == 8


@pytest.mark.parametrize(
    ("values", "period", "said"),
    [
        ({}, 1.0, 0.005),
        ({"power_kind": "instant", "power_window_seconds": 0.0}, 0.1, 0.01),
        ({"power_kind": "average", "power_window_seconds": None}, 0.1, 0.01),
    ],
)
def test_the_uncertainty_is_that_of_how_the_device_is_read(
    values: dict[str, object], period: float, said: float
) -> None:
    energy = account(Host(card(1)), *steady(20, energy_counter_joules=None, **values), period=period)
    assert energy is not None
    assert energy.uncertainty_ratio == pytest.approx(said)


def test_an_accumulator_without_power_has_no_uncertainty() -> None:
    energy = account(Host(card(1)), *steady(20, power_watts=None))
    assert energy is not None
    assert energy.total_joules > 0
    assert energy.uncertainty_ratio is None


@pytest.mark.parametrize(
    ("chosen", "values", "period", "shown"),
    [
        (None, {}, 1.0, True),
        (5.0, {}, 5.0, False),
        (1.0, {"power_kind": "instant", "power_window_seconds": 0.0}, 1.0, False),
        (None, {"power_kind": "instant", "power_window_seconds": 0.0}, 0.1, True),
        (None, {"power_kind": "average", "power_window_seconds": None}, 0.1, True),
    ],
)
def test_accumulator_and_power_are_compared_where_the_cadence_fits_the_sensor(
    chosen: float | None, values: dict[str, object], period: float, shown: bool
) -> None:
    host = Host(card(1), sampling=SamplingConfig(energy_seconds=chosen))
    rows = steady(round(400 / period), **values)
    for index, row in enumerate(rows):
        row["energy_counter_joules"] = 400.0 * period * index
    energy = account(host, *rows, period=period)
    assert energy is not None
    assert energy.qualified
    assert (energy.divergence_ratio is not None) is shown


def sleep(host: Host, seconds: int) -> None:
    for _ in range(seconds):
        host.give(Sample(device=card(1), asleep=True))
        host.wait(1.0)


def test_the_accumulator_covers_the_time_for_which_a_gpu_slept() -> None:
    host = Host(card(1))
    before = account(host, *steady(100))
    sleep(host, 300)
    after = account(host, *steady(2, energy_counter_joules=1e6 + 400.0 * 99 + 3_000.0))
    assert before is not None
    assert after is not None
    assert after.total_joules == pytest.approx(before.total_joules + 3_000)


def test_without_an_accumulator_the_time_for_which_a_gpu_slept_is_a_gap() -> None:
    host = Host(card(1))
    before = account(host, *steady(100, energy_counter_joules=None))
    sleep(host, 300)
    after = account(host, *steady(2, energy_counter_joules=None))
    assert before is not None
    assert after is not None
    assert after.gap_seconds == 301
    assert after.total_joules == pytest.approx(before.total_joules + 400)
