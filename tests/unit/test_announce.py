from logging import INFO, WARNING

import msgspec

from exporter.announce import MAX_LINES, Announcer, Line, summary
from exporter.model import Device, DeviceSnapshot, GpuState, Sample, Snapshot, World


def world(*devices: tuple[str, GpuState], model: str | None = "H100") -> World:
    shown = []
    for key, state in devices:
        device = Device(key=key, vendor="nvidia", model=model, pci_address=None if key == "1" else f"0000:0{key}:00.0")
        shown.append(
            DeviceSnapshot(
                gpu=f"nvidia{key}", provider="nvidia", device=device, state=state, sample=Sample(device=device)
            )
        )
    snapshot = Snapshot(provider="nvidia", up=True, wanted=True, reason="", devices=tuple(shown))
    return World(snapshots=(snapshot,), versions={})


def identity(key: str) -> dict[str, str]:
    address = {} if key == "1" else {"pci_address": f"0000:0{key}:00.0"}
    return {"gpu": f"nvidia{key}", "uuid": key, **address, "provider": "nvidia"}


OK, STALE, LOST, HUNG, ASLEEP, RELEASED = (
    GpuState.OK,
    GpuState.STALE,
    GpuState.LOST,
    GpuState.HUNG,
    GpuState.ASLEEP,
    GpuState.RELEASED,
)


def test_gpus_are_announced_together_and_once() -> None:
    announcer = Announcer()
    assert announcer.lines(world()) == []
    found = Line(INFO, "GPUs found", {"provider": "nvidia", "count": 2, "models": "2 x H100"})
    assert announcer.lines(world(("0", OK), ("1", OK))) == [found]
    assert announcer.lines(world(("0", OK), ("1", OK))) == []


def test_a_gpu_without_a_model_is_counted() -> None:
    assert Announcer().lines(world(("0", OK), model=None))[0].fields["models"] == "1 x unknown"


def test_a_change_of_state_is_told_once() -> None:
    announcer = Announcer()
    announcer.lines(world(("0", OK), ("1", OK)))
    assert announcer.lines(world(("0", LOST), ("1", ASLEEP))) == [
        Line(WARNING, "GPU is lost", identity("0")),
        Line(INFO, "GPU is asleep", identity("1")),
    ]
    assert announcer.lines(world(("0", LOST), ("1", ASLEEP))) == []
    assert announcer.lines(world(("0", OK), ("1", ASLEEP))) == [Line(INFO, "GPU is ok", identity("0"))]


def test_a_gpu_that_is_found_lost_is_told_so() -> None:
    assert [line.message for line in Announcer().lines(world(("0", LOST)))] == ["GPUs found", "GPU is lost"]


def test_hung_devices_are_left_to_the_supervisor() -> None:
    announcer = Announcer()
    announcer.lines(world(("0", OK)))
    assert announcer.lines(world(("0", HUNG))) == []
    assert announcer.lines(world(("0", OK))) == []


def test_a_gpu_that_is_forgotten_is_told_and_found_again() -> None:
    announcer = Announcer()
    announcer.lines(world(("0", OK), ("1", OK)))
    assert announcer.lines(world(("1", OK))) == [Line(WARNING, "GPU is forgotten", identity("0"))]
    assert [line.message for line in announcer.lines(world(("0", OK), ("1", OK)))] == ["GPUs found"]


def test_the_lines_of_one_change_are_bounded() -> None:
    announcer = Announcer()
    announcer.lines(world(*((str(n), OK) for n in range(500))))
    lines = announcer.lines(world(*((str(n), LOST) for n in range(500))))
    assert len(lines) == MAX_LINES + 1
    assert lines[-1] == Line(WARNING, "more has changed", {"changes": 400})


def test_a_release_is_left_to_the_supervisor_but_not_what_is_wrong_after_it() -> None:
    announcer = Announcer()
    announcer.lines(world(("0", OK), ("1", OK), ("2", OK)))
    assert announcer.lines(world(("0", RELEASED), ("1", RELEASED), ("2", LOST))) == [
        Line(WARNING, "GPU is lost", identity("2"))
    ]
    assert announcer.lines(world(("0", OK), ("1", STALE), ("2", LOST))) == [
        Line(WARNING, "GPU is stale", identity("1"))
    ]


def test_the_summary_counts_what_delivers_and_names_what_does_not() -> None:
    assert summary(world(("0", OK), ("1", ASLEEP))) == "2 of 2 GPUs deliver readings"
    assert summary(world(("0", OK), ("1", LOST), ("2", HUNG))) == (
        "1 of 3 GPUs deliver readings: nvidia1 lost, nvidia2 hung"
    )
    many = summary(world(*((str(n), LOST) for n in range(100))))
    assert many.startswith("0 of 100 GPUs deliver readings: nvidia0 lost, ")
    assert many.endswith(" and 92 more")


def test_the_summary_names_providers_that_are_down_and_should_not_be() -> None:
    down = Snapshot(provider="amd", up=False, wanted=True, reason="the driver is not loaded")
    absent = Snapshot(provider="intel", up=False, wanted=False, reason="no library")
    assert summary(World(snapshots=(down, absent), versions={})) == "0 of 0 GPUs deliver readings; down: amd"


def test_the_summary_of_released_devices_says_only_that() -> None:
    released = msgspec.structs.replace(world(("0", RELEASED)), released=True)
    assert summary(released) == "the devices are released on request"
