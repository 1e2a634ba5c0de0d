"""What the workers report, as the readings, identities and events of a measurement. No I/O, and time is an argument."""

import math
import re
from collections.abc import Callable, Iterable, Sequence

from exporter.measure.records import Counters, Event, Identity, Point
from exporter.metrics import SENSORS
from exporter.model import Device, GpuState, Group, Sample

_SIMULATED = "simulated"
_SIMULATED_PREFIX = "sim"


MOST_READINGS = 8_000_000
"""A day of eight GPUs at the default interval, in about 1.5 GB; judging them takes as much again."""


class _Gpu:
    """What is known of one GPU."""

    def __init__(self, provider: str, device: Device, label: str) -> None:
        self.key = device.key
        """One text for all its points: each sample brings a copy."""
        self.provider = provider
        self.device = device
        self.label = label
        self.energy: Sample | None = None
        self.state = GpuState.OK
        self.answered = False
        """It has been read at least once."""
        self.utilization: float | None = None
        self.temperature: float | None = None
        self.sensor: str | None = None
        self.last = -math.inf
        """CLOCK_MONOTONIC of its newest point."""
        self.last_at = 0.0
        """The same moment in Unix seconds."""
        self.counter: float | None = None
        self.tells: dict[str, bool] = {}
        """Whether it was told power or an accumulator, by the providers that were asked."""
        self.unread = False
        """Nobody has read it since its provider went down, or since a call did not return."""


class _Provider:
    def __init__(self) -> None:
        self.up: bool | None = None
        """None: it has not said yet."""
        self.reason = ""
        self.library_version: str | None = None
        self.listed: tuple[str, ...] = ()
        """Keys of GPUs."""
        self.aliases: dict[str, str] = {}
        """Keys of GPUs by another key that this provider gives them."""
        self.read_at = -math.inf
        """CLOCK_MONOTONIC of the newest reading."""


