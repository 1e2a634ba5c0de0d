"""What broke other exporters in the field, done to a running daemon: docs/operations.md has the list."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from exporter.exposition import Format, Renderer
from exporter.metrics import METRIC_NAMES
from exporter.model import World
from exporter.providers.simulated.machine import Machine
from exporter.providers.simulated.scenario import load_scenario
from tests.integration.daemon import ROOT, Daemon, Samples
from tests.integration.prometheus import check_metrics, find, running
from tests.native.amdsmi_layout import amdsmi_tree
from tests.native.plan import standin_environment, write_plan
from tests.tools import end
from tests.unit.exposition.worlds import worlds

Start = Callable[..., Daemon]

HOSTILE = 'a \udcff"b\\c\nd\x01e\x9b \N{CJK UNIFIED IDEOGRAPH-8BAD}'
"""A byte that is not UTF-8, and what breaks a label, a line, or a terminal."""
ON_THE_PAGE = 'a \N{REPLACEMENT CHARACTER}"b\\c\nde \N{CJK UNIFIED IDEOGRAPH-8BAD}'
MODELS = {"nvidia": "H100-SXM", "amd": "MI300X", "simulated": "T4"}
UNSUPPORTED = {"amdsmi_get_power_info": "gpu_power_watts", "amdsmi_get_temp_metric": "gpu_temperature_celsius"}
"""What AMD SMI was seen to refuse on parts whose kernel has the value, and the family that it is for."""
TEMPERATURE = {"gpu_temperature_celsius", "gpu_temperature_limit_celsius"}
POWER = {
    "gpu_power_watts",
    "gpu_power_reading_info",
    "gpu_energy_integrated_joules_total",
    "gpu_energy_uncertainty_ratio",
}


def machine(text: str) -> Machine:
    return Machine(load_scenario(text), time.monotonic() - 1000)


def environment(vendor: str, folder: Path) -> Mapping[str, str]:
    plan = folder / "plan"
    if vendor == "amd":
        return {**amdsmi_tree("7.0.2", folder), "GPU_EXPORTER_PLAN": str(plan)}
    return standin_environment(plan)


LAST = (
    "gpu_energy_uncertainty_ratio",
    "gpu_exporter_sample_duration_seconds",
    "gpu_temperature_celsius",
    "gpu_processes",
)
"""Of what a GPU gives, these come last."""


def is_whole(page: Samples) -> bool:
    return all(name in page for name in LAST)


def names(page: Samples) -> dict[str, int]:
    """Return how many series there are by name."""
    return {name: len(series) for name, series in page.series.items()}


@pytest.mark.parametrize(
    ("vendor", "hostile", "shown"),
    [
        pytest.param("nvidia", HOSTILE, ON_THE_PAGE, id="nvidia"),
        pytest.param("amd", HOSTILE.replace("\udcff", ""), ON_THE_PAGE.replace("\ufffd", ""), id="amd"),
        # amdsmi itself fails on such a byte; the name of the board stands in.
        pytest.param("amd", HOSTILE, "AMD Instinct MI300X", id="amd, no UTF-8"),
        pytest.param("simulated", HOSTILE, ON_THE_PAGE.replace("\ufffd", "?"), id="simulated"),
    ],
)
def test_a_hostile_name_of_a_gpu_costs_its_own_label_only(
    start_daemon: Start, tmp_path: Path, vendor: str, hostile: str, shown: str
) -> None:
    """Report 4. The same machine with good names has the same series."""
    started = []
    for number, name in enumerate(("good", hostile)):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = f"devices: [{{model: {MODELS[vendor]}, texts: {{name: {json.dumps(name)}}}}}]"
        if vendor == "simulated":
            (folder / "scenario.yaml").write_text(text)
            started.append(start_daemon("--simulate", str(folder / "scenario.yaml")))
        else:
            write_plan(folder / "plan", machine(text))
            started.append(start_daemon("--provider", vendor, env=environment(vendor, folder)))
    good = started[0].scrape_until(is_whole)
    bad = started[1].scrape_until(lambda page: page.series.keys() >= good.series.keys())
    assert good.labels("gpu_info")["model"].startswith("good")
    assert bad.labels("gpu_info")["model"].startswith(shown)
    for major in (2, 3):
        assert check_metrics(find(major), bad.page.encode()) == ""


def test_a_process_whose_name_the_kernel_cuts_in_a_character_is_listed(start_daemon: Start, tmp_path: Path) -> None:
    """Report 4. The kernel keeps 15 bytes: here four letters of three bytes and a part of the fifth."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    program = tmp_path / ("x" + "\N{CJK UNIFIED IDEOGRAPH-8BAD}" * 5)
    shutil.copy(sleep, program)
    process = subprocess.Popen([program, "100"])
    try:
        rows = f"[{{pid: {process.pid}, memory_used_bytes: 7000000}}]"
        write_plan(tmp_path / "plan", machine(f"devices: [{{model: H100-SXM, processes: {rows}}}]"))
        daemon = start_daemon("--provider", "nvidia", env=environment("nvidia", tmp_path))
        page = daemon.scrape_until(lambda page: "gpu_process_memory_used_bytes" in page)
        cut = "x" + "\N{CJK UNIFIED IDEOGRAPH-8BAD}" * 4 + "\N{REPLACEMENT CHARACTER}"
        assert page.labels("gpu_process_memory_used_bytes")["name"] == cut
        assert "gpu_power_watts" in page
    finally:
        end(process)


