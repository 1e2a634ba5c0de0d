"""XID errors: registered for, heard, counted, handed out with the samples of their GPU, and let go."""
# ruff: noqa: N802, N803 -- names are those of pynvml

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from exporter.model import Device, ErrorEvent, Group, Sample
from exporter.providers.nvidia import NvidiaProvider, events
from exporter.providers.nvidia.events import XidListener
from exporter.providers.nvidia.library import Nvml
from exporter.providers.nvidia.reading import Reading
from exporter.providers.protocol import ProviderError
from tests.unit.nvidia.fake import FakeEventSet, FakeGpu, FakeNvml, Status, Without, gpu, only, opened

STATE = frozenset({Group.STATE})
ENERGY = frozenset({Group.ENERGY})
XID, OTHERS = 0x8, 0x1 | 0x2 | 0x100
WALL = 1_700_000_000.0


def reporting(number: int = 1, **answers: Any) -> FakeGpu:
    given = {"nvmlDeviceGetPowerUsage": 70_000, "nvmlDeviceGetTemperatureV": 40}
    return gpu(number, **{"nvmlDeviceGetSupportedEventTypes": XID | OTHERS, **given, **answers})


class Ears:
    """A listener whose rounds are made by hand."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.library = FakeNvml(*gpus)
        self.provider = opened(self.library, wall_clock=lambda: WALL)
        assert isinstance(self.provider, NvidiaProvider)
        self.listener = self.provider._xids
        # In the place of the thread: nothing of it runs unless the test says so.
        self.listener._thread = threading.Thread()
        self.devices = self.provider.devices()

    def read(self, device: Device | None = None, groups: frozenset[Group] = STATE) -> Sample:
        return self.provider.read(device or self.devices[0], groups)

    def heard(self) -> tuple[ErrorEvent, ...]:
        self.listener.listen_once()
        return self.read().error_events


def xid(code: int, count: int = 1) -> ErrorEvent:
    return ErrorEvent(kind="xid", code=str(code), at=WALL, count=count)


def test_errors_are_counted_by_code_and_handed_out_once() -> None:
    card = reporting()
    ears = Ears(card)
    assert ears.read().error_event_kinds == ("xid",)
    card.xids += [31, 48, 31]
    assert set(ears.heard()) == {xid(31, 2), xid(48)}
    assert ears.heard() == ()
    card.xids += [31]
    ears.listener.listen_once()
    sample = ears.read(groups=ENERGY)
    assert (sample.error_events, sample.error_event_kinds) == ((xid(31),), ())


def test_only_what_the_gpu_reports_is_registered_for() -> None:
    for types in (OTHERS, Status(3), Status(13), Status(4)):
        ears = Ears(reporting(nvmlDeviceGetSupportedEventTypes=types))
        sample = ears.read()
        assert (sample.error_event_kinds, sample.failed) == ((), ())
        assert ears.library.event_sets == []


def test_registering_is_tried_once_for_each_enumeration() -> None:
    card = reporting(nvmlDeviceRegisterEvents=Status(3))
    ears = Ears(card)
    for _ in range(3):
        assert ears.read().error_event_kinds == ()
    assert ears.library.calls.count("nvmlDeviceRegisterEvents") == 1
    card.answers["nvmlDeviceRegisterEvents"] = None
    ears.devices = ears.provider.devices()
    assert ears.read().error_event_kinds == ("xid",)


@pytest.mark.parametrize("code", [3, 17, 999])
def test_set_that_could_not_be_registered_is_freed(code: int) -> None:
    ears = Ears(reporting(nvmlDeviceRegisterEvents=Status(code)))
    sample = ears.read()
    assert sample.failed == (() if code == 3 else ("error_events",))
    assert [each.freed for each in ears.library.event_sets] == [True]


def test_loss_while_registering_is_a_loss_and_frees_the_set() -> None:
    ears = Ears(reporting(nvmlDeviceRegisterEvents=Status(15)))
    assert ears.read().lost
    assert [each.freed for each in ears.library.event_sets] == [True]


def test_driver_that_is_gone_while_registering_ends_the_pass() -> None:
    ears = Ears(reporting(nvmlDeviceRegisterEvents=Status(9)))
    with pytest.raises(ProviderError):
        ears.read()
    assert [each.freed for each in ears.library.event_sets] == [True]


def test_driver_that_is_older_than_the_call_that_waits_is_not_listened_to() -> None:
    ears = Ears(reporting(nvmlEventSetWait_v2=Status(13)))
    assert (ears.read().error_event_kinds, ears.read().failed) == ((), ())
    assert [each.freed for each in ears.library.event_sets] == [True]


def test_loss_ends_the_listening_of_that_gpu_alone() -> None:
    first, second = reporting(1), reporting(2)
    ears = Ears(first, second)
    one, other = ears.devices
    for device in ears.devices:
        ears.read(device)
    first.answers["nvmlEventSetWait_v2"] = Status(15)
    second.xids += [13]
    ears.listener.listen_once()
    assert [each.freed for each in ears.library.event_sets] == [True, False]
    assert ears.read(other).error_events == (xid(13),)
    assert ears.read(other).error_event_kinds == ("xid",)
    assert not ears.listener.hears(one.key)


def test_what_was_reported_before_a_loss_comes_with_the_lost_sample() -> None:
    card = reporting()
    ears = Ears(card)
    ears.read()
    card.xids += [79]
    ears.listener.listen_once()
    card.answers |= {"nvmlDeviceGetPowerUsage": Status(15), "nvmlEventSetWait_v2": Status(15)}
    sample = ears.read(groups=ENERGY)
    assert sample == Sample(device=ears.devices[0], lost=True, error_events=(xid(79),))


def test_what_is_reported_after_a_loss_comes_with_the_next_lost_sample() -> None:
    card = reporting()
    ears = Ears(card)
    ears.read()
    card.answers["nvmlDeviceGetPowerUsage"] = Status(15)
    assert ears.read(groups=ENERGY).error_events == ()
    card.xids += [79]
    card.answers["nvmlEventSetWait_v2"] = Status(15)
    ears.listener.listen_once()
    assert ears.read(groups=ENERGY).error_events == (xid(79),)


def test_gpu_that_comes_back_is_registered_anew() -> None:
    card = reporting()
    ears = Ears(card)
    ears.read()
    card.answers["nvmlDeviceGetPowerUsage"] = Status(15)
    assert ears.read(groups=STATE | ENERGY).lost
    card.answers["nvmlDeviceGetPowerUsage"] = 70_000
    assert ears.read(groups=STATE | ENERGY).error_event_kinds == ("xid",)
    ears.listener.listen_once()
    assert [each.freed for each in ears.library.event_sets] == [True, False]
    card.xids += [45]
    assert ears.heard() == (xid(45),)


def test_enumeration_keeps_the_registration() -> None:
    ears = Ears(reporting())
    for _ in range(3):
        ears.read()
        ears.provider.devices()
    assert len(ears.library.event_sets) == 1


def test_a_storm_of_errors_leaves_the_others_their_turn_and_is_bounded() -> None:
    first, second = reporting(1), reporting(2)
    ears = Ears(first, second)
    one, other = ears.devices
    for device in ears.devices:
        ears.read(device)
    first.xids += [*range(1_000, 1_200), *[31] * 1_000]
    second.xids += [94]
    assert ears.listener.listen_once()
    assert ears.read(other).error_events == (xid(94),)
    while ears.listener.listen_once():
        pass
    assert not first.xids
    full = ears.read(one)
    assert (len(full.error_events), full.failed) == (64, ("error_events",))
    assert ears.read(one).failed == ()


def suspended(root: Path, state: str, address: str = "0000:01:00.0") -> None:
    device = root / "sys/bus/pci/devices" / address
    (device / "power").mkdir(parents=True, exist_ok=True)
    (device / "power/runtime_status").write_text(f"{state}\n")
    (device / "power/control").write_text("auto\n")
    (root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
    if not (device / "driver").exists():
        (device / "driver").symlink_to("../../drivers/nvidia")
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")


def runtime_d3(root: Path, status: str, address: str = "0000:01:00.0") -> None:
    file = root / "proc/driver/nvidia/gpus" / address / "power"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"Runtime D3 status:          {status}\nVideo Memory:               Active\n")


@pytest.mark.parametrize(
    ("status", "listened"),
    [
        ("Enabled (fine-grained)", False),
        ("Enabled (coarse-grained)", False),
        ("Disabled by default", True),
        ("Not supported", True),
        (None, False),
    ],
)
def test_gpu_that_may_fall_asleep_is_not_kept_awake_by_a_registration(
    tmp_path: Path, status: str | None, listened: bool
) -> None:
    suspended(tmp_path, "active")
    if status is not None:
        runtime_d3(tmp_path, status)
    library = FakeNvml(reporting())
    provider = opened(library, root=tmp_path)
    device = only(provider)
    assert provider.read(device, STATE).error_event_kinds == (("xid",) if listened else ())
    assert bool(library.event_sets) is listened
    provider.close()


def test_gpu_that_fell_asleep_all_the_same_is_let_go(tmp_path: Path) -> None:
    suspended(tmp_path, "active")
    runtime_d3(tmp_path, "Disabled by default")
    library = FakeNvml(reporting())
    provider = opened(library, root=tmp_path)
    device = only(provider)
    provider.read(device, STATE)
    suspended(tmp_path, "suspended")
    assert provider.read(device, STATE).asleep
    assert isinstance(provider, NvidiaProvider)
    provider._xids.listen_once()
    assert [each.freed for each in library.event_sets] == [True]
    provider.close()


def test_gpu_that_sleeps_is_looked_at_before_each_read_whatever_was_thought_of_it(tmp_path: Path) -> None:
    suspended(tmp_path, "active")
    runtime_d3(tmp_path, "Not supported")
    library = FakeNvml(reporting())
    provider = opened(library, root=tmp_path)
    device = only(provider)
    provider.read(device, ENERGY)
    suspended(tmp_path, "suspended")
    assert provider.read(device, STATE).asleep
    library.calls.clear()
    assert provider.read(device, ENERGY).asleep
    provider.devices()
    assert provider.read(device, ENERGY).asleep
    assert not [call for call in library.calls if call.startswith("nvmlDevice")]
    suspended(tmp_path, "active")
    assert provider.read(device, ENERGY).power_watts == 70.0
    provider.close()


# ---- The thread itself ----


@contextmanager
def listening(library: Any) -> Iterator[tuple[XidListener, Reading, FakeNvml]]:
    listener = XidListener(Nvml(library, lambda: None), time.monotonic, lambda: WALL)
    fake: FakeNvml = library
    try:
        yield listener, Reading(Nvml(library, lambda: None), fake.gpus[0], lambda: None), fake
    finally:
        listener.close()


def identified(library: FakeNvml) -> Any:
    provider = opened(library)
    assert isinstance(provider, NvidiaProvider)
    only(provider)
    return next(iter(provider._gpus.values()))


class Drained(FakeNvml):
    """Tells when its listener has come back for more, and so has noted all that there was."""

    def __init__(self, *gpus: FakeGpu) -> None:
        super().__init__(*gpus)
        self.drained = threading.Event()

    def nvmlEventSetWait_v2(self, eventSet: FakeEventSet, timeoutms: int) -> Any:
        if threading.current_thread() is not threading.main_thread() and not self.gpus[0].xids:
            self.drained.set()
        return super().nvmlEventSetWait_v2(eventSet, timeoutms)


def test_errors_are_heard_in_a_thread_of_its_own_which_ends_and_frees_its_sets() -> None:
    card = reporting()
    library = Drained(card)
    with listening(library) as (listener, reading, _):
        known = identified(library)
        listener.listen(reading, known)
        for code in (79, 31):
            library.drained.clear()
            card.xids += [code]
            listener.ask()
            assert library.drained.wait(30)
            assert listener.take(known.device.key) == (xid(code),)
        assert listener.close()
        assert [each.freed for each in library.event_sets] == [True]
        assert not [thread for thread in threading.enumerate() if thread.name == "xid"]


def test_the_thread_is_asked_to_go_round_when_the_state_is_read_and_when_a_gpu_is_lost_or_let_go() -> None:
    card = reporting()
    ears = Ears(card)
    asked = ears.listener._asked
    ears.read(groups=ENERGY)
    assert not asked.is_set()
    ears.read()
    assert asked.is_set()
    asked.clear()
    card.answers["nvmlDeviceGetPowerUsage"] = Status(15)
    assert ears.read(groups=ENERGY).lost
    assert asked.is_set()
    asked.clear()
    ears.listener.drop(ears.devices[0].key)
    assert asked.is_set()


class Stuck(FakeNvml):
    """Its wait does not return until it is let."""

    def __init__(self, *gpus: FakeGpu) -> None:
        super().__init__(*gpus)
        self.entered, self.let = threading.Event(), threading.Event()

    def nvmlEventSetWait_v2(self, eventSet: FakeEventSet, timeoutms: int) -> Any:
        if threading.current_thread() is not threading.main_thread():
            self.entered.set()
            self.let.wait(60)
        return super().nvmlEventSetWait_v2(eventSet, timeoutms)


def test_a_wait_that_hangs_holds_up_neither_the_readings_nor_the_end() -> None:
    library = Stuck(reporting())
    provider = opened(library)
    device = only(provider)
    provider.read(device, STATE)
    assert library.entered.wait(30)
    assert provider.read(device, STATE | ENERGY).power_watts == 70.0
    began = time.monotonic()
    provider.close()
    assert time.monotonic() - began < 10
    # What a call in flight uses is not taken from under it.
    assert library.started == 1
    library.let.set()
    assert isinstance(provider, NvidiaProvider)
    assert provider._xids._thread is not None
    provider._xids._thread.join(30)
    assert library.event_sets[0].freed


def test_a_thread_that_does_not_come_round_hears_nothing() -> None:
    now = [100.0]
    library = Stuck(reporting())
    nvml = Nvml(library, lambda: None)
    listener = XidListener(nvml, lambda: now[0], lambda: WALL)
    known = identified(library)
    listener.listen(Reading(nvml, library.gpus[0], lambda: None), known)
    assert listener.hears(known.device.key)
    listener.ask()
    assert library.entered.wait(30)
    now[0] += events._DEAF_SECONDS + 1
    assert not listener.hears(known.device.key)
    library.let.set()
    assert listener.close()


def test_a_binding_without_events_is_silent() -> None:
    library = Without(FakeNvml(reporting()), "nvmlEventSetCreate")
    provider = opened(library)
    sample = provider.read(only(provider), STATE)
    assert (sample.error_event_kinds, sample.failed) == ((), ())
