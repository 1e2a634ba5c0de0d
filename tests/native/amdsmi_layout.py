"""Makes the stand-in for libamd_smi.so of one ROCm release, with the layouts and symbols of its amdsmi wheel."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.native.plan import NATIVE, PLAN_HEADERS, PLAN_SOURCES, cache_directory, compile_library
from tests.tools import unavailable

WHEELS = ("6.0.2", "6.1.0", "6.1.2", "6.2.4", "6.3.3", "6.4.3", "7.0.2")
"""Releases on PyPI that differ in layouts, symbols or keys."""

SOURCES = sorted(NATIVE.glob("amdsmi*.c"))

LIBRARY_VERSIONS = {
    "6.0.2": (23, 4, 2, 0),
    "6.1.0": (24, 4, 1, 0),
    "6.1.2": (24, 5, 2, 0),
    "6.2.4": (24, 6, 3, 0),
    "6.3.3": (25, 1, 0, 0),
    "6.4.3": (0, 25, 5, 1),
    "7.0.2": (26, 0, 2, 0),
}
"""The numbers of amdsmi_version_t: year, major, minor, release; 6.4 leaves the year out, 7.0 has no field for it."""

_BOUND = re.compile(r"_libraries\['libamd_smi\.so'\]\.(\w+)")
_DEFINED = re.compile(r"^int (amdsmi_\w+)\(", re.MULTILINE)
_REPEATING = frozenset({"6.0.2", "6.1.0", "6.1.2", "6.2.4", "6.3.3"})
_WATTS = frozenset({"6.0.2", "6.1.0"})
# Names as the interface uses them; fields that a release lacks get width 0 and are not written.
_FIELDS = {
    "asic_info": (
        "market_name vendor_id vendor_name subvendor_id device_id rev_id asic_serial oam_id num_of_compute_units "
        "target_graphics_version subsystem_id"
    ),
    "board_info": "model_number product_serial fru_id product_name manufacturer_name",
    "bdf": "as_uint",
    "cper_hdr": (
        "signature signature_end sec_cnt error_severity record_length record_id timestamp.year timestamp.month "
        "timestamp.day timestamp.hours timestamp.minutes timestamp.seconds"
    ),
    "clk_info": "clk cur_clk min_clk max_clk sleep_clk",
    "driver_info": "driver_version driver_date driver_name",
    "engine_usage": "gfx_activity umc_activity mm_activity",
    "enumeration_info": "drm_render drm_card hsa_id hip_id hip_uuid",
    "error_count": "correctable_count uncorrectable_count deferred_count",
    "fw_info": "num_fw_info fw_info_list",
    "gpu_metrics": (
        "temperature_edge temperature_hotspot temperature_mem average_gfx_activity average_umc_activity "
        "average_mm_activity average_socket_power current_socket_power energy_accumulator system_clock_counter "
        "current_gfxclk current_socclk current_uclk pcie_link_width accumulation_counter prochot_residency_acc "
        "ppt_residency_acc socket_thm_residency_acc vr_thm_residency_acc hbm_thm_residency_acc num_partition xcp_stats "
        "xgmi_read_data_acc xgmi_write_data_acc xgmi_link_status"
    ),
    "gpu_xcp_metrics": "gfx_busy_inst",
    "kfd_info": "kfd_id node_id current_partition_id",
    "pcie_info": (
        "pcie_lanes pcie_speed pcie_interface_version pcie_static.max_pcie_width pcie_static.max_pcie_speed "
        "pcie_static.pcie_interface_version pcie_metric.pcie_width pcie_metric.pcie_speed pcie_metric.pcie_replay_count"
    ),
    "power_cap_info": "power_cap default_power_cap min_power_cap max_power_cap",
    "power_info": (
        "socket_power current_socket_power average_socket_power gfx_voltage soc_voltage mem_voltage power_limit"
    ),
    "proc_info": "name pid mem memory_usage.gtt_mem memory_usage.vram_mem cu_occupancy",
    "vbios_info": "name build_date part_number version",
    "version": "build",
    "vram_info": "vram_type vram_size vram_size_mb",
    "vram_usage": "vram_total vram_used",
}
_CONSTANTS = {
    "FW_ID": "SMU PM TA_RAS RLC SDMA1",
    "STATUS": "MORE_DATA",
    "TEMPERATURE_TYPE": "EDGE HOTSPOT VRAM HBM_0 HBM_1 HBM_2 HBM_3",
    "TEMP": "CURRENT CRITICAL EMERGENCY",
    "CLK_TYPE": "GFX MEM SOC DF VCLK0",
    "VRAM_TYPE": "HBM HBM2 HBM2E HBM3 DDR4 GDDR6",
    "MEM_TYPE": "VRAM VIS_VRAM GTT",
}

# Runs in a process of its own, because it puts an object that has every symbol in the place of the library.
_INSPECT = """
import ctypes, importlib.util, json, sys

class Anything:
    def __init__(self, *_arguments, **_options): pass
    def __getattr__(self, name):
        self.__dict__[name] = Anything()
        return self.__dict__[name]

ctypes.CDLL = Anything
spec = importlib.util.spec_from_file_location("wrapper", sys.argv[1])
wrapper = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wrapper)

