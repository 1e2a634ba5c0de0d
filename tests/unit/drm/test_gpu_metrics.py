"""Every version of the table is decoded field by field, in base units, or refused for a stated reason."""

import ctypes
import struct
from typing import Any

import pytest

from exporter.metrics import DOMAINS, ENGINES, REASONS, SENSORS
from exporter.model import LinkSample, Sample
from exporter.providers.drm.gpu_metrics import Metrics, RefusedError, decode
from exporter.providers.drm.gpu_metrics.layouts import LAYOUTS
from tests.unit.drm.tables import (
    NONE,
    POWER,
    STRUCTURES,
    TEMPERATURE,
    U16,
    U32,
    U64,
    attribute,
    described,
    table,
    table_1_9,
)

DECODED = [version for version in STRUCTURES if version != (2, 0)]
TICKS = 65536


def refusal(raw: bytes) -> str:
    with pytest.raises(RefusedError) as refused:
        decode(raw)
    return str(refused.value)


def test_layouts_are_those_of_the_c_structures() -> None:
    names = {"energy": "energy_accumulator", "clock": "system_clock_counter", "gfx_activity": "average_gfx_activity"}
    assert set(LAYOUTS) == set(DECODED)
    for version, layout in LAYOUTS.items():
        kind = STRUCTURES[version]
        assert layout.size == ctypes.sizeof(kind)
        for ours, theirs in names.items():
            if ours in layout.fields:
                assert layout.fields[ours].offset == getattr(kind, theirs).offset, (version, ours)


@pytest.mark.parametrize(
    ("version", "size", "power", "energy", "clock", "gfx"),
    [  # as published for each version
        ((1, 0), 80, 34, 36, 8, 28),
        ((1, 1), 96, 22, 24, 32, 16),
        ((1, 2), 104, 22, 24, 32, 16),
        ((1, 3), 120, 22, 24, 32, 16),
        ((1, 4), 288, 10, 24, 32, 12),
        ((1, 5), 360, 10, 88, 96, 12),
        ((1, 6), 1664, 10, 16, 24, 12),
        ((1, 7), 2208, 10, 24, 32, 12),
        ((1, 8), 3872, 10, 24, 32, 12),
        ((2, 1), 120, 40, None, 32, 28),
        ((2, 2), 128, 40, None, 32, 28),
        ((2, 3), 152, 40, None, 32, 28),
        ((2, 4), 168, 40, None, 32, 28),
        ((3, 0), 264, 112, None, 104, 42),
    ],
)
def test_offsets_are_those_that_are_published(
    version: tuple[int, int], size: int, power: int, energy: int | None, clock: int, gfx: int
) -> None:
    layout = LAYOUTS[version]
    offset = {name: field.offset for name, field in layout.fields.items()}
    found = next(offset[name] for name in ("average_power", "current_power", "socket_power") if name in offset)
    assert (layout.size, found, offset.get("energy"), offset["clock"], offset["gfx_activity"]) == (
        *(size, power, energy, clock),
        gfx,
    )


def test_rx_9070() -> None:
    """Of a public report: an accumulator that stands at 0, no temperature of HBM, no activity counter."""
    metrics = decode(
        table(
            *(1, 3),
            temperature_edge=37,
            temperature_hotspot=40,
            temperature_mem=56,
            average_gfx_activity=3,
            average_umc_activity=4,
            average_socket_power=20,
            energy_accumulator=0,
            system_clock_counter=115756787021127,
            indep_throttle_status=0,
            current_fan_speed=0,
            pcie_link_width=16,
            pcie_link_speed=160,
            average_gfxclk_frequency=7,
            current_uclk=1258,
        )
    )
    assert metrics == Metrics(
        table="v1_3",
        power_watts=20.0,
        power_kind="average",
        energy_counter_at=115756.787021127,
        utilization_ratio=0.03,
        memory_controller_utilization_ratio=0.04,
        temperature_celsius={"edge": 37.0, "hotspot": 40.0, "memory": 56.0},
        clock_hertz={"graphics": 7e6, "memory": 1.258e9},
        fan_rpm=0.0,
        throttled=dict.fromkeys(
            (
                *("sw_power_cap", "board_limit", "hw_thermal", "memory_thermal", "voltage_regulator_thermal"),
                "processor_hot",
            ),
            False,
        ),
        pcie_link_generation=4.0,
        pcie_link_width=16.0,
    )


