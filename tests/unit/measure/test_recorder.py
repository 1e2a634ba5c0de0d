"""Readings, identities and events out of what workers report."""

from collections.abc import Sequence
from typing import Any

import pytest

from exporter.measure.recorder import MOST_READINGS, Recorder, choose, natural
from exporter.measure.records import Identity, Point
from exporter.model import Device, GpuState, Group, Sample


def gpu(key: str, index: int = 0, **more: Any) -> Device:
    return Device(vendor="nvidia", key=key, index=index, pci_address=f"0000:0{index}:00.0", **more)


def read(device: Device, at: float, watts: float | None = 100.0, **more: Any) -> Sample:
    fields = {"power_kind": "average", "power_window_seconds": 1.0, "energy_counter_joules": 100.0 * at, **more}
    return Sample(device=device, taken_at={Group.ENERGY: at}, power_watts=watts, **fields)


class Stage:
    """A recorder that was told of one provider with these GPUs."""

    def __init__(self, *devices: Device, most: int = MOST_READINGS) -> None:
        self.recorder = Recorder(["nvidia", "amd"], most)
        self.rows: list[Point] = []
        self.now = 1000.0
        self.recorder.provider_status("amd", up=False, reason="no library", library_version=None)
        self.recorder.provider_status("nvidia", up=True, reason="", library_version="13")
        self.recorder.enumerated("nvidia", devices, self.now)

    def observe(self, sample: Sample, late: float = 0.0) -> None:
        """Take a sample so many seconds after it was read; the wall clock is 1,000,000 s ahead."""
        at = sample.taken_at.get(Group.ENERGY, self.now)
        self.now = max(self.now, at + late)
        self.recorder.observed("nvidia", sample, self.now, self.now + 1e6)

    def sink(self, points: Sequence[Point]) -> None:
        self.rows += points

    def states(self, key: str) -> list[tuple[float, GpuState]]:
        return [(point.monotonic, point.state) for point in self.recorder.points if point.gpu == key]


A, B = gpu("a", 1), gpu("b", 2)


def test_a_reading_is_a_point_at_its_own_time_on_both_clocks() -> None:
    stage = Stage(A)
    stage.observe(read(A, 1001.0, 250.0), late=0.25)
    assert stage.recorder.points == [
        Point(at=1_001_001.0, monotonic=1001.0, gpu="a", power_watts=250.0, counter_joules=100_100.0)
    ]


def test_the_newest_load_and_temperature_go_with_it() -> None:
    stage = Stage(A)
    load = Sample(device=A, taken_at={Group.LOAD: 1000.5}, utilization_ratio=0.5)
    stage.observe(load)
    state = Sample(device=A, taken_at={Group.STATE: 1000.5}, temperature_celsius={"memory": 70.0, "gpu": 50.0})
    stage.observe(state)
    stage.observe(read(A, 1001.0))
    (point,) = stage.recorder.points
    assert (point.utilization_ratio, point.temperature_celsius) == (0.5, 50.0)
    stage.observe(Sample(device=A, taken_at={Group.STATE: 1001.5}, temperature_celsius={"memory": 71.0}))
    stage.observe(read(A, 1002.0))
    assert stage.recorder.points[-1].temperature_celsius is None, "another sensor would look like a change"


def test_an_accumulator_of_the_module_is_not_the_gpus() -> None:
    stage = Stage(A)
    stage.observe(read(A, 1001.0, energy_counter_scope="module"))
    assert stage.recorder.points[0].counter_joules is None
    stage.observe(read(A, 1002.0, energy_counter_scope="package", power_scope="package"))
    assert stage.recorder.points[1].counter_joules == 100_200.0


def test_it_settles_when_each_provider_has_spoken_and_each_gpu_was_read() -> None:
    recorder = Recorder(["nvidia", "amd"])
    recorder.provider_status("nvidia", up=True, reason="", library_version=None)
    recorder.enumerated("nvidia", (A, B), 0.0)
    recorder.observed("nvidia", read(A, 1.0), 1.0, 1.0)
    recorder.observed("nvidia", Sample(device=B, lost=True), 1.0, 1.0)
    assert not recorder.settled, "the other provider has not said anything"
    recorder.provider_status("amd", up=False, reason="no library", library_version=None)
    assert recorder.settled
    assert (recorder.has_gpus("nvidia"), recorder.has_gpus("amd")) == (True, False)
    assert recorder.reasons() == {"amd": "no library"}
    assert [gpu.gpu for gpu in recorder.identities()] == ["a"], "a lost one is none"


