"""Where each field is in a table that describes itself: gpu_metrics v1_9, and v1_1 of xcp_metrics.

After the header comes how many attributes there are. Each is 64 bits that say what follows, and the value or values,
without any padding. Attributes, types and units are numbered by the kernel's kgd_pp_interface.h.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from exporter.providers.drm.gpu_metrics.layouts import HEADER, Field, Layout
from exporter.providers.drm.gpu_metrics.record import RefusedError

_COUNT = struct.Struct("<i")
_ENCODING = struct.Struct("<Q")
_TYPES = "BbHhIiQq"
"""Codes of struct, by number of the type."""
_NONE, _MEGAHERTZ, _CELSIUS, _WATTS, _NANOSECONDS, _TENTHS, _KILOBYTES, _PERCENT = 0, 1, 2, 3, 4, 7, 9, 10
_NAMES: Mapping[tuple[int, int], str] = {
    (0, _CELSIUS): "hotspot",
    (1, _CELSIUS): "memory",
    (3, _WATTS): "current_power",
    (4, _PERCENT): "gfx_activity",
    (5, _PERCENT): "umc_activity",
    (7, _NONE): "energy",
    (8, _NANOSECONDS): "clock",
    (9, _NONE): "accumulations",
    (10, _NONE): "prochot_residency",
    (11, _NONE): "ppt_residency",
    (12, _NONE): "socket_residency",
    (13, _NONE): "vr_residency",
    (14, _NONE): "hbm_residency",
    (16, _NONE): "pcie_width",
    (17, _TENTHS): "pcie_speed",
    (25, _NONE): "pcie_replays",
    (29, _KILOBYTES): "xgmi_read",
    (30, _KILOBYTES): "xgmi_write",
    (31, _NONE): "xgmi_status",
    (33, _MEGAHERTZ): "current_gfxclk",
    (34, _MEGAHERTZ): "current_socclk",
    (35, _MEGAHERTZ): "current_vclk",
    (37, _MEGAHERTZ): "current_uclk",
    (38, _NONE): "partitions",
    (40, _PERCENT): "busy",
    (41, _PERCENT): "jpeg",
    (42, _PERCENT): "video",
    (48, _CELSIUS): "hbm",
}
"""As `LAYOUTS` names them, by number of the attribute and of the unit that it is understood in."""


class _Attribute(NamedTuple):
    number: int
    unit: int
    code: str
    values: int


def layout_of(name: str, raw: bytes, size: int) -> Layout:
    """Return the layout of a table of `size` bytes, of which `raw` may have fewer. Raises RefusedError.

    `name`: of file and version, for people.
    """
    start = HEADER.size + _COUNT.size
    if len(raw) < start or size < start:
        raise RefusedError(f"{name} is cut short: {len(raw)} bytes", torn=True)
    fields: dict[str, Field] = {}
    offset = start
    (count,) = _COUNT.unpack_from(raw, HEADER.size)
    for _ in range(count):
        if offset + _ENCODING.size > min(size, len(raw)):
            raise RefusedError(f"{name} has fewer attributes than the {count} that it counts", torn=True)
        attribute = _attribute(name, *_ENCODING.unpack_from(raw, offset))
        reader = struct.Struct(f"<{attribute.values}{attribute.code}")
        offset += _ENCODING.size
        field = _NAMES.get((attribute.number, attribute.unit))
        # No attribute that is read has a sign: ones are "no value".
        if field is not None and attribute.code.isupper():
            fields.setdefault(field, Field(offset, reader, 8 * struct.calcsize(f"<{attribute.code}")))
        offset += reader.size
    if offset != size:
        raise RefusedError(f"{name} says {size} bytes, and has {offset}", torn=True)
    return Layout(size, fields)


def _attribute(name: str, encoding: int) -> _Attribute:
    """Decode bits 0 to 9: how many values, 10 to 19: which attribute, 20 to 23: type, 24 to 31: unit."""
    kind = encoding >> 20 & 0xF
    if kind >= len(_TYPES):
        raise RefusedError(f"{name} has a value of the unknown type {kind}", torn=True)
    return _Attribute(encoding >> 10 & 0x3FF, encoding >> 24 & 0xFF, _TYPES[kind], encoding & 0x3FF)
