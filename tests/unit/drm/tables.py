"""Builder of gpu_metrics tables, as a driver fills them in: ones first, then field by field.

The structures are laid out by ctypes, so that nothing is taken from the decoder, and named as in the kernel's header.
"""

import ctypes
from collections.abc import Mapping
from typing import Any

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64
Fields = list[tuple[str, Any]]


def f(kind: Any, names: str) -> Fields:
    """Fields of one kind; `name[4]` is an array."""
    fields = []
    for word in names.split():
        name, _, count = word.removesuffix("]").partition("[")
        fields.append((name, kind * int(count) if count else kind))
    return fields


def structure(name: str, *groups: Fields) -> type[ctypes.LittleEndianStructure]:
    return type(name, (ctypes.LittleEndianStructure,), {"_fields_": [field for group in groups for field in group]})


HEADER = f(U16, "structure_size") + f(U8, "format_revision content_revision")
ENERGY_AND_CLOCK = f(U64, "energy_accumulator system_clock_counter")
TEMPERATURES = f(
    U16, "temperature_edge temperature_hotspot temperature_mem temperature_vrgfx temperature_vrsoc temperature_vrmem"
)
ACTIVITY = f(U16, "average_gfx_activity average_umc_activity average_mm_activity")
AVERAGE_CLOCKS = f(
    U16,
    "average_gfxclk_frequency average_socclk_frequency average_uclk_frequency average_vclk0_frequency "
    "average_dclk0_frequency average_vclk1_frequency average_dclk1_frequency",
)
CURRENT_CLOCKS = f(
    U16, "current_gfxclk current_socclk current_uclk current_vclk0 current_dclk0 current_vclk1 current_dclk1"
)
V1_0 = (
    HEADER,
    f(U64, "system_clock_counter"),
    TEMPERATURES,
    ACTIVITY,
    f(U16, "average_socket_power"),
    f(U32, "energy_accumulator"),
    AVERAGE_CLOCKS,
    CURRENT_CLOCKS,
    f(U32, "throttle_status"),
    f(U16, "current_fan_speed"),
    f(U8, "pcie_link_width pcie_link_speed"),
)
V1_1 = (
    HEADER,
    TEMPERATURES,
    ACTIVITY,
    f(U16, "average_socket_power"),
    ENERGY_AND_CLOCK,
    AVERAGE_CLOCKS,
    CURRENT_CLOCKS,
    f(U32, "throttle_status"),
    f(U16, "current_fan_speed pcie_link_width pcie_link_speed padding"),
    f(U32, "gfx_activity_acc mem_activity_acc"),
    f(U16, "temperature_hbm[4]"),
)
V1_2 = (*V1_1, f(U64, "firmware_timestamp"))
V1_3 = (*V1_2, f(U16, "voltage_soc voltage_gfx voltage_mem padding1"), f(U64, "indep_throttle_status"))

SOCKET = f(
    U16,
    "temperature_hotspot temperature_mem temperature_vrsoc curr_socket_power average_gfx_activity average_umc_activity",
)
LINK = f(U16, "pcie_link_width pcie_link_speed xgmi_link_width xgmi_link_speed")
ACCUMULATED = f(U32, "gfx_activity_acc mem_activity_acc") + f(
    U64,
    "pcie_bandwidth_acc pcie_bandwidth_inst pcie_l0_to_recov_count_acc pcie_replay_count_acc "
    "pcie_replay_rover_count_acc",
)
NAKS = f(U32, "pcie_nak_sent_count_acc pcie_nak_rcvd_count_acc")
XGMI = f(U64, "xgmi_read_data_acc[8] xgmi_write_data_acc[8]")
DIE_CLOCKS = f(U64, "firmware_timestamp") + f(
    U16, "current_gfxclk[8] current_socclk[4] current_vclk0[4] current_dclk0[4] current_uclk"
)
THROTTLE = f(U32, "throttle_status gfxclk_lock_status")
RESIDENCIES = f(
    U32,
    "accumulation_counter prochot_residency_acc ppt_residency_acc socket_thm_residency_acc vr_thm_residency_acc "
    "hbm_thm_residency_acc gfxclk_lock_status",
)
V1_4 = (
    *(HEADER, SOCKET, f(U16, "vcn_activity[4]"), ENERGY_AND_CLOCK, THROTTLE, LINK, ACCUMULATED, XGMI, DIE_CLOCKS),
    f(U16, "padding"),
)
V1_5 = (
    *(HEADER, SOCKET, f(U16, "vcn_activity[4] jpeg_activity[32]"), ENERGY_AND_CLOCK, THROTTLE, LINK, ACCUMULATED),
    *(NAKS, XGMI, DIE_CLOCKS, f(U16, "padding")),
)
BUSY = f(U32, "gfx_busy_inst[8]")
XCP = structure("xcp", BUSY, f(U16, "jpeg_busy[32] vcn_busy[4]"), f(U64, "gfx_busy_acc[8]"))
XCP_1_1 = structure(
    "xcp_1_1", BUSY, f(U16, "jpeg_busy[32] vcn_busy[4]"), f(U64, "gfx_busy_acc[8] gfx_below_host_limit_acc[8]")
)
XCP_1_2 = structure(
    "xcp_1_2",
    BUSY,
    f(U16, "jpeg_busy[40] vcn_busy[4]"),
    f(
        U64,
        "gfx_busy_acc[8] gfx_below_host_limit_ppt_acc[8] gfx_below_host_limit_thm_acc[8] "
        "gfx_low_utilization_acc[8] gfx_below_host_limit_total_acc[8]",
    ),
)
OTHER_END = f(U32, "pcie_lc_perf_other_end_recovery")


