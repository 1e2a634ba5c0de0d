"""Whose are power and memory? APUs, two dies in a package, partitions, guests: nothing is counted twice."""

from pathlib import Path
from typing import Any

import pytest

from exporter.model import Group, PartitionSample, Sample
from tests.drm import EOPNOTSUPP, card, hwmon, platform_card, write
from tests.kernel import node
from tests.unit.drm.bench import GIB, Bench, radeon
from tests.unit.drm.tables import table

LOAD, STATE = frozenset({Group.LOAD}), frozenset({Group.STATE})
BUS = "0000:05:00.0"
MI250X, MI300X, MI300A = (0x1002, 0x7408), (0x1002, 0x74A1), (0x1002, 0x74A0)


def apu(**files: Any) -> dict[str, Any]:
    """Return the files of a Strix Halo: sensors of one die, no limit of power, no fan, no number of its own."""
    sensors = hwmon(
        "amdgpu",
        power1_average=14_003_000,
        power1_label="PPT",
        temp1_input=38_000,
        temp1_label="edge",
        in0_label="vddgfx",
        in1_label="vddnb",
        freq1_input=600_000_000,
        freq1_label="sclk",
    )
    return {
        **sensors,
        "gpu_busy_percent": 3,
        "mem_info_vram_total": 512 * 2**20,
        "mem_info_vram_used": 180 * 2**20,
        "mem_info_vis_vram_total": 512 * 2**20,
        "mem_info_vis_vram_used": 180 * 2**20,
        "mem_info_gtt_total": 124 * GIB,
        "mem_info_gtt_used": 63 * GIB,
        "gpu_metrics": table(3, 0, average_socket_power=14_003, system_clock_counter=10**9),
        **files,
    }


def test_of_an_apu_both_memories_are_told_and_power_is_that_of_the_package(tmp_path: Path) -> None:
    card(tmp_path, 1, apu(), ids=(0x1002, 0x1586), address="0000:c5:00.0")
    sample = Bench(tmp_path).read()
    assert sample.device.memory_kind == "unified"
    assert sample.device.key == "0000:c5:00.0"
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (180 * 2**20, 512 * 2**20)
    assert (sample.system_memory_used_bytes, sample.system_memory_size_bytes) == (63 * GIB, 124 * GIB)
    assert (sample.power_watts, sample.power_scope) == (14.003, "package")
    assert (sample.power_limit_watts, sample.fan_speed_ratio, sample.energy_counter_joules) == (None, None, None)
    assert sample.failed == sample.rejected == ()


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, "unified"),
        ({"gpu_metrics": table(2, 3, average_gfx_activity=300)}, "unified"),
        ({"gpu_metrics": table(1, 3), "hwmon/hwmon3/in1_label": "vddmem"}, "dedicated"),
        ({"gpu_metrics": b""}, "unified"),  # the voltage of the northbridge
        ({"gpu_metrics": b"", "hwmon/hwmon3/in1_label": "vddmem", "hwmon/hwmon3/power1_cap": 1}, "dedicated"),
        ({"gpu_metrics": b"", "hwmon/hwmon3/in1_label": "vddmem"}, None),
    ],
)
def test_what_an_apu_is_known_by(tmp_path: Path, files: dict[str, Any], kind: str | None) -> None:
    card(tmp_path, 0, apu(**files))
    assert Bench(tmp_path).read().device.memory_kind == kind


def test_an_apu_whose_power_is_in_its_table_alone(tmp_path: Path) -> None:
    files = {path: value for path, value in apu().items() if "power1" not in path}
    card(tmp_path, 0, files)
    sample = Bench(tmp_path).read()
    assert (sample.power_watts, sample.power_kind, sample.power_scope) == (14.003, "average", "package")
    assert sample.sources["power_watts"] == "gpu_metrics"


def test_a_socket_with_cpu_cores_is_a_package_with_one_memory(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(), ids=MI300A)
    sample = Bench(tmp_path).read()
    assert (sample.device.memory_kind, sample.power_scope) == ("unified", "package")


def die(watts: int, ticks: int, number: int, serial: str | None = None) -> dict[str, Any]:
    files = radeon(
        unique_id=f"a32343daf8971{number:03x}",
        gpu_metrics=table(1, 3, energy_accumulator=ticks, average_socket_power=watts),
        **{"hwmon/hwmon3/power1_average": watts * 1_000_000},
    )
    del files["hwmon/hwmon3/power1_input"]
    return files | ({} if serial is None else {"serial_number": serial})


def dies(root: Path, serials: tuple[str | None, ...], watts: tuple[int, ...] = (89, 0, 93, 0)) -> list[Sample]:
    """The list of ml-energy/zeus#203: of each package the first die carries the power of both."""
    for number, (serial, power) in enumerate(zip(serials, watts, strict=True)):
        files = die(power, 65536 * (number + 1), number, serial)
        card(root, number, files, ids=MI250X, address=f"0000:{0xC1 + number:02x}:00.0", minor=128 + number)
    bench = Bench(root)
    return [bench.provider.read(device, frozenset({Group.ENERGY})) for device in bench.provider.devices()]


@pytest.mark.parametrize("serials", [(None,) * 4, ("a", "a", "b", "b")])
def test_the_first_die_of_a_package_carries_the_power_of_both(tmp_path: Path, serials: tuple[str | None, ...]) -> None:
    samples = dies(tmp_path, serials)
    assert [sample.power_watts for sample in samples] == [89, None, 93, None]
    assert [sample.energy_counter_joules for sample in samples] == [1, None, 3, None]
    assert {sample.power_scope for sample in samples} == {"package"}
    keys = [sample.device.key for sample in samples]
    assert [sample.device.package for sample in samples] == [keys[0], keys[0], keys[2], keys[2]]
    assert "power_watts" not in samples[1].sources


