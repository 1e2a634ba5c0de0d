"""When the exporter is worth scraping, and what it says of each provider."""

import pytest

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import NOT_OPENED, Device, DeviceSnapshot, GpuState, Group, Sample, Snapshot, World
from exporter.web.readiness import MAX_REASON, readiness

NOW = 1_800_000_000.0
NONE = "no device was found"


def device(state: GpuState = GpuState.OK, *, read: bool = True) -> DeviceSnapshot:
    identity = Device(vendor="nvidia", key="GPU-1")
    sample = Sample(device=identity, taken_at={Group.ENERGY: 1.0} if read and state is GpuState.OK else {})
    return DeviceSnapshot(gpu="nvidia0", provider="nvidia", device=identity, state=state, sample=sample)


def provider(
    name: str,
    *devices: DeviceSnapshot,
    reason: str = "",
    wanted: bool = True,
    expected: int | None = None,
    age: float | None = None,
) -> Snapshot:
    return Snapshot(
        provider=name,
        up=not reason,
        wanted=wanted,
        reason=reason,
        devices=devices,
        devices_expected=expected,
        last_sample_timestamp=None if age is None else NOW - age,
    )


def world(*snapshots: Snapshot, released: bool = False) -> World:
    return World(snapshots=snapshots, versions={}, released=released)


def absent(name: str = "nvidia") -> Snapshot:
    return provider(name, reason="no library", wanted=False, expected=0)


@pytest.mark.parametrize(
    "seen",
    [
        world(provider("nvidia", device())),
        world(provider("nvidia", device(GpuState.ASLEEP))),
        world(provider("nvidia", device(GpuState.HUNG), device())),
        world(provider("nvidia", device(), reason="the worker crashed")),
        world(provider("amd", reason="the driver is not loaded"), provider("nvidia", device())),
    ],
    ids=["all", "asleep", "one of two", "readings that are young enough", "one provider of two"],
)
def test_it_is_ready_when_one_gpu_delivers(seen: World) -> None:
    assert readiness(seen, NOW).ready


def test_it_is_ready_where_pci_shows_no_gpu_and_nobody_asked_for_one() -> None:
    found = readiness(world(absent(), provider("amd", reason=NONE, wanted=False, expected=0)), NOW)
    assert found.ready
    assert found.text.splitlines() == [
        "ready",
        "nvidia: no library; this host has no such GPU; last reading: never",
        "amd: no device was found; this host has no such GPU; last reading: never",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (world(provider("nvidia", reason=NOT_OPENED, wanted=False, expected=0)), "nvidia is not open yet"),
        (world(absent(), provider("amd", reason=NOT_OPENED, wanted=False)), "amd is not open yet"),
        (world(provider("nvidia", device()), provider("amd", reason=NOT_OPENED)), "amd is not open yet"),
        (world(provider("nvidia", reason="driver lost")), "no GPU delivers readings"),
        (world(provider("nvidia", reason=NONE, wanted=False, expected=8)), "no GPU delivers readings"),
        (world(provider("nvidia", reason="no library", wanted=False, expected=None)), "no GPU delivers readings"),
        (world(provider("nvidia", reason=NONE, wanted=True, expected=0)), "no GPU delivers readings"),
        (world(provider("nvidia", device(GpuState.STALE), device(GpuState.LOST))), "no GPU delivers readings"),
        (world(provider("nvidia", device(GpuState.HUNG))), "no GPU delivers readings"),
        (world(provider("nvidia", device(read=False))), "no GPU delivers readings"),
        (world(provider("nvidia", device(GpuState.RELEASED)), released=True), "the devices are released on request"),
        (world(absent(), released=True), "the devices are released on request"),
    ],
)
def test_it_is_not_ready_otherwise_and_says_why(seen: World, said: str) -> None:
    found = readiness(seen, NOW)
    assert not found.ready
    assert found.text.splitlines()[0] == f"not ready: {said}"


def test_each_provider_is_told_of_with_the_age_of_its_last_reading() -> None:
    devices = (device(), device(GpuState.LOST), device(GpuState.HUNG), device(GpuState.HUNG))
    seen = world(provider("nvidia", *devices, age=0.25), provider("amd", reason="the driver is not loaded", age=61))
    assert readiness(seen, NOW).text.splitlines() == [
        "ready",
        "nvidia: 1 of 4 GPUs deliver readings, 2 hung, 1 lost; last reading: 0.2 s ago",
        "amd: the driver is not loaded; last reading: 61.0 s ago",
    ]


def test_a_clock_that_was_set_back_gives_no_negative_age() -> None:
    assert "last reading: 0.0 s ago" in readiness(world(provider("nvidia", device(), age=-5)), NOW).text


def test_what_a_library_says_stays_on_its_line_and_short() -> None:
    text = readiness(world(provider("nvidia", reason="a\nb\ud800" + "x" * 10_000)), NOW).text
    assert len(text.splitlines()) == 2
    assert len(text) < MAX_REASON + 200
    assert r"a\nb\ud800" in text


def test_it_is_not_ready_before_the_first_attempt_to_open_is_over() -> None:
    fleet = Fleet([("nvidia", False), ("amd", False)], SamplingConfig())
    for name in ("nvidia", "amd"):
        fleet.expected(name, 0)
    verdicts = [readiness(fleet.world(0.0), NOW).ready]
    for at, name in enumerate(("nvidia", "amd"), 1):
        fleet.provider_status(name, up=False, reason="no library", library_version=None)
        verdicts.append(readiness(fleet.world(float(at)), NOW).ready)
    assert verdicts == [False, False, True]
