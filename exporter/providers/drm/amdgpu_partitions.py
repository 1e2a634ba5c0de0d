"""Into which partitions is an AMD GPU divided, and what does each tell? Asked of the driver, KFD and gpu_metrics.

The first is the PCI device itself. The others are platform devices of their own, amdgpu_xcp, with no sensors: what is
known of them is KFD's topology, and what the package's table, or their own, says of each.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from exporter.kfd import Node, read_topology
from exporter.model import PartitionSample
from exporter.providers.drm.cards import Card, find_partitions
from exporter.providers.drm.files import Files
from exporter.providers.drm.gpu_metrics import Metrics, RefusedError, decode_partition
from exporter.providers.drm.reading import Reading

_COUNTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
"""Partitions by mode; in CPX there are as many as the card has dies."""


class _State(NamedTuple):
    nodes: list[Node]
    platform_devices: int
    mode: str | None


class PartitionReader:
    """Remembers of each card how it is divided. To tell its mode, the driver may wake the card: it is asked once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._states: dict[str, _State] = {}

    def mode(self, card: Card, reading: Reading) -> str | None:
        """Return compute and memory mode such as SPX/NPS1; None: it cannot be partitioned.

        It is asked for again when there are more or fewer partitions.
        """
        known = self._states.get(card.folder)
        nodes = nodes_of(self._root, card, reading.files)
        devices = len(find_partitions(self._root, reading.files))
        if known is not None and len(nodes) == len(known.nodes) and devices == known.platform_devices:
            return known.mode
        modes = (reading.text("current_compute_partition"), reading.text("current_memory_partition"))
        self._states[card.folder] = _State(nodes, devices, "/".join(mode for mode in modes if mode) or None)
        return self._states[card.folder].mode

    def samples(self, card: Card, reading: Reading, table: Metrics | None) -> tuple[PartitionSample, ...] | None:
        """Return the partitions; empty: it is not divided at this time."""
        told = table.partition_count if table is not None else None
        known = self._states.get(card.folder)
        if known is None or (told is not None and told != max(1, len(known.nodes))):
            self.mode(card, reading)
            known = self._states[card.folder]
        if known.mode is None and len(known.nodes) <= 1:
            return None
        profile = (known.mode or "").split("/")[0] or None
        numbers = sorted(node.partition for node in known.nodes)
        if not numbers:  # this host has no KFD
            numbers = list(range(told or _COUNTS.get(profile or "", 1)))
        if len(numbers) == 1:
            return ()
        busy = table.partition_utilization_ratio if table is not None else {}
        if not busy:
            busy = self._busy_by_own_tables(known.nodes, reading)
        if busy:
            reading.sources["partitions"] = "gpu_metrics"
        return tuple(
            PartitionSample(partition=str(number), profile=profile, utilization_ratio=busy.get(str(number)))
            for number in numbers
        )

    def _busy_by_own_tables(self, nodes: Collection[Node], reading: Reading) -> Mapping[str, float]:
        """Ask each partition for its own table: where they have them, that of the package leaves their load out."""
        found = {}
        for node in nodes:
            path = f"{self._root}/sys/class/drm/renderD{node.render_minor}/device/xcp/xcp_metrics"
            raw = None if node.render_minor is None else reading.raw("partitions", path, whole=True)
            if raw is None:
                continue
            try:
                busy, impossible = decode_partition(raw)
            except RefusedError:
                busy, impossible = None, True
            if impossible:
                reading.reject("partitions")
            if busy is not None:
                found[str(node.partition)] = busy
        return found

    def forget(self, folders: Collection[str]) -> None:
        self._states = {folder: state for folder, state in self._states.items() if folder in folders}


def nodes_of(root: Path, card: Card, files: Files) -> list[Node]:
    """Return KFD's nodes of a card: one, or one for each partition."""
    place = (card.pci_address or "").rpartition(".")[0]
    return [node for node in read_topology(root, files.read, files.names) if node.place == place]