def test_idle_radeon() -> None:
    """Of a public report: 20 W, load 0 % and 1 % of the memory's controller, lists of engines without a value."""
    metrics = decode(table(1, 3, average_gfx_activity=0, average_umc_activity=1, average_socket_power=20))
    assert metrics == Metrics(
        table="v1_3",
        power_watts=20.0,
        power_kind="average",
        utilization_ratio=0.0,
        memory_controller_utilization_ratio=0.01,
    )


def test_v1_0_has_a_narrow_accumulator_and_link_fields_of_eight_bits() -> None:
    metrics = decode(
        table(
            *(1, 0),
            energy_accumulator=65535 * TICKS,
            system_clock_counter=7_500_000_000,
            average_socket_power=143,
            average_mm_activity=12,
            current_fan_speed=1450,
            pcie_link_width=8,
            pcie_link_speed=80,
            temperature_edge=65,
        )
    )
    assert (metrics.energy_counter_joules, metrics.energy_counter_range_joules) == (65535.0, 65536.0)
    assert metrics.energy_counter_at == 7.5
    assert (metrics.power_watts, metrics.power_kind, metrics.power_scope) == (143.0, "average", "gpu")
    assert metrics.engine_utilization_ratio == {"media": 0.12}
    assert (metrics.fan_rpm, metrics.pcie_link_width, metrics.pcie_link_generation) == (1450.0, 8.0, 3.0)
    empty = decode(table(1, 0, average_socket_power=143))
    assert (empty.pcie_link_width, empty.pcie_link_generation, empty.energy_counter_joules) == (None, None, None)
    assert empty.energy_counter_range_joules is None


@pytest.mark.parametrize("version", [(1, 1), (1, 2), (1, 3)])
def test_mi200_has_four_stacks_of_memory(version: tuple[int, int]) -> None:
    metrics = decode(
        table(
            *version,
            average_socket_power=94,
            energy_accumulator=20909145 * TICKS,
            system_clock_counter=1,
            temperature_hbm=[41, 0xFFFF, 43, 250],
            current_gfxclk=800,
            average_gfxclk_frequency=1700,
            current_fan_speed=0xFFFF,
        )
    )
    assert (metrics.energy_counter_joules, metrics.energy_counter_range_joules) == (20909145.0, None)
    assert metrics.temperature_celsius == {"hbm0": 41.0, "hbm2": 43.0}
    assert metrics.rejected == ("temperature_celsius",)
    assert metrics.clock_hertz == {"graphics": 8e8}
    assert metrics.fan_rpm is None


MI300 = {
    "temperature_hotspot": 48,
    "temperature_mem": 42,
    "curr_socket_power": 717,
    "average_gfx_activity": 100,
    "average_umc_activity": 37,
    "energy_accumulator": 123456789 * TICKS,
    "system_clock_counter": 3_600_000_000_000,
    "pcie_link_width": 16,
    "pcie_link_speed": 320,
    "pcie_replay_count_acc": 5,
    "current_gfxclk": [2100, 2000, 2100, 2000, 2100, 2000, 2100, 2000],
    "current_socclk": [1000],
    "current_uclk": 1300,
    "xgmi_read_data_acc": [0, 10, 20, 30, 40, 50, 60, 70],
    "xgmi_write_data_acc": [0, 1, 2, 3, 4, 5, 6, 7],
}


@pytest.mark.parametrize("content", [4, 5, 6, 7, 8])
def test_mi300(content: int) -> None:
    metrics = decode(table(1, content, **MI300))
    assert (metrics.power_watts, metrics.power_kind, metrics.power_scope) == (717.0, "instant", "gpu")
    assert (metrics.energy_counter_joules, metrics.energy_counter_at) == (123456789.0, 3600.0)
    assert (metrics.utilization_ratio, metrics.memory_controller_utilization_ratio) == (1.0, 0.37)
    assert metrics.temperature_celsius == {"hotspot": 48.0, "memory": 42.0}
    assert metrics.clock_hertz == {"graphics": 2.05e9, "soc": 1e9, "memory": 1.3e9}
    assert (metrics.pcie_link_generation, metrics.pcie_link_width, metrics.pcie_replays) == (5.0, 16.0, 5.0)
    assert metrics.links is not None
    moved = {link.link: (link.receive_bytes, link.transmit_bytes) for link in metrics.links}
    assert moved == {str(n): (n * 10 * 1024.0, n * 1024.0) for n in range(1, 8)}
    assert {link.kind for link in metrics.links} == {"xgmi"}
    assert metrics.rejected == ()


