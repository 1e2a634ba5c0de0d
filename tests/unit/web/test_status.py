"""The status page: what is seen in one look, whatever the host has and whatever its devices call themselves."""

import base64
import hashlib
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter import __version__
from exporter.model import (
    NOT_OPENED,
    Attribution,
    Device,
    DeviceSnapshot,
    EnergyAccount,
    GpuState,
    Sample,
    Snapshot,
    SourceStatus,
    Workload,
    WorkloadSnapshot,
    World,
)
from exporter.web import html
from exporter.web.status import MAX_DEVICES, landing_page
from exporter.web.style import STYLE, STYLE_HASH
from tests.unit.web.outline import KNOWN, Outline

NOW = 1_800_000_000.0
MARKUP = "<script>alert(1)</script>"
HOSTILE = st.text(st.characters(codec=None), max_size=40) | st.sampled_from(
    [MARKUP, "\ud800", "&lt;", '" onload="x', "\u202egnp.exe", "\x1b[2J\0", "x" * 10_000, "'><meta http-equiv=refresh>"]
)


def account(**fields: object) -> EnergyAccount:
    given = {
        "total_joules": 7.2e6,
        "by_source_joules": {"hardware": 7.0e6, "integrated": 0.2e6},
        "hardware_joules": 7.1e6,
        "integrated_joules": 7.2e6,
        "qualified": True,
        "divergence_ratio": -0.004,
        "covered_seconds": 3_600.0,
        "gap_seconds": 0.0,
        "faults": {"reset": 0},
        "start_timestamp": NOW - 3_600,
    }
    return EnergyAccount(**{**given, **fields})


def device(
    gpu: str = "nvidia0",
    model: str = "H100",
    key: str = "GPU-1",
    age: float | None = 2.5,
    state: GpuState = GpuState.OK,
    readings: dict[str, object] | None = None,
    **fields: object,
) -> DeviceSnapshot:
    identity = Device(vendor="nvidia", key=key, model=model)
    return DeviceSnapshot(
        **{
            "gpu": gpu,
            "provider": "nvidia",
            "device": identity,
            "state": state,
            "sample": Sample(device=identity, **(readings or {})),
            "last_sample_timestamp": None if age is None else NOW - age,
            **fields,
        }
    )


BUSY = {
    "utilization_ratio": 0.73,
    "memory_used_bytes": 60.0 * 2**30,
    "memory_size_bytes": 80.0 * 2**30,
    "power_watts": 512.4,
    "power_limit_watts": 700.0,
    "temperature_celsius": {"gpu": 60.0, "memory": 71.0},
    "throttled": {"idle": True, "sw_power_cap": True, "hw_thermal": False},
}


def provider(
    *devices: DeviceSnapshot, name: str = "nvidia", up: bool = True, reason: str = "", **more: object
) -> Snapshot:
    given = {"wanted": True, "library_version": "13.615", "devices_expected": 8, "last_sample_timestamp": NOW - 7.25}
    return Snapshot(provider=name, up=up, reason=reason, devices=devices, **{**given, **more})


def page(*snapshots: Snapshot, telemetry_path: str = "/metrics", host: str = "", **world: object) -> str:
    seen = msgspec.convert({"snapshots": snapshots, "versions": {}, **world}, World, from_attributes=True)
    return landing_page(seen, telemetry_path, NOW, host).decode()


def test_a_gpu_is_told_in_one_row() -> None:
    row = Outline(page(provider(device(readings=BUSY, energy=account())))).row("nvidia0")
    assert row == [
        "nvidia0 H100, nvidia",
        "ok held back by sw_power_cap",
        "73 %",
        "60.00 GiB of 80.00 GiB",
        "512 W of 700 W",
        "71 °C memory",
        "7.200 MJ from accumulator, -0.4 % apart",
        "2.5 s ago",
    ]


def test_all_gpus_are_summed() -> None:
    said = Outline(page(provider(*(device(f"nvidia{n}", readings=BUSY, energy=account()) for n in range(8))))).said
    assert "GPUs that answer 8 of 8 Power 4099 W Mean load 73 % Memory used 480.00 GiB of 640.00 GiB" in said
    assert "Energy 57.60 MJ 16.0 kWh since 2027-01-15 07:00 UTC" in said


