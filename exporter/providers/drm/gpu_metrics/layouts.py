"""Where each field is in the versions of amdgpu's gpu_metrics table.

Compiled from the structures of the kernel's kgd_pp_interface.h, which lie as C lays them out on 64-bit machines. Runs
of fields that nothing here reads have the name `_`.

v2_0 is left out: its fields are not aligned, and v2_1 has its place. v1_9 describes itself: see `attributes`.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

HEADER = struct.Struct("<HBB")
"""Size of the structure, format, content."""

XGMI_LINKS = 8
PARTITIONS = 8
_XCP = "xcp"


class Field(NamedTuple):
    """One number or an array of them, little endian."""

    offset: int
    reader: struct.Struct
    bits: int
    """Width of one number: all ones mean that the driver has not written it."""


class Layout(NamedTuple):
    size: int
    fields: Mapping[str, Field]

    def numbers(self, raw: bytes, name: str) -> tuple[int, ...]:
        """Return what is in a field; empty: this table has none of that name."""
        field = self.fields.get(name)
        return () if field is None else field.reader.unpack_from(raw, field.offset)

    def bits(self, name: str) -> int:
        return self.fields[name].bits


def lay_out(text: str) -> Layout:
    """Place fields that are given as `name:8H` one after another, each at a multiple of its width."""
    offset, widest, fields = HEADER.size, 1, {}
    for name, _, code in (entry.partition(":") for entry in text.split()):
        width = struct.calcsize(f"<{code[-1]}")
        offset = -(-offset // width) * width
        widest = max(widest, width)
        reader = struct.Struct(f"<{code}")
        if name != "_":
            fields[name] = Field(offset, reader, width * 8)
        offset += reader.size
    return Layout(-(-offset // widest) * widest, fields)


def busy_of(partition: int) -> str:
    """Name of the field that has the load of a partition's compute dies."""
    return f"{_XCP}{partition}_busy"


def video_of(partition: int) -> str:
    return f"{_XCP}{partition}_video"


def jpeg_of(partition: int) -> str:
    return f"{_XCP}{partition}_jpeg"


def _partitions(jpeg_engines: int, accumulators: int) -> str:
    """Fields of all partitions. Their structure is a multiple of 8 long, with accumulators of 64 bits at its end.

    It begins at a multiple of 8: `_:0Q` moves there.
    """
    return "_:0Q " + " ".join(
        f"{busy_of(number)}:8I {jpeg_of(number)}:{jpeg_engines}H {video_of(number)}:4H _:{accumulators}Q"
        for number in range(PARTITIONS)
    )


_TEMPERATURES = "edge:H hotspot:H memory:H _:3H"
_ACTIVITY = "gfx_activity:H umc_activity:H media_activity:H"
_CLOCKS = (
    "average_gfxclk:H average_socclk:H average_uclk:H average_vclk:H _:3H "
    "current_gfxclk:H current_socclk:H current_uclk:H current_vclk:H _:3H"
)
_V1_0 = (
    f"clock:Q {_TEMPERATURES} {_ACTIVITY} average_power:H energy:I {_CLOCKS} _:I fan_speed:H pcie_width:B pcie_speed:B"
)
_V1_1 = (
    f"{_TEMPERATURES} {_ACTIVITY} average_power:H energy:Q clock:Q {_CLOCKS} _:I "
    "fan_speed:H pcie_width:H pcie_speed:H _:H _:2I hbm:4H"
)
_V1_2 = f"{_V1_1} firmware_clock:Q"
_V1_3 = f"{_V1_2} _:4H throttle_status:Q"

_SOCKET = "hotspot:H memory:H _:H current_power:H gfx_activity:H umc_activity:H"
_LINK = "pcie_width:H pcie_speed:H _:2H _:2I _:3Q pcie_replays:Q _:Q"
_XGMI = f"xgmi_read:{XGMI_LINKS}Q xgmi_write:{XGMI_LINKS}Q"
_DIE_CLOCKS = "firmware_clock:Q current_gfxclk:8H current_socclk:4H current_vclk:4H _:4H current_uclk:H"
_V1_4 = f"{_SOCKET} video:4H energy:Q clock:Q _:2I {_LINK} {_XGMI} {_DIE_CLOCKS} _:H"
_V1_5 = f"{_SOCKET} video:4H jpeg:32H energy:Q clock:Q _:2I {_LINK} _:2I {_XGMI} {_DIE_CLOCKS} _:H"
_RESIDENCIES = (
    "accumulations:I prochot_residency:I ppt_residency:I socket_residency:I vr_residency:I hbm_residency:I _:I"
)
_PARTITIONED = f"{_DIE_CLOCKS} partitions:H"
_V1_6 = (
    f"{_SOCKET} energy:Q clock:Q {_RESIDENCIES} {_LINK} _:2I {_XGMI} {_PARTITIONED} "
    f"{_partitions(jpeg_engines=32, accumulators=8)} _:I"
)
_V1_7 = (
    f"{_SOCKET} _:Q energy:Q clock:Q {_RESIDENCIES} {_LINK} _:2I {_XGMI} xgmi_status:{XGMI_LINKS}H _:H {_PARTITIONED} "
    f"{_partitions(jpeg_engines=32, accumulators=16)} _:I"
)
_V1_8 = (
    f"{_SOCKET} _:Q energy:Q clock:Q {_RESIDENCIES} {_LINK} _:2I {_XGMI} xgmi_status:{XGMI_LINKS}H _:H {_PARTITIONED} "
    f"{_partitions(jpeg_engines=40, accumulators=40)} _:I"
)

_V2_1 = (
    "edge:H soc:H _:8H _:2H gfx_activity:H media_activity:H clock:Q socket_power:H _:3H _:8H "
    "average_gfxclk:H average_socclk:H average_uclk:H average_fclk:H average_vclk:H _:H "
    "current_gfxclk:H current_socclk:H current_uclk:H current_fclk:H current_vclk:H _:H _:8H _:2H _:I _:H _:3H"
)
_V2_2 = f"{_V2_1} throttle_status:Q"
_V2_3 = f"{_V2_2} _:12H"
_V2_4 = f"{_V2_3} _:6H"

_V3_0 = (
    "edge:H soc:H _:16H _:H gfx_activity:H media_activity:H _:8H _:16H _:4H clock:Q "
    "socket_power:I _:H _:4I _:16H _:3H "
    "average_gfxclk:H average_socclk:H _:2H average_fclk:H average_vclk:H average_uclk:H _:H _:16H _:2H "
    "prochot_residency:I spl_residency:I fppt_residency:I sppt_residency:I "
    "core_residency:I gfx_residency:I soc_residency:I _:I"
)

LAYOUTS: Mapping[tuple[int, int], Layout] = {
    (1, 0): lay_out(_V1_0),
    (1, 1): lay_out(_V1_1),
    (1, 2): lay_out(_V1_2),
    (1, 3): lay_out(_V1_3),
    (1, 4): lay_out(_V1_4),
    (1, 5): lay_out(_V1_5),
    (1, 6): lay_out(_V1_6),
    (1, 7): lay_out(_V1_7),
    (1, 8): lay_out(_V1_8),
    (2, 1): lay_out(_V2_1),
    (2, 2): lay_out(_V2_2),
    (2, 3): lay_out(_V2_3),
    (2, 4): lay_out(_V2_4),
    (3, 0): lay_out(_V3_0),
}
"""By format and content."""
