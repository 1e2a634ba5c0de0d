"""Intel GPUs are read through i915 and xe: energy from the right counter, clocks, limits, reasons and memory."""

from pathlib import Path
from typing import Any

import pytest

from exporter.metrics import DOMAINS, ENGINES, LIMITS, REASONS, SENSORS
from exporter.model import Group, Groups, ProcessSample, Sample
from exporter.providers.drm.processes import tells_of_devices
from exporter.providers.fdinfo import Scan
from tests.drm import EIO, card, hwmon, write
from tests.kernel import close_files, fdinfo, open_files, process
from tests.unit.drm.bench import GIB, Bench

ENERGY, LOAD, STATE = Groups({Group.ENERGY}), Groups({Group.LOAD}), Groups({Group.STATE})
PROCESSES = Groups({Group.PROCESSES})
ADDRESS = "0000:03:00.0"
KIB = 1024


def arc_i915(**sensors: Any) -> dict[str, Any]:
    """Return the files of an Arc A770 under i915 of Linux 6.14."""
    return {
        **hwmon(
            "i915",
            **{
                "in0_input": 702,
                "energy1_input": 8_589_934_592_000,  # beyond 32 bits
                "power1_max": 190_000_000,
                "power1_rated_max": 190_000_000,
                "power1_crit": 228_000_000,
                "temp1_input": 47_000,
                "fan1_input": 900,
                **sensors,
            },
        ),
        "drm/card0/gt/gt0/rps_act_freq_mhz": 2400,
        "drm/card0/gt/gt0/rps_cur_freq_mhz": 2450,
        "drm/card0/gt/gt0/throttle_reason_status": 0,
        "drm/card0/gt/gt0/throttle_reason_pl1": 0,
        "drm/card0/gt/gt0/throttle_reason_thermal": 0,
        "drm/card0/gt/gt0/throttle_reason_prochot": 0,
        "current_link_speed": "16.0 GT/s PCIe",
        "current_link_width": 16,
        "max_link_width": 16,
    }


def battlemage(**sensors: Any) -> dict[str, Any]:
    """Return the files of an Arc B580 under xe of Linux 6.16."""
    return {
        **hwmon(
            "xe",
            **{
                "energy1_input": 55_000_000_000,
                "energy1_label": "card",
                "energy2_input": 33_000_000_000,
                "energy2_label": "pkg",
                "power1_cap": 228_000_000,
                "power1_label": "card",
                "power2_cap": 190_000_000,
                "power2_label": "pkg",
                "temp2_input": 51_000,
                "temp2_label": "pkg",
                "temp2_crit": 100_000,
                "temp2_emergency": 110_000,
                "temp3_input": 62_000,
                "temp3_label": "vram",
                "temp3_crit": 95_000,
                "fan1_input": 1100,
                **sensors,
            },
        ),
        "tile0/physical_vram_size_bytes": 12 * GIB,
        "tile0/gt0/freq0/act_freq": 2850,
        "tile0/gt0/freq0/cur_freq": 2850,
        "tile0/gt0/freq0/throttle/status": 0,
        "tile0/gt0/freq0/throttle/reason_pl1": 0,
        "tile0/gt0/freq0/throttle/reason_thermal": 0,
        "tile0/gt0/freq0/throttle/reason_of_tomorrow": 0,
        "tile0/gt1/freq0/act_freq": 1200,
        "tile0/gt1/freq0/cur_freq": 1200,
        "tile0/gt1/freq0/throttle/status": 0,
        "tile0/gt1/freq0/throttle/reason_vr_tdc": 0,
    }


def i915(root: Path, files: dict[str, Any] | None = None, **more: Any) -> Bench:
    card(root, 0, arc_i915() if files is None else files, driver="i915", **more)
    return Bench(root)


def xe(root: Path, files: dict[str, Any] | None = None, **more: Any) -> Bench:
    card(root, 0, battlemage() if files is None else files, driver="xe", ids=(0x8086, 0xE20B), **more)
    return Bench(root)


def sensor(bench: Bench, **files: Any) -> None:
    """Let the sensors say something else."""
    place = bench.root / "sys/devices/pci0000:00" / ADDRESS / "hwmon/hwmon3"
    write(place, files)