@pytest.mark.parametrize("major", [2, 3])
def test_promtool_takes_the_page_of_any_world(major: int) -> None:
    """Report 5. Whatever stands where a number should be, and whatever strings there are."""
    tools = find(major)

    @settings(deadline=None, max_examples=40)
    @given(worlds)
    def check(world: World) -> None:
        assert check_metrics(tools, Renderer().page(world, Format.TEXT_0_0_4)) == ""

    check()


PROTOCOLS = {
    2: {"as it is": {}},
    3: {
        "as it is": {},
        "protobuf first": {"scrape_protocols": ["PrometheusProto", "OpenMetricsText1.0.0", "PrometheusText0.0.4"]},
        "OpenMetrics 0.0.1": {"scrape_protocols": ["OpenMetricsText0.0.1"]},
        "OpenMetrics 1.0.0": {"scrape_protocols": ["OpenMetricsText1.0.0"]},
        "text 0.0.4": {"scrape_protocols": ["PrometheusText0.0.4"]},
        "text 1.0.0": {"scrape_protocols": ["PrometheusText1.0.0"]},
        "not compressed": {"enable_compression": False},
        "names of old": {"metric_name_validation_scheme": "legacy", "metric_name_escaping_scheme": "underscores"},
    },
}
PAGES: Mapping[str, Mapping[str, list[str]]] = {
    "all": {},
    "some": {"collect[]": ["energy", "exporter"]},
    "none": {"collect[]": ["partitions"]},
}
"""Parameters of the scrape. The last page has no series, and still a type: Prometheus 3 refuses a page without one."""


@pytest.mark.parametrize("major", PROTOCOLS)
def test_prometheus_takes_every_page_in_every_format(start_daemon: Start, tmp_path: Path, major: int) -> None:
    """Report 7."""
    tools = find(major)
    address = start_daemon("--provider", "simulated").url.removeprefix("http://")
    jobs = [
        {"job_name": f"{name}, {page}", "params": dict(parameters), "static_configs": [{"targets": [address]}], **how}
        for name, how in PROTOCOLS[major].items()
        for page, parameters in PAGES.items()
    ]
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": jobs,
    }
    with running(tools, tmp_path / "prometheus", configuration) as server:
        deadline = time.monotonic() + 20
        while {target["health"] for target in server.targets()} != {"up"} and time.monotonic() < deadline:
            time.sleep(0.2)
        outcome = {target["labels"]["job"]: (target["health"], target["lastError"]) for target in server.targets()}
        assert outcome == {job["job_name"]: ("up", "") for job in jobs}
        scraped = {labels["job"]: count for labels, count in server.query("scrape_samples_scraped")}
    for name in PROTOCOLS[major]:
        assert scraped[f"{name}, none"] == 0
        assert 0 < scraped[f"{name}, some"] < scraped[f"{name}, all"]


