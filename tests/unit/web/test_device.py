"""The page of one GPU: each number with where it is from and why, and what the ledger made of the newest readings."""

import re

import msgspec
import pytest
from hypothesis import given

from exporter.fleet.explain import Explanation
from exporter.fleet.trail import LENGTH, Decision, Why
from exporter.model import (
    Device,
    ErrorEvent,
    GpuState,
    Group,
    ProcessSample,
    ProcessSeries,
    Workload,
    WorkloadSnapshot,
)
from exporter.web.device import device_page
from exporter.wording import why
from tests.unit.fleet.hosts import ALL, WALL, Host, card, sample
from tests.unit.web.outline import KNOWN, Outline
from tests.unit.web.test_status import HOSTILE, MARKUP

GIVEN = {
    "power_watts": 312.25,
    "power_kind": "average",
    "power_window_seconds": 1.0,
    "power_limit_watts": 700.0,
    "energy_counter_joules": 1e6,
    "utilization_ratio": 0.734,
    "memory_used_bytes": 3.5 * 2**30,
    "clock_hertz": {"graphics": 1.98e9},
    "throttled": {"sw_thermal": True},
    "processes": (ProcessSample(pid=77, name="python3", memory_used_bytes=2.0**30),),
}


def read(host: Host, seconds: int = 1, **values: object) -> Host:
    for second in range(seconds):
        host.read(card(1), *ALL, **{**GIVEN, "energy_counter_joules": 1e6 + 312.25 * second, **values})
        host.wait(1)
    return host


def explained(host: Host, **changed: object) -> Explanation:
    found = host.fleet.explain("nvidia0", host.now)
    assert found is not None
    return found._replace(device=msgspec.structs.replace(found.device, **changed)) if changed else found


def page(host: Host, **changed: object) -> str:
    return device_page(explained(host, **changed), WALL + host.now).decode()


def test_each_reading_has_value_raw_source_call_age_and_verdict() -> None:
    shown = Outline(page(read(Host(card(1)))))
    assert shown.row("utilization_ratio") == [
        *("utilization_ratio", "73.4 %", "0.734", "nvidia", "nvmlDeviceGetUtilizationRates", "1.0 s", "ok")
    ]
    assert shown.row("memory_used_bytes")[1:3] == ["3.50 GiB", "3758096384"]
    assert shown.row("power_watts")[1:3] == ["312.25 W", ""]  # nothing more to be told
    assert shown.row("clock_hertz")[1:3] == ["graphics 1980 MHz", "graphics 1980000000"]
    assert shown.row("throttled")[1:3] == ["sw_thermal yes", ""]
    assert "Not told by this device or its driver: power_limit_default_watts, module_power_watts" in shown.said.replace(
        "_ ", "_"
    )


def test_what_is_missing_says_why() -> None:
    host = read(Host(card(1)), failed=("fan_speed_ratio",), rejected=("performance_state",))
    shown = Outline(page(host))
    assert shown.row("fan_speed_ratio")[-1] == "the driver answered with an error"
    assert shown.row("performance_state")[-1] == "the value was outside what is physically possible"
    host.read(card(1), Group.LOAD, utilization_ratio=0.5)
    host.wait(15.5)
    assert Outline(page(host)).row("power_watts")[-2:] == ["16.5 s", "it is too old to be shown"]
    host.hang("GPU-1")
    host.read(card(1), *ALL, **GIVEN)
    assert Outline(page(host)).row("power_watts")[-1] == "withheld while the GPU does not answer"


def test_what_a_less_preferred_provider_reads_is_shown_beside() -> None:
    host = Host(card(1))
    same = Device(vendor="amd", key="GPU-1", pci_address="0000:01:00.0", index=1)
    host.fleet.enumerated("amd", (same,), host.now)
    read(host)
    host.give(sample(same, host.now, *ALL, power_watts=310.0, sources={"power_watts": "hwmon"}), "amd")
    rows = [row for row in Outline(page(host)).rows if row[0] == "power_watts"]
    assert [(row[1], row[3], row[-1]) for row in rows] == [
        ("312.25 W", "nvidia", "ok"),
        ("310 W", "amd/hwmon", "another provider is preferred"),
    ]


def test_the_account_is_told() -> None:
    said = Outline(page(read(Host(card(1)), 90))).said
    for words in (
        "of which by the accumulator",
        "Accumulator trusted: the total follows it",
        "Covered 1 min 29 s without gaps",
        "Faults none",
    ):
        assert words in said
    assert "not trusted: the total follows power" in Outline(page(read(Host(card(1)), 3))).said
    assert "none: the total follows power" in Outline(page(read(Host(card(1)), energy_counter_joules=None))).said
    assert "all that there is" in Outline(page(read(Host(card(1)), 2, power_watts=None))).said
    nothing = read(Host(card(1)), power_watts=None, energy_counter_joules=None)
    assert "so that nothing is counted" in Outline(page(nothing)).said


