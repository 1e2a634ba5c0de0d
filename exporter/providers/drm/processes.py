"""Which processes hold memory of a card? Asked of KFD where the card computes through it, and of DRM's clients."""

from collections.abc import Callable, Collection, Mapping

from exporter.kfd import Node
from exporter.model import Device
from exporter.providers.drm.cards import Card
from exporter.providers.fdinfo import DeviceUse, Scan
from exporter.providers.procfs import Proc
from exporter.providers.tenants import Look, Onlooker, Processes, Row, add_graphics, rows_of_kfd, sort

_WITH_KFD = "amdgpu"
_LEAST_SECONDS = 0.5
"""A share of less time says nothing."""
_MOST_PERIODS = 2
"""For how many times its own length what was found is still good."""


class ProcessReader:
    """`work`: engines whose time counts as work. `clock` and `pause`: as of `Onlooker`."""

    def __init__(
        self, proc: Proc, work: Collection[str], clock: Callable[[], float], pause: Callable[[], None]
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._onlooker = Onlooker(proc, work, clock, pause, clock)

    def read(self, card: Card, device: Device, regions: Collection[str]) -> tuple[Processes, str]:
        """List the processes of a card, and tell the source. `regions`: of its memory, as fdinfo names them."""
        # KFD counts all that a process has of a card's own memory; what it has of the host's, DRM alone does.
        everyone = card.driver != _WITH_KFD or device.memory_kind == "unified"
        look = self._onlooker.look(device.key, everyone=everyone)
        nodes = _nodes(look, card)
        if look.graphics is None and not nodes:
            return Processes(None, {}), "fdinfo"
        rows: dict[int, Row] = rows_of_kfd(look, nodes) if nodes else {}
        uninspectable = look.tree.unreached if look.tree is not None and nodes else 0
        if look.graphics is not None:
            uninspectable += look.graphics.uninspectable + look.graphics.unreached
            used = look.graphics.usages.get(card.pci_address or "", {})
            add_graphics(rows, used, look.computing, regions, everyone=everyone)
        return sort(self._proc, rows, uninspectable), "kfd" if nodes else "fdinfo"

    def use(self, card: Card) -> DeviceUse | None:
        """Return what DRM's clients had of a card, as of the newest look; None: it cannot be told of all of them."""
        look = self._onlooker.newest
        scan = None if look is None else look.graphics
        if look is None or scan is None or not tells_of_devices(scan, self._clock() - look.at):
            return None
        return scan.devices.get(card.pci_address or "", DeviceUse())


def tells_of_devices(scan: Scan, age: float) -> bool:
    """Tell whether what was found of clients, `age` seconds ago, is what a whole GPU does."""
    if not scan.whole or scan.seconds is None:
        return False
    return scan.seconds >= _LEAST_SECONDS and age <= _MOST_PERIODS * scan.seconds


def _nodes(look: Look, card: Card) -> Mapping[int, Node]:
    """Return KFD's nodes of a card by the number of the partition."""
    if look.tree is None or card.driver != _WITH_KFD or card.pci_address is None:
        return {}
    place = card.pci_address.rpartition(".")[0]
    return {node.partition: node for node in look.nodes if node.place == place}