def test_what_a_gpu_does_not_tell_is_left_out_and_zero_is_not() -> None:
    row = Outline(page(provider(device(readings={"power_watts": 0.0, "utilization_ratio": 0.0})))).row("nvidia0")
    assert row == ["nvidia0 H100, nvidia", "ok", "0 %", "0 W", "2.5 s ago"]


def test_which_of_two_providers_gave_the_power_is_told() -> None:
    row = Outline(page(provider(device(readings=BUSY, sources={"power_watts": "drm/hwmon"})))).row("nvidia0")
    assert "512 W of 700 W, by drm/hwmon" in row


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "7.200 MJ from accumulator, -0.4 % apart"),
        ({"divergence_ratio": -0.0001}, "7.200 MJ from accumulator, +0.0 % apart"),
        ({"qualified": False}, "7.200 MJ from power, -0.4 % apart"),
        ({"qualified": False, "integrated_joules": None, "divergence_ratio": None}, "7.200 MJ from accumulator"),
        ({"total_joules": 0.0, "divergence_ratio": None}, "0 J from accumulator"),
    ],
)
def test_where_the_joules_are_from_is_told(fields: dict[str, object], said: str) -> None:
    assert Outline(page(provider(device(energy=account(**fields))))).row("nvidia0")[2] == said


def test_sensors_that_disagree_are_in_red() -> None:
    assert '<span class="bad">+7.0\u00a0%\u00a0apart</span>' in page(
        provider(device(energy=account(divergence_ratio=0.07)))
    )
    assert 'class="bad"' not in page(provider(device(energy=account())))


def test_who_uses_a_gpu_is_told() -> None:
    users = tuple(WorkloadSnapshot(workload=Workload(key=f"pod/a/p{n}/c", kind="pod")) for n in range(5))
    rows = Outline(
        page(
            provider(
                device("nvidia0", workloads=users),
                device("nvidia1", readings={"processes": ()}),
                device("nvidia2", readings={"processes": None}),
            )
        )
    )
    assert "pod/a/p0/c, pod/a/p1/c, pod/a/p2/c and 2 more" in rows.row("nvidia0")
    assert "nobody" in rows.row("nvidia1")
    assert "nobody" not in rows.row("nvidia2")


def test_a_provider_that_is_down_says_why_and_what_would_help() -> None:
    down = provider(name="amd", up=False, reason="the package amdsmi is not installed", library_version=None)
    away = provider(name="drm", up=False, wanted=False, reason="no cards", devices_expected=0)
    text = page(provider(device(), worker_restarts={"crash": 2}), down, away)
    rows = Outline(text)
    assert rows.row("nvidia") == ["nvidia", "up", "1 of 8 on PCI", "13.615", "2 2 for crash", "7.2 s ago", ""]
    assert rows.row("amd")[-1].startswith("the package amdsmi is not installed install ROCm's amd-smi-lib")
    assert rows.row("drm")[-1] == "no cards"
    assert text.count('<span class="bad">down</span>') == 1  # nobody asked for the other one


def test_it_links_to_the_metrics_the_probes_and_the_devices() -> None:
    links = Outline(page(provider(device("nvidia0")), telemetry_path='/gpu "metrics"')).links
    assert links == ["./gpu%20%22metrics%22", "./-/healthy", "./-/ready", "./device/nvidia0"]


def test_what_is_wrong_comes_first() -> None:
    up = (SourceStatus(source="proc", up=True), SourceStatus(source="kubelet", up=False, reason="no socket"))
    said = Outline(
        page(
            provider(device(state=GpuState.LOST), device("nvidia1", energy=account(divergence_ratio=-0.43))),
            provider(name="amd", up=False, reason="no driver"),
            provider(name="drm", up=False, wanted=False, reason="no cards"),
            released=True,
            config_reloaded=False,
            workers_abandoned=3,
            journal_up=False,
            series_dropped={"gpu_process_info": 7},
            attribution=Attribution(sources=up),
        )
    ).said
    troubles = said[: said.index("GPUs that answer")]
    for words in (
        "released on request: send SIGUSR2",
        "could not be reloaded",
        "could not be killed: 3",
        "not kept over a restart",
        "no room for: 7",
        "kubelet cannot tell who uses the GPUs: no socket",
        "nvidia0 is lost: look into dmesg",
        "accumulator of nvidia1 counts -43 % against its power",
        "amd is down: no driver",
    ):
        assert words in troubles
    assert "no cards" not in troubles
    assert "proc cannot" not in said
    assert "1 of 2" in said