def partitions(kind: Any) -> Fields:
    return [*f(U16, "num_partition"), ("xcp_stats", kind * 8), *OTHER_END]


V1_6 = (
    *(HEADER, SOCKET, ENERGY_AND_CLOCK, RESIDENCIES, LINK, ACCUMULATED, NAKS, XGMI, DIE_CLOCKS),
    partitions(XCP),
)
V1_7_HEAD = (
    *(HEADER, SOCKET, f(U64, "mem_max_bandwidth"), ENERGY_AND_CLOCK, RESIDENCIES, LINK, ACCUMULATED, NAKS, XGMI),
    *(f(U16, "xgmi_link_status[8] padding"), DIE_CLOCKS),
)
V1_7 = (*V1_7_HEAD, partitions(XCP_1_1))
V1_8 = (*V1_7_HEAD, partitions(XCP_1_2))

V2_1 = (
    HEADER,
    f(U16, "temperature_gfx temperature_soc temperature_core[8] temperature_l3[2]"),
    f(U16, "average_gfx_activity average_mm_activity"),
    f(U64, "system_clock_counter"),
    f(U16, "average_socket_power average_cpu_power average_soc_power average_gfx_power average_core_power[8]"),
    f(U16, "average_gfxclk_frequency average_socclk_frequency average_uclk_frequency"),
    f(U16, "average_fclk_frequency average_vclk_frequency average_dclk_frequency"),
    f(U16, "current_gfxclk current_socclk current_uclk current_fclk current_vclk current_dclk"),
    f(U16, "current_coreclk[8] current_l3clk[2]"),
    f(U32, "throttle_status"),
    f(U16, "fan_pwm padding[3]"),
)
V2_2 = (*V2_1, f(U64, "indep_throttle_status"))
V2_3 = (
    *V2_2,
    f(U16, "average_temperature_gfx average_temperature_soc average_temperature_core[8] average_temperature_l3[2]"),
)
V2_4 = (
    *V2_3,
    f(U16, "average_cpu_voltage average_soc_voltage average_gfx_voltage"),
    f(U16, "average_cpu_current average_soc_current average_gfx_current"),
)
V2_0 = (HEADER, f(U64, "system_clock_counter"), *V2_1[1:3], *V2_1[4:-1], f(U16, "fan_pwm padding"))
V3_0 = (
    HEADER,
    f(U16, "temperature_gfx temperature_soc temperature_core[16] temperature_skin"),
    f(U16, "average_gfx_activity average_vcn_activity average_ipu_activity[8] average_core_c0_activity[16]"),
    f(U16, "average_dram_reads average_dram_writes average_ipu_reads average_ipu_writes"),
    f(U64, "system_clock_counter"),
    f(U32, "average_socket_power"),
    f(U16, "average_ipu_power"),
    f(U32, "average_apu_power average_gfx_power average_dgpu_power average_all_core_power"),
    f(U16, "average_core_power[16] average_sys_power stapm_power_limit current_stapm_power_limit"),
    f(U16, "average_gfxclk_frequency average_socclk_frequency average_vpeclk_frequency average_ipuclk_frequency"),
    f(U16, "average_fclk_frequency average_vclk_frequency average_uclk_frequency average_mpipu_frequency"),
    f(U16, "current_coreclk[16] current_core_maxfreq current_gfx_maxfreq"),
    f(U32, "throttle_residency_prochot throttle_residency_spl throttle_residency_fppt throttle_residency_sppt"),
    f(U32, "throttle_residency_thm_core throttle_residency_thm_gfx throttle_residency_thm_soc"),
    f(U32, "time_filter_alphavalue"),
)

PARTITION = structure(
    "amdgpu_partition_metrics_v1_0",
    HEADER,
    f(U16, "current_gfxclk[8] current_socclk[4] current_vclk0[4] current_dclk0[4] current_uclk padding"),
    BUSY,
    f(U16, "jpeg_busy[40] vcn_busy[4]"),
    f(U64, "gfx_busy_acc[8] gfx_below_host_limit_ppt_acc[8] gfx_below_host_limit_thm_acc[8]"),
    f(U64, "gfx_low_utilization_acc[8] gfx_below_host_limit_total_acc[8]"),
)
"""Of xcp_metrics."""