def test_an_arc_of_i915(tmp_path: Path) -> None:
    sample = i915(tmp_path).read(ENERGY | LOAD | STATE)
    device = sample.device
    assert (device.vendor, device.key, device.model, device.pci_address, device.memory_kind) == (
        *("intel", ADDRESS, "8086:56a0", ADDRESS),
        "dedicated",
    )
    assert (sample.energy_counter_joules, sample.energy_counter_scope) == (8_589_934.592, "gpu")
    assert (sample.energy_counter_range_joules, sample.energy_counter_at) == (None, None)
    assert (sample.power_watts, sample.power_kind, sample.power_scope) == (None, None, "gpu")
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (190.0, 190.0)
    assert sample.temperature_celsius == {"gpu": 47.0}
    assert sample.clock_hertz == {"graphics": 2.4e9}
    assert sample.fan_speed_ratio is None
    assert sample.throttled == {"sw_power_cap": False, "hw_thermal": False, "processor_hot": False}
    assert (sample.pcie_link_generation, sample.pcie_link_width, sample.pcie_link_width_max) == (4.0, 16.0, 16.0)
    assert (sample.failed, sample.rejected) == ((), ())
    assert sample.sources["energy_counter_joules"] == "hwmon"
    assert sample.utilization_ratio is None


def test_a_battlemage_of_xe(tmp_path: Path) -> None:
    sample = xe(tmp_path).read(ENERGY | LOAD | STATE)
    assert (sample.energy_counter_joules, sample.energy_counter_scope) == (55_000.0, "gpu")
    assert (sample.power_watts, sample.power_scope) == (None, "gpu")
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (228.0, None)
    assert sample.temperature_celsius == {"gpu": 51.0, "memory": 62.0}
    assert sample.temperature_limit_celsius == {"shutdown": 110.0, "slowdown": 100.0, "memory": 95.0}
    assert sample.clock_hertz == {"graphics": 2.85e9, "video": 1.2e9}
    assert sample.throttled == {"sw_power_cap": False, "hw_thermal": False, "board_limit": False}
    assert (sample.memory_size_bytes, sample.memory_used_bytes) == (12 * GIB, None)
    assert (sample.failed, sample.rejected) == ((), ())


def test_words_are_ours(tmp_path: Path) -> None:
    sample = xe(tmp_path).read()
    assert set(sample.temperature_celsius) <= set(SENSORS)
    assert set(sample.temperature_limit_celsius) <= set(LIMITS)
    assert set(sample.clock_hertz) <= set(DOMAINS)
    assert set(sample.throttled) <= set(REASONS)
    assert set(sample.engine_utilization_ratio) <= set(ENGINES)


@pytest.mark.parametrize("energy", [{"energy1_input": 0}, {"energy1_input": "N/A"}])
def test_a_card_that_does_not_count_has_the_counter_of_its_package(tmp_path: Path, energy: dict[str, Any]) -> None:
    sample = xe(tmp_path, battlemage(**energy)).read(ENERGY)
    assert (sample.energy_counter_joules, sample.energy_counter_scope, sample.power_scope) == (
        *(33_000.0, "package"),
        "package",
    )


def test_the_counter_is_kept_as_no_two_count_the_same(tmp_path: Path) -> None:
    bench = xe(tmp_path, battlemage(energy1_input=0))
    device = bench.provider.devices()[0]
    assert bench.read(ENERGY, device).energy_counter_joules == 33_000.0
    sensor(bench, energy1_input=77_000_000, energy2_input=33_500_000_000)
    sample = bench.read(ENERGY, device)
    assert (sample.energy_counter_joules, sample.energy_counter_scope) == (33_500.0, "package")
    bench.answers.errors["energy2_input"] = EIO
    sample = bench.read(ENERGY, device)
    assert (sample.energy_counter_joules, sample.energy_counter_scope) == (None, "package")
    assert sample.failed == ("energy_counter_joules",)


def test_a_driver_that_is_bound_anew_is_asked_anew(tmp_path: Path) -> None:
    bench = xe(tmp_path, battlemage(energy1_input=0))
    bench.read(ENERGY)
    sensor(bench, energy1_input=77_000_000)
    assert bench.read(ENERGY).energy_counter_joules == 77.0