def test_dies_are_paired_by_their_board_before_their_order(tmp_path: Path) -> None:
    samples = dies(tmp_path, ("a", "b", "a", "b"), (89, 93, 0, 0))
    keys = [sample.device.key for sample in samples]
    assert [sample.device.package for sample in samples] == [keys[0], keys[1], keys[0], keys[1]]
    assert [sample.power_watts for sample in samples] == [89, 93, None, None]


def test_an_odd_number_of_dies_cannot_be_paired(tmp_path: Path) -> None:
    samples = dies(tmp_path, (None,) * 3, (89, 0, 93))
    assert [sample.device.package for sample in samples] == [sample.device.key for sample in samples]


def mi300(count: int, *busy: list[int]) -> bytes:
    stats = [{"gfx_busy_inst": part} for part in busy]
    return table(
        1,
        7,
        curr_socket_power=136,
        energy_accumulator=65536 * 1000,
        system_clock_counter=10**9,
        average_gfx_activity=50,
        num_partition=count,
        xcp_stats=stats,
    )


def partitioned(root: Path, mode: str, count: int, memory: str = "NPS1", **files: Any) -> Path:
    """An MI300X on bus 5: its first partition is the PCI device, the others are platform devices."""
    node(root, 0, 0)
    for number in range(count):
        node(root, number + 1, 51000 + number, bus=5, partition=number, units=304 // count)
    for number in range(1, count):
        platform_card(root, 1 + number, f"amdgpu_xcp.{number - 1}", "amdgpu_xcp", minor=128 + number)
    own = {"current_compute_partition": mode, "current_memory_partition": memory, "gpu_metrics": mi300(count)}
    return card(root, 1, radeon(**own) | files, ids=MI300X, address=BUS)


def test_partitions_are_the_parts_of_one_card_with_one_power(tmp_path: Path) -> None:
    busy = mi300(8, *([10 * number] for number in range(8)))
    partitioned(tmp_path, "CPX", 8, memory="NPS4", gpu_metrics=busy)
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    assert device.partition_mode == "CPX/NPS4"
    assert device.architecture == "gfx942"
    sample = bench.provider.read(device, frozenset(Group) - {Group.PROFILING})
    assert sample.energy_counter_joules == 1000
    assert sample.power_scope == "gpu"
    assert sample.partitions == tuple(
        PartitionSample(partition=str(number), profile="CPX", utilization_ratio=number / 10) for number in range(8)
    )
    assert sample.sources["partitions"] == "gpu_metrics"


@pytest.mark.parametrize(("mode", "count"), [("DPX", 2), ("QPX", 4), ("TPX", 3)])
def test_without_kfd_the_mode_tells_how_many_there_are(tmp_path: Path, mode: str, count: int) -> None:
    card(tmp_path, 0, radeon(current_compute_partition=mode), ids=MI300X)
    sample = Bench(tmp_path).read(STATE)
    assert sample.partitions == tuple(PartitionSample(partition=str(number), profile=mode) for number in range(count))


def test_one_that_is_not_divided_has_no_partitions(tmp_path: Path) -> None:
    partitioned(tmp_path, "SPX", 1)
    assert Bench(tmp_path).read(STATE).partitions == ()


def test_the_mode_is_asked_once_and_again_when_the_number_of_partitions_changes(tmp_path: Path) -> None:
    device = partitioned(tmp_path, "SPX", 1)
    bench = Bench(tmp_path)
    for _ in range(3):
        bench.read(STATE)
    assert len([path for path in bench.answers.asked if path.endswith("current_compute_partition")]) == 1
    node(tmp_path, 2, 51001, bus=5, partition=1, units=152)
    write(device, {"current_compute_partition": "DPX", "gpu_metrics": mi300(2)})
    sample = bench.read(STATE)
    assert sample.device.partition_mode == "DPX/NPS1"
    assert [part.profile for part in sample.partitions or ()] == ["DPX", "DPX"]


def test_a_change_is_seen_between_two_enumerations(tmp_path: Path) -> None:
    device = partitioned(tmp_path, "SPX", 1)
    bench = Bench(tmp_path)
    (known,) = bench.provider.devices()
    assert bench.provider.read(known, STATE).partitions == ()
    node(tmp_path, 2, 51001, bus=5, partition=1, units=152)
    write(device, {"current_compute_partition": "DPX", "gpu_metrics": mi300(2)})
    assert len(bench.provider.read(known, STATE).partitions or ()) == 2


def test_a_guest_has_what_its_host_leaves_it(tmp_path: Path) -> None:
    guest = {
        "unique_id": "0000000000000000",
        "vbios_version": "022.040.003.043.000001",
        "mem_info_vram_total": 192 * GIB,
        "mem_info_vram_used": GIB,
        "current_compute_partition": "",
    }
    card(tmp_path, 0, guest, ids=(0x1002, 0x74B5))
    bench = Bench(tmp_path)
    bench.answers.errors = {"gpu_busy_percent": EOPNOTSUPP, "gpu_metrics": EOPNOTSUPP}
    sample = bench.read()
    assert sample.device.key == "0000:03:00.0"
    assert sample.device.firmware == {"vbios": "022.040.003.043.000001"}
    assert (sample.power_watts, sample.power_kind, sample.energy_counter_joules) == (None, None, None)
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (GIB, 192 * GIB)
    assert (sample.partitions, sample.failed, sample.rejected) == (None, (), ())


def test_memory_that_a_card_does_not_have_is_absent(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(mem_info_vram_total=0, mem_info_vram_used=0))
    sample = Bench(tmp_path).read(LOAD)
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (None, None)