class Recorder:
    """An `Audience` that keeps every power and accumulator reading. Owned by one event loop."""

    def __init__(self, providers: Iterable[str], most: int = MOST_READINGS) -> None:
        """Take the providers' names in order of preference, and how many readings to keep at most."""
        self.points: list[Point] = []
        self.events: list[Event] = []
        self.is_full = False
        """Whether there were more readings than are kept; the sink is given them all."""
        self._providers = {name: _Provider() for name in providers}
        self._gpus: dict[str, _Gpu] = {}
        self._numbers: dict[str, int] = {}
        self._most = most
        self._chosen: frozenset[str] | None = None
        self._sink: Callable[[Sequence[Point]], None] | None = None

    # What is asked of it.

    @property
    def settled(self) -> bool:
        """Whether each provider has said what it has, and each of its GPUs has been read."""
        return all(
            source.up is not None
            and all(self._is_settled(self._gpus[key]) for key in source.listed if self._owns(name, key))
            for name, source in self._providers.items()
        )

    def has_gpus(self, provider: str) -> bool:
        """Tell whether it is the one that reads some GPU."""
        return any(gpu.provider == provider for gpu in self._gpus.values())

    def lists(self, provider: str) -> bool:
        """Tell whether it sees any GPU, even if another one reads it."""
        return bool(self._providers[provider].listed)

    def reasons(self) -> dict[str, str]:
        """Return in words why a provider is not up, by its name."""
        return {name: source.reason for name, source in self._providers.items() if not source.up}

    def begin(self, chosen: Iterable[str], sink: Callable[[Sequence[Point]], None]) -> None:
        """Keep the readings of these GPUs alone from here on, and hand each to `sink`, those before at once."""
        self._chosen, self._sink = frozenset(chosen), sink
        self.points = [point for point in self.points if point.gpu in self._chosen]
        self.events.clear()
        sink(self.points)

    def identities(self) -> tuple[Identity, ...]:
        """Return the GPUs that are there and not lost, of those that are measured, in the order of their labels."""
        found = [gpu for key, gpu in self._gpus.items() if self._measured(key) and gpu.state is not GpuState.LOST]
        return tuple(self._identity(gpu) for gpu in sorted(found, key=lambda gpu: natural(gpu.label)))

    def indices(self) -> dict[str, int | None]:
        """Return where the vendors' own tools list the GPUs, by key."""
        return {key: gpu.device.index for key, gpu in self._gpus.items()}

    def covered(self) -> tuple[str, ...]:
        """Return the labels of GPUs that have no power reading, and share a package with one that has."""
        powered = {
            gpu.device.package for gpu in self._gpus.values() if gpu.energy and gpu.energy.power_watts is not None
        }
        return tuple(
            gpu.label
            for gpu in self._gpus.values()
            if gpu.device.package in powered - {None} and (gpu.energy is None or gpu.energy.power_watts is None)
        )

    def counters(self, at: float, monotonic: float) -> Counters:
        """Return the newest value of each accumulator: a snapshot of the moment that is given, in both clocks."""
        joules = {key: gpu.counter for key, gpu in self._gpus.items() if self._measured(key)}
        return Counters(at=at, monotonic=monotonic, joules=joules)

    def reaches(self, moment: float) -> bool:
        """Tell whether each GPU that gives power has a reading that speaks of the moment or a later one."""
        return all(
            gpu.last - (gpu.energy.power_window_seconds or 0.0) / 2 >= moment
            for key, gpu in self._gpus.items()
            if self._measured(key) and gpu.state is GpuState.OK and gpu.energy and gpu.energy.power_watts is not None
        )

    # What it is told: see `supervision.audience`.

    def enumerated(self, provider: str, devices: tuple[Device, ...], now: float) -> None:  # noqa: ARG002 -- Audience
        source = self._providers[provider]
        for device in sorted(devices, key=_position):
            known = self._known(provider, device)
            if known is None:
                self._gpus[device.key] = _Gpu(provider, device, self._label(provider, device))
                continue
            if known.key != device.key:
                source.aliases[device.key] = known.key
            preferred = self._order(provider) < self._order(known.provider) and known.tells.get(provider, True)
            if known.provider != provider and (preferred or not self._owns(known.provider, known.key)):
                known.provider, known.answered = provider, False
        keys = [source.aliases.get(device.key, device.key) for device in devices]
        source.listed = tuple(dict.fromkeys(keys))

    def observed(self, provider: str, sample: Sample, now: float, wall: float) -> None:
        source = self._providers[provider]
        key = sample.device.key
        gpu = self._gpus.get(source.aliases.get(key, key))
        if gpu is None or _differ(gpu.device, sample.device):
            return
        taken = sample.taken_at.get(Group.ENERGY)
        if taken is not None and self._chosen is None:
            gpu.tells[provider] = gpu.tells.get(provider, False) or _tells(sample)
            self._leave(gpu)
        if gpu.provider != provider:
            return
        gpu.answered = True
        self._take_evidence(gpu, sample)
        if sample.lost or sample.asleep:
            # Such a read has no time of its own: that of the one before it in the worker's round.
            at = now if source.read_at == -math.inf else max(source.read_at, gpu.last)
            self._state(gpu, GpuState.LOST if sample.lost else GpuState.ASLEEP, at, wall - (now - at))
            return
        if taken is None:
            return
        if gpu.unread:
            # Both ends are rows, so that a window which begins or ends between them is known to be broken.
            gpu.unread = False
            self._state(gpu, GpuState.STALE, taken, wall - (now - taken))
            self.events.append(Event(monotonic=taken, gpu=gpu.key, text="it is read again"))
        source.read_at = max(source.read_at, taken)
        gpu.energy, gpu.state = sample, GpuState.OK
        if gpu.device != sample.device:
            gpu.device = sample.device
        # That of the module around it, with its CPU and memory, is not its own.
        own = sample.power_watts is None or sample.energy_counter_scope == sample.power_scope
        gpu.counter = sample.energy_counter_joules if own else None
        self._keep(
            gpu,
            Point(
                at=wall - (now - taken),
                monotonic=taken,
                gpu=gpu.key,
                power_watts=sample.power_watts,
                counter_joules=gpu.counter,
                utilization_ratio=gpu.utilization,
                temperature_celsius=gpu.temperature,
            ),
        )

    def provider_status(self, provider: str, *, up: bool, reason: str, library_version: str | None) -> None:
        source = self._providers[provider]
        if source.up and not up:
            read = [gpu for key, gpu in self._gpus.items() if self._measured(key) and gpu.last > -math.inf]
            own = [gpu for gpu in read if gpu.provider == provider]
            for gpu in own:
                self._broke(gpu, GpuState.STALE)
            if own:
                last = max(gpu.last for gpu in own)
                self.events.append(Event(monotonic=last, gpu=None, text=f"{provider} is not read: {reason}"))
        source.up, source.reason, source.library_version = up, reason, library_version

    def device_state(self, provider: str, key: str, state: GpuState) -> None:
        gpu = self._gpus.get(self._key(provider, key))
        if gpu is None or gpu.provider != provider or not self._measured(gpu.key):
            return
        if state is GpuState.HUNG and gpu.last > -math.inf:
            self._broke(gpu, state)
            self.events.append(Event(monotonic=gpu.last, gpu=gpu.key, text="a call that reads it does not return"))
        gpu.state = state

    def relieved(self, provider: str, now: float) -> frozenset[str]:  # noqa: ARG002 -- Audience
        source = self._providers[provider]
        names = {key: name for name, key in source.aliases.items()}
        return frozenset(names.get(key, key) for key in source.listed if self._gpus[key].provider != provider)

    def restarted(self, provider: str, cause: str) -> None:
        pass  # its status tells

    def is_wanted(self, provider: str) -> bool:
        return self.has_gpus(provider)

    def pass_took(self, provider: str, group: Group, seconds: float) -> None:
        pass

    def abandoned(self, count: int) -> None:
        pass

    def released(self, flag: bool, now: float) -> None:
        pass

    def _is_settled(self, gpu: _Gpu) -> bool:
        """Tell whether it was read, and by somebody who tells its energy if anybody does."""
        asked = (
            name in gpu.tells for name, source in self._providers.items() if source.up and gpu.key in source.listed
        )
        return gpu.answered and (gpu.tells.get(gpu.provider, True) or all(asked))

    def _leave(self, gpu: _Gpu) -> None:
        """Have a GPU read by another provider, where the one that reads it tells no energy: AMD SMI of many APUs."""
        if gpu.tells.get(gpu.provider, True):
            return
        others = (name for name, source in self._providers.items() if gpu.tells.get(name) and gpu.key in source.listed)
        for name in others:
            gpu.provider, gpu.answered, gpu.energy = name, False, None
            self.points = [point for point in self.points if point.gpu != gpu.key]
            return

    def _owns(self, provider: str, key: str) -> bool:
        gpu = self._gpus.get(key)
        return gpu is not None and gpu.provider == provider and key in self._providers[provider].listed

    def _key(self, provider: str, key: str) -> str:
        return self._providers[provider].aliases.get(key, key)

    def _known(self, provider: str, device: Device) -> _Gpu | None:
        """Return the GPU that a device is: providers may know one by different keys, and then by its address."""
        known = self._gpus.get(self._key(provider, device.key))
        if known is not None or device.pci_address is None or provider == _SIMULATED:
            return known
        place = (device.vendor, device.pci_address)
        others = (gpu for gpu in self._gpus.values() if gpu.provider not in (provider, _SIMULATED))
        return next((gpu for gpu in others if (gpu.device.vendor, gpu.device.pci_address) == place), None)

    def _order(self, provider: str) -> int:
        return list(self._providers).index(provider)

    def _measured(self, key: str) -> bool:
        return self._chosen is None or key in self._chosen

    def _label(self, provider: str, device: Device) -> str:
        prefix = _SIMULATED_PREFIX if provider == _SIMULATED else device.vendor
        number = self._numbers.get(prefix, 0)
        self._numbers[prefix] = number + 1
        return f"{prefix}{number}"

    def _take_evidence(self, gpu: _Gpu, sample: Sample) -> None:
        if Group.LOAD in sample.taken_at:
            gpu.utilization = sample.utilization_ratio
        if Group.STATE in sample.taken_at:
            # Of one sensor always: another one, when it is missing once, would look like a change.
            if gpu.sensor is None:
                gpu.sensor = next((name for name in SENSORS if name in sample.temperature_celsius), None)
            gpu.temperature = sample.temperature_celsius.get(gpu.sensor or "")

    def _broke(self, gpu: _Gpu, state: GpuState) -> None:
        """Note that what comes after the newest reading is not known."""
        gpu.unread = True
        self._state(gpu, state, gpu.last, gpu.last_at)

    def _state(self, gpu: _Gpu, state: GpuState, monotonic: float, at: float) -> None:
        gpu.state = state
        self._keep(gpu, Point(at=at, monotonic=monotonic, gpu=gpu.key, state=state))

    def _keep(self, gpu: _Gpu, point: Point) -> None:
        gpu.last, gpu.last_at = point.monotonic, point.at
        if self._measured(point.gpu):
            if len(self.points) < self._most:
                self.points.append(point)
            elif not self.is_full:
                self.is_full = True
                text = f"readings are not judged any more: {self._most} are the most, choose a slower --interval"
                self.events.append(Event(monotonic=point.monotonic, gpu=None, text=text))
            if self._sink is not None:
                self._sink((point,))

    def _identity(self, gpu: _Gpu) -> Identity:
        device, energy = gpu.device, gpu.energy or Sample(device=gpu.device)
        limits = [x for x in (energy.power_limit_watts, energy.power_limit_default_watts) if x is not None]
        return Identity(
            gpu=gpu.key,
            label=gpu.label,
            vendor=device.vendor,
            model=device.model,
            provider=gpu.provider,
            pci_address=device.pci_address,
            serial=device.serial,
            vendor_uuid=device.vendor_uuid,
            driver_version=device.driver_version,
            library_version=self._providers[gpu.provider].library_version,
            package=device.package,
            partition_mode=device.partition_mode,
            limit_watts=max(limits, default=None),
            power_kind=energy.power_kind,
            power_window_seconds=energy.power_window_seconds,
            power_scope=energy.power_scope,
            counter_scope=energy.energy_counter_scope,
            counter_range_joules=energy.energy_counter_range_joules,
        )