def test_without_a_counter_of_the_card_its_tiles_are_added_up(tmp_path: Path) -> None:
    files = {
        **hwmon("i915", number=3, power1_max=600_000_000),
        **hwmon("i915_gt0", number=4, energy1_input=5_000_000_000),
        **hwmon("i915_gt1", number=5, energy1_input=7_000_000_000),
    }
    bench = i915(tmp_path, files)
    device = bench.provider.devices()[0]
    sample = bench.read(ENERGY, device)
    assert (sample.energy_counter_joules, sample.energy_counter_scope) == (12_000.0, "package")
    assert sample.power_limit_watts == 600.0
    bench.answers.errors["hwmon5/energy1_input"] = EIO
    assert bench.read(ENERGY, device).energy_counter_joules is None


def test_no_counter_no_energy(tmp_path: Path) -> None:
    sample = xe(tmp_path, hwmon("xe", energy1_input=0, energy2_input=0)).read(ENERGY)
    assert (sample.energy_counter_joules, sample.rejected, sample.failed) == (None, (), ())


def test_power_where_a_kernel_tells_it(tmp_path: Path) -> None:
    sample = xe(tmp_path, battlemage(energy1_input=0, power1_input=93_500_000)).read(ENERGY)
    assert (sample.power_watts, sample.power_kind, sample.power_scope) == (93.5, "instant", "gpu")
    assert sample.energy_counter_scope == "package"


@pytest.mark.parametrize(
    ("limits", "watts"),
    [
        ({"power1_max": 120_000_000}, 120.0),
        ({"power1_max": 0}, 228.0),
        ({"power1_max": 0, "power1_cap": 0, "power2_cap": 0}, None),
        ({"power2_max": 80_000_000}, 80.0),
        ({"power1_max": 4294967295}, 228.0),
    ],
)
def test_the_first_limit_that_is_set_is_in_force(tmp_path: Path, limits: dict[str, Any], watts: float | None) -> None:
    assert xe(tmp_path, battlemage(**limits)).read(ENERGY).power_limit_watts == watts


def test_sensors_of_xe_before_labels(tmp_path: Path) -> None:
    sample = xe(tmp_path, hwmon("xe", temp2_input=44_000, temp3_input=55_000)).read(STATE)
    assert sample.temperature_celsius == {"gpu": 44.0, "memory": 55.0}


def test_an_impossible_temperature_is_counted(tmp_path: Path) -> None:
    sample = xe(tmp_path, battlemage(temp2_input=250_000)).read(STATE)
    assert (sample.temperature_celsius, sample.rejected) == ({"memory": 62.0}, ("temperature_celsius",))


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        ({"gt0/freq0/throttle/reason_pl1": 1, "gt0/freq0/throttle/status": 1}, {"sw_power_cap"}),
        ({"gt1/freq0/throttle/reason_vr_tdc": 1, "gt1/freq0/throttle/status": 1}, {"board_limit"}),
        ({"gt0/freq0/throttle/reason_of_tomorrow": 1, "gt0/freq0/throttle/status": 1}, set()),
        ({"gt0/freq0/throttle/reason_pl1": 1}, set()),  # the status says all
    ],
)
def test_reasons(tmp_path: Path, flags: dict[str, int], reasons: set[str]) -> None:
    files = battlemage() | {f"tile0/{path}": value for path, value in flags.items()}
    throttled = xe(tmp_path, files).read(STATE).throttled
    assert {reason for reason, held in throttled.items() if held} == reasons
    assert set(throttled) == {"sw_power_cap", "hw_thermal", "board_limit"}


def test_tiles_have_a_mean_clock_and_one_memory(tmp_path: Path) -> None:
    files = {
        "tile0/gt0/freq0/act_freq": 1600,
        "tile1/gt1/freq0/act_freq": 1400,
        "tile0/memory/physical_vram_size_bytes": 64 * GIB,
        "tile1/memory/physical_vram_size_bytes": 64 * GIB,
    }
    sample = xe(tmp_path, files).read(STATE | LOAD)
    assert sample.clock_hertz == {"graphics": 1.5e9}
    assert sample.memory_size_bytes == 128 * GIB