def test_the_newest_decisions_are_told_newest_first_with_their_reasons() -> None:
    host = read(Host(card(1)), 150)
    shown = Outline(page(host))
    assert f"What the ledger made of the newest {LENGTH} readings" in shown.said
    decisions = shown.rows[[row[0] for row in shown.rows].index("Decision at") + 1 :]
    assert len(decisions) == LENGTH
    at, *told = decisions[0]
    assert at.endswith("1.0 s ago")
    assert told == ["step of the accumulator", "312.25", f"{1e6 + 312.25 * 149:.3f}", "+312.250", ""]
    (turn,) = [words for _, words, *_ in decisions if "from here on" in words]
    assert turn == (
        "accumulator moved, but is not trusted: power counts; "
        "accumulator agrees with power: the total follows it from here on"
    )


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        (Why(0), "power counts"),
        (Why.TRUSTED, "accumulator gave no value"),
        (Why.STEP | Why.TRUSTED, "step of the accumulator"),
        (Why.UNCHANGED, "accumulator unchanged: power counts"),
        (Why.UNCHANGED | Why.TRUSTED, "accumulator unchanged: the next step has this time in it"),
        (Why.UNCHANGED | Why.CREDIT | Why.TRUSTED, "accumulator stands still: power counts in its place"),
        (
            Why.STEP | Why.CATCH_UP | Why.TRUSTED,
            "accumulator went on after standing still, less what power was credited",
        ),
        (Why.RESET | Why.TRUSTED, "accumulator was reset: power counts for this step"),
        (Why.GAP, "gap: nobody knows the energy of these seconds; power counts"),
        (Why.DETACHED, "read from another sensor from here on, which has to earn trust anew"),
        (Why.RESTORED, "went on from the journal"),
        (Why.BEGUN, "first reading: nothing before it to count from"),
    ],
)
def test_a_reason_is_put_in_words(reasons: Why, said: str) -> None:
    assert why(Decision(1.0, None, None, 0.0, 0.0, 0.0, 0.0, reasons)) == said


def test_every_reason_has_words_of_its_own() -> None:
    words = {why(Decision(1.0, None, None, 0.0, 0.0, 0.0, 0.0, reason)) for reason in Why}
    assert len(words) == len(Why)
    assert all(words)


@pytest.mark.parametrize("state", [GpuState.LOST, GpuState.HUNG, GpuState.STALE, GpuState.RELEASED])
def test_a_gpu_that_does_not_answer_says_what_to_do(state: GpuState) -> None:
    text = page(read(Host(card(1))), state=state)
    assert f'<span class="bad">{state.value}</span>' in text
    assert re.search('<p class="bad">[^<]+</p>', text)


def test_of_a_gpu_that_is_gone_the_decisions_stay() -> None:
    host = read(Host(card(1)), 3)
    host.give(sample(card(1), host.now, lost=True))
    said = Outline(page(host)).said
    assert "None is held of a GPU in this state." in said
    assert "What the ledger made of the newest 3 readings" in said


def test_who_uses_it_and_what_went_wrong_is_told_in_short() -> None:
    users = tuple(
        WorkloadSnapshot(workload=Workload(key=f"slurm/{n}", kind="slurm"), active_joules=3.6e6, allocation_ratio=0.5)
        for n in range(25)
    )
    series = tuple(ProcessSeries(pid=str(n), name="python3", memory_used_bytes=2.0**30) for n in range(30))
    host = read(Host(card(1)), error_events=(ErrorEvent(kind="xid", code="79", at=WALL),), error_event_kinds=("xid",))
    shown = Outline(page(host, workloads=users, process_series=series))
    assert shown.row("slurm/3") == ["slurm/3", "50 %", "3.600 MJ"]
    assert shown.row("7") == ["7", "python3", "1.00 GiB"]
    assert "and 5 more" in shown.said
    assert "and 10 more" in shown.said
    assert shown.row("xid")[0:2] == ["xid 79", "1"]


def test_its_page_stays_as_it_is_until_it_is_asked_for_again() -> None:
    assert Outline(page(read(Host(card(1))))).links == ["../", ""]


def test_its_size_is_bounded() -> None:
    assert len(page(read(Host(card(1)), 150))) < 80_000


@given(HOSTILE)
def test_no_string_of_a_device_or_process_becomes_markup(text: str) -> None:
    host = Host(card(1, model=text, serial=text, firmware={text: text}))
    host.read(card(1), *ALL, **{**GIVEN, "clock_hertz": {text: 1.0}, "recovery_action": text})
    workload = WorkloadSnapshot(workload=Workload(key=text, kind="pod"))
    process = ProcessSeries(pid=text, name=text, user=text, workload=text)
    shown = page(host, gpu=text, workloads=(workload,), process_series=(process,), error_events={(text, text): 1.0})
    outline = Outline(shown)
    assert outline.tags <= KNOWN
    assert not {name for name in outline.attributes if name.startswith("on") or name in {"style", "src", "http-equiv"}}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)
    assert len(shown) < 40_000
    assert MARKUP not in shown
