"""The page of a World in each format: what is on it, what is not, and what it looks like."""

import math
from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from exporter.exposition import Format, Renderer
from exporter.exposition.renderer import FRONT
from exporter.metrics import METRIC_NAMES, Block
from exporter.model import PartitionSample, ProcessSeries, World
from tests.unit.exposition.worlds import account, device, world

TEXT, OPENMETRICS = Format.TEXT_0_0_4, Format.OPENMETRICS_1_0_0
ENERGY = frozenset({Block.ENERGY})


def text_page(of: World, renderer: Renderer | None = None, **options: Any) -> str:
    return (renderer or Renderer()).page(of, TEXT, **options).decode()


def series(page: str) -> list[str]:
    """Lines of samples without their values."""
    return [line.rpartition(" ")[0] for line in page.splitlines() if not line.startswith("#")]


def families(page: str) -> list[str]:
    return [line.split(" ")[2] for line in page.splitlines() if line.startswith("# TYPE ")]


def test_the_text_format_spelled_out() -> None:
    shown = device(power_kind="average", power_window_seconds=1.0)
    patterns = ("gpu_energy_[!js]*", "gpu_energy_start*", "gpu_exporter_*", "gpu_state", "gpu_info")
    assert text_page(world(shown), Renderer(patterns)) == (
        "# HELP gpu_up Whether the GPU answers, or sleeps and would answer.\n"
        "# TYPE gpu_up gauge\n"
        'gpu_up{gpu="nvidia0",uuid="GPU-0"} 1.0\n'
        "# HELP gpu_power_watts Power that the GPU draws; gpu_power_reading_info says what the reading is.\n"
        "# TYPE gpu_power_watts gauge\n"
        'gpu_power_watts{gpu="nvidia0",uuid="GPU-0"} 500.5\n'
        "# HELP gpu_power_reading_info What gpu_power_watts is: average or instant, over which window,"
        " of gpu, module or package.\n"
        "# TYPE gpu_power_reading_info gauge\n"
        'gpu_power_reading_info{gpu="nvidia0",kind="average",scope="gpu",uuid="GPU-0",window="1s"} 1.0\n'
        "# HELP gpu_energy_joules_total Energy used since gpu_energy_start_timestamp_seconds: the number to use;"
        " it never falls.\n"
        "# TYPE gpu_energy_joules_total counter\n"
        'gpu_energy_joules_total{gpu="nvidia0",uuid="GPU-0"} 1500.25\n'
        "# HELP gpu_energy_source_joules_total Parts of gpu_energy_joules_total by where they came from.\n"
        "# TYPE gpu_energy_source_joules_total counter\n"
        'gpu_energy_source_joules_total{gpu="nvidia0",source="hardware",uuid="GPU-0"} 1000.25\n'
        'gpu_energy_source_joules_total{gpu="nvidia0",source="integrated",uuid="GPU-0"} 500.0\n'
    )


def test_openmetrics_names_families_without_suffix_and_gives_their_unit() -> None:
    page = Renderer().page(world(device()), OPENMETRICS).decode()
    assert (
        "# TYPE gpu_energy_joules counter\n"
        "# UNIT gpu_energy_joules joules\n"
        'gpu_energy_joules_total{gpu="nvidia0",uuid="GPU-0"} 1500.25\n'
    ) in page
    assert "# TYPE gpu info\ngpu_info{" in page
    assert "# TYPE gpu_up gauge\ngpu_up{" in page
    assert page.endswith("\n# EOF\n")
    assert page.count("# EOF") == 1
    assert "_created" not in page


def test_both_text_versions_have_the_same_page() -> None:
    shown = world(device())
    assert Renderer().page(shown, Format.TEXT_1_0_0) == Renderer().page(shown, TEXT)


def test_a_page_without_families_is_empty_or_only_its_end() -> None:
    nothing = Renderer(["*"])
    assert nothing.page(world(device()), TEXT) == b""
    assert nothing.page(world(device()), OPENMETRICS) == b"# EOF\n"


