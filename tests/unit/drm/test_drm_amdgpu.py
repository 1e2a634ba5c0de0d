"""What the files of amdgpu say of a card, in base units, and where each reading came from."""

from pathlib import Path
from typing import Any

import pytest

from exporter.metrics import READING_SOURCES
from exporter.model import Device, Group, Sample
from tests.drm import EINVAL, EIO, EOPNOTSUPP, EPERM, card, write
from tests.unit.drm.bench import GIB, Bench, radeon, radeon_table
from tests.unit.drm.tables import table

ENERGY, LOAD, STATE = (frozenset({group}) for group in (Group.ENERGY, Group.LOAD, Group.STATE))
HWMON = "hwmon/hwmon3"


def look(root: Path, files: dict[str, Any] | None = None, **about: Any) -> Sample:
    card(root, 0, radeon() if files is None else files, **about)
    return Bench(root).read()


def test_a_discrete_card(tmp_path: Path) -> None:
    sample = look(tmp_path)
    assert (sample.power_watts, sample.power_kind, sample.power_scope) == (97.0, "average", "gpu")
    assert sample.power_window_seconds is None
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (265.0, 265.0)
    assert (sample.energy_counter_joules, sample.energy_counter_at) == (5.0, 7.0)
    assert (sample.utilization_ratio, sample.memory_controller_utilization_ratio) == (0.42, 0.07)
    assert sample.engine_utilization_ratio == {"media": 0.3}
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (3 * GIB, 20 * GIB)
    assert (sample.memory_visible_used_bytes, sample.memory_visible_size_bytes) == (2 * GIB, 20 * GIB)
    assert (sample.system_memory_used_bytes, sample.system_memory_size_bytes) == (144560128, 33668050944)
    assert sample.temperature_celsius == {"edge": 46, "hotspot": 61, "memory": 70}
    assert sample.temperature_limit_celsius == {"shutdown": 115, "slowdown": 110, "memory": 108}
    assert sample.clock_hertz == {"graphics": 2.075e9, "memory": 1.249e9, "soc": 1.2e9}
    assert sample.fan_speed_ratio == 0.2
    assert (sample.pcie_link_generation, sample.pcie_link_width, sample.pcie_link_width_max) == (4, 16, 16)
    assert sample.pcie_replays == 3
    assert sample.ecc_errors == {"uncorrected": 1, "corrected": 23}
    assert sample.partitions is None
    assert sample.failed == sample.rejected == ()


def test_where_each_reading_came_from(tmp_path: Path) -> None:
    write(tmp_path, {"proc/version": "Linux version 6.12.3"})
    sample = look(tmp_path)
    assert sample.sources == {
        "power_watts": "hwmon",
        "power_limit_watts": "hwmon",
        "power_limit_default_watts": "hwmon",
        "energy_counter_joules": "gpu_metrics",
        "utilization_ratio": "sysfs",
        "memory_controller_utilization_ratio": "sysfs",
        "engine_utilization_ratio": "gpu_metrics",
        "memory_used_bytes": "sysfs",
        "memory_size_bytes": "sysfs",
        "memory_visible_used_bytes": "sysfs",
        "memory_visible_size_bytes": "sysfs",
        "system_memory_used_bytes": "sysfs",
        "system_memory_size_bytes": "sysfs",
        "temperature_celsius": "hwmon",
        "temperature_limit_celsius": "hwmon",
        "clock_hertz": "hwmon",
        "fan_speed_ratio": "hwmon",
        "ecc_errors": "sysfs",
        "pcie_link_generation": "sysfs",
        "pcie_link_width": "sysfs",
        "pcie_link_width_max": "sysfs",
        "pcie_replays": "sysfs",
        "processes": "fdinfo",
    }
    assert set(sample.sources.values()) <= set(READING_SOURCES)


