"""Every capture, read by the real providers and shown by a real fleet: the whole page, and what it must agree with.

GPU_EXPORTER_WRITE_GOLDEN=1 writes the pages anew for a review.
"""

import inspect
import math
import os
from collections.abc import Iterable
from pathlib import Path

import pynvml
import pytest
from prometheus_client.parser import text_string_to_metric_families

from exporter.captures.answers import parse_call
from exporter.captures.format import SYSTEM
from tests.captures import hardware_page
from tests.captures.hardware_page import Played, played
from tests.captures.hosts import PATHS
from tests.unit.amd.vendor import OF_OLDER_RELEASES, PARAMETERS

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/captures"
REWRITE = "GPU_EXPORTER_WRITE_GOLDEN"
MODELS = {
    *(f"nvidia-{model}" for model in ("h100", "a100", "b200", "gb200", "l40s", "t4", "gb10", "orin")),
    *("amd-mi100", "amd-mi210", "amd-mi250x", "amd-mi325x", "amd-mi355x", "amd-mi300x-guest"),
    "amd-mi300x-cpx-sysfs",
    *(f"amd-mi300x-{mode}-rocm{release}" for mode in ("spx", "dpx", "cpx") for release in (6, 7)),
    *("amd-rx7900xt", "amd-rx9070", "amd-w7700", "amd-strix-halo", "amd-rembrandt"),
    *("intel-arc-a750", "intel-arc-b70", "intel-max1550"),
}
NO_ACCUMULATOR = frozenset({"amd-mi100", "amd-rx9070", "amd-w7700"})
"""Where it stands still: seen on such cards."""
AGREE = 0.05
"""How far accumulator and power may be apart."""
ALIKE = 1e-6
"""Of joules: both count in floating point."""
UP_TO_6_0 = {"amdsmi_get_pcie_link_status": 1, "amdsmi_get_pcie_link_caps": 1}
"""Functions that later releases do not have, with the number of their arguments."""

every = pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])


def values(one: Played, family: str, **labels: str) -> list[float]:
    """Return the values of a family, of those series that have the labels."""
    return [
        sample.value
        for found in text_string_to_metric_families(one.page)
        for sample in found.samples
        if sample.name == family and labels.items() <= sample.labels.items()
    ]


@every
def test_the_page_is_the_one_that_was_reviewed(path: Path) -> None:
    page, golden = played(path).page, GOLDEN / f"{path.stem}.prom"
    if os.environ.get(REWRITE):
        golden.write_text(page)
    assert page.splitlines() == golden.read_text().splitlines()


def test_there_is_a_page_for_each_capture_and_no_other() -> None:
    assert sorted(path.stem for path in GOLDEN.iterdir()) == sorted(path.stem for path in PATHS)


def test_the_models_that_must_be_there_are() -> None:
    assert {path.stem for path in PATHS} >= MODELS


@every
def test_power_and_energy_add_up_to_what_the_wall_sees(path: Path) -> None:
    one = played(path)
    for family, figure in (
        ("gpu_power_watts", one.capture.wall.watts),
        ("gpu_energy_joules_total", one.capture.wall.joules),
        ("gpu_module_power_watts", one.capture.wall.module_watts),
    ):
        found = values(one, family)
        assert bool(found) == (figure is not None), family
        assert math.isclose(sum(found), figure or 0.0, rel_tol=ALIKE), family


@every
def test_the_accumulator_says_what_the_power_says(path: Path) -> None:
    one = played(path)
    counted = sum(values(one, "gpu_energy_hardware_joules_total"))
    power = sum(values(one, "gpu_energy_integrated_joules_total"))
    if path.stem in NO_ACCUMULATOR:
        assert counted == 0 < power
    elif counted and power:
        assert math.isclose(counted, power, rel_tol=AGREE)


@every
def test_nothing_breaks_and_nothing_is_out_of_bounds(path: Path) -> None:
    assert played(path).broken == ()


@every
def test_partitions_have_no_more_memory_than_the_gpu(path: Path) -> None:
    one = played(path)
    for gpu in {device.gpu for device in one.devices}:
        parts = sum(values(one, "gpu_partition_memory_size_bytes", gpu=gpu))
        assert parts <= sum(values(one, "gpu_memory_size_bytes", gpu=gpu))


@every
def test_the_calls_are_those_of_the_vendors_package(path: Path) -> None:
    capture = played(path).capture
    package = capture.library.package if capture.library is not None else ""
    for moment in capture.moments:
        for subject, calls in moment.calls.items():
            for function, given in map(counted, calls):
                takes = pynvml_takes(function) if package == "pynvml" else amdsmi_takes(function)
                assert given == -1 or given + (subject != SYSTEM) in takes, f"{subject} {function}"


def counted(text: str) -> tuple[str, int]:
    """Return the function of a call, and how many arguments it has besides the handle; -1: any."""
    function, arguments = parse_call(text) or ("", "")
    if arguments == "*":
        return function, -1
    return function, 1 if function == "nvmlDeviceGetFieldValues" else len(arguments.split(",")) if arguments else 0


def pynvml_takes(function: str) -> range:
    parameters = inspect.signature(getattr(pynvml, function)).parameters.values()
    least = sum(parameter.default is parameter.empty for parameter in parameters)
    return range(least, len(parameters) + 1)


def amdsmi_takes(function: str) -> Iterable[int]:
    if function in UP_TO_6_0:
        return {UP_TO_6_0[function]}
    least, most = (PARAMETERS | OF_OLDER_RELEASES)[function]
    return range(least, most + 1)


def test_the_page_of_hardware_is_what_the_captures_say() -> None:
    assert hardware_page.page().splitlines() == (ROOT / "docs/hardware.md").read_text().splitlines()


@every
def test_what_was_not_seen_is_a_reading_that_is_there(path: Path) -> None:
    one = played(path)
    assert set(one.capture.documented) <= hardware_page.readings_of(one).keys()


def test_the_readings_of_the_page_are_all_that_a_sample_has() -> None:
    listed = {name for name, _ in hardware_page.READINGS}
    assert listed | hardware_page.BESIDE == {name for names in hardware_page.FIELDS.values() for name in names}
