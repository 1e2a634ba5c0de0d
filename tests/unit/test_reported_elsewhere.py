"""What broke other exporters in the field, from the vendor's answer to the page: docs/operations.md has the list."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter import metrics
from exporter.config import SamplingConfig
from exporter.exposition import Format, Renderer
from exporter.fleet import Fleet
from exporter.metrics import METRIC_NAMES
from exporter.model import Group
from exporter.providers.protocol import Provider
from tests.unit.amd import vendor as amd
from tests.unit.nvidia import fake as nvidia

NUMBERS_OF_AMD = (
    *("gfx_activity", "umc_activity", "mm_activity", "vram_total", "vram_used", "clk", "cur_clk", "power_limit"),
    *("current_socket_power", "average_socket_power", "socket_power", "power_cap", "default_power_cap", "timestamp"),
    *("energy_accumulator", "counter_resolution", "correctable_count", "uncorrectable_count", "pcie_width"),
    *("pcie_speed", "pcie_replay_count", "max_pcie_width", "num_partition", "prochot_residency_acc"),
)
TEXTS_OF_AMD = (
    "market_name",
    "asic_serial",
    "product_name",
    "product_serial",
    "vram_type",
    "driver_version",
    "version",
)
NEW_KEYS = ("power [us]", "gfx activity", "\N{CYRILLIC SMALL LETTER ZHE}", "a\nb", 'a"b', "", "gpu_up", "\udcff")
"""What no release has, and a driver may bring."""
CALLS_OF_AMD = (
    *("power_info", "power_cap_info", "gpu_activity", "gpu_vram_usage", "gpu_vram_info", "gpu_metrics_info"),
    *("energy_count", "clock_info", "temp_metric", "gpu_fan_speed", "gpu_total_ecc_count", "pcie_info"),
    *("gpu_asic_info", "gpu_board_info", "gpu_driver_info", "gpu_vbios_info", "gpu_compute_partition"),
    *("gpu_memory_total", "gpu_memory_usage", "gpu_process_list", "gpu_device_uuid", "gpu_enumeration_info"),
)


def nvidia_text(raw: bytes) -> Any:
    """Return what pynvml makes of these bytes: text, or an error to raise."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        return error


junk = st.one_of(
    st.sampled_from(
        [
            None,
            "N/A",
            "",
            "[Unknown Error]",
            "[N/A]",
            "255",
            float("nan"),
            float("inf"),
            -1,
            2**64 - 1,
            10**400,
            True,
            b"\xff",
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=()), max_size=8),
    st.lists(st.integers(), max_size=2),
)
tables = st.recursive(
    junk,
    lambda inner: st.dictionaries(st.sampled_from((*NUMBERS_OF_AMD, *TEXTS_OF_AMD, *NEW_KEYS)), inner, max_size=8),
    max_leaves=12,
)
answers_of_amd = st.dictionaries(st.sampled_from(CALLS_OF_AMD), tables | st.lists(tables, max_size=2), max_size=6)
strings = st.text(st.characters(exclude_categories=()), max_size=300) | st.binary(max_size=300).map(nvidia_text)


def page(name: str, provider: Provider) -> str:
    """Return the page of all that a provider lists, and of a read of each."""
    fleet = Fleet([(name, True)], SamplingConfig())
    devices = {}
    listed = provider.devices()
    fleet.enumerated(name, listed, 0.0)
    for device in listed:
        devices.setdefault(device.key, device)
    now = 0.0
    for device in devices.values():
        sample = provider.read(device, frozenset(Group))
        now = max((now, *sample.taken_at.values()))
        fleet.observed(name, sample, now, 1e9)
    return Renderer().page(fleet.world(now), Format.TEXT_0_0_4).decode()


def labels_of(text: str, name: str) -> list[dict[str, str]]:
    families = text_string_to_metric_families(text)
    return [sample.labels for family in families for sample in family.samples if sample.name == name]


def hold(text: str) -> None:
    """Hold a page to what the tables say there is, and no series twice."""
    series = [
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
    assert len(series) == len(set(series))
    assert {name for name, *_ in series} <= METRIC_NAMES
    assert {label for _, *labels in series for label, _ in labels} <= LABELS


def specs() -> Iterable[Any]:
    for name, table in vars(metrics).items():
        if name.endswith("_METRICS") and isinstance(table, tuple):
            yield from table


LABELS = {label for spec in specs() for label in spec.labels} | {"gpu", "uuid", "provider"}


def test_two_gpus_that_say_they_are_one_are_one_on_the_page_and_counted() -> None:
    """Report 2."""
    cards = (nvidia.gpu(0), nvidia.gpu(1), nvidia.gpu(2))
    cards[1].answers["nvmlDeviceGetUUID"] = cards[0].answers["nvmlDeviceGetUUID"]
    text = page("nvidia", nvidia.opened(nvidia.FakeNvml(*cards)))
    hold(text)
    assert len(labels_of(text, "gpu_info")) == 2
    assert [labels["reading"] for labels in labels_of(text, "gpu_exporter_read_failures_total")] == [
        "duplicate_identity"
    ]


@settings(deadline=None)
@given(answers_of_amd)
def test_whatever_amd_smi_answers_is_a_page_of_our_names(answers: dict[str, Any]) -> None:
    """Reports 3, 5, 14 and 15: fields that no release has, text for numbers, numbers for text."""
    hold(page("amd", amd.provider(amd.FakeAmdsmi(amd.gpu(**answers)))))


@settings(deadline=None)
@given(strings, strings, strings)
def test_whatever_nvml_says_of_names_is_a_page(name: Any, serial: Any, version: Any) -> None:
    """Report 4."""
    names = {"nvmlDeviceGetName": name, "nvmlDeviceGetSerial": serial, "nvmlDeviceGetVbiosVersion": version}
    card = nvidia.gpu(nvmlDeviceGetPowerUsage=300_000, **names)
    text = page("nvidia", nvidia.opened(nvidia.FakeNvml(card)))
    hold(text)
    assert labels_of(text, "gpu_power_watts")


@given(st.dictionaries(st.sampled_from(NEW_KEYS), junk, min_size=1))
def test_fields_that_no_release_has_change_nothing(new: dict[str, Any]) -> None:
    """Report 3."""
    known: dict[str, dict[str, Any]] = {
        "power_info": {"average_socket_power": 94, "power_limit": 300},
        "gpu_activity": {"gfx_activity": 42},
        "gpu_metrics_info": {"prochot_residency_acc": 7},
        "gpu_asic_info": {"asic_serial": "0xB1D2C3A4E5F60718", "market_name": "AMD Instinct MI300X"},
    }
    sample = amd.read(amd.gpu(**known))
    assert (sample.power_watts, sample.utilization_ratio, sample.device.model) == (94, 0.42, "AMD Instinct MI300X")
    assert amd.read(amd.gpu(**{name: {**new, **answer} for name, answer in known.items()})) == sample