@pytest.mark.parametrize("format_", Format)
def test_the_content_type_is_complete(format_: Format) -> None:
    media_type, *parameters = format_.content_type.split("; ")
    assert media_type == ("application/openmetrics-text" if format_ is OPENMETRICS else "text/plain")
    assert "charset=utf-8" in parameters
    version = {TEXT: "0.0.4"}.get(format_, "1.0.0")
    assert f"version={version}" in parameters
    assert ("escaping=underscores" in parameters) == (version == "1.0.0")


def test_a_reading_without_a_value_has_no_series_and_its_family_is_not_announced() -> None:
    page = text_page(world(device(power_watts=None, utilization_ratio=0.0)))
    assert "gpu_power_watts" not in families(page)
    assert 'gpu_utilization_ratio{gpu="nvidia0",uuid="GPU-0"} 0.0' in page.splitlines()


def test_no_family_is_announced_without_a_series() -> None:
    page = text_page(World(snapshots=(), versions={}))
    assert families(page) == [
        "gpu_exporter_build_info",
        "gpu_exporter_workers_abandoned",
        "gpu_exporter_released",
        "gpu_exporter_config_last_reload_successful",
        "gpu_exporter_http_errors_total",
    ]


def test_the_lines_of_a_family_stand_together() -> None:
    page = text_page(world(device(0, utilization_ratio=0.5), device(1, utilization_ratio=0.25)))
    names = [line.partition("{")[0] for line in series(page)]
    assert len([name for name, after in zip(names, [*names[1:], ""], strict=True) if name != after]) == len(set(names))
    assert len(families(page)) == len(set(families(page))) == len(set(names))


def test_partitions_and_processes_carry_the_labels_of_their_device() -> None:
    shown = device(
        partitions=(PartitionSample(partition="gi3", memory_used_bytes=5.0),),
        series=(ProcessSeries(pid="7", name="python", memory_used_bytes=6.0), ProcessSeries(pid="8")),
    )
    lines = text_page(world(shown)).splitlines()
    assert 'gpu_partition_memory_used_bytes{gpu="nvidia0",partition="gi3",uuid="GPU-0"} 5.0' in lines
    assert 'gpu_process_memory_used_bytes{gpu="nvidia0",name="python",pid="7",uuid="GPU-0"} 6.0' in lines
    assert not any('pid="8"' in line for line in lines)


def test_numbers_keep_every_digit() -> None:
    for number in (123456789.123456, 85520809984.0, 1e22, 5e-324, 0.1 + 0.2, -12.5):
        page = text_page(world(device(power_watts=number)), blocks=ENERGY)
        (shown,) = [line for line in page.splitlines() if line.startswith("gpu_power_watts")]
        assert float(shown.rpartition(" ")[2]) == number


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "N/A", "12", b"1", [], {}, 10**400, 1j, object()])
def test_what_is_no_finite_number_costs_its_series_and_is_counted(value: object) -> None:
    renderer = Renderer()
    page = text_page(world(device(0, power_watts=value), device(1)), renderer)
    assert [line for line in series(page) if line.startswith("gpu_power_watts")] == [
        'gpu_power_watts{gpu="nvidia1",uuid="GPU-1"}'
    ]
    assert renderer.dropped == {"gpu_power_watts": 1}


def test_a_counter_below_zero_is_left_out_and_counted() -> None:
    renderer = Renderer()
    page = text_page(world(msgspec.structs.replace(device(), energy=account(total_joules=-0.5))), renderer)
    assert "gpu_energy_joules_total" not in families(page)
    assert renderer.dropped == {"gpu_energy_joules_total": 1}


def test_none_in_a_mapping_is_absent_and_not_counted() -> None:
    renderer = Renderer()
    page = text_page(world(device(temperature_celsius={"gpu": 40.0, "memory": None})), renderer)
    assert [line for line in series(page) if line.startswith("gpu_temperature_celsius")] == [
        'gpu_temperature_celsius{gpu="nvidia0",sensor="gpu",uuid="GPU-0"}'
    ]
    assert renderer.dropped == {}