def test_a_tile_that_does_not_tell_its_memory_leaves_the_card_without_a_size(tmp_path: Path) -> None:
    files = {"tile0/physical_vram_size_bytes": 64 * GIB, "tile1/gt1/freq0/act_freq": 1400}
    assert xe(tmp_path, files).read(LOAD).memory_size_bytes is None


@pytest.mark.parametrize(
    "files",
    [
        {"drm/card0/gt/gt0/rps_cur_freq_mhz": 1300},
        {"drm/card0/gt_act_freq_mhz": 1300, "drm/card0/gt_cur_freq_mhz": 1400},
        {"drm/card0/gt_cur_freq_mhz": 1300},
    ],
)
def test_clocks_of_older_kernels(tmp_path: Path, files: dict[str, Any]) -> None:
    assert i915(tmp_path, files).read(STATE).clock_hertz == {"graphics": 1.3e9}


def test_a_clock_that_is_gated_is_zero(tmp_path: Path) -> None:
    sample = i915(tmp_path, arc_i915() | {"drm/card0/gt/gt0/rps_act_freq_mhz": 0}).read(STATE)
    assert sample.clock_hertz == {"graphics": 0.0}


def test_memory_of_i915_that_tells_what_is_free(tmp_path: Path) -> None:
    files = arc_i915() | {"drm/card0/lmem_total_bytes": 16 * GIB, "drm/card0/lmem_avail_bytes": 15 * GIB}
    sample = i915(tmp_path, files).read(LOAD)
    assert (sample.memory_size_bytes, sample.memory_used_bytes) == (16 * GIB, GIB)
    assert sample.sources["memory_used_bytes"] == "sysfs"


def client(driver: str, number: int = 1, address: str = ADDRESS, **fields: Any) -> str:
    return fdinfo(number, address, drm_driver=driver, **fields)


def xe_client(rcs: int, total: int, ccs: int = 0, vcs: int = 0, vram: int = 5) -> str:
    return client(
        "xe",
        drm_total_vram0=f"{vram} KiB",
        drm_resident_vram0=f"{vram} KiB",
        drm_resident_gtt="2 KiB",
        drm_resident_system="1 KiB",
        drm_cycles_rcs=rcs,
        drm_total_cycles_rcs=total,
        drm_cycles_ccs=ccs,
        drm_total_cycles_ccs=total,
        drm_engine_capacity_ccs=4,
        drm_cycles_vcs=vcs,
        drm_total_cycles_vcs=total,
    )


def passes(bench: Bench, *clients: str, pid: int = 70, seconds: float = 10.0) -> Sample:
    """Let one process tell one after another, and return what the last pass says of processes and load."""
    process(bench.root, pid)
    open_files(bench.root, pid)
    device = bench.provider.devices()[0]
    for text in clients:
        close_files(bench.root, pid)
        open_files(bench.root, pid, ("/dev/dri/renderD128", text))
        last = bench.read(PROCESSES, device)
        load = bench.read(LOAD, device)
        bench.now += seconds
    fields = {name: getattr(load, name) for name in ("utilization_ratio", "engine_utilization_ratio", "sources")}
    fields |= {name: getattr(load, name) for name in ("memory_used_bytes", "system_memory_used_bytes")}
    return Sample(device=device, processes=last.processes, process_counts=last.process_counts, **fields)


def test_xe_is_as_busy_as_its_clients(tmp_path: Path) -> None:
    sample = passes(xe(tmp_path), xe_client(0, 1_000), xe_client(100, 2_000, ccs=2_000, vcs=300, vram=7))
    assert sample.processes == (
        ProcessSample(pid=70, started=100, name="python3", memory_used_bytes=7 * KIB, busy_ratio=pytest.approx(0.6)),
    )
    assert sample.utilization_ratio == pytest.approx(0.5)
    assert sample.engine_utilization_ratio == {"media": pytest.approx(0.3)}
    assert sample.memory_used_bytes == 7 * KIB
    assert sample.system_memory_used_bytes == 3 * KIB
    assert sample.sources["utilization_ratio"] == "fdinfo"
    assert sample.sources["memory_used_bytes"] == "fdinfo"


