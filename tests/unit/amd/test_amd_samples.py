"""What the provider makes of values that owners of AMD GPUs have published.

They are given as AMD SMI gives them: what a tool printed, in the form that the tool had it from the library.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from exporter.model import Device, Sample
from tests.unit.amd.vendor import ADDRESS, ALL, FakeAmdsmi, error, gpu, provider

MIB = 2**20
GIB = 2**30
NA = "N/A"
RESOLUTION = 15.300000190734863
ZEROS = "00000000-0000-0000-0000-000000000000"

PUBLISHED = {
    1: "ROCm/pytorch#1457, pytorch/pytorch#127729",
    2: "AMDResearch/hpcfund#21",
    3: "ROCm/amdsmi#38",
    4: "ROCm/amdsmi#38",
    5: "ROCm/amdsmi#115",
    6: "ROCm/rocm_smi_lib#160",
    7: "ml-energy/zeus#203",
    8: "wandb/wandb#5449",
    9: "ROCm/legacy-rocm-build#4750",
    10: "ROCm/legacy-rocm-build#4750",
    11: "ROCm/legacy-rocm-build#4759",
    12: "ROCm/amdsmi#134",
    13: "ROCm/legacy-rocm-build#5231",
    14: "InferenceX#874, InferenceX#828",
    15: "ROCm/amdsmi#174",
    16: "InferenceX#2494",
    17: "ROCm/rocm-systems#2987",
    18: "ROCm/rocm-systems#3654",
    19: "ROCm/legacy-rocm-build#5480",
    20: "ROCm/device-metrics-exporter#135",
    21: "ROCm/device-metrics-exporter#233",
    22: "ollama/ollama#9633",
    23: "joular/powerjoular#67",
    24: "henrygd/beszel#737",
    25: "ollama/ollama#3144",
    26: "ROCm/amdsmi#110",
    27: "ROCm/legacy-rocm-build#6035",
    28: "ROCm/device-metrics-exporter#353",
    29: "gpustack/gpustack#3509",
    30: "Syllo/nvtop#492",
    31: "corecoding/Vitals#515, Hal0ai/hal0#891",
}
"""Issues by number of the sample."""
ELSEWHERE = {20, 22, 23, 25, 30, 31}
"""Of sysfs, of the table of metrics, of files of processes: in the tests of those."""
NO_VALUES = {16}
"""It tells how an accumulator was used, and no figure."""


class Told(NamedTuple):
    """One public sample: the answers of each handle, and what each device must say; of fields not named, nothing."""

    number: int
    """Of PUBLISHED."""
    what: str
    handles: Sequence[Mapping[str, Any]]
    says: Sequence[Mapping[str, Any]]
    """By field of Sample; those of Device begin with `device.`."""
    version: tuple[int, ...] = (26, 0, 2)


def at(place: int, function: int = 0, **answers: Any) -> dict[str, Any]:
    """Answers of a card with an address and a number of its own."""
    return {
        "gpu_device_bdf": f"0000:{place:02x}:00.{function}",
        "gpu_asic_info": {"asic_serial": f"0xA{place:X}"},
        **answers,
    }


def power(current: Any, average: Any, **more: Any) -> dict[str, Any]:
    return {"current_socket_power": current, "average_socket_power": average, **more}


def energy(ticks: int, key: str = "energy_accumulator", timestamp: int = 3824190842400799) -> dict[str, Any]:
    return {key: ticks, "counter_resolution": RESOLUTION, "timestamp": timestamp}


def as_printed(joules: float) -> int:
    """Return the ticks of joules as the vendor's tool prints them."""
    return round(joules / (RESOLUTION * 1e-6))


def mi250(watts: Sequence[Any]) -> list[dict[str, Any]]:
    asics = [{"asic_serial": f"0xA3{die}", "device_id": "0x740c"} for die in range(len(watts))]
    return [
        at(0x10 + die, gpu_asic_info=asic, power_info=power(NA, shown))
        for die, (asic, shown) in enumerate(zip(asics, watts, strict=True))
    ]