STRUCTURES: Mapping[tuple[int, int], type[ctypes.LittleEndianStructure]] = {
    version: structure(f"gpu_metrics_v{version[0]}_{version[1]}", *groups)
    for version, groups in {
        (1, 0): V1_0,
        (1, 1): V1_1,
        (1, 2): V1_2,
        (1, 3): V1_3,
        (1, 4): V1_4,
        (1, 5): V1_5,
        (1, 6): V1_6,
        (1, 7): V1_7,
        (1, 8): V1_8,
        (2, 0): V2_0,
        (2, 1): V2_1,
        (2, 2): V2_2,
        (2, 3): V2_3,
        (2, 4): V2_4,
        (3, 0): V3_0,
    }.items()
}


def table(form: int, content: int, **values: Any) -> bytes:
    """Return a table with these fields; `xcp_stats` is a list of mappings, an array may be given in part."""
    return _build(STRUCTURES[form, content], form, content, values)


def partition_table(**values: Any) -> bytes:
    """Return an xcp_metrics of v1_0."""
    return _build(PARTITION, 1, 0, values)


def _build(kind: Any, form: int, content: int, values: Mapping[str, Any]) -> bytes:
    built = kind.from_buffer(bytearray(b"\xff" * ctypes.sizeof(kind)))
    header = {"structure_size": ctypes.sizeof(kind), "format_revision": form, "content_revision": content}
    _fill(built, {**header, **values})
    return bytes(built)


def _fill(built: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if not isinstance(value, list):
            if not hasattr(built, name):
                raise AttributeError(name)
            setattr(built, name, value)
            continue
        array = getattr(built, name)
        for index, item in enumerate(value):
            if isinstance(item, Mapping):
                _fill(array[index], item)
            else:
                array[index] = item


NONE, CLOCK, TEMPERATURE, POWER, TIME, FIRMWARE_TIME, SPEED, TENTHS_OF_SPEED, BANDWIDTH, DATA, PERCENT = range(11)
"""Units of v1_9, as the kernel numbers them."""
ATTRIBUTES: Mapping[str, tuple[int, int, Any]] = {
    "temperature_hotspot": (0, TEMPERATURE, U16),
    "temperature_mem": (1, TEMPERATURE, U16),
    "temperature_vrsoc": (2, TEMPERATURE, U16),
    "curr_socket_power": (3, POWER, U16),
    "average_gfx_activity": (4, PERCENT, U16),
    "average_umc_activity": (5, PERCENT, U16),
    "mem_max_bandwidth": (6, BANDWIDTH, U64),
    "energy_accumulator": (7, NONE, U64),
    "system_clock_counter": (8, TIME, U64),
    "accumulation_counter": (9, NONE, U32),
    "prochot_residency_acc": (10, NONE, U32),
    "ppt_residency_acc": (11, NONE, U32),
    "socket_thm_residency_acc": (12, NONE, U32),
    "vr_thm_residency_acc": (13, NONE, U32),
    "hbm_thm_residency_acc": (14, NONE, U32),
    "pcie_link_width": (16, NONE, U16),
    "pcie_link_speed": (17, TENTHS_OF_SPEED, U16),
    "xgmi_link_speed": (19, SPEED, U16),
    "pcie_replay_count_acc": (25, NONE, U64),
    "xgmi_read_data_acc": (29, DATA, U64),
    "xgmi_write_data_acc": (30, DATA, U64),
    "xgmi_link_status": (31, NONE, U16),
    "firmware_timestamp": (32, FIRMWARE_TIME, U64),
    "current_gfxclk": (33, CLOCK, U16),
    "current_socclk": (34, CLOCK, U16),
    "current_uclk": (37, CLOCK, U16),
    "num_partition": (38, NONE, U16),
    "gfx_busy_inst": (40, PERCENT, U32),
    "jpeg_busy": (41, PERCENT, U16),
    "vcn_busy": (42, PERCENT, U16),
    "temperature_hbm": (48, TEMPERATURE, U16),
}
TYPES = (U8, ctypes.c_int8, U16, ctypes.c_int16, U32, ctypes.c_int32, U64, ctypes.c_int64)


def attribute(number: int, unit: int, kind: Any, *values: int) -> bytes:
    """Return one attribute of v1_9: what follows, and what it is."""
    encoding = unit << 24 | TYPES.index(kind) << 20 | number << 10 | len(values)
    return bytes(U64(encoding)) + bytes((kind * len(values))(*values))


def described(*attributes: bytes, count: int | None = None, size: int | None = None, content: int = 9) -> bytes:
    """Return a table that describes itself, of these attributes."""
    body = b"".join(attributes)
    head = bytes(U16(8 + len(body) if size is None else size)) + bytes((1, content))
    return head + bytes(ctypes.c_int32(len(attributes) if count is None else count)) + body


def table_1_9(**values: Any) -> bytes:
    """Return a v1_9 with these attributes, of the types that MI300 has."""
    return described(
        *(
            attribute(*ATTRIBUTES[name], *(value if isinstance(value, list) else [value]))
            for name, value in values.items()
        )
    )