def test_i915_is_as_busy_as_its_clients(tmp_path: Path) -> None:
    first, second = (
        client(
            "i915",
            drm_total_local0="9 KiB",
            drm_total_system0="2 KiB",
            drm_engine_render=f"{render} ns",
            drm_engine_copy="0 ns",
            drm_engine_video=f"{2 * render} ns",
            drm_engine_capacity_video=2,
        )
        for render in (0, 4_000_000_000)
    )
    sample = passes(i915(tmp_path), first, second)
    assert sample.processes is not None
    assert [(one.memory_used_bytes, one.busy_ratio) for one in sample.processes] == [(9 * KIB, pytest.approx(0.4))]
    assert (sample.utilization_ratio, sample.engine_utilization_ratio) == (
        pytest.approx(0.4),
        {"media": pytest.approx(0.4)},
    )
    assert (sample.memory_used_bytes, sample.system_memory_used_bytes) == (9 * KIB, 2 * KIB)


def test_the_gpu_of_a_processor_has_memory_of_the_host(tmp_path: Path) -> None:
    address = "0000:00:02.0"
    bench = i915(tmp_path, {"drm/card0/gt/gt0/rps_act_freq_mhz": 300}, address=address, ids=(0x8086, 0x46A6))
    first, second = (
        client("i915", address=address, drm_total_system0="8 KiB", drm_engine_render=f"{ns} ns")
        for ns in (0, 1_000_000_000)
    )
    sample = passes(bench, first, second)
    assert sample.device.memory_kind == "unified"
    assert sample.processes is not None
    assert [one.memory_used_bytes for one in sample.processes] == [8 * KIB]
    assert (sample.memory_used_bytes, sample.system_memory_used_bytes) == (None, 8 * KIB)
    assert sample.utilization_ratio == pytest.approx(0.1)
    whole = bench.read()
    assert (whole.energy_counter_joules, whole.temperature_celsius) == (None, {})
    assert whole.clock_hertz == {"graphics": 3e8}
    assert (whole.failed, whole.rejected) == ((), ())


def test_a_card_that_is_lent_to_a_virtual_machine_has_its_own_memory(tmp_path: Path) -> None:
    assert i915(tmp_path, address="0000:00:06.0").read(LOAD).device.memory_kind == "dedicated"


def test_a_gpu_that_nobody_uses_is_idle(tmp_path: Path) -> None:
    bench = xe(tmp_path)
    process(tmp_path, 70)
    open_files(tmp_path, 70)
    device = bench.provider.devices()[0]
    assert bench.read(LOAD, device).utilization_ratio is None
    for expected in (None, 0.0):
        bench.read(PROCESSES, device)
        sample = bench.read(LOAD, device)
        assert (sample.utilization_ratio, sample.memory_used_bytes) == (expected, expected)
        bench.now += 10


@pytest.mark.parametrize(
    ("whole", "seconds", "age", "tells"),
    [
        (True, 10.0, 0.0, True),
        (True, 10.0, 20.0, True),
        (True, 10.0, 20.1, False),
        (True, 0.4, 0.0, False),
        (True, None, 0.0, False),
        (False, 10.0, 0.0, False),  # who may not be looked at may be who works
    ],
)
def test_what_clients_tell_of_the_whole_gpu(*, whole: bool, seconds: float | None, age: float, tells: bool) -> None:
    assert tells_of_devices(Scan({}, 0, 0, {}, seconds, whole), age) is tells


def test_what_was_found_too_long_ago_is_nothing(tmp_path: Path) -> None:
    bench = xe(tmp_path)
    passes(bench, xe_client(0, 1_000), xe_client(100, 2_000))
    device = bench.provider.devices()[0]
    bench.now += 5
    assert bench.read(LOAD, device).utilization_ratio == pytest.approx(0.1)
    bench.now += 6
    assert bench.read(LOAD, device).utilization_ratio is None


def test_a_card_that_sleeps_is_not_woken(tmp_path: Path) -> None:
    bench = xe(tmp_path, battlemage() | {"power/runtime_status": "suspended"})
    process(tmp_path, 70)
    open_files(tmp_path, 70, ("/dev/dri/renderD128", xe_client(0, 1_000)))
    device = bench.provider.devices()[0]
    bench.answers.asked.clear()
    sample = bench.read(device=device)
    assert sample.asleep
    assert [path.rpartition("/")[2] for path in bench.answers.asked] == ["runtime_status"]
