"""Power with its kind, limits, and the accumulator with its scope."""

from typing import Any

import pytest

from exporter.model import Group, Sample
from tests.unit.nvidia.fake import FakeGpu, FakeNvml, Status, gpu, only, opened, read

UINT = 1
GPU, MODULE, MEMORY = 0, 1, 2
ENERGY = frozenset({Group.ENERGY})


def card(fields: dict[tuple[int, int], Any] | None = None, **answers: Any) -> FakeGpu:
    made = gpu(**answers)
    made.fields = fields or {}
    return made


def sample_of(fields: dict[tuple[int, int], Any] | None = None, **answers: Any) -> Sample:
    return read(FakeNvml(card(fields, **answers)), Group.ENERGY)


def reading(sample: Sample) -> tuple[float | None, str | None, float | None]:
    return sample.power_watts, sample.power_kind, sample.power_window_seconds


def test_average_over_a_second_is_preferred() -> None:
    fields = {(185, GPU): (UINT, 500_123), (186, GPU): (UINT, 610_000)}
    assert reading(sample_of(fields, nvmlDeviceGetPowerUsage=499_000)) == (500.123, "average", 1.0)


def test_instant_is_taken_where_there_is_no_average() -> None:
    # A100 and T4 refuse field 185.
    assert reading(sample_of({(186, GPU): (UINT, 61_500)})) == (61.5, "instant", 0.0)


@pytest.mark.parametrize(
    ("architecture", "capability", "kind", "window"),
    [
        (4, (6, 0), "instant", 0.0),
        (6, (7, 5), "instant", 0.0),
        (7, (8, 0), "instant", 0.0),  # GA100
        (7, (8, 6), "average", 1.0),
        (7, Status(3), None, None),
        (8, (8, 9), "average", 1.0),
        (9, (9, 0), "average", 1.0),
        (0xFFFFFFFF, (9, 0), None, None),
        (Status(13), (9, 0), None, None),
    ],
)
def test_plain_power_means_what_the_architecture_makes_of_it(
    architecture: Any, capability: Any, kind: str | None, window: float | None
) -> None:
    sample = sample_of(
        nvmlDeviceGetPowerUsage=70_000,
        nvmlDeviceGetArchitecture=architecture,
        nvmlDeviceGetCudaComputeCapability=capability,
    )
    assert reading(sample) == (70.0, kind, window)


def test_average_that_breaks_once_does_not_change_the_kind_of_the_reading() -> None:
    sample = sample_of({(185, GPU): Status(10), (186, GPU): (UINT, 610_000)}, nvmlDeviceGetPowerUsage=500_000)
    assert (reading(sample), sample.failed) == ((500.0, "average", 1.0), ("power_watts",))


def test_average_out_of_range_is_rejected_and_not_replaced() -> None:
    sample = sample_of({(185, GPU): (UINT, 999_999_999), (186, GPU): (UINT, 610_000)})
    assert (reading(sample), sample.rejected) == ((None, None, None), ("power_watts",))


def test_values_that_look_like_sentinels_of_other_widths_are_readings() -> None:
    sample = sample_of({(185, GPU): (UINT, 65_535)}, nvmlDeviceGetTotalEnergyConsumption=0xFFFFFFFF)
    assert (sample.power_watts, sample.energy_counter_joules) == (65.535, 4294967.295)


def test_zero_watts_is_a_reading_and_no_watts_are_absent() -> None:
    assert sample_of({(185, GPU): (UINT, 0)}).power_watts == 0.0
    assert reading(sample_of()) == (None, None, None)


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4, 5, 6])
def test_field_is_read_by_its_own_type(kind: int) -> None:
    value: float = 60_000.0 if kind == 0 else 60_000
    assert sample_of({(185, GPU): (kind, value)}).power_watts == 60.0


def test_field_of_a_type_that_is_not_known_is_absent() -> None:
    assert sample_of({(185, GPU): (7, 60_000)}).power_watts is None


def test_status_of_each_field_counts_for_itself() -> None:
    fields = {(185, GPU): (UINT, 60_000), (185, MODULE): Status(3), (185, MEMORY): Status(17)}
    sample = sample_of(fields)
    assert (sample.power_watts, sample.module_power_watts, sample.memory_power_watts) == (60.0, None, None)
    assert sample.failed == ("memory_power_watts",)


def test_field_that_says_lost_loses_the_gpu() -> None:
    assert sample_of({(185, GPU): Status(15), (186, GPU): (UINT, 60_000)}).lost


