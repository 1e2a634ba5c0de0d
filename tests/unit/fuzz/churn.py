"""A host on which nothing stays as it was: devices, processes, partitions, providers and names come and go."""

from collections.abc import Mapping
from random import Random

from exporter.config import SamplingConfig
from exporter.fleet import Fleet
from exporter.metrics import DOMAINS, ENGINES, REASONS, RESTART_CAUSES, SENSORS
from exporter.model import Device, GpuState, Group, PartitionSample, ProcessSample, Sample, WebCounts

PROVIDERS = ("nvidia", "amd", "simulated")
HOSTILE = ("", '"}\n', "\0", "é" * 50, "x" * 5_000, "\\", "{gpu=\u2028", "a\r\nb", "\x1b[2J", "🔥", " ")
"""Valid Unicode: frames from the workers replace what is not."""
WALL = 1_800_000_000.0
TOO_MANY = 12_000
"""More processes than any driver lists of one GPU."""
FLOOD_EVERY = 4_000
"""Ticks: in each half of a soak, as it decides what is the largest."""
RARE = 0.0005


class Churn:
    """Tells a fleet what providers would, of ever new things. `now` is the monotonic time of the fleet."""

    def __init__(self, fleet: Fleet, random: Random) -> None:
        self.fleet = fleet
        self.now = 1_000.0
        self.tick_number = 0
        self._random = random
        self._made = 0
        self._flood = False
        self._known: dict[str, Device] = {}
        """Devices that come back, by key."""
        self._present: dict[str, list[Device]] = {provider: [] for provider in PROVIDERS}

    def tick(self, seconds: float) -> None:
        random = self._random
        self.now += seconds
        self.tick_number += 1
        self._flood |= self.tick_number % FLOOD_EVERY == 0
        if self.tick_number % 5 == 0:
            self._enumerate(random.choice(PROVIDERS))
        for provider, devices in self._present.items():
            if devices:
                self._read(provider, random.choice(devices))
        if random.random() < 0.05:
            self._stranger()
        if random.random() < 0.1:
            self._trouble()

    def _enumerate(self, provider: str) -> None:
        """List some that were there, some that come back, some that are new, and some twice."""
        random = self._random
        devices = [device for device in self._present[provider] if random.random() < 0.9]
        devices += [self._new(provider) for _ in range(random.choice((0, 1, 3)))]
        devices += random.sample(sorted(self._known.values(), key=lambda one: one.key), min(2, len(self._known)))
        if devices and random.random() < 0.3:
            devices.append(random.choice(devices))
        if devices and random.random() < 0.3:  # one whose identity cannot be read
            device = random.choice(devices)
            if device.pci_address is not None:
                devices[devices.index(device)] = Device(
                    vendor=device.vendor, key=device.pci_address, pci_address=device.pci_address
                )
        if random.random() < 0.02:  # an answer that is garbage
            devices += [self._new(provider) for _ in range(300)]
        random.shuffle(devices)
        self._present[provider] = devices[:12]
        for device in self._present[provider]:
            self._known[device.key] = device
        while len(self._known) > 40:
            self._known.pop(random.choice(list(self._known)))
        self.fleet.enumerated(provider, tuple(devices), self.now)

    def _new(self, provider: str) -> Device:
        random = self._random
        self._made += 1
        number = self._made
        vendor = provider if random.random() < 0.97 else f"vendor{number}"
        address = f"{number >> 13 & 0xFFFF:04x}:{number >> 5 & 0xFF:02x}:{number & 31:02x}.0"
        return Device(
            vendor=vendor,
            key=f"GPU-{number}{random.choice(HOSTILE)}",
            pci_address=random.choice((None, address)),
            model=f"model {number}{random.choice(HOSTILE)}",
            serial=random.choice((None, f"{number}")),
            index=random.choice((None, number)),
            partition_mode=random.choice((None, "mig", f"mode {number}")),
            firmware={f"component{number}": f"{number}"},
        )

    def _read(self, provider: str, device: Device) -> None:
        random = self._random
        groups = random.sample(list(Group), random.choice((1, 1, 2, 5)))
        kind = random.random()
        if self._flood:
            groups, kind = list(Group), 1.0
        if kind < 0.03:
            sample = Sample(device=device, lost=True)
        elif kind < 0.05:
            sample = Sample(device=device, asleep=True)
        else:
            sample = self._sample(device, groups)
        self.fleet.observed(provider, sample, self.now + 0.002, WALL + self.now + 0.002)

    def _sample(self, device: Device, groups: list[Group]) -> Sample:
        random, at, number = self._random, self.now, self.tick_number
        return Sample(
            device=device,
            taken_at=dict.fromkeys(groups, at),
            read_seconds=dict.fromkeys(groups, 0.001),
            failed=(f"reading {number}",) if random.random() < 0.1 else (),
            rejected=(f"reading {number}{random.choice(HOSTILE)}",) if random.random() < 0.1 else (),
            power_watts=random.choice((None, 100.0, 300.0, 700.0)),
            power_kind=random.choice(("average", "instant", None)),
            power_window_seconds=random.choice((1.0, 0.0, None)),
            power_scope=random.choice(("gpu", "gpu", "gpu", "module", "package")),
            energy_counter_joules=random.choice((None, at * 300.0, at * 100.0, 0.0, 2.0**60)),
            energy_counter_scope=random.choice(("gpu", "gpu", "module")),
            module_energy_counter_joules=random.choice((None, at * 900.0)),
            utilization_ratio=random.choice((None, 0.0, 1.0)),
            engine_utilization_ratio=self._named(ENGINES),
            temperature_celsius=self._named(SENSORS),
            clock_hertz=self._named(DOMAINS),
            throttled={reason: random.random() < 0.5 for reason in self._named(REASONS)},
            throttle_seconds=self._named(REASONS),
            ecc_errors=self._named(("corrected",)),
            partitions=self._partitions(),
            processes=self._processes(),
            process_counts=self._named(("holding",)),
        )

    def _named(self, words: tuple[str, ...]) -> Mapping[str, float]:
        """Return values by a few of the words, and now and then by ever new ones."""
        random = self._random
        names = random.sample(words, min(2, len(words)))
        if random.random() < 0.05:
            names.append(f"{random.choice(HOSTILE)}{self.tick_number}")
        if random.random() < RARE:
            names += [f"name {self.tick_number} {number}" for number in range(1_000)]
        return {name: random.random() for name in names}

    def _partitions(self) -> tuple[PartitionSample, ...] | None:
        random = self._random
        count = random.choice((None, 0, 1, 7)) if random.random() > RARE else 5_000
        if count is None:
            return None
        return tuple(
            PartitionSample(
                partition=f"gi{number}", uuid=f"MIG-{self.tick_number}-{number}", profile=random.choice(HOSTILE)
            )
            for number in range(count)
        )

    def _processes(self) -> tuple[ProcessSample, ...] | None:
        random = self._random
        count = random.choice((None, 0, 1, 3, 10))
        if self._flood:
            count, self._flood = TOO_MANY, False
        if count is None:
            return None
        first = random.choice((self.tick_number * 10, 4_000_000))
        return tuple(
            ProcessSample(
                pid=first + number,
                name=random.choice((None, f"job {self.tick_number}", *HOSTILE)),
                memory_used_bytes=random.choice((None, 2.0**30)),
            )
            for number in range(count)
        )

    def _stranger(self) -> None:
        """Read a device that nobody lists."""
        provider = self._random.choice(PROVIDERS)
        device = self._new(provider)
        self.fleet.observed(provider, self._sample(device, list(Group)), self.now, WALL + self.now)

    def _trouble(self) -> None:
        fleet, random = self.fleet, self._random
        provider = random.choice(PROVIDERS)
        up = random.random() < 0.7
        fleet.provider_status(
            provider, up=up, reason="" if up else f"broken {self.tick_number}", library_version=f"{self.tick_number}"
        )
        fleet.restarted(provider, random.choice(RESTART_CAUSES))
        keys = [device.key for device in self._present[provider]] or [""]
        fleet.device_state(provider, random.choice(keys), random.choice((GpuState.OK, GpuState.HUNG)))
        fleet.device_state(provider, f"never seen {self.tick_number}", GpuState.HUNG)
        fleet.expected(provider, random.choice((None, 0, 8, self.tick_number)))
        fleet.pass_took(provider, random.choice(list(Group)), random.random())
        fleet.abandoned(random.choice((0, 1)))
        fleet.released(random.random() < 0.05, self.now)
        fleet.configured(well=random.random() < 0.5, wall=WALL + self.now)
        fleet.served(WebCounts(refused=self.tick_number))


def fleet() -> Fleet:
    return Fleet([(provider, True) for provider in PROVIDERS], SamplingConfig())