def test_who_it_is(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/osrelease": "6.12.3-generic", "sys/module/amdgpu/holders/.keep": ""})
    names = "# syntax\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n"
    write(tmp_path, {"usr/share/libdrm/amdgpu.ids": names})
    assert look(tmp_path).device == Device(
        vendor="amd",
        key="a32343daf897162a",
        model="AMD Radeon RX 7900 XT",
        pci_address="0000:03:00.0",
        minor=128,
        driver_version="6.12.3-generic",
        memory_kind="dedicated",
        firmware={"vbios": "113-D70401XTX-112", "smc": "0x004e7900"},
    )


def test_a_card_of_servers_says_its_own_name_and_serial_number(tmp_path: Path) -> None:
    write(tmp_path, {"sys/module/amdgpu/version": "6.10.5"})
    own = {"product_name": "AMD Instinct MI210", "serial_number": "PCB052341-0042"}
    device = look(tmp_path, radeon(**own)).device
    assert (device.model, device.serial, device.driver_version) == ("AMD Instinct MI210", "PCB052341-0042", "6.10.5")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("usr/share/hwdata/pci.ids", "Radeon RX 7900 XT/7900 XTX"),
        ("usr/share/misc/pci.ids", "Radeon RX 7900 XT/7900 XTX"),
    ],
)
def test_names_of_other_lists_are_what_is_in_brackets(tmp_path: Path, path: str, name: str) -> None:
    listed = (
        "# list\n0123  Other\n\t744c  Not this\n1002  AMD/ATI\n\t744b  Wrong\n"
        "\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX]\n\t\t1002 0e3b  Board\n1003  Next\n\t744c  Nor this\n"
    )
    write(tmp_path, {path: listed})
    assert look(tmp_path).device.model == name


def test_a_card_that_no_list_has_is_called_by_its_numbers(tmp_path: Path) -> None:
    assert look(tmp_path).device.model == "1002:744c"


@pytest.mark.parametrize("said", ["0", "0000000000000000", "ffffffffffffffff", "", "N/A"])
def test_a_card_without_a_number_of_its_own_is_known_by_its_place(tmp_path: Path, said: str) -> None:
    assert look(tmp_path, radeon(unique_id=said)).device.key == "0000:03:00.0"


def test_a_number_that_two_cards_have_is_that_of_neither(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(), address="0000:03:00.0")
    card(tmp_path, 1, radeon(), address="0000:83:00.0", minor=129)
    assert [device.key for device in Bench(tmp_path).provider.devices()] == ["0000:03:00.0", "0000:83:00.0"]


def without(*names: str, **files: Any) -> dict[str, Any]:
    return {path: value for path, value in radeon(**files).items() if not path.endswith(names)}


@pytest.mark.parametrize(
    ("files", "watts", "kind"),
    [
        (radeon(), 97, "average"),
        (without("power1_average"), 101, "instant"),
        # Before Linux 6.6 there is one file, whatever the firmware gives. Its table says what that is.
        (without("power1_input"), 97, "average"),
        (without("power1_input", gpu_metrics=table(1, 4, curr_socket_power=97)), 97, "instant"),
        (without("power1_input", "gpu_metrics"), 97, None),
        (radeon(**{f"{HWMON}/power1_average": 0}), 101, "instant"),
        (radeon(**{f"{HWMON}/power1_average": 0, f"{HWMON}/power1_input": 0}), 97, "average"),
        (
            radeon(
                gpu_metrics=radeon_table(average_socket_power=0),
                **{f"{HWMON}/power1_average": 0, f"{HWMON}/power1_input": 0},
            ),
            None,
            None,
        ),
        # Not in hwmon at all: the table has it.
        (without("power1_input", "power1_average"), 97, "average"),
    ],
)
def test_power_and_what_it_is(tmp_path: Path, files: dict[str, Any], watts: float | None, kind: str | None) -> None:
    card(tmp_path, 0, files)
    sample = Bench(tmp_path).read()
    assert (sample.power_watts, sample.power_kind) == (watts, kind)


