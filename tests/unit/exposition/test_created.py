"""When counters were created: said on request, in OpenMetrics, and only where it is known."""

import math

import msgspec
import pytest
from hypothesis import given, settings
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporter.exposition import Format, Renderer
from exporter.model import World
from tests.unit.exposition.worlds import account, device, world, worlds

DATED = {
    "gpu_energy_joules",
    "gpu_energy_source_joules",
    "gpu_energy_hardware_joules",
    "gpu_energy_integrated_joules",
    "gpu_energy_covered_seconds",
    "gpu_energy_gap_seconds",
    "gpu_energy_faults",
}


def page(of: World, *, created: bool = True, form: Format = Format.OPENMETRICS_1_0_0) -> str:
    return Renderer(created=created).page(of, form).decode()


def test_each_series_is_followed_by_the_time_of_its_creation() -> None:
    shown = page(world(device(0), device(1)))
    assert (
        'gpu_energy_joules_total{gpu="nvidia0",uuid="GPU-0"} 1500.25\n'
        'gpu_energy_joules_created{gpu="nvidia0",uuid="GPU-0"} 1000.5\n'
        'gpu_energy_joules_total{gpu="nvidia1",uuid="GPU-1"} 1500.25\n'
        'gpu_energy_joules_created{gpu="nvidia1",uuid="GPU-1"} 1000.5\n'
    ) in shown
    assert (
        'gpu_energy_source_joules_total{gpu="nvidia0",source="hardware",uuid="GPU-0"} 1000.25\n'
        'gpu_energy_source_joules_created{gpu="nvidia0",source="hardware",uuid="GPU-0"} 1000.5\n'
    ) in shown


def test_it_is_said_of_what_the_energy_ledger_counts_and_of_nothing_else() -> None:
    known = device()
    other = msgspec.structs.replace(known, busy_seconds=7.0, module_energy_joules=70.0)
    shown = page(world(other))
    assert "gpu_busy_seconds_total{" in shown
    assert {line.partition("_created{")[0] for line in shown.splitlines() if "_created{" in line} == DATED


def test_parsers_take_it_for_the_creation_of_the_counter() -> None:
    families = {family.name: family for family in text_string_to_metric_families(page(world(device(0), device(1))))}
    assert {name for name, family in families.items() if any(s.name.endswith("_created") for s in family.samples)} == (
        DATED
    )
    samples = families["gpu_energy_joules"].samples
    assert [sample.value for sample in samples if sample.name == "gpu_energy_joules_created"] == [1_000.5] * 2


@pytest.mark.parametrize("form", [form for form in Format if form is not Format.OPENMETRICS_1_0_0])
def test_other_formats_have_no_place_for_it(form: Format) -> None:
    shown = world(device())
    assert page(shown, form=form) == page(shown, form=form, created=False)
    assert "_created" not in page(shown, form=form)


def test_it_is_off_unless_asked_for() -> None:
    assert "_created" not in Renderer().page(world(device()), Format.OPENMETRICS_1_0_0).decode()


@pytest.mark.parametrize("start", [math.nan, math.inf, -1.0])
def test_what_is_no_time_is_not_said(start: float) -> None:
    shown = page(world(msgspec.structs.replace(device(), energy=account(start_timestamp=start))))
    assert "gpu_energy_joules_total{" in shown
    assert "_created" not in shown


@settings(deadline=None)
@given(worlds)
def test_it_adds_nothing_but_its_own_lines_to_any_page(of: World) -> None:
    without, dated = page(of, created=False), page(of)
    assert [line for line in dated.splitlines() if "_created{" not in line] == without.splitlines()
    list(text_string_to_metric_families(dated))


def test_the_time_is_that_of_the_device_that_is_shown_and_not_of_one_before_with_the_same_labels() -> None:
    renderer = Renderer(created=True)
    gone, there = (
        msgspec.structs.replace(device(), gpu=gpu, energy=account(start_timestamp=start))
        for gpu, start in (("a\0", 1.0), ("a", 2.0))
    )
    renderer.page(world(gone), Format.OPENMETRICS_1_0_0)
    shown = renderer.page(world(there), Format.OPENMETRICS_1_0_0)
    assert shown == Renderer(created=True).page(world(there), Format.OPENMETRICS_1_0_0)
    assert b'gpu_energy_joules_created{gpu="a",uuid="GPU-0"} 2.0\n' in shown
