"""Values that people published of their cards, as their files would show them."""

from pathlib import Path
from typing import Any

from exporter.model import Group
from tests.drm import card, hwmon
from tests.kernel import fdinfo, open_files, process
from tests.unit.drm.bench import GIB, Bench, radeon
from tests.unit.drm.test_drm_packages import apu

ONLY = frozenset({Group.PROCESSES})
RENDER = "/dev/dri/renderD128"
MIB = 2**20


def test_a_vega_as_node_exporter_has_it(tmp_path: Path) -> None:
    # Fixture of prometheus/procfs: all that it has of card0.
    files = {
        "gpu_busy_percent": 4,
        "mem_info_gtt_total": 8573157376,
        "mem_info_gtt_used": 144560128,
        "mem_info_vis_vram_total": 8573157376,
        "mem_info_vis_vram_used": 1490378752,
        "mem_info_vram_total": 8573157376,
        "mem_info_vram_used": 1490378752,
        "mem_info_vram_vendor": "samsung",
        "power_dpm_force_performance_level": "manual",
        "unique_id": "0123456789abcdef",
    }
    card(tmp_path, 0, files, ids=(0x1002, 0x687F), minor=None)
    sample = Bench(tmp_path).read()
    assert sample.device.key == "0123456789abcdef"
    assert sample.device.model == "1002:687f"
    assert sample.utilization_ratio == 0.04
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (1490378752, 8573157376)
    assert (sample.memory_visible_used_bytes, sample.memory_visible_size_bytes) == (1490378752, 8573157376)
    assert sample.system_memory_used_bytes == 144560128


def test_20_an_mi210_of_which_another_exporter_said_0(tmp_path: Path) -> None:
    # ROCm/device-metrics-exporter#135: 48 W, 44 degrees, 12 % busy, 0.6 of 64 GB.
    sensors = hwmon("amdgpu", power1_average=48_000_000, temp1_input=44_000, temp1_label="edge")
    files = {"gpu_busy_percent": 12, "mem_info_vram_total": 64 * GIB, "mem_info_vram_used": 600 * MIB}
    card(tmp_path, 0, sensors | files, ids=(0x1002, 0x740F))
    sample = Bench(tmp_path).read()
    assert (sample.power_watts, sample.utilization_ratio) == (48, 0.12)
    assert sample.temperature_celsius == {"edge": 44}
    assert (sample.memory_used_bytes, sample.memory_size_bytes) == (600 * MIB, 64 * GIB)


def test_25_an_rx_7900_xt(tmp_path: Path) -> None:
    # ollama/ollama#3144: device 29772, limit 265 W of 238 to 290 W, GTT 33668050944.
    card(tmp_path, 0, radeon(), ids=(0x1002, 29772))
    sample = Bench(tmp_path).read()
    assert (sample.power_limit_watts, sample.power_limit_default_watts) == (265, 265)
    assert sample.system_memory_size_bytes == 33668050944


def test_27_and_28_a_strix_halo_of_which_rocm_says_nothing(tmp_path: Path) -> None:
    # ROCm/legacy-rocm-build#6035 and ROCm/device-metrics-exporter#353: "N/A" or 0 to everything, while sysfs is fine.
    card(tmp_path, 0, apu(), ids=(0x1002, 0x1586))
    sample = Bench(tmp_path).read()
    assert sample.power_watts == 14.003
    assert sample.temperature_celsius == {"edge": 38}
    assert sample.utilization_ratio == 0.03


def test_30_a_model_in_the_memory_of_the_host(tmp_path: Path) -> None:
    # Syllo/nvtop#492, a Radeon 890M: one process with 25258000 KiB of GTT and 5348 KiB of VRAM.
    files = apu(mem_info_gtt_total=48 * GIB, mem_info_gtt_used=int(24.3 * GIB))
    card(tmp_path, 0, files, ids=(0x1002, 0x150E), address="0000:c4:00.0")
    process(tmp_path, 4242, b"llama-server")
    memory: dict[str, Any] = {"drm_memory_gtt": "25258000 KiB", "drm_memory_vram": "5348 KiB"}
    open_files(tmp_path, 4242, (RENDER, fdinfo(address="0000:c4:00.0", **memory)))
    bench = Bench(tmp_path)
    sample = bench.read(ONLY | {Group.LOAD})
    (held,) = sample.processes or ()
    assert (held.pid, held.name, held.memory_used_bytes) == (4242, "llama-server", (25258000 + 5348) * 1024)
    assert sample.system_memory_used_bytes == int(24.3 * GIB)


def test_31_a_carve_out_of_half_a_gigabyte(tmp_path: Path) -> None:
    # corecoding/Vitals#515, a Ryzen AI MAX+ 395: 512 MiB of VRAM, about 63 of 124 GiB of GTT.
    card(tmp_path, 0, apu())
    sample = Bench(tmp_path).read()
    assert sample.memory_size_bytes == 512 * MIB
    assert (sample.system_memory_used_bytes, sample.system_memory_size_bytes) == (63 * GIB, 124 * GIB)
