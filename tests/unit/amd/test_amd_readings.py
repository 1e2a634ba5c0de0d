from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.providers.protocol import ProviderError
from tests.unit.amd.vendor import ALL, FakeAmdsmi, error, gpu, provider, read

MIB = 2**20


@pytest.mark.parametrize(
    ("info", "watts", "kind"),
    [
        ({"current_socket_power": 717, "average_socket_power": "N/A"}, 717, "instant"),
        ({"current_socket_power": "N/A", "average_socket_power": 94}, 94, "average"),
        ({"current_socket_power": 65535, "average_socket_power": 94}, 94, "average"),
        ({"current_socket_power": 4294967295, "average_socket_power": 94}, 94, "average"),
        ({"socket_power": 141, "current_socket_power": 141, "average_socket_power": "N/A"}, 141, "instant"),
        ({"socket_power": 141, "current_socket_power": "N/A", "average_socket_power": "N/A"}, 141, None),
        ({"socket_power": 2**64 - 1, "current_socket_power": 65535, "average_socket_power": 65535}, None, None),
        ({"socket_power": 255, "current_socket_power": 255, "average_socket_power": "N/A"}, 255, "instant"),
        ({"current_socket_power": 0, "average_socket_power": 38}, 38, "average"),
        ({"current_socket_power": 0, "average_socket_power": "N/A"}, None, None),
        ({"socket_power": 0, "current_socket_power": 0, "average_socket_power": 0}, None, None),
        (
            {"socket_power": 300, "current_socket_power": 300, "average_socket_power": "N/A", "ubb_power": 3000},
            300,
            "instant",
        ),
        ({}, None, None),
    ],
)
def test_power_is_taken_from_the_key_that_this_family_fills(
    info: dict[str, Any], watts: float | None, kind: str | None
) -> None:
    sample = read(gpu(power_info=info))
    assert (sample.power_watts, sample.power_kind, sample.power_window_seconds) == (watts, kind, None)
    assert sample.failed == sample.rejected == ()


@given(st.integers(1, 5000))
def test_limits_are_the_same_in_watts_and_in_microwatts(watts: int) -> None:
    def limits(unit: int) -> tuple[float | None, float | None]:
        caps = {"power_cap": watts * unit, "default_power_cap": 750 * unit}
        sample = read(gpu(power_info={"power_limit": watts * unit}, power_cap_info=caps))
        return sample.power_limit_watts, sample.power_limit_default_watts

    assert limits(1) == limits(1_000_000) == (pytest.approx(watts), pytest.approx(750))


def test_a_limit_of_zero_was_not_read() -> None:
    caps = {"power_cap": 0, "default_power_cap": 0}
    sample = read(gpu(power_info={"power_limit": 0, "average_socket_power": 20}, power_cap_info=caps))
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (None, None)


def test_the_limit_in_force_is_asked_for_where_the_power_call_has_none() -> None:
    caps = {"power_cap": 1000000000, "default_power_cap": 1000000000}
    assert read(gpu(power_info={"power_limit": "N/A"}, power_cap_info=caps)).power_limit_watts == 1000


@pytest.mark.parametrize("info", [error(2), {"current_socket_power": "N/A", "average_socket_power": "N/A"}])
def test_up_to_rocm_6_3_power_is_looked_for_in_the_metrics_too(info: Any) -> None:
    metrics = {"current_socket_power": 141, "average_socket_power": "N/A"}
    assert read(gpu(power_info=info, gpu_metrics_info=metrics), version=(25, 1, 0)).power_watts == 141
    assert read(gpu(power_info=info, gpu_metrics_info=metrics), version=(25, 3, 0)).power_watts is None


@given(st.integers(1, 2**62))
@pytest.mark.parametrize("key", ["power", "energy_accumulator"])
def test_a_tick_is_a_65536th_of_a_joule(key: str, ticks: int) -> None:
    count = {key: ticks, "counter_resolution": 15.300000190734863, "timestamp": 3824190842400799}
    sample = read(gpu(energy_count=count))
    assert sample.energy_counter_joules == pytest.approx(ticks / 65536)
    assert sample.energy_counter_at == pytest.approx(3824190.842400799)
    assert sample.energy_counter_range_joules is None


def test_an_accumulator_that_is_all_ones_is_absent() -> None:
    sample = read(gpu(energy_count={"energy_accumulator": 2**64 - 1, "timestamp": 5}))
    assert (sample.energy_counter_joules, sample.energy_counter_at, sample.rejected) == (None, None, ())