def test_module_and_memory_power() -> None:
    # GB200 at idle.
    fields = {(185, GPU): (UINT, 165_900), (185, MODULE): (UINT, 467_200), (185, MEMORY): (UINT, 30_300)}
    sample = sample_of(fields, nvmlDeviceGetArchitecture=10, nvmlDeviceGetTotalEnergyConsumption=8_000)
    assert (sample.power_watts, sample.module_power_watts, sample.memory_power_watts) == (165.9, 467.2, 30.3)
    assert (sample.power_scope, sample.energy_counter_joules, sample.energy_counter_scope) == ("gpu", 8.0, "gpu")
    assert sample.module_energy_counter_joules is None


def test_module_that_tells_only_its_instant_power() -> None:
    assert sample_of({(186, MODULE): (UINT, 467_200), (185, GPU): (UINT, 1)}).module_power_watts == 467.2


def test_memory_power_of_zero_is_a_board_without_the_sensor() -> None:
    assert sample_of({(185, MEMORY): (UINT, 0), (185, GPU): (UINT, 1_000)}).memory_power_watts is None


def test_accumulator_of_a_module_beside_that_of_the_gpu() -> None:
    fields = {(185, MODULE): (UINT, 467_200), (191, MODULE): (3, 22_000)}
    sample = sample_of(fields, nvmlDeviceGetArchitecture=10, nvmlDeviceGetTotalEnergyConsumption=8_000)
    assert (sample.energy_counter_joules, sample.module_energy_counter_joules) == (8.0, 22.0)


def test_field_for_the_module_is_not_believed_where_no_module_answers() -> None:
    sample = sample_of({(191, MODULE): (3, 22_000), (185, GPU): (UINT, 1_000)})
    assert sample.module_energy_counter_joules is None


def test_accumulator_of_gh200_is_that_of_the_module() -> None:
    sample = sample_of(
        {(185, GPU): (UINT, 98_000)},
        nvmlDeviceGetName="NVIDIA GH200 480GB",
        nvmlDeviceGetTotalEnergyConsumption=3_000,
    )
    assert (sample.power_watts, sample.energy_counter_joules, sample.module_energy_counter_joules) == (98.0, None, 3.0)


def test_hopper_on_a_module_is_told_by_its_module_power_and_stays_told() -> None:
    fields = {(185, GPU): (UINT, 98_000), (185, MODULE): (UINT, 240_000)}
    superchip = card(fields, nvmlDeviceGetName="NVIDIA Graphics Device", nvmlDeviceGetTotalEnergyConsumption=3_000)
    provider = opened(FakeNvml(superchip))
    device = only(provider)
    for _ in range(2):
        sample = provider.read(device, ENERGY)
        assert (sample.energy_counter_joules, sample.module_energy_counter_joules) == (None, 3.0)
        del superchip.fields[185, MODULE]
        superchip.fields[185, MODULE] = Status(10)
        provider.devices()


def test_gh200_that_answers_for_the_module_only_has_no_power_of_the_gpu() -> None:
    sample = sample_of(
        {(185, MODULE): (UINT, 240_000)}, nvmlDeviceGetName="NVIDIA GH200 480GB", nvmlDeviceGetPowerUsage=240_000
    )
    assert (sample.power_watts, sample.module_power_watts) == (None, 240.0)


@pytest.mark.parametrize("code", [3, 13, 17])
def test_plain_power_of_gh200_is_not_taken_for_that_of_the_gpu(code: int) -> None:
    sample = sample_of(
        nvmlDeviceGetName="NVIDIA GH200 480GB",
        nvmlDeviceGetFieldValues=Status(code),
        nvmlDeviceGetPowerUsage=240_000,
    )
    assert reading(sample) == (None, None, None)


def test_limits() -> None:
    sample = sample_of(nvmlDeviceGetEnforcedPowerLimit=550_000, nvmlDeviceGetPowerManagementDefaultLimit=700_000)
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (550.0, 700.0)


def test_limits_are_read_again_with_the_state_and_when_the_power_is_above() -> None:
    made = card({(185, GPU): (UINT, 400_000)}, nvmlDeviceGetEnforcedPowerLimit=450_000)
    library = FakeNvml(made)
    provider = opened(library)
    device = only(provider)

    def limit(*more: Group) -> float | None:
        return provider.read(device, ENERGY | set(more)).power_limit_watts

    assert limit() == 450.0
    made.answers["nvmlDeviceGetEnforcedPowerLimit"] = 700_000
    assert limit() == 450.0
    made.fields[185, GPU] = (UINT, 460_000)
    assert limit() == 700.0
    made.answers["nvmlDeviceGetEnforcedPowerLimit"] = 500_000
    assert (limit(), limit(Group.STATE), limit()) == (700.0, 500.0, 500.0)
    made.answers["nvmlDeviceGetEnforcedPowerLimit"] = Status(17)
    assert limit(Group.STATE) is None
    made.answers["nvmlDeviceGetEnforcedPowerLimit"] = 600_000
    assert limit() == 600.0  # what broke is asked for at the next read


