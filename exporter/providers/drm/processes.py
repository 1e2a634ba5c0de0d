"""Which processes hold memory of a card? Asked of KFD where the card computes through it, and of DRM's clients."""

from collections.abc import Callable, Collection, Mapping

from exporter.kfd import Node
from exporter.model import Device
from exporter.providers.drm.cards import Card
from exporter.providers.procfs import Proc
from exporter.providers.tenants import Look, Onlooker, Processes, Row, add_graphics, rows_of_kfd, sort

_WITH_KFD = "amdgpu"


class ProcessReader:
    """`work`: engines whose time counts as work. `clock` and `pause`: as of `Onlooker`."""

    def __init__(
        self, proc: Proc, work: Collection[str], clock: Callable[[], float], pause: Callable[[], None]
    ) -> None:
        self._proc = proc
        self._onlooker = Onlooker(proc, work, clock, pause)

    def read(self, card: Card, device: Device, regions: Collection[str]) -> Processes:
        """List the processes of a card. `regions`: of its memory, as fdinfo names them."""
        # KFD counts all that a process has of a card's own memory; what it has of the host's, DRM alone does.
        everyone = card.driver != _WITH_KFD or device.memory_kind == "unified"
        look = self._onlooker.look(device.key, everyone=everyone)
        nodes = _nodes(look, card)
        if look.graphics is None and not nodes:
            return Processes(None, {})
        rows: dict[int, Row] = rows_of_kfd(look, nodes) if nodes else {}
        uninspectable = look.tree.unreached if look.tree is not None and nodes else 0
        if look.graphics is not None:
            uninspectable += look.graphics.uninspectable + look.graphics.unreached
            used = look.graphics.usages.get(card.pci_address or "", {})
            add_graphics(rows, used, look.computing, regions, everyone=everyone)
        return sort(self._proc, rows, uninspectable)


def _nodes(look: Look, card: Card) -> Mapping[int, Node]:
    """Return KFD's nodes of a card by the number of the partition."""
    if look.tree is None or card.driver != _WITH_KFD or card.pci_address is None:
        return {}
    place = card.pci_address.rpartition(".")[0]
    return {node.partition: node for node in look.nodes if node.place == place}
