"""Which GPU is behind the kernel's render nodes and AMD's platform devices? Asked of sysfs."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from exporter.attribution.ids import RenderNode
from exporter.kfd import read_topology

_ENTRY = re.compile(r"card\d+|renderD(\d+)")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PLATFORM = re.compile(r"amdgpu_xcp[._](\d+)")


def render_nodes(root: Path = Path("/")) -> dict[str, RenderNode]:
    """Return the GPU behind each name: cardN, renderDN, amdgpu_xcp_N. What cannot be read is left out."""
    topology = {
        node.render_minor: RenderNode(f"{node.place}.0", node.partition)
        for node in read_topology(root)
        if node.render_minor is not None
    }
    of_address = Counter(node.address for node in topology.values())
    found = {}
    for name, names, minor in _devices(root):
        node = topology.get(minor) if minor is not None else None
        if _ADDRESS.fullmatch(name):
            # The first partition of a GPU is the PCI device itself.
            partitioned = node is not None and of_address[node.address] > 1
            node = node if partitioned else RenderNode(name)
        elif match := _PLATFORM.fullmatch(name):
            names.append(f"amdgpu_xcp_{match[1]}")
        if node is not None:
            found.update(dict.fromkeys(names, node))
    return found


def _devices(root: Path) -> Iterator[tuple[str, list[str], int | None]]:
    """Yield each device that has DRM nodes: its name, those of its nodes, and the minor number of its render node."""
    grouped: dict[Path, dict[str, int | None]] = {}
    try:
        entries = sorted((root / "sys/class/drm").iterdir())
    except OSError:  # no driver with DRM is loaded
        return
    for entry in entries:
        match = _ENTRY.fullmatch(entry.name)
        if match:
            device = (entry / "device").resolve()
            grouped.setdefault(device, {})[entry.name] = int(match[1]) if match[1] else None
    for device, nodes in grouped.items():
        yield device.name, list(nodes), next((minor for minor in nodes.values() if minor is not None), None)