@pytest.mark.parametrize("content", [4, 5])
def test_media_engines_before_partitions(content: int) -> None:
    jpeg = {"jpeg_activity": [8, 0]} if content == 5 else {}
    metrics = decode(table(1, content, curr_socket_power=140, vcn_activity=[10, 30], **jpeg))
    assert metrics.engine_utilization_ratio == ({"media": 0.2, "jpeg": 0.04} if jpeg else {"media": 0.2})


@pytest.mark.parametrize("content", [7, 8])
def test_states_of_xgmi_links(content: int) -> None:
    states = [2, 1, 1, 0, 1, 1, 1, 0xFFFF]
    ones = (1 << 64) - 1
    metrics = decode(
        table(
            *(1, content),
            curr_socket_power=140,
            xgmi_link_status=states,
            xgmi_read_data_acc=[0, 1, 2, 0, 4, 5, 6, ones],
            xgmi_write_data_acc=[0, 0, 0, 0, 0, 0, 0, ones],
        )
    )
    assert metrics.links is not None
    assert {link.link: link.up for link in metrics.links} == {
        "1": True,
        "2": True,
        "3": False,
        "4": True,
        "5": True,
        "6": True,
    }
    assert metrics.links[2] == LinkSample(kind="xgmi", link="3", up=False, receive_bytes=0.0, transmit_bytes=0.0)
    alone = decode(table(1, content, curr_socket_power=140, xgmi_link_status=[2] * 8, xgmi_read_data_acc=[0] * 8))
    assert alone.links is None


@pytest.mark.parametrize("content", [6, 7, 8])
def test_partitions_have_the_mean_of_their_dies(content: int) -> None:
    na = 0xFFFFFFFF
    metrics = decode(
        table(
            *(1, content),
            curr_socket_power=140,
            num_partition=2,
            xcp_stats=[
                {"gfx_busy_inst": [100, 50, 0, 50, na], "vcn_busy": [40], "jpeg_busy": [20]},
                {"gfx_busy_inst": [0, 0, 0, 1], "vcn_busy": [0], "jpeg_busy": [0]},
                {"gfx_busy_inst": [99]},  # what the firmware left from another mode
            ],
        )
    )
    assert metrics.partition_count == 2
    assert metrics.partition_utilization_ratio == {"0": 0.5, "1": 0.0025}
    assert metrics.engine_utilization_ratio == {"media": 0.2, "jpeg": 0.1}
    assert metrics.rejected == ()
    wrong = decode(table(1, content, curr_socket_power=140, num_partition=77))
    assert (wrong.partition_count, wrong.partition_utilization_ratio) == (None, {})


@pytest.mark.parametrize("content", [6, 7, 8])
def test_residencies(content: int) -> None:
    residencies = {
        "prochot_residency_acc": 1,
        "ppt_residency_acc": 2,
        "socket_thm_residency_acc": 3,
        "vr_thm_residency_acc": 4,
        "hbm_thm_residency_acc": 5,
    }
    metrics = decode(table(1, content, accumulation_counter=1000, **residencies))
    assert metrics.accumulations == 1000
    assert metrics.residencies == {
        "processor_hot": 1,
        "sw_power_cap": 2,
        "hw_thermal": 3,
        "voltage_regulator_thermal": 4,
        "memory_thermal": 5,
    }