def mi300x_cpx(**each: Any) -> list[dict[str, Any]]:
    asic = {"asic_serial": "0xB1D2C3A4E5F60718", "market_name": "AMD Instinct MI300X", "device_id": "0x74a1"}
    return [
        {
            "gpu_device_bdf": f"0000:05:00.{number}",
            "gpu_asic_info": asic if number == 0 or "gpu_asic_info" not in each else each["gpu_asic_info"],
            "gpu_kfd_info": {"kfd_id": 100 + number, "node_id": 2 + number, "current_partition_id": number},
            "gpu_compute_partition": "CPX",
            "gpu_memory_partition": "NPS1",
            **{name: answer for name, answer in each.items() if name != "gpu_asic_info"},
        }
        for number in range(8)
    ]


NOTHING = dict.fromkeys(
    (
        *("power_watts", "power_limit_watts", "energy_counter_joules", "utilization_ratio", "memory_size_bytes"),
        *("memory_used_bytes", "fan_speed_ratio", "pcie_link_width", "links"),
    )
) | {"temperature_celsius": {}, "clock_hertz": {}, "ecc_errors": {}, "processes": None, "error_event_kinds": ()}

TOLD = [
    Told(1, "MI200", [at(1, power_info=power(NA, 94))], [{"power_watts": 94, "power_kind": "average"}]),
    Told(
        1,
        "MI300, in two threads",
        [at(1, power_info=power(717, NA)), at(2, power_info=power(441, NA))],
        [{"power_watts": 717, "power_kind": "instant"}, {"power_watts": 441, "power_kind": "instant"}],
    ),
    Told(
        2,
        "MI100 of ROCm 6.0.2, of which the accumulator is called power",
        [at(1, energy_count=energy(8152136, "power"))],
        [{"energy_counter_joules": 8152136 / 65536, "energy_counter_at": 3824190.842400799}],
        (23, 4, 2),
    ),
    Told(
        3,
        "two MI210, in joules that are 0.27 % too many",
        [at(1, energy_count=energy(as_printed(20909145.914))), at(2, energy_count=energy(as_printed(21111595.33)))],
        [{"energy_counter_joules": 20909145.914 / 1.0027008}, {"energy_counter_joules": 21111595.33 / 1.0027008}],
    ),
    Told(
        3,
        "the same a second later, at 42.7 W",
        [at(1, energy_count=energy(as_printed(20909188.578)))],
        [{"energy_counter_joules": 20909145.914 / 1.0027008 + 42.549}],
    ),
    Told(4, "MI100", [at(1, energy_count=energy(65628))], [{"energy_counter_joules": 65628 / 65536}], (25, 1, 0)),
    Told(
        5,
        "a counter that other threads disturb: as it is read",
        [at(1, energy_count=energy(4_750_000_000))],
        [{"energy_counter_joules": 4_750_000_000 / 65536}],
        (25, 3, 0),
    ),
    Told(
        6,
        "MI250, the second die without a value",
        mi250([237, NA, 230, NA, 220, NA, 235, NA]),
        [{"power_watts": watts, "power_scope": "package"} for watts in (237, None, 230, None, 220, None, 235, None)],
    ),
    Told(
        7,
        "MI250X, the second die at zero",
        mi250([89, 0, 93, 0]),
        [{"power_watts": watts, "power_scope": "package"} for watts in (89, None, 93, None)],
    ),
    Told(
        8,
        "MI250X under a wrong name, and an activity that is none",
        [
            at(
                1,
                gpu_asic_info={
                    "asic_serial": "0xa32343daf897162a",
                    "market_name": "FirePro W4300",
                    "device_id": "0x7408",
                },
                power_info=power(NA, 144),
                power_cap_info={"power_cap": 560_000_000},
                gpu_activity={"gfx_activity": 100, "umc_activity": 1141796410, "mm_activity": NA},
            ),
            at(
                2,
                gpu_asic_info={
                    "asic_serial": "0xa32343daf897162b",
                    "market_name": "FirePro W4300",
                    "device_id": "0x7408",
                },
                power_info=power(NA, 128),
                gpu_activity={"gfx_activity": 1141796410, "umc_activity": 0, "mm_activity": NA},
            ),
        ],
        [
            {
                "device.key": "a32343daf897162a",
                "power_watts": 144,
                "power_limit_watts": 560,
                "power_scope": "package",
                "utilization_ratio": 1,
                "memory_controller_utilization_ratio": None,
                "rejected": ("memory_controller_utilization_ratio",),
            },
            {"power_watts": 128, "utilization_ratio": None, "rejected": ("utilization_ratio",)},
        ],
    ),
    Told(
        9,
        "MI300X in CPX, of which each partition repeats the whole card",
        mi300x_cpx(
            power_info=power(136, NA, power_limit=750_000_000),
            temp_metric=lambda sensor, _: 48 if sensor == "HOTSPOT" else NA,
            gpu_vram_usage={"vram_total": 196592, "vram_used": 283},
        ),
        [
            {
                "device.key": "b1d2c3a4e5f60718",
                "device.partition_mode": "CPX/NPS1",
                "power_watts": 136,
                "power_limit_watts": 750,
                "temperature_celsius": {"hotspot": 48},
                "memory_size_bytes": 196592 * MIB,
                "memory_used_bytes": 283 * MIB,
                "partitions.partition": tuple("01234567"),
                "partitions.memory_size_bytes": (None,) * 8,
            }
        ],
        (25, 1, 0),
    ),
    Told(
        10,
        "four MI300X in SPX",
        [
            at(
                place,
                power_info=power(watts, NA),
                power_cap_info={"power_cap": 750_000_000},
                temp_metric=lambda sensor, _, shown=celsius: shown if sensor == "HOTSPOT" else NA,
            )
            for place, (watts, celsius) in enumerate([(135, 48), (131, 42), (137, 46), (133, 41)])
        ],
        [
            {"power_watts": watts, "power_limit_watts": 750, "temperature_celsius": {"hotspot": celsius}}
            for watts, celsius in [(135, 48), (131, 42), (137, 46), (133, 41)]
        ],
    ),
    Told(
        11,
        "MI300X of ROCm 6.4.1, of which the other partitions have no device id",
        mi300x_cpx(gpu_asic_info={"asic_serial": NA, "device_id": NA, "market_name": NA}),
        [{"device.key": "b1d2c3a4e5f60718", "device.model": "AMD Instinct MI300X"}],
        (25, 4, 0),
    ),
    Told(
        12,
        "MI300X in DPX",
        [
            {
                "gpu_device_bdf": f"0000:05:00.{number}",
                "gpu_kfd_info": {"kfd_id": number, "node_id": number, "current_partition_id": number},
                "gpu_compute_partition": "DPX",
                "gpu_activity": {"gfx_activity": 0, "umc_activity": 0, "mm_activity": NA} if number == 0 else error(2),
                "gpu_metrics_info": {
                    "num_partition": 2,
                    "xcp_stats.gfx_busy_inst": [[12, 0, 0, 4, *[NA] * 4], [0, 0, 0, 0, *[NA] * 4], *[[NA] * 8] * 6],
                }
                if number == 0
                else error(2),
            }
            for number in range(2)
        ],
        [
            {
                "utilization_ratio": 0,
                "engine_utilization_ratio": {},
                "partitions.partition": ("0", "1"),
                "partitions.profile": ("DPX", "DPX"),
                "partitions.utilization_ratio": (0.04, 0),
            }
        ],
    ),
    Told(
        13,
        "MI300X at 95 % of its memory",
        [
            at(
                1,
                power_info=power(191, NA),
                power_cap_info={"power_cap": 750_000_000},
                gpu_vram_usage={"vram_total": 196592, "vram_used": 186762},
            )
        ],
        [{"power_watts": 191, "power_limit_watts": 750, "memory_used_bytes": 186762 * MIB}],
    ),
    Told(
        14,
        "MI325X, idle, under load, and above its neighbours",
        [at(place, power_info=power(watts, NA)) for place, watts in enumerate((140, 421, 437, 823))],
        [{"power_watts": watts, "rejected": ()} for watts in (140, 421, 437, 823)],
    ),
    Told(
        15,
        "MI325X with a limit in microwatts",
        [at(1, power_cap_info={"power_cap": 1_000_000_000, "default_power_cap": 1_000_000_000})],
        [{"power_limit_watts": 1000, "power_limit_default_watts": 1000}],
    ),
    Told(
        17,
        "MI350X",
        [
            at(
                1,
                gpu_asic_info={
                    "asic_serial": NA,
                    "device_id": "0x75a0",
                    "oam_id": 6,
                    "num_compute_units": 128,
                    "target_graphics_version": "gfx950",
                },
                gpu_board_info={"model_number": "102-G36212-0C", "product_serial": NA, "product_name": NA},
                gpu_driver_info={"driver_name": "amdgpu", "driver_version": "6.18.3"},
            )
        ],
        [
            {
                "device.key": "0000:01:00.0",
                "device.architecture": "gfx950",
                "device.driver_version": "6.18.3",
                "device.serial": None,
            }
        ],
    ),
    Told(
        18,
        "MI210",
        [
            {
                "gpu_device_bdf": "0000:23:00.0",
                "gpu_asic_info": {"asic_serial": "0x67E6B5BB3C3CE0DB"},
                "gpu_device_uuid": "67ff740f-0000-1000-80e6-b5bb3c3ce0db",
                "gpu_kfd_info": {"kfd_id": 63484, "node_id": 2, "current_partition_id": 0},
            }
        ],
        [
            {
                "device.key": "67e6b5bb3c3ce0db",
                "device.pci_address": "0000:23:00.0",
                "device.vendor_uuid": "67ff740f-0000-1000-80e6-b5bb3c3ce0db",
                "partitions": (),
            }
        ],
    ),
    Told(
        19,
        "two MI210 of ROCm 6.3.3, of which no UUID is told",
        [
            at(1, gpu_asic_info={"asic_serial": "0x67C63AC3C3C637F9"}, gpu_device_uuid=NA),
            at(2, gpu_asic_info={"asic_serial": "0x67E6B5BB3C3CE0DB"}, gpu_device_uuid=NA),
        ],
        [
            {"device.key": "67c63ac3c3c637f9", "device.vendor_uuid": None},
            {"device.key": "67e6b5bb3c3ce0db", "device.vendor_uuid": None},
        ],
        (25, 1, 0),
    ),
    Told(
        21,
        "a virtual MI300X",
        [
            {
                "gpu_device_bdf": ADDRESS,
                "gpu_asic_info": {"asic_serial": "0x0000000000000000", "market_name": ""},
                "gpu_device_uuid": ZEROS,
                "gpu_kfd_info": {"kfd_id": 1, "node_id": 4294967295, "current_partition_id": 4294967295},
                "gpu_vbios_info": {"version": "022.040.003.043.000001"},
                "gpu_board_info": {"model_number": "", "product_serial": "", "product_name": ""},
                "gpu_vram_usage": {"vram_total": 196592, "vram_used": 300},
                "power_info": error(2),
                "energy_count": error(2),
            }
        ],
        [
            {
                "device.key": ADDRESS,
                "device.model": None,
                "device.serial": None,
                "device.vendor_uuid": None,
                "device.firmware": {"vbios": "022.040.003.043.000001"},
                "power_watts": None,
                "energy_counter_joules": None,
                "memory_size_bytes": 196592 * MIB,
                "partitions": (),
            }
        ],
    ),
    Told(
        24,
        "Radeon Pro W7700",
        [
            at(
                1,
                gpu_activity={"gfx_activity": 42, "umc_activity": 1, "mm_activity": 0},
                gpu_metrics_info={"vcn_activity": [0, NA, NA, NA], "xgmi_read_data_acc": [NA] * 8},
            )
        ],
        [
            {
                "utilization_ratio": 0.42,
                "memory_controller_utilization_ratio": 0.01,
                "engine_utilization_ratio": {"media": 0},
                "links": None,
            }
        ],
        (25, 3, 0),
    ),
    Told(
        26,
        "Strix Halo 8050S, of a patched ROCm 6.4.1",
        [
            at(
                1,
                power_info=power(NA, 14),
                gpu_vram_usage={"vram_total": 8192, "vram_used": 3056},
                gpu_activity={"gfx_activity": NA, "umc_activity": NA, "mm_activity": NA},
            )
        ],
        [
            {
                "power_watts": 14,
                "memory_used_bytes": 3056 * MIB,
                "memory_size_bytes": 8 * GIB,
                "memory_controller_utilization_ratio": None,
            }
        ],
        (25, 4, 0),
    ),
    Told(
        27,
        "Strix Halo 8060S of ROCm 7.2, of which the library knows nothing",
        [
            at(
                1,
                power_info=power(NA, NA, socket_power=NA, power_limit=NA),
                power_cap_info=error(2),
                gpu_activity=error(2),
                gpu_vram_usage={"vram_total": NA, "vram_used": NA},
                gpu_metrics_info=dict.fromkeys(("xgmi_read_data_acc", "xgmi_link_status", "num_partition"), NA),
                energy_count=error(2),
                temp_metric=NA,
                clock_info=dict.fromkeys(("clk", "min_clk", "max_clk"), NA),
                gpu_fan_speed=NA,
                pcie_info={"pcie_static": {"max_pcie_width": NA}, "pcie_metric": {"pcie_width": NA, "pcie_speed": NA}},
            )
        ],
        [NOTHING],
        (26, 2, 0),
    ),
    Told(
        28,
        "Ryzen AI Max+ 395: a power of zero and names that are empty",
        [
            at(
                1,
                gpu_asic_info={"asic_serial": "", "market_name": ""},
                gpu_board_info={"product_name": "", "product_serial": "", "model_number": ""},
                power_info=power(0, 0, socket_power=0),
            )
        ],
        [{"device.key": "0000:01:00.0", "device.model": None, "power_watts": None, "power_kind": None}],
    ),
    Told(
        29,
        "MI50: its description and no more",
        [
            at(
                1,
                gpu_asic_info={"asic_serial": "0x21501EDFE0C00000", "market_name": "AMD Instinct MI50"},
                gpu_vram_info={"vram_type": 4, "vram_size": 32768},
            )
        ],
        [{**NOTHING, "device.key": "21501edfe0c00000", "device.model": "AMD Instinct MI50"}],
    ),
]