def test_a_gpu_that_two_providers_see_is_read_by_the_one_that_is_preferred() -> None:
    recorder = Recorder(["first", "second"])
    recorder.provider_status("second", up=True, reason="", library_version=None)
    recorder.enumerated("second", (A,), 0.0)
    recorder.observed("second", read(A, 1.0, 1.0), 1.0, 1.0)
    recorder.provider_status("first", up=True, reason="", library_version=None)
    recorder.enumerated("first", (A,), 0.0)
    recorder.observed("second", read(A, 2.0, 2.0), 2.0, 2.0)
    recorder.observed("first", read(A, 3.0, 3.0), 3.0, 3.0)
    assert [point.power_watts for point in recorder.points] == [1.0, 3.0]
    assert recorder.identities()[0].provider == "first"
    assert not recorder.has_gpus("second")


def test_one_gpu_under_two_keys_is_one_and_read_by_the_preferred_provider() -> None:
    for first, second in (("nvidia", "amd"), ("amd", "nvidia")):
        recorder = Recorder(["nvidia", "amd"])
        seen = {"nvidia": A, "amd": gpu("other", 1)}
        for provider in (first, second):
            recorder.provider_status(provider, up=True, reason="", library_version=None)
            recorder.enumerated(provider, (seen[provider],), 0.0)
        assert not recorder.settled
        for provider in ("amd", "nvidia"):
            recorder.observed(provider, read(seen[provider], 1.0, {"amd": 1.0, "nvidia": 2.0}[provider]), 1.0, 1.0)
        assert recorder.settled
        (identity,) = recorder.identities()
        assert (identity.gpu, identity.provider) == (seen[first].key, "nvidia")
        assert [(point.gpu, point.power_watts) for point in recorder.points] == [(seen[first].key, 2.0)]
        assert recorder.relieved("amd", 1.0) == {"other"}
        assert recorder.relieved("nvidia", 1.0) == frozenset()
        recorder.device_state("amd", "other", GpuState.HUNG)
        assert recorder.points[-1].state is GpuState.OK, "who does not read it does not tell its state"


def test_a_preferred_provider_that_cannot_be_opened_leaves_its_gpus_to_the_other() -> None:
    recorder = Recorder(["nvidia", "amd"])
    recorder.provider_status("nvidia", up=False, reason="no library", library_version=None)
    recorder.provider_status("amd", up=True, reason="", library_version=None)
    recorder.enumerated("amd", (A,), 0.0)
    recorder.observed("amd", read(A, 1.0), 1.0, 1.0)
    assert recorder.settled
    assert recorder.identities()[0].provider == "amd"
    assert recorder.relieved("amd", 1.0) == frozenset()


@pytest.mark.parametrize("order", [("amd", "drm"), ("drm", "amd")])
def test_a_gpu_of_which_the_preferred_provider_tells_no_energy_is_read_by_one_that_does(order: tuple[str, str]) -> None:
    # Of APUs AMD SMI answers N/A to everything, and the kernel knows what they draw.
    recorder = Recorder(["amd", "drm"])
    for provider in ("amd", "drm"):
        recorder.provider_status(provider, up=True, reason="", library_version=None)
        recorder.enumerated(provider, (A,), 0.0)
    samples = {"amd": read(A, 1.0, None, energy_counter_joules=None), "drm": read(A, 1.0, 20.0)}
    for provider in order:
        assert not recorder.settled
        recorder.observed(provider, samples[provider], 1.0, 1.0)
    recorder.observed("drm", read(A, 2.0, 21.0), 2.0, 2.0)
    assert recorder.settled
    recorder.enumerated("amd", (A,), 60.0)
    recorder.observed("amd", read(A, 61.0, None, energy_counter_joules=None), 61.0, 61.0)
    recorder.begin(["a"], lambda _: None)
    recorder.observed("drm", read(A, 62.0, 22.0), 62.0, 62.0)
    assert recorder.identities()[0].provider == "drm"
    assert [point.power_watts for point in recorder.points][-2:] == [21.0, 22.0]
    assert None not in [point.power_watts for point in recorder.points]
    assert recorder.relieved("drm", 62.0) == frozenset()
    assert (recorder.has_gpus("amd"), recorder.lists("amd"), recorder.has_gpus("drm")) == (False, True, True)


def test_a_gpu_of_which_nobody_tells_energy_stays_with_the_preferred_provider() -> None:
    recorder = Recorder(["amd", "drm"])
    for provider in ("amd", "drm"):
        recorder.provider_status(provider, up=True, reason="", library_version=None)
        recorder.enumerated(provider, (A,), 0.0)
        recorder.observed(provider, read(A, 1.0, None, energy_counter_joules=None), 1.0, 1.0)
    assert recorder.settled
    assert recorder.identities()[0].provider == "amd"


