"""What becomes of each kind of answer: absent, failed, lost, or the whole provider down."""

from typing import Any

import pynvml
import pytest

from exporter.model import Group, Sample
from exporter.providers.nvidia import open_library
from exporter.providers.protocol import OpenContext, ProviderError
from tests.unit.nvidia.fake import FakeNvml, Status, Without, all_groups, every_call, gpu, only, opened, read

POWER = "nvmlDeviceGetPowerUsage"


def power_answer(answer: Any) -> Sample:
    return read(FakeNvml(gpu(nvmlDeviceGetPowerUsage=answer)), Group.ENERGY)


@pytest.mark.parametrize("code", [0, 2, 3, 4, 13, 21, 25, 26])
def test_refusal_is_absent_and_silent(code: int) -> None:
    sample = power_answer(Status(code))
    assert (sample.power_watts, sample.failed, sample.lost) == (None, (), False)


@pytest.mark.parametrize("code", [6, 7, 10, 16, 17, 19, 20, 23, 27, 29, 12345])
def test_unexpected_status_fails_the_reading_by_name(code: int) -> None:
    sample = power_answer(Status(code))
    assert (sample.power_watts, sample.failed, sample.lost) == (None, ("power_watts",), False)


@pytest.mark.parametrize("code", [1, 9, 12, 18])
def test_status_of_the_whole_library_ends_the_pass_with_a_reason(code: int) -> None:
    with pytest.raises(ProviderError, match=r"NVIDIA|libnvidia-ml"):
        power_answer(Status(code))


def test_refusal_is_asked_again_at_the_next_read() -> None:
    card = gpu(nvmlDeviceGetPowerUsage=Status(3))
    provider = opened(FakeNvml(card))
    device = only(provider)
    assert provider.read(device, frozenset({Group.ENERGY})).power_watts is None
    card.answers[POWER] = 250_000
    assert provider.read(device, frozenset({Group.ENERGY})).power_watts == 250.0


def test_function_that_an_older_binding_lacks_is_absent() -> None:
    library = Without(FakeNvml(gpu(nvmlDeviceGetPowerUsage=250_000)), "nvmlDeviceGetFieldValues")
    sample = read(library, Group.ENERGY)
    assert (sample.power_watts, sample.failed) == (250.0, ())


def test_mismatch_of_binding_and_driver_leaves_processes_unknown() -> None:
    mismatch = pynvml.NVMLLibraryMismatchError("v3 is missing")
    lists = ("Compute", "Graphics", "MPSCompute")
    sample = read(
        FakeNvml(gpu(**{f"nvmlDeviceGet{kind}RunningProcesses": mismatch for kind in lists})), Group.PROCESSES
    )
    assert (sample.processes, sample.failed) == (None, ())


def test_bytes_that_are_not_utf8_survive_in_a_name() -> None:
    garbage = UnicodeDecodeError("utf-8", b"NVIDIA \xff100", 7, 8, "invalid start byte")
    assert only(opened(FakeNvml(gpu(nvmlDeviceGetName=garbage)))).model == "NVIDIA \ufffd100"


def test_gpu_that_is_lost_keeps_its_identity_and_the_others_go_on() -> None:
    first, second = gpu(1, nvmlDeviceGetSerial="17"), gpu(2, nvmlDeviceGetPowerUsage=70_000)
    provider = opened(FakeNvml(first, second))
    before, other = provider.devices()
    first.answers = {name: Status(15) for name in (*first.answers, *every_call(15))}
    lost = provider.read(before, all_groups())
    assert lost == Sample(device=before, lost=True)
    assert before.serial == "17"
    assert provider.read(other, frozenset({Group.ENERGY})).power_watts == 70.0


@pytest.mark.parametrize("code", [15, 999])
def test_gpu_whose_handle_is_refused_stays_in_the_list_and_reads_lost(code: int) -> None:
    first, second = gpu(1), gpu(2)
    provider = opened(FakeNvml(first, second))
    before = provider.devices()
    for function in ("ByIndex", "ByUUID", "ByPciBusId"):
        first.answers[f"nvmlDeviceGetHandle{function}"] = Status(code)
    assert sorted(d.key for d in provider.devices()) == sorted(d.key for d in before)
    assert provider.read(before[0], all_groups()).lost
    assert not provider.read(before[1], all_groups()).lost