def test_a_card_without_an_accumulator_has_its_table_read_for_state_alone(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(gpu_metrics=radeon_table(energy_accumulator=0)))
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    assert bench.provider.read(device, ENERGY).energy_counter_joules is None
    bench.answers.asked.clear()
    assert bench.provider.read(device, ENERGY).power_watts == 97
    assert not [path for path in bench.answers.asked if path.endswith("gpu_metrics")]
    # It is not given up for good: it may begin to count.
    write(tmp_path / "sys/class/drm/card0/device", {"gpu_metrics": radeon_table()})
    bench.provider.read(device, STATE)
    assert bench.provider.read(device, ENERGY).energy_counter_joules == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_busy_percent", 101),
        ("gpu_busy_percent", "fast"),
        ("mem_info_vram_used", -1),
        (f"{HWMON}/temp2_input", 255_000),
        (f"{HWMON}/power1_average", 65_535_000_000),
        (f"{HWMON}/freq1_input", 10**12),
        (f"{HWMON}/pwm1", 300),
        ("current_link_width", 255),
        ("ras/umc_err_count", "ue: many\nce: 1"),
    ],
)
def test_what_cannot_be_is_rejected_and_named(tmp_path: Path, name: str, value: Any) -> None:
    sample = look(tmp_path, radeon(**{name: value}))
    assert len(sample.rejected) == 1
    assert set(sample.rejected) <= set(Sample.__struct_fields__)
    assert sample.failed == ()


@pytest.mark.parametrize("value", [2**64 - 1, "", "N/A"])
def test_what_says_nothing_is_absent_and_no_fault(tmp_path: Path, value: Any) -> None:
    sample = look(tmp_path, without("gpu_metrics", **{"gpu_busy_percent": value, f"{HWMON}/temp1_input": value}))
    assert sample.utilization_ratio is None
    assert sample.temperature_celsius == {"hotspot": 61, "memory": 70}
    assert sample.failed == sample.rejected == ()


def test_255_degrees_watts_and_percent_are_judged_by_their_range_alone(tmp_path: Path) -> None:
    sample = look(tmp_path, radeon(**{f"{HWMON}/power1_average": 255_000_000, f"{HWMON}/temp1_input": 65_535}))
    assert sample.power_watts == 255
    assert sample.temperature_celsius["edge"] == 65.535


def test_all_ones_of_32_bits_are_no_power(tmp_path: Path) -> None:
    sample = look(tmp_path, radeon(**{f"{HWMON}/power1_average": 0xFFFFFFFF, f"{HWMON}/power1_cap": 0xFFFFFFFF}))
    assert (sample.power_watts, sample.power_limit_watts) == (101, None)
    assert sample.rejected == ()


def test_an_empty_card_gives_nothing_and_breaks_nothing(tmp_path: Path) -> None:
    sample = look(tmp_path, {})
    assert sample == Sample(
        device=sample.device,
        taken_at=sample.taken_at,
        read_seconds=sample.read_seconds,
        process_counts=sample.process_counts,
        processes=sample.processes,
        sources=sample.sources,
    )
    assert set(sample.sources) <= {"processes"}


@pytest.mark.parametrize("code", [EOPNOTSUPP, EINVAL])
def test_what_the_driver_does_not_support_is_absent(tmp_path: Path, code: int) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.answers.errors = {"gpu_busy_percent": code, "power1_average": code, "gpu_metrics": code, "pwm1": code}
    sample = bench.read()
    assert (sample.utilization_ratio, sample.fan_speed_ratio, sample.energy_counter_joules) == (None, None, None)
    assert (sample.power_watts, sample.power_kind) == (101, "instant")
    assert sample.failed == sample.rejected == ()


def test_the_load_of_a_card_without_the_file_is_that_of_its_table(tmp_path: Path) -> None:
    sample = look(tmp_path, without("busy_percent", gpu_metrics=radeon_table(average_gfx_activity=64)))
    assert sample.utilization_ratio == 0.64
    assert sample.sources["utilization_ratio"] == "gpu_metrics"