@pytest.mark.parametrize(
    ("bit", "reason"),
    [
        *((bit, "sw_power_cap") for bit in range(8)),
        *((bit, "board_limit") for bit in range(16, 24)),
        *((bit, "hw_thermal") for bit in (32, 33, 35, 36, 37, 42, 43)),
        (34, "memory_thermal"),
        *((bit, "voltage_regulator_thermal") for bit in (38, 39, 40, 41, 44, 45)),
        *((bit, "processor_hot") for bit in (46, 47)),
        *((bit, None) for bit in (8, 56, 57, 63)),
    ],
)
@pytest.mark.parametrize("version", [(1, 3), (2, 2), (2, 3), (2, 4)])
def test_throttle_status(version: tuple[int, int], bit: int, reason: str | None) -> None:
    throttled = decode(table(*version, indep_throttle_status=1 << bit)).throttled
    assert [name for name, held in throttled.items() if held] == ([] if reason is None else [reason])
    assert set(throttled) <= set(REASONS)


@pytest.mark.parametrize("version", [(2, 1), (2, 2), (2, 3)])
@pytest.mark.parametrize(
    ("raw", "watts", "rejected"),
    [
        (15234, 15.234, ()),  # Vangogh, Yellow Carp, Phoenix; Renoir with older firmware
        (1000, 1.0, ()),
        (12, 12.0, ()),  # Renoir and Cezanne with newer firmware
        (299, 299.0, ()),
        (300, None, ("power_watts",)),
        (999, None, ("power_watts",)),
        (0, None, ()),
        (0xFFFF, None, ()),
    ],
)
def test_the_unit_of_a_socket_s_power(
    version: tuple[int, int], raw: int, watts: float | None, rejected: tuple[str, ...]
) -> None:
    metrics = decode(table(*version, average_socket_power=raw, temperature_gfx=4150))
    assert (metrics.power_watts, metrics.rejected) == (watts, rejected)
    assert (metrics.power_kind, metrics.power_scope) == (None, "package")
    assert metrics.temperature_celsius == {"edge": 41.5}
    assert metrics.energy_counter_joules is None


@pytest.mark.parametrize("content", [1, 2, 3, 4])
def test_apu(content: int) -> None:
    metrics = decode(
        table(
            *(2, content),
            average_gfx_activity=4250,
            average_mm_activity=500,
            system_clock_counter=2_000_000_000,
            average_socket_power=4500,
            current_gfxclk=0xFFFF,
            average_gfxclk_frequency=1600,
            current_uclk=2400,
            current_fclk=1800,
            current_socclk=1000,
            current_vclk=400,
        )
    )
    assert metrics.utilization_ratio == 0.425
    assert metrics.engine_utilization_ratio == ({"media": 0.05} if content == 4 else {})
    assert metrics.energy_counter_at == 2.0
    assert metrics.clock_hertz == {"graphics": 1.6e9, "memory": 2.4e9, "soc": 1e9, "fabric": 1.8e9, "video": 4e8}


@pytest.mark.parametrize(("raw", "watts"), [(300, 0.3), (12, 0.012), (0, None), (0xFFFF, None)])
def test_v2_4_is_in_milliwatts(raw: int, watts: float | None) -> None:
    assert decode(table(2, 4, average_socket_power=raw, temperature_gfx=4000)).power_watts == watts


def test_strix() -> None:
    metrics = decode(
        table(
            *(3, 0),
            temperature_gfx=5512,
            average_gfx_activity=9700,
            average_socket_power=71_500,
            system_clock_counter=1_000_000_000,
            average_gfxclk_frequency=2800,
            average_uclk_frequency=1000,
            throttle_residency_prochot=0,
            throttle_residency_spl=3,
            throttle_residency_fppt=4,
            throttle_residency_sppt=5,
            throttle_residency_thm_core=6,
            throttle_residency_thm_gfx=7,
            throttle_residency_thm_soc=8,
        )
    )
    assert metrics == Metrics(
        table="v3_0",
        power_watts=71.5,
        power_kind="average",
        power_scope="package",
        energy_counter_at=1.0,
        temperature_celsius={"edge": 55.12},
        clock_hertz={"graphics": 2.8e9, "memory": 1e9},
        residencies={"processor_hot": 0, "sw_power_cap": 12, "hw_thermal": 21},
    )
    assert decode(table(3, 0, average_socket_power=0, temperature_gfx=4000)).power_watts is None