def test_gpu_that_vanished_from_the_bus_reads_lost() -> None:
    first, second = gpu(1), gpu(2)
    library = FakeNvml(first, second)
    provider = opened(library)
    before = provider.devices()
    library.gpus.remove(first)
    assert {d.key for d in provider.devices()} == {d.key for d in before}
    assert provider.read(before[0], all_groups()) == Sample(device=before[0], lost=True)


def test_lost_gpu_comes_back() -> None:
    card = gpu(nvmlDeviceGetPowerUsage=Status(15))
    provider = opened(FakeNvml(card))
    device = only(provider)
    assert provider.read(device, frozenset({Group.ENERGY})).lost
    card.answers[POWER] = 80_000
    sample = provider.read(device, frozenset({Group.ENERGY}))
    assert (sample.lost, sample.power_watts) == (False, 80.0)


def test_one_reading_with_unknown_error_fails_alone() -> None:
    card = gpu(nvmlDeviceGetPowerUsage=Status(999), nvmlDeviceGetTotalEnergyConsumption=5_000)
    sample = read(FakeNvml(card), Group.ENERGY)
    assert (sample.lost, sample.failed, sample.energy_counter_joules) == (False, ("power_watts",), 5.0)


def test_unknown_error_means_lost_when_the_handle_is_gone_too() -> None:
    card = gpu(nvmlDeviceGetPowerUsage=70_000, nvmlDeviceGetTotalEnergyConsumption=5_000)
    provider = opened(FakeNvml(card))
    device = only(provider)
    card.answers |= {POWER: Status(999)}
    card.answers |= {f"nvmlDeviceGetHandleBy{way}": Status(999) for way in ("UUID", "PciBusId")}
    assert provider.read(device, frozenset({Group.ENERGY})).lost


def test_unknown_error_from_every_call_means_lost() -> None:
    card = gpu()
    provider = opened(FakeNvml(card))
    device = only(provider)
    card.answers |= every_call(999)
    assert provider.read(device, frozenset({Group.ENERGY})) == Sample(device=device, lost=True)


def test_lookup_by_uuid_that_fails_because_of_another_gpu_does_not_lose_this_one() -> None:
    card = gpu(nvmlDeviceGetPowerUsage=70_000)
    device = only(opened(FakeNvml(card)))
    card.answers["nvmlDeviceGetHandleByUUID"] = Status(15)
    sample = opened(FakeNvml(card)).read(device, frozenset({Group.ENERGY}))
    assert (sample.lost, sample.power_watts) == (False, 70.0)


def test_null_handle_is_never_passed_on() -> None:
    null = pynvml.c_nvmlDevice_t()
    first = gpu(1, nvmlDeviceGetHandleByIndex=null, nvmlDeviceGetHandleByUUID=null, nvmlDeviceGetHandleByPciBusId=null)
    provider = opened(FakeNvml(first, gpu(2)))
    (device,) = provider.devices()
    assert device.index == 1


def test_everything_refused_is_a_device_with_identity_and_nothing_failed() -> None:
    # Jetson Orin: NVML starts, one device is counted, and every reading is refused.
    card = gpu(nvmlDeviceGetName="Orin (nvgpu)", **every_call(3))
    provider = opened(FakeNvml(card))
    device = only(provider)
    sample = provider.read(device, all_groups())
    assert device.model == "Orin (nvgpu)"
    assert (sample.lost, sample.failed, sample.rejected) == (False, (), ())
    taken = sample.taken_at
    assert set(taken) == all_groups()
    assert sample == Sample(device=device, taken_at=taken, read_seconds=dict.fromkeys(taken, 0.0))


@pytest.mark.parametrize(
    "function", sorted({*every_call(3)} - {"nvmlDeviceGetHandleByIndex", "nvmlDeviceGetArchitecture"})
)
@pytest.mark.parametrize("code", [3, 13, 17])
def test_any_single_function_may_be_refused_or_break(function: str, code: int) -> None:
    provider = opened(FakeNvml(gpu(**{function: Status(code)})))
    sample = provider.read(only(provider), all_groups())
    assert not sample.lost
    assert len(sample.failed) <= (2 if code == 17 else 0)  # two readings share some functions


def test_init_that_fails_is_a_reason_and_needs_no_shutdown() -> None:
    for code, words in ((9, "kernel module is not loaded"), (18, "differ in version"), (12, "libnvidia-ml.so.1")):
        library = FakeNvml(system={"nvmlInitWithFlags": Status(code)})
        with pytest.raises(ProviderError, match=words):
            opened(library)
        assert library.calls == ["nvmlInitWithFlags"]