def test_clocks_of_power_management_stand_in_for_those_of_hwmon(tmp_path: Path) -> None:
    files = without("freq1_input", "freq2_input", "gpu_metrics")
    files |= {
        "pp_dpm_sclk": "0: 500Mhz \n1: 1900Mhz *\n2: 2482Mhz ",
        "pp_dpm_mclk": "0: 96Mhz *\n1: 1249Mhz ",
        "pp_dpm_fclk": "0: 1000Mhz ",  # none is marked
    }
    sample = look(tmp_path, files)
    assert sample.clock_hertz == {"graphics": 1.9e9, "memory": 96e6}
    assert sample.sources["clock_hertz"] == "sysfs"


def test_a_deep_sleep_clock_is_a_clock(tmp_path: Path) -> None:
    files = without("freq1_input", "gpu_metrics", pp_dpm_sclk="S: 19Mhz *\n0: 500Mhz \n")
    assert look(tmp_path, files).clock_hertz["graphics"] == 19e6


def test_the_link_to_the_slot_is_outside_of_the_switch_on_the_card(tmp_path: Path) -> None:
    slow = {"current_link_speed": "8.0 GT/s PCIe", "current_link_width": 4, "max_link_width": 16}
    bridges = {
        "0000:00:01.1": {"vendor": "0x1022", "device": "0x14db", "current_link_width": 1},
        "0000:01:00.0": {"vendor": "0x1002", "device": "0x1478", **slow},
        "0000:02:00.0": {"vendor": "0x1002", "device": "0x1479", "current_link_width": 16},
    }
    sample = look(tmp_path, behind=bridges)
    assert (sample.pcie_link_generation, sample.pcie_link_width, sample.pcie_link_width_max) == (3, 4, 16)


@pytest.mark.parametrize(
    ("said", "generation"),
    [("2.5 GT/s PCIe", 1), ("5 GT/s", 2), ("8.0 GT/s", 3), ("32.0 GT/s PCIe", 5), ("64.0 GT/s PCIe", 6)],
)
def test_speeds_are_generations(tmp_path: Path, said: str, generation: int) -> None:
    assert look(tmp_path, radeon(current_link_speed=said)).pcie_link_generation == generation


def test_a_link_that_is_down_is_told_by_the_table(tmp_path: Path) -> None:
    files = radeon(current_link_speed="Unknown", current_link_width=0)
    files["gpu_metrics"] = radeon_table(pcie_link_speed=160, pcie_link_width=8)
    sample = look(tmp_path, files)
    assert (sample.pcie_link_generation, sample.pcie_link_width) == (4, 8)
    assert sample.sources["pcie_link_width"] == "gpu_metrics"


def test_deferred_errors_of_new_kernels(tmp_path: Path) -> None:
    sample = look(tmp_path, radeon(**{"ras/umc_err_count": "ue: 0\nce: 2\nde: 5\n"}))
    assert sample.ecc_errors == {"uncorrected": 0, "corrected": 5, "deferred": 5}


def test_sensors_are_found_after_the_kernel_has_numbered_them_anew(tmp_path: Path) -> None:
    device = card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    assert bench.read().power_watts == 97
    (device / HWMON).rename(device / "hwmon/hwmon7")
    assert bench.read().power_watts == 97  # devices() was asked between


def test_the_sizes_are_read_anew_each_time(tmp_path: Path) -> None:
    # On Hal0ai/hal0#891 the kernel's limit of GTT was changed from 80 to 96 GiB while the host ran.
    device = card(tmp_path, 0, radeon(mem_info_gtt_total=80 * GIB))
    bench = Bench(tmp_path)
    assert bench.read(LOAD).system_memory_size_bytes == 80 * GIB
    write(device, {"mem_info_gtt_total": 96 * GIB})
    assert bench.read(LOAD).system_memory_size_bytes == 96 * GIB


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.asked.clear()
    sample = bench.provider.read(device, ENERGY)
    names = {path.rpartition("/")[2] for path in bench.answers.asked}
    assert names == {"runtime_status", "power1_average", "power1_cap", "power1_cap_default", "gpu_metrics"}
    assert set(sample.taken_at) == {Group.ENERGY}
    assert bench.pauses > len(names)