@pytest.mark.parametrize(
    ("speed", "generation", "rejected"),
    [
        *((25, 1.0, ()), (50, 2.0, ()), (80, 3.0, ()), (160, 4.0, ()), (320, 5.0, ()), (640, 6.0, ())),
        *((4, 4.0, ()), (0, None, ()), (0xFFFF, None, ())),
        *((33, None, ("pcie_link_generation",)), (20000, None, ("pcie_link_generation",))),
    ],
)
def test_generation_of_the_link(speed: int, generation: float | None, rejected: tuple[str, ...]) -> None:
    metrics = decode(table(1, 4, pcie_link_speed=speed, curr_socket_power=1))
    assert (metrics.pcie_link_generation, metrics.rejected) == (generation, rejected)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"temperature_hotspot": 201}, "temperature_celsius"),
        ({"average_gfx_activity": 101}, "utilization_ratio"),
        ({"average_umc_activity": 5000}, "memory_controller_utilization_ratio"),
        ({"curr_socket_power": 5001}, "power_watts"),
        ({"current_uclk": 30000}, "clock_hertz"),
        ({"pcie_link_width": 65}, "pcie_link_width"),
        ({"energy_accumulator": (1 << 64) - 2}, "energy_counter_joules"),
        ({"system_clock_counter": (1 << 64) - 2}, "energy_counter_at"),
        ({"pcie_replay_count_acc": (1 << 64) - 2}, "pcie_replays"),
        ({"vcn_activity": [101]}, "engine_utilization_ratio"),
    ],
)
def test_what_cannot_be_is_counted_and_left_out(values: dict[str, Any], field: str) -> None:
    metrics = decode(table(1, 4, **values))
    assert metrics.rejected == (field,)
    assert not getattr(metrics, field)


def test_255_and_values_of_another_width_are_readings() -> None:
    metrics = decode(table(1, 4, curr_socket_power=255, energy_accumulator=0xFFFFFFFF, system_clock_counter=0xFFFF))
    assert metrics.power_watts == 255.0
    assert metrics.energy_counter_joules == 0xFFFFFFFF / TICKS
    assert metrics.energy_counter_at == 65535e-9


def test_words_are_those_of_sample() -> None:
    own = {
        *("table", "fan_rpm", "residencies", "accumulations", "partition_count", "partition_utilization_ratio"),
    }
    assert set(Metrics.__struct_fields__) - own <= set(Sample.__struct_fields__)
    metrics = [decode(table(*version, **values)) for version, values in ((v, _everything(v)) for v in DECODED)]
    for each in metrics:
        assert set(each.temperature_celsius) <= set(SENSORS)
        assert set(each.clock_hertz) <= set(DOMAINS)
        assert set(each.engine_utilization_ratio) <= set(ENGINES)
        assert set(each.residencies) <= set(REASONS)
        assert each.temperature_celsius
        assert each.clock_hertz


def _everything(version: tuple[int, int]) -> dict[str, Any]:
    plain = {name for name, kind in STRUCTURES[version]._fields_ if not issubclass(kind, ctypes.Array)}
    return dict.fromkeys(plain - {"structure_size", "format_revision", "content_revision"}, 50)


@pytest.mark.parametrize("version", DECODED)
def test_size_is_strict(version: tuple[int, int]) -> None:
    raw = table(*version, system_clock_counter=5)
    name = f"v{version[0]}_{version[1]}"
    assert decode(raw + b"more").table == name
    assert f"{name} is cut short" in refusal(raw[:-1])
    for size in (len(raw) - 8, len(raw) + 8):
        assert f"{name} says {size} bytes" in refusal(struct.pack("<H", size) + raw[2:] + bytes(8))


@pytest.mark.parametrize("version", DECODED)
@pytest.mark.parametrize("filling", [b"\xff", b"\0"])
def test_nothing_written(version: tuple[int, int], filling: bytes) -> None:
    raw = table(*version)
    assert "is empty" in refusal(raw[:4] + filling * (len(raw) - 4))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "cut short: 0 bytes"),
        (b"\x78\x00\x01", "cut short: 3 bytes"),
        (b"\xff" * 4096, "unknown version 255.255"),
        (bytes(4096), "unknown version 0.0"),
        (table(2, 0, system_clock_counter=1), "unknown version 2.0"),
        (struct.pack("<HBB", 120, 1, 10) + bytes(116), "unknown version 1.10"),
        (struct.pack("<HBB", 264, 3, 1) + bytes(260), "unknown version 3.1"),
        (b"not supported\n", "unknown version"),
    ],
)
def test_what_is_no_table(raw: bytes, reason: str) -> None:
    assert reason in refusal(raw)