def fields(kind, prefix="", base=0):
    for entry in getattr(kind, "_fields_", ()):
        at = getattr(kind, entry[0])
        if len(entry) == 2:
            yield prefix + entry[0], (base + at.offset, at.size)
            yield from fields(entry[1], prefix + entry[0] + ".", base + at.offset)

names = [name for name in dir(wrapper) if name.endswith("_t")]  # not every struct has a second name in each release
kinds = {name.removeprefix("struct_"): getattr(wrapper, name) for name in names}
structs = {
    name.removeprefix("amdsmi_")[:-2]: {"size": ctypes.sizeof(kind), "fields": dict(fields(kind))}
    for name, kind in kinds.items()
    if isinstance(kind, type) and issubclass(kind, (ctypes.Structure, ctypes.Union))
}
constants = {name: value for name, value in vars(wrapper).items() if isinstance(value, int) and name.isupper()}
json.dump({"structs": structs, "constants": constants}, sys.stdout)
"""


def amdsmi_tree(version: str, directory: Path, *, library: str | None = None) -> dict[str, str]:
    """Lay out a ROCm of that release below `directory`/opt/rocm and return the variables for a process that uses it.

    `library`: release whose libamd_smi.so lies there instead of the package's own; "" for none at all. The plan is
    named by GPU_EXPORTER_PLAN, which is not set here. Skips the test when the package registry cannot be reached.
    """
    rocm = directory / "opt/rocm"
    package = rocm / "share/amd_smi/amdsmi"
    shutil.copytree(unpacked_wheel(version) / "amdsmi", package)
    (rocm / "lib").mkdir(exist_ok=True)
    release = version if library is None else library
    if release:
        (rocm / "lib/libamd_smi.so").symlink_to(build_amdsmi(release))
    return {"ROCM_PATH": str(rocm), "ROCM_HOME": str(rocm)}


@functools.cache
def build_amdsmi(version: str) -> Path:
    """Compile the stand-in that has the layouts and symbols of a release, and return libamd_smi.so."""
    wrapper = unpacked_wheel(version) / "amdsmi/amdsmi_wrapper.py"
    with tempfile.TemporaryDirectory(prefix="amdsmi-layout-") as name:
        folder = Path(name)
        header, rest = folder / "amdsmi_layout.h", folder / "amdsmi_rest.c"
        header.write_text(_header(version, wrapper))
        rest.write_text(_rest(wrapper))
        headers = [*PLAN_HEADERS, NATIVE / "amdsmi.h", header]
        return compile_library("libamd_smi.so", [*PLAN_SOURCES, *SOURCES, rest], headers)


def unpacked_wheel(version: str) -> Path:
    """Return the folder of an unpacked amdsmi wheel, downloaded once."""
    # Not below the temp directory: others may write there, and old files are swept out of it one by one.
    cache = cache_directory("wheels")
    folder = cache / f"amdsmi-{version}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        fresh = Path(name) / "unpacked"
        with zipfile.ZipFile(_download(version, Path(name))) as wheel:
            wheel.extractall(fresh)
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


def _download(version: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), f"amdsmi=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        unavailable(f"the package amdsmi {version} ({done.stderr.strip()})", " ".join(command))
    return next(folder.glob("*.whl"))


def bound_symbols(wrapper: Path) -> frozenset[str]:
    """Return what a wrapper looks up in its library, all of it at import."""
    return frozenset(_BOUND.findall(wrapper.read_text()))


def _header(version: str, wrapper: Path) -> str:
    command = [sys.executable, "-c", _INSPECT, str(wrapper)]
    environment = {**os.environ, "ROCM_PATH": "/nonexistent"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    seen = json.loads(done.stdout)
    lines = [f"#define {name}_SIZE {_struct(seen, name).get('size', 0)}" for name in _FIELDS]
    for struct, names in _FIELDS.items():
        fields = _struct(seen, struct).get("fields", {})
        for field in names.split():
            offset, width = fields.get(field, (0, 0))
            lines.append(f"#define {struct}_{field.replace('.', '_')} {offset}, {width}")
    for family, names in _CONSTANTS.items():
        for name in names.split():
            plain = f"{family}_{name}"
            value = seen["constants"].get(f"AMDSMI_{plain}", seen["constants"].get(plain, -1))
            lines.append(f"#define {plain} {value}")
    lines += [f"#define HAS_{name} 1" for name in sorted(bound_symbols(wrapper))]
    lines += [f"#define LIBRARY_VERSION {', '.join(map(str, LIBRARY_VERSIONS[version]))}"]
    major, minor, _ = map(int, version.split("."))
    lines += [f"#define RELEASE {100 * major + minor}"]
    lines += [f"#define PARTITIONS_REPEAT {int(version in _REPEATING)}"]
    lines += [f"#define LIMIT_UNITS_PER_WATT {1 if version in _WATTS else 1_000_000}.0"]
    return "\n".join(lines) + "\n"


def _struct(seen: dict[str, dict[str, dict[str, object]]], name: str) -> dict[str, object]:
    return seen["structs"].get(name, {})


def _rest(wrapper: Path) -> str:
    """Everything else that the wrapper binds answers "not supported"."""
    defined = {name for source in SOURCES for name in _DEFINED.findall(source.read_text())}
    rest = sorted(bound_symbols(wrapper) - defined)
    return "".join(f"int {name}(void);\nint {name}(void) {{ return 2; }}\n" for name in rest)