def test_an_accumulator_at_zero_does_not_count() -> None:
    sample = read(gpu(energy_count={"energy_accumulator": 0, "timestamp": 115756787021127}))
    assert (sample.energy_counter_joules, sample.energy_counter_at, sample.rejected) == (None, None, ())


@pytest.mark.parametrize("code", [2, 3, 5, 40, 31])
def test_what_is_not_supported_is_absent_and_silent(code: int) -> None:
    sample = read(gpu(gpu_activity=error(code), power_info={"average_socket_power": 20}))
    assert (sample.utilization_ratio, sample.power_watts, sample.failed, sample.lost) == (None, 20, (), False)


@pytest.mark.parametrize("code", [1, 7, 8, 9, 10, 12, 14, 15, 16, 30, 43, 0xFFFFFFFF])
def test_any_other_error_is_a_failed_reading_of_that_name(code: int) -> None:
    sample = read(gpu(gpu_activity=error(code), power_info={"average_socket_power": 20}))
    assert (sample.utilization_ratio, sample.power_watts, sample.failed, sample.lost) == (
        None,
        20,
        ("utilization_ratio",),
        False,
    )


@pytest.mark.parametrize(
    "raised", [ValueError("invalid literal"), KeyError("x"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")]
)
def test_what_the_package_itself_trips_over_is_a_failed_reading(raised: Exception) -> None:
    assert read(gpu(gpu_activity=raised)).failed == ("utilization_ratio",)


@pytest.mark.parametrize("raised", [error(18), error(32), error(34), OSError("libamd_smi.so.27: cannot open")])
def test_a_library_or_driver_that_is_gone_ends_the_pass(raised: Exception) -> None:
    handle = gpu()
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    handle.answers["amdsmi_get_power_info"] = raised
    with pytest.raises(ProviderError, match="AMD SMI"):
        opened.read(device, ALL)


@pytest.mark.parametrize(
    ("activity", "ratio", "rejected"),
    [
        ({"gfx_activity": 90, "umc_activity": 41, "mm_activity": "N/A"}, 0.9, ()),
        ({"gfx_activity": 0, "umc_activity": 41, "mm_activity": 65535}, 0.0, ()),
        ({"gfx_activity": 65535, "umc_activity": 41, "mm_activity": 65535}, None, ()),
        ({"gfx_activity": 101, "umc_activity": 41, "mm_activity": 0}, None, ("utilization_ratio",)),
        ({"gfx_activity": 1141796410, "umc_activity": 41, "mm_activity": 0}, None, ("utilization_ratio",)),
    ],
)
def test_activity_is_a_percentage_or_nothing(
    activity: dict[str, Any], ratio: float | None, rejected: tuple[str, ...]
) -> None:
    sample = read(gpu(gpu_activity=activity))
    assert (sample.utilization_ratio, sample.rejected) == (ratio, rejected)
    assert sample.memory_controller_utilization_ratio == pytest.approx(0.41)


def test_memory_is_in_bytes_by_kind() -> None:
    used, size = {"GTT": 25_258_000 * 1024, "VIS_VRAM": 7 * MIB}, {"GTT": 2**36, "VIS_VRAM": 256 * MIB}
    sample = read(
        gpu(
            gpu_vram_usage={"vram_total": 192, "vram_used": 48},
            gpu_memory_usage=used.get,
            gpu_memory_total=size.get,
        )
    )
    assert (sample.memory_size_bytes, sample.memory_used_bytes) == (192 * MIB, 48 * MIB)
    assert (sample.system_memory_size_bytes, sample.system_memory_used_bytes) == (2**36, 25_258_000 * 1024)
    assert (sample.memory_visible_size_bytes, sample.memory_visible_used_bytes) == (256 * MIB, 7 * MIB)


def test_without_permission_for_the_render_node_the_size_of_memory_is_still_known() -> None:
    sample = read(
        gpu(gpu_vram_usage=error(14), gpu_memory_total=lambda kind: {"VRAM": 2**37, "GTT": 2**36}.get(kind, 0))
    )
    assert (sample.memory_size_bytes, sample.memory_used_bytes, sample.failed) == (2**37, None, ("memory_used_bytes",))


@pytest.mark.parametrize(
    ("clock", "hertz"), [({"clk": 132}, 132e6), ({"cur_clk": 132}, 132e6), ({"clk": "N/A"}, None), ({"cur_clk": 0}, 0)]
)
def test_clocks_have_their_key_and_are_in_hertz(clock: dict[str, Any], hertz: float | None) -> None:
    assert read(gpu(clock_info=clock)).clock_hertz.get("graphics") == hertz


@pytest.mark.parametrize(
    ("raw", "generation"), [(32000, 5), (64000, 6), (2500, 1), (5, 5), (320, 5), (0, None), ("N/A", None)]
)
def test_the_generation_of_the_link_follows_from_its_speed(raw: Any, generation: int | None) -> None:
    info = {
        "pcie_static": {"max_pcie_width": 16},
        "pcie_metric": {"pcie_width": 8, "pcie_speed": raw, "pcie_replay_count": 65535},
    }
    sample = read(gpu(pcie_info=info))
    assert (sample.pcie_link_generation, sample.pcie_link_width, sample.pcie_link_width_max) == (generation, 8, 16)
    assert sample.pcie_replays == 65535


def test_a_link_of_no_known_generation_is_rejected() -> None:
    assert read(gpu(pcie_info={"pcie_metric": {"pcie_speed": 12345}, "pcie_static": {}})).rejected == (
        "pcie_link_generation",
    )


def test_a_fan_at_full_speed_reads_255() -> None:
    assert read(gpu(gpu_fan_speed=255)).fan_speed_ratio == 1


def test_a_process_list_of_the_newest_release_is_understood() -> None:
    def row(pid: int, vram: Any, **more: Any) -> dict[str, Any]:
        memory = {"gtt_mem": 2 * MIB, "cpu_mem": 0, "vram_mem": vram}
        return {
            "name": "/usr/bin/python3.12",
            "pid": pid,
            "mem": 1,
            "memory_usage": memory,
            "evicted_time": 0,
            "sdma_usage": 9,
            **more,
        }

    rows = [
        row(10, 5 * MIB),
        row(11, 0),
        row(12, 0, cu_occupancy=40),
        row(13, "N/A"),
        row(777, 9),
        row(778, 9),
        row(-5, 9),
    ]
    sample = read(gpu(gpu_process_list=rows))
    assert sample.processes is not None
    assert [(p.pid, p.name, p.memory_used_bytes) for p in sample.processes] == [
        (10, "python3.12", 5 * MIB),
        (12, "python3.12", 0),
    ]
    counts = {"holding": 2, "unnamed": 0, "bystander": 1, "uninspectable": 2, "self": 2}
    assert sample.process_counts == counts


def test_where_memory_is_unified_a_process_holds_what_it_has_of_the_host() -> None:
    asic = {"asic_serial": "0x1", "market_name": "AMD Instinct MI300A"}
    rows = [{"name": "a", "pid": 10, "memory_usage": {"vram_mem": 0, "gtt_mem": 7}}]
    sample = read(gpu(gpu_asic_info=asic, gpu_process_list=rows))
    assert sample.processes is not None
    assert sample.processes[0].memory_used_bytes == 7
    assert (sample.device.memory_kind, sample.power_scope) == ("unified", "package")


def test_of_a_process_list_of_handles_one_that_ended_is_left_out() -> None:
    def info(handle: str) -> dict[str, Any]:
        if handle == "ended":
            raise error(31)
        return {"name": "", "pid": 5, "memory_usage": {"vram_mem": 1}}

    sample = read(gpu(gpu_process_list=["ended", "alive"], gpu_process_info=info), older=True)
    assert sample.processes is not None
    assert [(p.pid, p.name) for p in sample.processes] == [(5, "pid 5")]
    counts = {"holding": 0, "unnamed": 1, "bystander": 0, "uninspectable": 0, "self": 0}
    assert sample.process_counts == counts


def test_throttling_is_not_told_from_one_read() -> None:
    metrics = {"prochot_residency_acc": 5, "ppt_residency_acc": 9, "hbm_thm_residency_acc": "N/A"}
    handle = gpu(gpu_metrics_info=metrics)
    opened = provider(FakeAmdsmi(handle))
    (device,) = opened.devices()
    assert opened.read(device, ALL).throttled == {}
    handle.answers["amdsmi_get_gpu_metrics_info"] = {**metrics, "ppt_residency_acc": 10}
    assert opened.read(device, ALL).throttled == {"processor_hot": False, "sw_power_cap": True}