def test_nothing_is_loaded_by_import_and_nothing_ever_by_the_process_that_serves(
    start_daemon: Start, tmp_path: Path
) -> None:
    """Report 10. Vendors' libraries are the workers' alone: a scrape cannot run, or crash in, one."""
    show = "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pynvml', 'amdsmi'}))"
    loaded = f"import sys, exporter.serve, exporter.cli; {show}; print(open('/proc/self/maps').read())"
    said = subprocess.run(
        [sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    ).stdout
    assert said.startswith("[]\n")
    assert "libnvidia-ml" not in said
    assert "libamd_smi" not in said
    write_plan(tmp_path / "plan", machine("devices: [{model: H100-SXM, count: 2}]"))
    daemon = start_daemon("--provider", "nvidia", env=environment("nvidia", tmp_path))
    daemon.scrape_until(lambda page: is_whole(page) and len(page.all(LAST[0])) == 2)
    (worker,) = daemon.children()
    assert "libnvidia-ml" in Path(f"/proc/{worker}/maps").read_text()
    assert "libnvidia-ml" not in Path(f"/proc/{daemon.process.pid}/maps").read_text()
    page = daemon.scrape_until(lambda page: names(page) == names(daemon.scrape()))
    assert set(page.series) <= METRIC_NAMES


def test_what_fails_at_the_start_is_no_verdict_and_what_comes_later_is_found(
    start_daemon: Start, tmp_path: Path
) -> None:
    """Report 19. No driver, then one GPU, then three in another order."""
    plan = tmp_path / "plan"

    def put(*order: int, head: str = "") -> None:
        rows = [
            f'{{model: H100-SXM, texts: {{uuid: GPU-{n}, pci_address: "0000:0{n}:00.0"}}, '
            f"load: {{pattern: constant, watts: {n}00}}}}"
            for n in order
        ]
        write_plan(plan, machine(f"{head}devices: [{', '.join(rows)}]"))

    gone = "faults: [{kind: error, call: 'nvml*', status: 9}]\n"
    put(1, head=gone)
    config = tmp_path / "config.yaml"
    config.write_text("sampling: {processes_seconds: 1}\n")
    arguments = ("--provider", "nvidia", "--config.file", str(config))
    daemon = start_daemon(*arguments, env=environment("nvidia", tmp_path), ready=False)
    page = daemon.scrape_until(lambda page: "not loaded" in page.page)
    assert "gpu_up" not in page
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 0
    put(1)
    page = daemon.scrape_until(lambda page: "gpu_power_watts" in page)
    assert page.value("gpu_exporter_provider_up", provider="nvidia") == 1
    put(1, head=gone)
    daemon.scrape_until(lambda page: page.value("gpu_exporter_provider_up", provider="nvidia") == 0)
    put(3, 2, 1)
    page = daemon.scrape_until(lambda page: len(page.all("gpu_power_watts")) == 3)
    assert {labels["uuid"]: watts for labels, watts in page.all("gpu_power_watts")} == {
        f"GPU-{n}": n * 100.0 for n in (1, 2, 3)
    }


@pytest.mark.parametrize(("call", "family"), UNSUPPORTED.items())
def test_what_amd_smi_does_not_support_is_absent_and_not_zero(
    start_daemon: Start, tmp_path: Path, call: str, family: str
) -> None:
    """Report 20. Of one reading, and the others stay."""
    started = []
    for number, fault in enumerate(("", f"{{kind: error, call: {call}, status: 2}}")):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_plan(folder / "plan", machine(f"devices: [{{model: MI300X, faults: [{fault}]}}]"))
        started.append(start_daemon("--provider", "amd", env=environment("amd", folder)))
    whole = started[0].scrape_until(is_whole)
    assert family in whole
    others = whole.series.keys() - (TEMPERATURE if family in TEMPERATURE else POWER)
    without = started[1].scrape_until(lambda page: page.series.keys() >= others)
    assert family not in without
    assert without.value("gpu_up") == 1
    assert "gpu_exporter_read_failures_total" not in without
    assert "gpu_exporter_rejected_readings_total" not in without