def test_a_table_that_describes_itself() -> None:
    values = MI300 | {"vcn_busy": [10, 30], "jpeg_busy": [4, 0], "accumulation_counter": 1000, "ppt_residency_acc": 2}
    metrics = decode(table_1_9(temperature_vrsoc=40, mem_max_bandwidth=5300, firmware_timestamp=5, **values))
    assert metrics.table == "v1_9"
    assert (metrics.power_watts, metrics.power_kind, metrics.power_scope) == (717.0, "instant", "gpu")
    assert (metrics.energy_counter_joules, metrics.energy_counter_at) == (123456789.0, 3600.0)
    assert (metrics.energy_counter_range_joules, metrics.rejected) == (None, ())
    assert (metrics.utilization_ratio, metrics.memory_controller_utilization_ratio) == (1.0, 0.37)
    assert metrics.temperature_celsius == {"hotspot": 48.0, "memory": 42.0}
    assert metrics.clock_hertz == {"graphics": 2.05e9, "soc": 1e9, "memory": 1.3e9}
    assert (metrics.pcie_link_generation, metrics.pcie_link_width, metrics.pcie_replays) == (5.0, 16.0, 5.0)
    assert metrics.engine_utilization_ratio == {"media": 0.2, "jpeg": 0.02}
    assert (metrics.accumulations, metrics.residencies) == (1000, {"sw_power_cap": 2})
    assert metrics.links is not None
    assert [link.link for link in metrics.links] == ["1", "2", "3", "4", "5", "6", "7"]


def test_what_describes_itself_may_change_its_width() -> None:
    raw = described(
        attribute(9, NONE, U64, 1 << 40),
        attribute(11, NONE, U64, 1 << 33),
        attribute(3, POWER, U32, 900),
        attribute(48, TEMPERATURE, U16, *range(41, 53)),
    )
    metrics = decode(raw)
    assert (metrics.accumulations, metrics.residencies) == (1 << 40, {"sw_power_cap": 1 << 33})
    assert metrics.power_watts == 900.0
    assert metrics.temperature_celsius == {f"hbm{stack}": 41.0 + stack for stack in range(8)}


def test_ones_of_the_width_that_is_told_are_no_value() -> None:
    metrics = decode(table_1_9(curr_socket_power=0xFFFF, energy_accumulator=(1 << 64) - 1, system_clock_counter=9))
    assert metrics == Metrics(table="v1_9", energy_counter_at=9e-9)


@pytest.mark.parametrize(
    "strange",
    [
        attribute(3, NONE, U16, 717),  # not in watts
        attribute(900, POWER, U16, 717),
        attribute(3, POWER, ctypes.c_int16, -1),
        attribute(3, POWER, U16),
    ],
)
def test_what_is_not_understood_is_passed_over(strange: bytes) -> None:
    metrics = decode(described(strange, attribute(0, TEMPERATURE, U16, 48)))
    assert metrics == Metrics(table="v1_9", temperature_celsius={"hotspot": 48.0})


ONE = attribute(3, POWER, U16, 717)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (described(ONE)[:6], "cut short: 6 bytes"),
        (described(ONE)[:-1], "cut short: 17 of 18 bytes"),
        (described(ONE, count=2), "fewer attributes than the 2"),
        (described(ONE, count=0), "says 18 bytes, and has 8"),
        (described(ONE, count=-5), "says 18 bytes, and has 8"),
        (described(ONE, count=1 << 30), "fewer attributes"),
        (described(ONE, size=20) + bytes(2), "says 20 bytes, and has 18"),
        (described(ONE, size=4), "cut short"),
        (described(bytes(U64(8 << 20 | 1))), "unknown type 8"),
        (described(), "is empty"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(raw: bytes, reason: str) -> None:
    assert reason in refusal(raw)
