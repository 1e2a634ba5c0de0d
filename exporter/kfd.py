"""Which GPUs, and partitions of them, does AMD's driver for compute know? Read from its topology in sysfs."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.kernel import read_small

KFD = "sys/class/kfd/kfd"


class Node(NamedTuple):
    """A GPU, or one partition of it."""

    gpu_id: int
    """KFD's own number."""
    place: str
    """PCI address without the function: dddd:bb:dd."""
    partition: int
    compute_units: int | None = None
    render_minor: int | None = None
    """N of renderDN."""
    architecture: str | None = None
    """Such as gfx942."""


def read_topology(
    root: Path,
    read: Callable[[str], bytes] = read_small,
    names: Callable[[str], list[str]] = os.listdir,
) -> list[Node]:
    """List GPUs and partitions; empty where there is no KFD. `read` and `names`: what reads a file, and a folder."""
    above = f"{root}/{KFD}/topology/nodes"
    try:
        listed = names(above)
    except OSError:
        return []
    nodes = []
    for folder in (f"{above}/{name}" for name in listed):
        try:
            gpu_id = int(read(f"{folder}/gpu_id"))
            lines = read(f"{folder}/properties").decode("ascii", "replace").splitlines()
            properties = {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}
            if gpu_id:  # 0: a processor
                nodes.append(_node(gpu_id, properties))
        except (OSError, ValueError, KeyError):  # a node of which the GPU is not open to us shows nothing
            continue
    return nodes


def _node(gpu_id: int, properties: Mapping[str, int]) -> Node:
    # Bus, device and function, as PCI packs them; by kernel, the partition is on top or stands for the function.
    location = properties["location_id"]
    place = f"{properties.get('domain', 0):04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}"
    per_unit = properties.get("simd_per_cu", 0)
    units = properties.get("simd_count", 0) // per_unit if per_unit else 0
    minor = properties.get("drm_render_minor", 0)
    partition = location >> 28 & 0xF or location & 7
    architecture = _architecture(properties.get("gfx_target_version", 0))
    return Node(gpu_id, place, partition, units or None, minor if minor > 0 else None, architecture)


def _architecture(version: int) -> str | None:
    """Return gfx942 for 90402: two digits each, of which the last two are written in hexadecimal."""
    return f"gfx{version // 10_000}{version // 100 % 100:x}{version % 100:x}" if version > 0 else None