def test_two_devices_with_the_same_labels_keep_the_first_and_count_the_rest() -> None:
    renderer = Renderer()
    same = (device(0, power_watts=1.0), device(0, power_watts=2.0), device(0, power_watts=3.0), device(1))
    page = text_page(world(*same), renderer)
    assert 'gpu_power_watts{gpu="nvidia0",uuid="GPU-0"} 1.0' in page
    assert len(series(page)) == len(set(series(page)))
    assert renderer.dropped["gpu_power_watts"] == 2
    assert renderer.dropped["gpu_energy_faults_total"] == 10


def test_labels_that_become_the_same_by_cleaning_are_duplicates() -> None:
    renderer = Renderer()
    named = (
        ProcessSeries(pid="1", name="a\0", memory_used_bytes=1.0),
        ProcessSeries(pid="1", name="a", memory_used_bytes=2.0),
    )
    page = text_page(world(device(series=named)), renderer)
    assert 'gpu_process_memory_used_bytes{gpu="nvidia0",name="a",pid="1",uuid="GPU-0"} 1.0' in page
    assert renderer.dropped == {"gpu_process_memory_used_bytes": 1}


def test_the_count_of_dropped_series_is_that_of_the_page_in_memory() -> None:
    renderer = Renderer()
    text_page(world(device(0), device(0)), renderer)
    assert renderer.dropped
    text_page(world(device(0), device(1)), renderer)
    assert renderer.dropped == {}


def test_one_bad_string_changes_its_own_series_only() -> None:
    good = ProcessSeries(pid="1", name="python", memory_used_bytes=1.0)
    bad = ProcessSeries(pid="2", name='\ud800"\n\\\0' * 200, memory_used_bytes=2.0)
    before = text_page(world(device(series=(good,)))).splitlines()
    after = text_page(world(device(series=(good, bad)))).splitlines()
    (added,) = [line for line in after if line not in before]
    assert added.startswith('gpu_process_memory_used_bytes{gpu="nvidia0",name="�\\"\\n\\\\�')
    assert [line for line in after if line != added] == before
    list(parse_text("\n".join(after) + "\n"))


def test_the_order_of_series_does_not_depend_on_the_order_of_a_mapping() -> None:
    one = device(clock_hertz={"sm": 1.0, "memory": 2.0, "graphics": 3.0})
    other = device(clock_hertz={"graphics": 3.0, "memory": 2.0, "sm": 1.0})
    assert text_page(world(one)) == text_page(world(other))


def test_disabled_families_are_left_out() -> None:
    page = text_page(world(device(utilization_ratio=0.5)), Renderer(["gpu_energy_*", "gpu_power_watts"]))
    assert not [name for name in families(page) if name.startswith("gpu_energy_")]
    assert "gpu_power_watts" not in families(page)
    assert "gpu_utilization_ratio" in families(page)


def test_a_pattern_is_matched_with_its_case_and_as_a_whole() -> None:
    shown = world(device())
    assert text_page(shown, Renderer(["GPU_*", "power", "gpu_power"])) == text_page(shown)


def test_blocks_make_up_the_page_and_can_be_asked_for_alone() -> None:
    renderer, shown = Renderer(), world(device(utilization_ratio=0.5, temperature_celsius={"gpu": 1.0}))
    alone = {block: text_page(shown, renderer, blocks=frozenset({block})) for block in (*FRONT, Block.ENERGY)}
    assert "".join(alone.values()) == text_page(shown, renderer)
    assert families(alone[Block.LOAD]) == ["gpu_utilization_ratio"]
    assert text_page(shown, renderer, blocks=frozenset()) == ""
    assert renderer.page(shown, OPENMETRICS, ENERGY).endswith(b"# EOF\n")


def test_every_format_says_the_same() -> None:
    shown = world(device(temperature_celsius={"gpu": 1.0}, series=(ProcessSeries(pid="1", memory_used_bytes=3.0),)))
    text = {sample for family in parse_text(text_page(shown)) for sample in map(repr, family.samples)}
    page = Renderer().page(shown, OPENMETRICS).decode()
    assert {sample for family in parse_openmetrics(page) for sample in map(repr, family.samples)} == text


def test_families_on_a_page_are_those_of_the_tables() -> None:
    assert set(families(text_page(world(device())))) < METRIC_NAMES