def test_a_simulated_gpu_is_none_of_the_hosts_wherever_it_is() -> None:
    recorder = Recorder(["nvidia", "simulated"])
    recorder.enumerated("nvidia", (A,), 0.0)
    recorder.enumerated("simulated", (gpu("made up", 1),), 0.0)
    assert sorted(recorder.indices()) == ["a", "made up"]


def test_the_second_of_two_gpus_with_one_identity_is_left_out() -> None:
    twin = gpu("a", 5)
    stage = Stage(A, twin)
    stage.observe(read(A, 1001.0, 1.0))
    stage.observe(read(twin, 1002.0, 2.0))
    assert [point.power_watts for point in stage.recorder.points] == [1.0]


def test_labels_are_those_of_the_daemon() -> None:
    devices = [gpu(f"k{number}", number) for number in (7, 3, 5)]
    stage = Stage(*devices)
    for device in devices:
        stage.observe(read(device, 1001.0))
    assert [(gpu.label, gpu.gpu) for gpu in stage.recorder.identities()] == [
        ("nvidia0", "k3"),
        ("nvidia1", "k5"),
        ("nvidia2", "k7"),
    ]
    recorder = Recorder(["simulated"])
    recorder.enumerated("simulated", (A,), 0.0)
    assert recorder.identities()[0].label == "sim0"


def test_an_identity_says_what_its_sensors_are() -> None:
    stage = Stage(A)
    stage.observe(read(A, 1001.0, power_limit_watts=600.0, power_limit_default_watts=700.0))
    (identity,) = stage.recorder.identities()
    assert identity.limit_watts == 700.0
    assert (identity.power_kind, identity.power_window_seconds) == ("average", 1.0)
    assert (identity.provider, identity.library_version, identity.pci_address) == ("nvidia", "13", "0000:01:00.0")


def test_only_what_is_chosen_is_kept_and_handed_on() -> None:
    stage = Stage(A, B)
    stage.observe(read(A, 1001.0))
    stage.observe(read(B, 1001.0))
    stage.recorder.begin(["b"], stage.sink)
    stage.observe(read(A, 1002.0))
    stage.observe(read(B, 1002.0))
    assert [(point.gpu, point.monotonic) for point in stage.rows] == [("b", 1001.0), ("b", 1002.0)]
    assert stage.recorder.points == stage.rows
    assert [gpu.gpu for gpu in stage.recorder.identities()] == ["b"]
    assert stage.recorder.counters(5.0, 6.0).joules == {"b": 100_200.0}


def test_a_worker_that_ends_is_an_event_where_readings_end_and_where_they_go_on() -> None:
    stage = Stage(A, B)
    stage.recorder.begin(["a", "b"], stage.sink)
    stage.observe(read(A, 1001.0))
    stage.observe(read(B, 1001.5))
    stage.recorder.provider_status("nvidia", up=False, reason="ended by SIGKILL", library_version=None)
    stage.recorder.provider_status("nvidia", up=False, reason="still", library_version=None)
    stage.recorder.provider_status("nvidia", up=True, reason="", library_version="13")
    stage.observe(read(A, 1003.0))
    assert [(event.monotonic, event.gpu, event.text) for event in stage.recorder.events] == [
        (1001.5, None, "nvidia is not read: ended by SIGKILL"),
        (1003.0, "a", "it is read again"),
    ]
    assert stage.states("a") == [
        (1001.0, GpuState.OK),
        (1001.0, GpuState.STALE),
        (1003.0, GpuState.STALE),
        (1003.0, GpuState.OK),
    ]
    assert stage.states("b") == [(1001.5, GpuState.OK), (1001.5, GpuState.STALE)]
    assert stage.rows == stage.recorder.points


def test_readings_in_memory_are_bounded_and_the_verdict_is_told_where_they_end() -> None:
    stage = Stage(A, B, most=10)
    stage.recorder.begin("ab", stage.sink)
    for t in range(10):
        stage.observe(read(A, 1001.0 + t))
        stage.observe(read(B, 1001.1 + t))
    assert len(stage.recorder.points) == 10
    assert len(stage.rows) == 20, "samples.csv has them all"
    (event,) = stage.recorder.events
    assert (event.monotonic, event.gpu) == (1006.0, None)
    assert event.text == "readings are not judged any more: 10 are the most, choose a slower --interval"