def choose(wanted: Sequence[str], gpus: Sequence[Identity], indices: dict[str, int | None]) -> tuple[str, ...]:
    """Return the keys of the GPUs that are meant; none wanted: all.

    `wanted`: label, key, the vendor's UUID, PCI address, or the number in the vendor's own tools, which `indices` has
    by key. Raises ValueError with one sentence about what names none, or more than one.
    """
    if not wanted:
        return tuple(gpu.gpu for gpu in gpus)
    chosen: dict[str, None] = {}
    for name in wanted:
        meant = [
            gpu.gpu
            for gpu in gpus
            if name.lower() in {x.lower() for x in (gpu.label, gpu.gpu, gpu.vendor_uuid, gpu.pci_address) if x}
            or name == str(indices.get(gpu.gpu))
        ]
        if len(meant) != 1:
            there = ", ".join(gpu.name for gpu in gpus)
            what = "no GPU" if not meant else f"{len(meant)} GPUs"
            raise ValueError(f"--gpus: {name[:80]!r} is {what}; there are {there}")
        chosen[meant[0]] = None
    return tuple(chosen)


def natural(label: str) -> tuple[str, int]:
    """Return what sorts nvidia10 behind nvidia9."""
    found = re.fullmatch(r"(.*?)(\d*)", label)
    assert found is not None  # noqa: S101 -- for the type checker: it matches every text without a line break
    return found[1], int(found[2] or -1)


def _position(device: Device) -> tuple[str, float, str]:
    """Sort devices as the bus does, so that labels are those that the daemon gives."""
    return device.pci_address or "~", math.inf if device.index is None else device.index, device.key


def _tells(sample: Sample) -> bool:
    return sample.power_watts is not None or sample.energy_counter_joules is not None


def _differ(one: Device, other: Device) -> bool:
    """Tell whether these are two devices with one identity."""
    return one.pci_address is not None and other.pci_address is not None and one.pci_address != other.pci_address