def test_one_call_gives_power_and_accumulator_once_it_is_known_what_answers() -> None:
    fields = {(185, GPU): (UINT, 500_000), (186, GPU): (UINT, 510_000), (185, MEMORY): (UINT, 60_000)}
    made = card({**fields, (83, 0): (3, 7_000)}, nvmlDeviceGetTotalEnergyConsumption=7_040)
    library = FakeNvml(made)
    provider = opened(library)
    device = only(provider)
    asked: list[list[tuple[int, int]]] = []
    answer = library.nvmlDeviceGetFieldValues
    library.nvmlDeviceGetFieldValues = lambda handle, ids: (asked.append(ids), answer(handle, ids))[1]  # type: ignore[method-assign] # the boundary itself is looked at
    assert provider.read(device, ENERGY).energy_counter_joules == 7.04
    library.calls.clear()
    made.fields[83, 0] = (3, 9_500)
    sample = provider.read(device, ENERGY)
    assert library.calls == ["nvmlDeviceGetFieldValues"]
    assert asked[-1] == [(185, GPU), (185, MEMORY), (83, 0)]
    assert (sample.power_watts, sample.memory_power_watts, sample.energy_counter_joules) == (500.0, 60.0, 9.5)
    provider.read(device, ENERGY | {Group.STATE})
    assert "nvmlDeviceGetTotalEnergyConsumption" in library.calls  # looked at anew


def test_field_of_the_accumulator_is_not_believed_where_it_is_another_number_than_the_call() -> None:
    made = card({(186, GPU): (UINT, 60_000), (83, 0): (3, 7)}, nvmlDeviceGetTotalEnergyConsumption=7_000_000)
    provider = opened(FakeNvml(made))
    device = only(provider)
    assert [provider.read(device, ENERGY).energy_counter_joules for _ in range(3)] == [7_000.0] * 3


def test_what_falls_silent_is_looked_at_anew_in_the_same_read() -> None:
    made = card({(185, GPU): (UINT, 500_000), (186, GPU): (UINT, 510_000)}, nvmlDeviceGetTotalEnergyConsumption=7_000)
    made.fields[83, 0] = (3, 7_000)
    provider = opened(FakeNvml(made))
    device = only(provider)
    provider.read(device, ENERGY)
    made.fields = {(186, GPU): (UINT, 520_000)}
    sample = provider.read(device, ENERGY)
    assert (reading(sample), sample.energy_counter_joules) == ((520.0, "instant", 0.0), 7.0)
    assert sample.failed == ()


def test_gpu_without_fields_is_not_asked_for_them_at_each_read() -> None:
    library = FakeNvml(gpu(nvmlDeviceGetPowerUsage=70_000))
    provider = opened(library)
    device = only(provider)
    provider.read(device, ENERGY)
    library.calls.clear()
    assert provider.read(device, ENERGY).power_watts == 70.0
    assert library.calls == ["nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage"]


def test_all_ones_of_the_accumulator_are_absent() -> None:
    sample = sample_of(nvmlDeviceGetTotalEnergyConsumption=2**64 - 1)
    assert (sample.energy_counter_joules, sample.rejected) == (None, ())


def test_time_is_the_middle_of_power_and_accumulator_without_the_limits() -> None:
    ticks = iter([100.0, 100.004, 100.01])
    provider = opened(FakeNvml(gpu(nvmlDeviceGetPowerUsage=1_000)), clock=lambda: next(ticks))
    sample = provider.read(only(provider), ENERGY)
    assert sample.taken_at == {Group.ENERGY: pytest.approx(100.002)}
    assert sample.read_seconds == {Group.ENERGY: pytest.approx(0.01)}


def test_only_the_groups_asked_for_are_read() -> None:
    library = FakeNvml(gpu())
    provider = opened(library)
    device = only(provider)
    library.calls.clear()
    assert provider.read(device, frozenset()) == Sample(device=device)
    assert library.calls == []
    provider.read(device, ENERGY)
    assert "nvmlDeviceGetUtilizationRates" not in library.calls
    assert not any(call.endswith("RunningProcesses") for call in library.calls)