def test_a_broken_table_costs_what_it_alone_tells(tmp_path: Path) -> None:
    sample = look(tmp_path, radeon(gpu_metrics=b"\xff" * 120))
    assert sample.energy_counter_joules is None
    assert sample.rejected == ("energy_counter_joules", "engine_utilization_ratio")
    assert sample.power_watts == 97
    assert sample.temperature_celsius["edge"] == 46


def test_a_table_of_an_unknown_version_is_counted_at_the_pace_of_the_state(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon(gpu_metrics=b"\x08\x00\x01\x09abcd"))
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    assert [bench.provider.read(device, ENERGY).rejected for _ in range(3)] == [("energy_counter_joules",), (), ()]
    assert bench.provider.read(device, STATE).rejected == ("throttled",)


def test_errors_of_input_and_output_fail_the_reading(tmp_path: Path) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    bench.answers.errors = {"gpu_busy_percent": EIO, "temp2_input": EIO, "umc_err_count": EIO}
    sample = bench.read()
    assert set(sample.failed) == {"utilization_ratio", "temperature_celsius", "ecc_errors"}
    assert sample.temperature_celsius == {"edge": 46, "memory": 70}


def test_throttling_is_told_from_the_second_look_on(tmp_path: Path) -> None:
    def mi300(prochot: int, counted: int, clock: int) -> bytes:
        return table(
            1,
            6,
            curr_socket_power=700,
            prochot_residency_acc=prochot,
            accumulation_counter=counted,
            system_clock_counter=clock,
            energy_accumulator=65536,
        )

    device = card(tmp_path, 0, radeon(gpu_metrics=mi300(10, 1000, 10**9)))
    bench = Bench(tmp_path)
    assert bench.read(STATE).throttled == {}
    write(device, {"gpu_metrics": mi300(20, 1100, 3 * 10**9)})
    sample = bench.read(STATE)
    assert sample.throttled["processor_hot"] is True
    assert sample.throttle_seconds["processor_hot"] == pytest.approx(0.2)
    assert sample.sources["throttled"] == "gpu_metrics"


def test_a_limit_of_0_is_not_set(tmp_path: Path) -> None:
    sample = look(tmp_path, radeon(**{f"{HWMON}/temp2_crit": 0, f"{HWMON}/power1_cap": 0}))
    assert sample.temperature_limit_celsius == {"shutdown": 115, "memory": 108}
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (None, 265)


@pytest.mark.parametrize("code", [EIO, EPERM])
def test_an_accumulator_that_could_not_be_read_for_once_is_read_again(tmp_path: Path, code: int) -> None:
    card(tmp_path, 0, radeon())
    bench = Bench(tmp_path)
    (device,) = bench.provider.devices()
    bench.answers.errors = {"gpu_metrics": code}
    assert bench.provider.read(device, ENERGY).energy_counter_joules is None
    bench.answers.errors = {}
    assert bench.provider.read(device, ENERGY).energy_counter_joules == 5


def test_links_to_other_cards_are_of_the_table(tmp_path: Path) -> None:
    links = table(1, 7, curr_socket_power=136, xgmi_link_status=[1], xgmi_read_data_acc=[3], xgmi_write_data_acc=[5])
    sample = look(tmp_path, radeon(gpu_metrics=links))
    (link,) = sample.links or ()
    assert (link.kind, link.link, link.up, link.receive_bytes, link.transmit_bytes) == ("xgmi", "0", True, 3072, 5120)
    assert sample.sources["links"] == "gpu_metrics"
