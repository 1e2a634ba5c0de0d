"""A host on which AMD SMI and DRM see the same card."""

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import Device, DeviceSnapshot, Group
from tests.unit.fleet.hosts import Host

NOW = 1_000.0


def gpu(number: int = 1, **identity: object) -> Device:
    fields = {"vendor": "amd", "key": f"a{number}", "pci_address": f"0000:{number:02x}:00.0", **identity}
    return Device(**fields)


class Pair(Host):
    """A host on which both are open, and both list the cards, unless `only` one does."""

    def __init__(self, *devices: Device, now: float = NOW, listed: tuple[str, ...] = ("amd", "drm")) -> None:
        super().__init__(now=now)
        self.fleet = Fleet([("amd", True), ("drm", False), ("simulated", False)], SamplingConfig())
        for provider in listed:
            self.fleet.enumerated(provider, devices, now)
            self.down(provider, up=True)

    def both(self, device: Device, watts: float = 300.0, **of_drm: object) -> None:
        """Have both read energy and load, DRM with other values."""
        self.read(device, Group.ENERGY, Group.LOAD, provider="amd", power_watts=watts, utilization_ratio=0.5)
        self.drm(device, watts, **of_drm)

    def drm(self, device: Device, watts: float = 300.0, **more: object) -> None:
        readings = {"power_watts": watts + 1, "utilization_ratio": 0.75, **more}
        self.read(device, Group.ENERGY, Group.LOAD, provider="drm", **readings)

    def run(self, seconds: int, device: Device, *providers: str, watts: float = 300.0) -> None:
        for _ in range(seconds):
            self.wait(1.0)
            if "amd" in providers:
                self.read(device, Group.ENERGY, Group.LOAD, provider="amd", power_watts=watts, utilization_ratio=0.5)
            if "drm" in providers:
                self.drm(device, watts)

    @property
    def card(self) -> DeviceSnapshot:
        (shown,) = self.cards.values()
        return shown

    @property
    def total(self) -> float:
        return self.card.energy.total_joules

    @property
    def counted(self) -> dict[str, int]:
        return {snapshot.provider: len(snapshot.devices) for snapshot in self.world.snapshots}


CARD = gpu()