def test_a_call_that_does_not_return_is_an_event_of_its_gpu() -> None:
    stage = Stage(A, B)
    stage.observe(read(A, 1001.0))
    stage.recorder.device_state("nvidia", "a", GpuState.HUNG)
    stage.recorder.device_state("nvidia", "b", GpuState.HUNG)
    stage.recorder.device_state("nvidia", "unknown", GpuState.HUNG)
    assert [(event.monotonic, event.gpu) for event in stage.recorder.events] == [(1001.0, "a")]
    assert stage.states("a")[-1] == (1001.0, GpuState.HUNG)


def test_what_befalls_a_gpu_that_is_not_measured_is_no_event() -> None:
    stage = Stage(A, B)
    stage.observe(read(A, 1001.0))
    stage.observe(read(B, 1001.0))
    stage.recorder.begin(["b"], stage.sink)
    stage.recorder.device_state("nvidia", "a", GpuState.HUNG)
    stage.observe(read(A, 1002.0))
    assert stage.recorder.events == []
    stage.recorder.provider_status("nvidia", up=False, reason="gone", library_version=None)
    assert len(stage.recorder.events) == 1
    assert stage.states("b")[-1] == (1001.0, GpuState.STALE)
    assert stage.states("a") == []


def test_a_lost_gpu_has_rows_in_the_order_of_time() -> None:
    stage = Stage(A, B)
    stage.observe(read(A, 1001.0))
    stage.observe(read(B, 1001.1), late=0.2)
    stage.observe(Sample(device=A, lost=True))
    stage.observe(read(A, 1001.2))
    stage.observe(Sample(device=A, asleep=True))
    assert stage.states("a") == [
        (1001.0, GpuState.OK),
        (1001.1, GpuState.LOST),
        (1001.2, GpuState.OK),
        (1001.2, GpuState.ASLEEP),
    ]
    offsets = {round(point.at - point.monotonic, 6) for point in stage.recorder.points}
    assert offsets == {1e6}, "the clocks did not move against each other"


def test_it_reaches_a_moment_when_each_gpu_with_power_speaks_of_it() -> None:
    stage = Stage(A, B)
    stage.observe(read(A, 1003.0))
    stage.observe(read(B, 1002.0))
    assert not stage.recorder.reaches(1002.0), "a mean over a second stands in the middle of it"
    stage.observe(read(B, 1002.5))
    assert stage.recorder.reaches(1002.0)
    stage.observe(Sample(device=B, lost=True))
    assert stage.recorder.reaches(1002.5), "nothing more is to be had of a lost one"


def test_a_die_whose_power_is_in_that_of_another_one_is_covered() -> None:
    even, odd, other = gpu("even", 1, package="p"), gpu("odd", 2, package="p"), gpu("other", 3)
    stage = Stage(even, odd, other)
    stage.observe(read(even, 1001.0))
    stage.observe(read(odd, 1001.0, None))
    stage.observe(read(other, 1001.0, None))
    assert stage.recorder.covered() == ("nvidia1",)


GPUS = (
    Identity(gpu="GPU-AA", label="nvidia0", pci_address="0000:01:00.0"),
    Identity(gpu="GPU-BB", label="nvidia1", vendor_uuid="uuid-b"),
    Identity(gpu="ff00", label="amd0"),
)
INDICES = {"GPU-AA": 0, "GPU-BB": 1, "ff00": 0}


@pytest.mark.parametrize(
    ("wanted", "keys"),
    [
        ([], ["GPU-AA", "GPU-BB", "ff00"]),
        (["nvidia1"], ["GPU-BB"]),
        (["amd0", "nvidia0", "GPU-AA"], ["ff00", "GPU-AA"]),
        (["gpu-bb"], ["GPU-BB"]),
        (["uuid-b", "0000:01:00.0"], ["GPU-BB", "GPU-AA"]),
        (["1"], ["GPU-BB"]),
    ],
)
def test_gpus_are_named_in_any_way_that_names_one(wanted: list[str], keys: list[str]) -> None:
    assert choose(wanted, GPUS, INDICES) == tuple(keys)


@pytest.mark.parametrize(("wanted", "said"), [("nvidia7", "is no GPU"), ("0", "is 2 GPUs"), ("None", "is no GPU")])
def test_a_name_that_means_none_or_several_is_refused(wanted: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        choose([wanted], GPUS, INDICES)
    assert "there are nvidia0, nvidia1, amd0" in str(caught.value)


def test_labels_are_sorted_by_their_numbers() -> None:
    labels = ["nvidia10", "nvidia9", "amd0", "x", "nvidia1"]
    assert sorted(labels, key=natural) == ["amd0", "nvidia1", "nvidia9", "nvidia10", "x"]
