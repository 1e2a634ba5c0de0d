"""A host with GPUs, told to a fleet one report at a time."""

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.model import Device, DeviceSnapshot, GpuState, Group, Sample, World

WALL = 1_800_000_000.0
ALL = (Group.ENERGY, Group.LOAD, Group.STATE, Group.PROCESSES)


def card(number: int, **identity: object) -> Device:
    fields = {"vendor": "nvidia", "key": f"GPU-{number}", "pci_address": f"0000:{number:02x}:00.0", "index": number}
    return Device(**{**fields, **identity})


def sample(device: Device, at: float, *groups: Group, **values: object) -> Sample:
    return Sample(device=device, taken_at=dict.fromkeys(groups, at), **values)


class Host:
    """Providers, nvidia before amd, and a clock that the test moves."""

    def __init__(self, *devices: Device, sampling: SamplingConfig | None = None, now: float = 1_000.0) -> None:
        self.fleet = Fleet([("nvidia", True), ("amd", False), ("simulated", False)], sampling or SamplingConfig())
        self.now = now
        self.wall = WALL
        """Unix time at monotonic time 0."""
        if devices:
            self.fleet.enumerated("nvidia", devices, now)

    def down(self, provider: str = "nvidia", *, up: bool = False) -> None:
        """Have a provider be down, or up again."""
        self.fleet.provider_status(provider, up=up, reason="" if up else "no driver", library_version=None)

    def hang(self, key: str, provider: str = "nvidia", *, state: GpuState = GpuState.HUNG) -> None:
        self.fleet.device_state(provider, key, state)

    def read(self, device: Device, *groups: Group, provider: str = "nvidia", **values: object) -> None:
        self.give(sample(device, self.now, *groups, **values), provider)

    def give(self, given: Sample, provider: str = "nvidia") -> None:
        self.fleet.observed(provider, given, self.now + 0.002, self.wall + self.now + 0.002)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    @property
    def world(self) -> World:
        return self.fleet.world(self.now)

    @property
    def cards(self) -> dict[str, DeviceSnapshot]:
        """What is published, by label."""
        return {shown.gpu: shown for provider in self.world.snapshots for shown in provider.devices}

    @property
    def versions(self) -> dict[str, int]:
        return dict(self.world.versions)

    def bumped(self, before: dict[str, int]) -> set[str]:
        return {block for block, version in self.versions.items() if version != before[block]}