def said(device: Device, sample: Sample, name: str) -> Any:
    """Return a field of the sample, of its device (`device.x`), or of each of its partitions (`partitions.x`)."""
    owner, _, field = name.rpartition(".")
    if owner == "partitions":
        return tuple(getattr(part, field) for part in sample.partitions or ())
    return getattr(device if owner == "device" else sample, field)


@pytest.mark.parametrize("told", TOLD, ids=lambda told: f"{told.number}: {told.what}")
def test_a_public_sample_has_its_outcome(told: Told) -> None:
    module = FakeAmdsmi(*(gpu(**answers) for answers in told.handles))
    opened = provider(module, version=told.version)
    devices = opened.devices()
    assert len(devices) == len(told.says)
    for device, says in zip(devices, told.says, strict=True):
        sample = opened.read(device, ALL)
        for name, value in says.items():
            expected = pytest.approx(value, rel=1e-6) if isinstance(value, float) else value
            assert said(device, sample, name) == expected, name
        assert sample.failed == ()
        assert (sample.lost, sample.asleep) == (False, False)


def test_the_whole_of_a_host_is_the_sum_of_its_series() -> None:
    """Of partitions and dies a sum over all series must be what the wall gives."""
    totals = {}
    for told in TOLD:
        opened = provider(FakeAmdsmi(*(gpu(**answers) for answers in told.handles)), version=told.version)
        samples = [opened.read(device, ALL) for device in opened.devices()]
        totals[told.number, told.what] = sum(sample.power_watts or 0 for sample in samples)
    by_number = {number: total for (number, _), total in totals.items()}
    assert [by_number[number] for number in (6, 7, 9, 10)] == [237 + 230 + 220 + 235, 89 + 93, 136, 536]


def test_every_public_sample_has_its_place() -> None:
    here = {told.number for told in TOLD}
    assert here | ELSEWHERE | NO_VALUES == set(PUBLISHED)
    assert not here & (ELSEWHERE | NO_VALUES)