def test_where_all_is_well_nothing_is_wrong() -> None:
    text = page(provider(device(readings=BUSY, energy=account())))
    assert 'class="wrong"' not in text
    assert 'class="bad"' not in text


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (provider(up=False, reason="no driver"), "No GPU is served: see the providers."),
        (provider(up=False, wanted=False, reason="no driver"), "the command gpu-exporter doctor says why"),
    ],
)
def test_a_host_without_gpus_is_told_where_to_look(shown: Snapshot, said: str) -> None:
    assert said in Outline(page(shown)).said


def test_while_providers_are_opened_nothing_is_wrong_yet() -> None:
    text = page(provider(up=False, reason=NOT_OPENED), provider(name="amd", up=False))
    assert '<ul class="wrong">' not in text
    assert 'class="bad"' not in text
    assert "being opened" in text
    assert "No GPU is served" not in text


@pytest.mark.parametrize("count", [0, 1, 8, 64])
def test_each_gpu_has_one_row(count: int) -> None:
    text = page(provider(*(device(f"nvidia{n}", readings=BUSY, energy=account()) for n in range(count))))
    assert len(re.findall('href="./device/', text)) == count
    assert len(text) < 8_000 + 1_200 * count


def test_it_names_its_version_and_host() -> None:
    said = Outline(page(provider(), host="node-7")).said
    assert "GPUs of node-7" in said
    assert f"gpu-exporter {__version__}" in said


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    assert "0.0 s ago" in page(provider(device(age=-100)))
    assert "never" in page(provider(device(age=None)))


def test_the_number_of_rows_and_of_troubles_is_bounded() -> None:
    text = page(provider(*(device(f"nvidia{n}", state=GpuState.HUNG) for n in range(MAX_DEVICES + 5))))
    assert text.count('href="./device/') == text.count(" is hung: ") == MAX_DEVICES
    assert text.count("and 5 more") == 2


@given(HOSTILE)
def test_no_string_of_a_device_or_library_becomes_markup(text: str) -> None:
    workload = WorkloadSnapshot(workload=Workload(key=text, kind="pod"))
    named = device(text, text, text, workloads=(workload,), sources={"power_watts": text}, readings=BUSY)
    rendered = page(provider(named, name=text, reason=text, library_version=text), host=text)
    outline = Outline(rendered)
    assert outline.tags <= KNOWN
    assert not {name for name in outline.attributes if name.startswith("on") or name in {"style", "src", "http-equiv"}}
    assert len(rendered) < 20_000
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", rendered)


def test_text_of_another_direction_is_kept_apart() -> None:
    assert html.text("\u202egnp.exe") == "<bdi>\u202egnp.exe</bdi>"
    assert html.text("x" * 300) == f"<bdi>{'x' * html.MAX_TEXT}…</bdi>"
    assert html.text("H100 80GB") == "H100 80GB"


def test_the_policy_allows_the_style_that_the_page_has_and_nothing_else() -> None:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    assert f"sha256-{digest}" == STYLE_HASH
    policy = dict(html.HEADERS)["Content-Security-Policy"]
    assert f"style-src '{STYLE_HASH}';" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert re.findall("<style>(.*)</style>", page(provider()), re.DOTALL) == [STYLE]
    assert not re.search(r"url\(|@import|https?:", STYLE)


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2 between two colours."""

    def light(colour: str) -> float:
        digits = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
        parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    darker, lighter = sorted((light(one), light(other)))
    return (lighter + 0.05) / (darker + 0.05)


def test_words_can_be_read_by_day_and_by_night() -> None:
    schemes = [dict(re.findall(r"--(\w+):#(\w+)", part)) for part in re.findall(r":root\{(.*?)\}", STYLE, re.DOTALL)]
    assert len(schemes) == 2
    for colours in schemes:
        for words in ("fg", "muted", "bad", "good", "link"):
            for ground in ("bg", "card"):
                assert contrast(colours[words], colours[ground]) >= 4.5, (words, ground)