@pytest.mark.parametrize(("code", "words"), [(999, "container"), (15, "lost"), (4, "status 4"), (17, "status 17")])
def test_other_init_failure_is_a_reason(code: int, words: str) -> None:
    with pytest.raises(ProviderError, match=words):
        opened(FakeNvml(system={"nvmlInitWithFlags": Status(code)}))


def test_module_of_another_package_is_a_reason() -> None:
    with pytest.raises(ProviderError, match="nvidia-ml-py"):
        open_library(object(), OpenContext(between_calls=lambda: None))


def test_failure_right_after_init_is_followed_by_shutdown() -> None:
    library = FakeNvml(system={"nvmlSystemGetNVMLVersion": Status(18)})
    with pytest.raises(ProviderError, match="differ in version"):
        opened(library)
    assert library.started == 0


def test_close_shuts_down_once_and_never_raises() -> None:
    library = FakeNvml(gpu(), system={"nvmlShutdown": None})
    provider = opened(library)
    assert library.started == 1
    provider.close()
    provider.close()
    assert library.started == 0
    library = FakeNvml(gpu(), system={"nvmlShutdown": Status(1)})
    opened(library).close()
    assert library.calls[-1] == "nvmlShutdown"


def test_closed_provider_refuses_to_read() -> None:
    provider = opened(FakeNvml(gpu()))
    device = only(provider)
    provider.close()
    with pytest.raises(ProviderError, match="closed"):
        provider.read(device, all_groups())


def test_no_gpu_is_no_error() -> None:
    assert opened(FakeNvml()).devices() == ()


def test_gpus_of_which_none_was_ever_reached_are_a_reason() -> None:
    cards = [gpu(n, nvmlDeviceGetHandleByIndex=Status(999)) for n in (1, 2)]
    with pytest.raises(ProviderError, match="2 GPUs are counted and none answers"):
        opened(FakeNvml(*cards)).devices()


def test_handle_that_is_refused_permission_hides_one_gpu_only() -> None:
    provider = opened(FakeNvml(gpu(1, nvmlDeviceGetHandleByIndex=Status(4)), gpu(2)))
    assert [d.index for d in provider.devices()] == [1]


def test_absurd_count_of_gpus_ends() -> None:
    library = FakeNvml(gpu(), system={"nvmlDeviceGetCount": 0xFFFFFFFF})
    assert len(opened(library).devices()) == 1


def test_urgent_requests_are_served_before_each_call() -> None:
    library = FakeNvml(gpu())
    served: list[int] = []
    provider = open_library(
        library, OpenContext(between_calls=lambda: served.append(len(library.calls))), clock=lambda: 0.0
    ).provider
    device = only(provider)
    provider.read(device, all_groups())
    assert set(range(len(library.calls))) <= set(served)


def test_energy_may_be_read_in_the_middle_of_any_other_call() -> None:
    library = FakeNvml(gpu(nvmlDeviceGetPowerUsage=70_000, nvmlDeviceGetTemperatureV=40), gpu(2))
    samples: list[Sample] = []
    busy: list[bool] = []

    def urgent() -> None:
        if provider is not None and not busy:
            busy.append(True)
            samples.extend(provider.read(d, frozenset({Group.ENERGY})) for d in known)
            busy.clear()

    provider, known = None, ()
    provider = open_library(library, OpenContext(between_calls=urgent), clock=lambda: 0.0).provider
    known = provider.devices()
    sample = provider.read(known[0], all_groups())
    provider.devices()
    assert sample.temperature_celsius == {"gpu": 40.0}
    assert len(samples) > 50
    assert {s.power_watts for s in samples} == {70.0, None}
    assert not any(s.lost or s.failed for s in samples)


@pytest.mark.parametrize(
    "error", [MemoryError(), OverflowError("too large"), ValueError(), IndexError("invalid index")]
)
def test_an_answer_that_pynvml_cannot_take_apart_fails_the_reading_by_name(error: Exception) -> None:
    sample = power_answer(error)
    assert (sample.power_watts, sample.failed, sample.lost) == (None, ("power_watts",), False)


def test_a_reason_says_what_an_operator_can_act_upon() -> None:
    with pytest.raises(ProviderError, match="no permission"):
        open_library(FakeNvml(system={"nvmlInitWithFlags": Status(4)}), OpenContext(between_calls=lambda: None))
